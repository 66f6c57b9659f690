"""What the engines that read the tables can do."""

DUCKDB_SETTING = "SET enable_external_file_cache = false"
"""DuckDB needs this to read v3: otherwise it may apply a deletion vector to the wrong file and return wrong rows."""
