"""Finds settings of a DMS task that are allowed but harmful: what each costs, and what to change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from frazil_old.config.columns import LOBS
from frazil_old.config.spec import TableSpec
from frazil_old.dms.aws_json import TableStatistics, is_on
from frazil_old.dms.endpoint import Endpoint, endpoint_from
from frazil_old.dms.mappings import INDICATOR, SEQUENCE, Mappings, is_expression

LOSS, COST, NOTE = "loss", "cost", "note"
"""Severities: rows or values are lost or wrong; time, money or information is lost; good to know."""
_RANK = {LOSS: 0, COST: 1, NOTE: 2}
_WHOLE_ROWS = ("postgres", "aurora-postgresql", "sqlserver")


@dataclass(frozen=True)
class Finding:
    """A setting with its value, its effect on the reader of the files, and what to do about it."""

    setting: str
    value: str
    effect: str
    cure: str
    severity: str = COST


def lint(
    document: Mapping[str, Any],
    mappings: Mappings,
    specs: Sequence[TableSpec] = (),
    task: Mapping[str, Any] | None = None,
    statistics: Mapping[str, TableStatistics] | None = None,
) -> list[Finding]:
    """Return the harmful settings, the worst first; none of them stops a run.

    `document` is the endpoint (`read_endpoint_document`), `task` its task's settings (`read_task_settings`), and
    `statistics` those of its tables. What is not given is not checked.
    """
    s3 = document["S3Settings"]
    endpoint = endpoint_from(s3, document.get("FrazilSettings", {}), "endpoint settings")
    found = [*_of_files(endpoint, s3, str(document.get("SourceEngineName") or "")), *_of_timing(endpoint)]
    found += [*_of_mappings(endpoint, mappings, specs), *left_out(mappings, specs), *_of_task(task or {}, specs)]
    found += unknown_settings(document.get("UnknownSettings", ()))
    found += [
        Finding(
            "ExtraConnectionAttributes",
            name,
            "S3Settings has another value, which Frazil uses",
            "remove one of them from the copy: keep the one that matches the files",
        )
        for name in document.get("StatedTwice", ())
    ]
    found += _of_statistics(statistics, specs) if statistics is not None else []
    return sorted(found, key=lambda f: _RANK[f.severity])


def unknown_settings(names: Iterable[str]) -> list[Finding]:
    """Return a finding per unknown setting of the endpoint: its effect on the files is unknown too."""
    return [
        Finding(
            f"setting {name}",
            "unknown",
            "Frazil does not know this setting and reads the files as if it were not set",
            "see AWS's documentation: if it changes how values are written, turn it off; else remove it from the copy",
            NOTE,
        )
        for name in names
    ]


def left_out(mappings: Mappings, specs: Iterable[TableSpec]) -> Iterator[Finding]:
    """Yield the columns that rules add but the lake does not get, because the spec does not list them."""
    for s in specs:
        listed = {c.name for c in s.file_columns}
        added = mappings.added(s).items()
        if left := [n for n, e in added if n not in listed and not is_expression(f"{SEQUENCE}|{INDICATOR}", e)]:
            yield Finding(
                "add-column",
                f"{s.source}: {', '.join(left)}",
                f"DMS adds {', '.join(left)}, but the lake does not have it: the spec does not list it",
                "add it with its type to the spec's columns, or to exclude if you do not want it",
                NOTE,
            )


def _names(specs: Iterable[TableSpec]) -> str:
    names = [s.source for s in specs]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _applying(rules: Iterable[tuple[Any, ...]]) -> list[Finding]:
    """Return the findings of the rules that apply: each has whether it does, then the fields of a finding."""
    return [Finding(*finding) for applies, *finding in rules if applies]


def _of_files(e: Endpoint, s3: Mapping[str, Any], source: str) -> list[Finding]:
    """Check the effect of the endpoint's settings on the content of the files."""
    is_padded = is_on(s3, "AddTrailingPaddingCharacter")
    rules = [
        (e.inserts_only, "CdcInsertsOnly", "true", "updates and deletes never reach the files", "turn it off", LOSS),
        (e.inserts_and_updates, "CdcInsertsAndUpdates", "true", "deletes never reach the files", "turn it off", LOSS),
        (e.date_partition.repeats_an_hour, "DatePartitionTimezone", e.date_partition.timezone,
         "file names repeat an hour each autumn, and names give the order of changes",
         "remove it: names are then in UTC", LOSS),
        (is_padded, "AddTrailingPaddingCharacter", "true", "texts are padded, and stay so in the lake",
         "turn it off", LOSS),
        (e.cdc_path and not e.preserve_transactions, "CdcPath", e.cdc_path,
         "AWS documents it with PreserveTransactions only", "remove it, or turn both on", NOTE),
        (e.preserve_transactions, "PreserveTransactions", "true",
         "the changes of all tables share their files: each table reads them all",
         "keep it only if readers need whole transactions", COST),
        (not e.timestamp_column, "TimestampColumnName", "not set", "no commit times: latency cannot be measured",
         "set a name that no source column has", COST),
        (e.data_format == "parquet" and e.parquet_timestamp_ms, "ParquetTimestampInMillisecond", "true",
         "times lose their microseconds", "turn it off", LOSS),
    ]  # fmt: skip
    return _applying(rules) + (_of_csv(e, source) if e.data_format == "csv" else [])


def _of_csv(e: Endpoint, source: str) -> list[Finding]:
    """Check what CSV files lose: texts, nulls, values that the source's log leaves out, and the names of fields."""
    rules = [
        (not e.rfc4180, "Rfc4180", "false",
         "a text with the delimiter or a newline breaks its row, and the file cannot be repaired", "turn it on", LOSS),
        (not e.null_value, "CsvNullValue", '""',
         "DMS may write an empty text without quotes, which looks like a null and becomes one",
         "set a token that no text equals, such as a word of your own", LOSS),
        (e.null_value and _is_plausible(e.null_value), "CsvNullValue", repr(e.null_value),
         "a text that equals it becomes a null: the files do not distinguish the two",
         "for a new target set a word that no text equals, such as __DMS_NULL__; a running task's files keep the old "
         "one", COST),
        (e.no_sup_value is None and source.lower() not in _WHOLE_ROWS, "UseCsvNoSupValue", "false",
         "a column that the source's log leaves out of an update arrives as null and overwrites the stored value",
         "turn it on and set CsvNoSupValue, or have the source log whole rows (Oracle: supplemental logging of all "
         "columns; MySQL: binlog_row_image=FULL)", LOSS if source else NOTE),
        (not e.header and not e.preserve_transactions, "AddColumnName", "false",
         "fields are identified by position only: after a column is added or dropped, you must declare the layout",
         "turn it on", COST),
        (not e.op_in_load, "IncludeOpForFullLoad", "false",
         "load files have one field fewer than change files: other readers of the folder see shifted columns",
         "turn it on", NOTE),
    ]  # fmt: skip
    return _applying(rules)


def _is_plausible(token: str) -> bool:
    """Return whether a null token is a text that people or programs commonly write."""
    word = re.sub(r"[\W_]", "", token).lower()
    return token.isalnum() or token in ("-", "--", "?") or word in ("null", "none", "nil", "na", "nan", "n")


def _of_timing(e: Endpoint) -> list[Finding]:
    """Check how long changes wait for their file, and how many files there will be."""
    wait, is_csv = e.max_batch_interval_s, e.data_format == "csv"
    small, large = f"{e.min_file_kb} KB", f"{e.max_file_kb} KB"
    rules = [
        (wait > 60, "CdcMaxBatchInterval", f"{wait:g} s",
         f"a change waits up to {wait:g} s, {wait / 2:g} s on average, before its file is written",
         "60 s or less", COST),
        (wait < 10, "CdcMaxBatchInterval", f"{wait:g} s",
         f"up to {3600 / max(wait, 1):,.0f} change files per table and hour",
         "keep it if seconds count, and delete files that were applied", NOTE),
        (e.min_file_kb < 1000, "CdcMinFileSize", small,
         f"a busy table gets {1_000_000 / max(e.min_file_kb, 1):,.0f} files for each GB of changes",
         "the default, 32000 KB", COST),
        (e.min_file_kb > 128_000 and is_csv, "CdcMinFileSize", small,
         f"a change file may hold {e.min_file_kb / 1000:,.0f} MB, and one task reads it",
         "the default, 32000 KB", COST),
        (e.max_file_kb > 262_144 and is_csv, "MaxFileSize", large,
         f"a load file may hold {e.max_file_kb / 1000:,.0f} MB, and one task reads it from end to end",
         "100000 to 250000 KB: load files are read in parallel", NOTE),
    ]  # fmt: skip
    return _applying(rules)


def _of_mappings(e: Endpoint, mappings: Mappings, specs: Sequence[TableSpec]) -> Iterator[Finding]:
    """Check which columns the rules add or remove, and which tables they select."""
    out = [s for s in specs if not mappings.selects(s)]
    blind = [s for s in specs if s.key and not mappings.before_image(s)]
    bare = [s for s in specs if not mappings.sequence_column(s)]
    rules = [
        (out, "selection", _names(out), "the task does not select these tables", "add a selection rule", LOSS),
        (blind, "add-before-image-columns", f"none for {_names(blind)}",
         "an update that changes a key has the new key only: the old row stays",
         "add the transformation rule with column-filter pk-only; not needed if keys never change", LOSS),
        (bare, "add-column", f"no $AR_H_CHANGE_SEQ for {_names(bare)}",
         "only file names and row order show the order of changes: a wrong order cannot be detected",
         "add the transformation rule add-column with the expression $AR_H_CHANGE_SEQ", COST),
    ]  # fmt: skip
    yield from _applying(rules)
    for s in specs:
        gone = [n for n in s.names if n not in mappings.file_columns(s)]
        if gone:
            keys = [n for n in gone if n in s.key]
            effect = "rows cannot be distinguished" if keys else "these columns are always null in the lake"
            cure = "keep the key's columns" if keys else "remove the columns from the spec, or the rule"
            yield Finding(
                "remove-column", f"{s.source}: {', '.join(keys or gone)}", effect, cure, LOSS if keys else NOTE
            )
        if soft := [c for c, x in mappings.added(s).items() if is_expression(INDICATOR, x)]:
            yield Finding(
                "operation_indicator",
                f"{s.source}: {soft[0]}",
                "meant for soft deletes: a deleted row may arrive as an update, and then stays in the lake",
                "remove the rule: the Op column has the operation",
                LOSS,
            )


def _of_task(task: Mapping[str, Any], specs: Sequence[TableSpec]) -> list[Finding]:
    """Check the given task settings."""

    def of(section: str) -> Mapping[str, Any]:
        return task.get(section) or {}

    keeps_files = of("FullLoadSettings").get("TargetTablePrepMode") == "DO_NOTHING"
    rules = [
        (is_on(of("TargetMetadata"), "BatchApplyEnabled"), "BatchApplyEnabled", "true",
         "S3 targets do not support it: changes are lost", "turn it off", LOSS),
        (keeps_files, "TargetTablePrepMode", "DO_NOTHING",
         "a second load does not remove the files of the first one: both are read as one",
         "DROP_AND_CREATE or TRUNCATE_BEFORE_LOAD", LOSS),
        *[(of("ErrorBehavior").get(name) in ("LOG_ERROR", "IGNORE_RECORD"), name, of("ErrorBehavior").get(name),
           "rows that fail are left out or truncated, and at most the task's log shows it",
           "SUSPEND_TABLE or STOP_TASK", LOSS) for name in ("DataErrorPolicy", "DataTruncationErrorPolicy")],
        (is_on(of("ChangeProcessingDdlHandlingPolicy"), "HandleSourceTableTruncated"), "HandleSourceTableTruncated", "true",
         "a TRUNCATE removes the table's files and is not recorded: rows stay in the lake",
         "reload a table that was truncated", NOTE),
        (of("BeforeImageSettings"), "BeforeImageSettings", "set", "works for streams only",
         "use the rule add-before-image-columns", NOTE),
    ]  # fmt: skip
    return _applying(rules) + _of_lobs(of("TargetMetadata"), specs)


def _of_lobs(meta: Mapping[str, Any], specs: Sequence[TableSpec]) -> list[Finding]:
    """Check whether the values of LOB columns arrive whole; `meta` is the section TargetMetadata."""
    lobs = [s for s in specs if any(c.dms_type in LOBS for c in s.columns)]
    if not lobs or not meta:
        return []
    has_lobs, is_full, size = is_on(meta, "SupportLobs", True), is_on(meta, "FullLobMode"), meta.get("LobMaxSize")
    rules = [
        (not has_lobs, "SupportLobs", "false", f"LOB columns of {_names(lobs)} are left out", "turn it on", LOSS),
        (has_lobs and is_full, "FullLobMode", "true", "S3 targets do not support it",
         "use LimitedSizeLobMode with a LobMaxSize", LOSS),
        (has_lobs and not is_full, "LobMaxSize", f"{32 if size is None else size} KB",
         f"longer values in {_names(lobs)} are truncated; only the task's log shows it",
         "set it above the longest value of the source", LOSS),
    ]  # fmt: skip
    return _applying(rules)


def _of_statistics(statistics: Mapping[str, TableStatistics], specs: Sequence[TableSpec]) -> Iterator[Finding]:
    """Check the state of the task's tables."""
    for s in specs:
        t, name = statistics.get(s.source), f"table statistics: {s.source}"
        if t is None:
            yield Finding(name, "not listed", "the task does not know the table", "check its selection rules", LOSS)
            continue
        rules = [
            (t.failed, name, t.state, "DMS stopped replicating it: its files are incomplete",
             "fix the cause, and reload the table", LOSS),
            (not t.failed and not t.loaded, name, t.state or "no state", "its load is not complete",
             "run 01_full_load after it", LOSS),
            (t.full_load_errors, name, f"{t.full_load_errors:,} error rows", "rows of the load are missing",
             "reload it", LOSS),
        ]  # fmt: skip
        yield from _applying(rules)
