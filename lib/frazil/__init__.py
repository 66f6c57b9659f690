"""Frazil: what AWS DMS writes becomes Apache Iceberg tables, exactly once."""
