"""`python -m frazil.cli`: the same as `frazil`."""

from frazil.cli import command

command()
