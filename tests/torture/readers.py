"""Both readers on the same files: Spark's (`dms.read`) and the core's (`engine.read_files`) agree on every value, bad row and reason.

Where they differ the plain reader of `mutated_files` says who is right.
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "lib")]

from frazil.changes.changeset import marked, reason_sql  # noqa: E402
from frazil.config.spec import TableSpec, parse_spec  # noqa: E402
from frazil.dms.endpoint import Endpoint, Mappings  # noqa: E402
from frazil.dms.ends import look  # noqa: E402
from frazil.dms.objects import DmsObject  # noqa: E402
from frazil.dms.read import CHANGE_PHASE, may_hide_open_text, read_rows, reading  # noqa: E402
from frazil.engine.file_plan import plan_files  # noqa: E402
from frazil.engine.read_files import read_changes  # noqa: E402
from frazil.errors import FrazilError  # noqa: E402
from helpers import spec_of  # noqa: E402
from mutated_files import BAD, COLUMNS, DIALECTS, Dialect, judge, mutated_file, valid_file  # noqa: E402

SPEC = parse_spec(spec_of("public.t", *COLUMNS))
COUNT, CHUNK = 10_000, 500


@dataclass(frozen=True)
class Table:
    """What both readers are told of a table and its files."""

    spec: TableSpec
    endpoint: Endpoint
    mappings: Mappings = Mappings(())  # noqa: RUF009
    phase: int = CHANGE_PHASE


def _plain(value: object) -> str:
    """Return a value as text that is the same whichever reader it comes from."""
    value = bytes(value) if isinstance(value, bytearray) else value
    value = value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value
    return repr(value)


def by_spark(spark, table: Table, files: Sequence[DmsObject]) -> dict[str, list[tuple]]:
    """Return each file's rows in order as Spark reads them: operation, time, sequence, values, old values; or what is wrong."""
    spec = table.spec
    with reading(spec, table.endpoint.header):
        hidden = may_hide_open_text(spec, files, table.endpoint, table.mappings, table.phase)
        all_end = look(spec, table.endpoint, files, hidden)
        raw = read_rows(spark, spec, table.endpoint, table.mappings, files, table.phase)
        typed = ["at", *[f"v{i}" for i in range(len(spec.columns))], *[f"w{i}" for i in range(len(spec.identity))]]
        at, *values = (f"if(bad is null, {v}, null) as {v}" for v in typed)
        rows = marked(raw, spec).selectExpr("object", "block", "row_no", "bad", f"{reason_sql(spec, raw)} as reason", "op", at, "change_seq", *values).collect()  # fmt: skip
        all_end(True)
    found: dict[str, list] = {f.name: [] for f in files}
    for r in rows:
        good = tuple(_plain(v) for v in r[5:])
        found[r.object].append((r.block, r.row_no, ("bad", r.reason) if r.bad else good))
    return {name: [row for *_, row in sorted(rows, key=lambda r: r[:2])] for name, rows in found.items()}


def by_core(table: Table, file: DmsObject) -> list[tuple]:
    """Return a file's rows in order as the core reads them, in the same form."""
    [planned], plan = plan_files(table.spec, table.endpoint, table.mappings, [file], table.phase)
    found = []
    for changes in read_changes(planned, plan):
        found += [(b.number, ("bad", re.sub(r"^\d+ fields, ", "", b.reason))) for b in changes.bad]  # Spark counts none
        for row in changes.rows.to_pylist():
            number, *values = (v for name, v in row.items() if not name.startswith("absent_"))
            op, at, sequence, *rest = values
            old = len(table.spec.identity)
            found.append((number, tuple(_plain(v) for v in (op, at, sequence, *rest[old:], *rest[:old]))))
    return [row for _, row in sorted(found, key=lambda r: r[0])]


def outcome(read) -> list[tuple] | str:
    """Return the rows that a reader finds, or why it refuses the file."""
    try:
        return read()
    except FrazilError as e:
        return f"refused: {e}"


def each_by_spark(spark, table: Table, files: Sequence[DmsObject]) -> dict[str, list | str]:
    """Return what Spark reads of each file; together where it can, as a file that is refused refuses all."""
    together = outcome(lambda: by_spark(spark, table, files))
    if not isinstance(together, str):
        return together
    if len(files) == 1:
        return {files[0].name: together}
    named = [f for f in files if f.path in together]
    if len(named) == 1:
        rest = [f for f in files if f is not named[0]]
        return {named[0].name: together} | each_by_spark(spark, table, rest)
    half = len(files) // 2
    return each_by_spark(spark, table, files[:half]) | each_by_spark(spark, table, files[half:])


def verdict(spark_says: list | str, core_says: list | str, meant: list | None) -> str:
    """Return how the two outcomes of a file compare; WRONG where the core is not right."""
    if isinstance(spark_says, str) or isinstance(core_says, str):
        both = isinstance(spark_says, str) and isinstance(core_says, str)
        return "both refuse the file" if both else _refused_by_one(spark_says, core_says, meant)
    if spark_says == core_says:
        return "equal, with bad rows" if any(row[0] == "bad" for row in core_says) else "equal"
    if len(spark_says) != len(core_says):
        return "WRONG"
    meant = meant if meant is not None and len(meant) == len(core_says) else [BAD] * len(core_says)
    pairs = zip(spark_says, core_says, meant, strict=True)
    kinds = {_row_verdict(*pair) for pair in pairs if pair[0] != pair[1]}
    return "WRONG" if "WRONG" in kinds else min(kinds)


def _refused_by_one(spark_says: list | str, core_says: list | str, meant: list | None) -> str:
    if isinstance(core_says, str):
        return "only the core refuses the file" if meant is None else "WRONG"
    return "WRONG" if meant is None else "only Spark refuses the file"


def _row_verdict(spark_row: tuple, core_row: tuple, meant: object) -> str:
    if spark_row[0] == core_row[0] == "bad":
        return "both refuse a row, for other reasons"
    if spark_row[0] == "bad" and meant is not BAD:
        return "only Spark refuses an exact value"
    return "WRONG"


def first_difference(spark_says: list | str, core_says: list | str) -> str:
    """Show two outcomes where they differ first."""
    if isinstance(spark_says, str) or isinstance(core_says, str) or len(spark_says) != len(core_says):
        return f"{str(spark_says)[:600]}\n  core  {str(core_says)[:600]}"
    a, b = next(pair for pair in zip(spark_says, core_says, strict=True) if pair[0] != pair[1])
    return f"{str(a)[:600]}\n  core  {str(b)[:600]}"


def endpoint_of(dialect: Dialect) -> Endpoint:
    return Endpoint(
        null_value=dialect.null, delimiter=dialect.delimiter, rfc4180=dialect.quotes, header=dialect.header, timestamp_column="ts"
    )  # fmt: skip


def run(count: int, seed: int = 1, spark=None) -> dict[str, int]:
    """Let both readers read `count` mutated files; raise AssertionError with the first that the core reads wrong."""
    if spark is None:
        from frazil.config.session import get_spark
        from frazil.config.settings import Settings

        spark = get_spark(Settings(root=tempfile.mkdtemp(prefix="frazil-torture-")))
    r, counts, wrong = random.Random(seed), Counter(), []
    for first in range(0, count, CHUNK):
        dialects = [r.choice(DIALECTS) for _ in range(min(CHUNK, count - first))]
        for dialect in DIALECTS:
            table = Table(SPEC, endpoint_of(dialect))
            with tempfile.TemporaryDirectory(prefix="frazil-torture-") as folder:
                files = {}
                for number in range(dialects.count(dialect)):
                    raw = mutated_file(r, valid_file(r, dialect), dialect)
                    name = f"20260101-{number:09d}{dialect.ending}"
                    Path(folder, name).write_bytes(raw)
                    files[DmsObject(name, f"{folder}/{name}", len(raw), "")] = raw
                by = each_by_spark(spark, table, list(files)) if files else {}
                for file, raw in files.items():
                    core = outcome(lambda file=file, table=table: by_core(table, file))
                    found = verdict(by[file.name], core, judge(raw, dialect))
                    counts[f"{found}"] += 1
                    if found == "WRONG":
                        wrong.append(f"{dialect.name}: {raw[:800]!r}\n  Spark {first_difference(by[file.name], core)}\n  plain {str(judge(raw, dialect))[:500]}")  # fmt: skip
        if (first + CHUNK) % 1000 == 0:
            print(f"  {first + CHUNK:,} files, {len(wrong)} read wrong", flush=True)
    assert not wrong, f"{len(wrong)} file(s), seed {seed}:\n" + "\n".join(wrong[:8])
    return dict(counts)
