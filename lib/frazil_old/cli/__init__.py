"""The command `frazil`."""

from frazil_old.cli.commands import command, main

__all__ = ["command", "main"]
