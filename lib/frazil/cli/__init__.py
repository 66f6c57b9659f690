"""The command `frazil`."""

from frazil.cli.commands import command, main

__all__ = ["command", "main"]
