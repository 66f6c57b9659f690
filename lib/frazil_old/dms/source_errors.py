"""Errors of what DMS wrote and of what describes it."""

from __future__ import annotations

from frazil_old.errors import FrazilError


class SourceError(FrazilError):
    """The source folder or its files do not match the settings or specs."""


class EndpointError(FrazilError):
    """Endpoint settings or table mappings are missing, unreadable, unsupported, or contradict the files."""
