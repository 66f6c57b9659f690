"""The quarantine's record of a bad row or message: its columns, and its possible states.

`table_name` is the table at the source, `target` that of the lake: several environments may share a quarantine.
"""

WAITING, STILL_BAD, OBSOLETE, REPLAYED, DISCARDED = "waiting", "still bad", "obsolete", "replayed", "discarded"
OPEN = (WAITING, STILL_BAD)
UNREADABLE = "unreadable"
"""The status of a message without a table name: it cannot be replayed, and stays until someone discards it."""
RECORD = {
    "table_name": "string", "id": "string", "status": "string", "column_name": "string", "reason": "string", "raw": "binary",
    "path": "string", "row_no": "string", "key": "string", "old_key": "string", "op": "string", "commit_ts": "string",
    "batch": "string", "set_aside_at": "timestamp", "changed_at": "timestamp", "changed_by": "string",
    "sequence": "bigint", "phase": "int", "object": "string", "written_at": "timestamp", "form": "string",
    "layout": "array<string>", "misfit": "boolean", "keyed": "boolean",
    "later_key": "string", "later_old_key": "string", "later_any": "string", "later_part": "string", "target": "string",
}  # fmt: skip
STATED, NAMED, SHARED, PARQUET, JSON = "csv", "csv named", "csv of all", "parquet", "json"
"""The `form`: where a row's layout comes from (the settings, its file's header, a file of all tables), or the file's format."""
LATER = ("later_key", "later_old_key", "later_any", "later_part")
STATE = ("table_name", "target", "id", "status", "sequence", "set_aside_at", "changed_at", "path", "row_no", "reason")
"""The columns that show the state of a row."""
