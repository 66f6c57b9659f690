"""Iceberg tables: what they hold, where rows lie, and commits that are one swap of the metadata."""
