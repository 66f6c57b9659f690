"""`python -m frazil_old.cli`: the same as `frazil`."""

from frazil_old.cli import command

command()
