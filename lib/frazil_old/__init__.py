"""Frazil: what AWS DMS writes becomes Apache Iceberg tables, exactly once."""

__version__ = "0.1.0"
