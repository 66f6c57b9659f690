"""Mutated files: the core reads each as right rows, as bad rows with a reason, or refuses it by name; never as a wrong or lost row.

The judge (`mutated_files`) reads the mutated bytes itself, in plain Python, and shares no code with Frazil. Some of the
files are also applied by runs, which set the bad rows aside and read them again.
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "lib")]

from frazil_old.config.settings import Settings  # noqa: E402
from frazil_old.config.spark_session import get_spark  # noqa: E402
from frazil_old.config.spec import parse_spec  # noqa: E402
from frazil_old.dms.endpoint import Endpoint, SourceTable  # noqa: E402
from frazil_old.dms.file_layout import CHANGE_PHASE  # noqa: E402
from frazil_old.dms.listing import DmsObject  # noqa: E402
from frazil_old.dms.mappings import Mappings  # noqa: E402
from frazil_old.engine.read_files import Extent, plan_files, read_blocks  # noqa: E402
from frazil_old.errors import FrazilError  # noqa: E402
from frazil_old.flows import quarantine_replay  # noqa: E402
from helpers import World, spec_of  # noqa: E402
from mutated_files import (  # noqa: E402
    AFTER_QUOTE,
    COLUMNS,
    CUT_OFF,
    DAMAGED,
    DIALECTS,
    HEADER,
    NAMES,
    OPEN,
    Bad,
    Dialect,
    Refused,
    is_damaged_beside_rows,
    judge,
    mutated_file,
    valid_file,
)

SPEC = parse_spec(spec_of("public.t", *COLUMNS))
COUNT = 10_000
EXTENTS = [Extent(), Extent(), Extent(rows=3, block=700), Extent(rows=1, block=64)]
REFUSALS = {
    "a quoted text does not end": OPEN, "a quote inside a quoted field is not doubled": AFTER_QUOTE, "no row delimiter ends": CUT_OFF,
    "cannot be (read|unpacked)": DAMAGED, "line 1|column": HEADER,
}  # fmt: skip


def endpoint_of(dialect: Dialect) -> Endpoint:
    return Endpoint(
        null_value=dialect.null,
        delimiter=dialect.delimiter,
        rfc4180=dialect.quotes,
        header=dialect.header,
        timestamp_column="ts",
    )


def by_core(path: Path, dialect: Dialect, extent: Extent) -> list[tuple[int, tuple | Bad]] | Refused:
    """Return each row's number and what the core reads there, in order; or why it refuses the file."""
    file, found = DmsObject(path.name, str(path), path.stat().st_size, ""), []
    try:
        [planned], plan = plan_files(SourceTable(SPEC, endpoint_of(dialect), Mappings(())), [file], CHANGE_PHASE)
        for block in read_blocks(planned, plan, extent):
            found += [(bad.number, Bad(bad.column)) for bad in block.changes.bad]
            rows = [
                block.changes.rows[name].to_pylist()
                for name in ("number", "op", *[f"new_{i}" for i in range(len(NAMES))])
            ]
            found += [(number, tuple(row)) for number, *row in zip(*rows, strict=True)]
    except FrazilError as error:
        return _refused(str(error), file)
    return sorted(found, key=lambda row: row[0])


def _refused(says: str, file: DmsObject) -> Refused:
    assert file.path in says, f"a refusal that does not name its file: {says}"
    why = next((why for words, why in REFUSALS.items() if re.search(words, says)), says)
    row = re.search(r" row (\d+):", says)
    return Refused(why, int(row[1]) if row else 0)


def outcome(found: list | Refused) -> str:
    """Return how a file ended."""
    if isinstance(found, Refused):
        return f"refused: {found.why}"
    return "with bad rows" if any(isinstance(row, Bad) for _, row in found) else "right rows"


def run(count: int, seed: int = 1, spark=None, catalog_options: dict | None = None) -> dict[str, int]:
    """Judge what becomes of `count` mutated files, and of a fiftieth of them by runs."""
    return read(count, seed) | apply(max(count // 50, 30), seed, spark, catalog_options)


def read(count: int, seed: int = 1) -> dict[str, int]:
    """Let the core read `count` mutated files; raise AssertionError with the first that it reads wrong."""
    r, counts, wrong = random.Random(seed), Counter(), []
    with tempfile.TemporaryDirectory(prefix="frazil-torture-") as folder:
        for number in range(count):
            dialect = r.choice(DIALECTS)
            raw, path = mutated_file(r, valid_file(r, dialect), dialect), Path(folder, _name(number, dialect))
            path.write_bytes(raw)
            said, found = judge(raw, dialect), by_core(path, dialect, r.choice(EXTENTS))
            path.unlink()
            counts[outcome(found)] += 1
            if not _agree(said, found, raw, dialect):
                wrong.append(f"{dialect.name}: {raw[:800]!r}\n{_difference(said, found)}")
            if (number + 1) % 1000 == 0:
                print(f"  {number + 1:,} files, {len(wrong)} read wrong", flush=True)
    assert not wrong, f"{len(wrong)} files read wrong, seed {seed}:\n" + "\n".join(wrong[:8])
    return dict(counts)


def _name(number: int, dialect: Dialect) -> str:
    return f"20260101-{number:09d}{dialect.ending}"


def _agree(said: list | Refused, found: list | Refused, raw: bytes, dialect: Dialect) -> bool:
    """Return whether the core found what the bytes say.

    In a damaged archive it may find bad quotes before the damage. It may refuse a header that begins in another way, and
    Parquet whose statistics are damaged.
    """
    if said == Refused(DAMAGED) and dialect.ending == ".csv.gz":
        return isinstance(found, Refused) and found.why != HEADER
    if found == Refused(DAMAGED) and dialect.ending == ".parquet" and is_damaged_beside_rows(raw):
        return True
    if found == Refused(HEADER) and _has_odd_header(raw, dialect):
        return True
    return repr(found) == repr(said)  # NaN equals its text


def _has_odd_header(raw: bytes, dialect: Dialect) -> bool:
    return dialect.header and raw != b"" and not raw.startswith(b"Op|ts|")


def _difference(said: list | Refused, found: list | Refused) -> str:
    """Show where two readings of a file differ first."""
    if isinstance(said, list) and isinstance(found, list):
        rows = [*zip(said, found, strict=False), (said[len(found) :], found[len(said) :])]
        said, found = next(pair for pair in rows if repr(pair[0]) != repr(pair[1]))
    return f"  the bytes say {str(said)[:600]}\n  the core reads {str(found)[:600]}"


# --- by runs


def apply(count: int, seed: int = 1, spark=None, catalog_options: dict | None = None) -> dict[str, int]:
    """Apply `count` mutated files that can be read, set their bad rows aside, and read these again: none is good by that."""
    r, counts = random.Random(seed), Counter()
    with tempfile.TemporaryDirectory(prefix="frazil-torture-") as folder:
        options = catalog_options or {
            "type": "jdbc", "uri": f"jdbc:sqlite:{folder}/catalog.db", "warehouse": f"{folder}/warehouse"}  # fmt: skip
        spark or get_spark(Settings(root=folder, catalog_options=options, spark_options={"spark.driver.memory": "2g"}))
        for dialect in DIALECTS:
            world = _world(Path(folder, dialect.name), f"torture_{seed}_{dialect.name}", options, dialect)
            good, bad = _written(r, world, dialect, count // len(DIALECTS))
            counts["rows applied by runs"] += sum(row is not None for row in good.values())
            counts["rows set aside by runs"] += len(bad)
            _check_run(world, good, bad)
    return dict(counts)


def _world(folder: Path, space: str, options: dict, dialect: Dialect) -> World:
    """Return a loaded table without rows, whose bad rows are set aside."""
    world = World(
        folder, space, options, CsvNullValue=dialect.null, CsvDelimiter=dialect.delimiter, Rfc4180=dialect.quotes, AddColumnName=dialect.header,
        **({"DataFormat": "parquet"} if dialect.ending == ".parquet" else {"CompressionType": "GZIP"} if dialect.ending.endswith("gz") else {}),
    )  # fmt: skip
    world.rules, world.given = {"rules": []}, {"on_bad_rows": "quarantine", "ops_namespace": f"{space}_ops"}
    return world.table("t", *COLUMNS).loaded()


def _written(r: random.Random, world: World, dialect: Dialect, count: int) -> tuple[dict, dict]:
    """Write mutated files that can be read; return the last row of each key (None: deleted), and each bad row's column by its place."""
    good, bad = {}, {}
    folder = world.root / "source/public/t"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        raw, said = b"", Refused(DAMAGED)
        while isinstance(said, Refused) or _has_odd_header(raw, dialect):
            raw = mutated_file(r, valid_file(r, dialect), dialect)
            said = judge(raw, dialect)
        (folder / _name(number, dialect)).write_bytes(raw)
        for row_no, row in said:
            if isinstance(row, Bad):
                bad[_name(number, dialect), row_no] = row.column.strip("<>")
            else:
                good[row[1]] = None if row[0] == "D" else row[1:]
    return good, bad


def _check_run(world: World, good: dict, bad: dict) -> None:
    expected = sorted((row for row in good.values() if row is not None), key=repr)
    world.merged()
    assert repr(_rows(world)) == repr(expected), f"{world.space}: other rows than the files say"
    name = f"lake.{world.space}_ops.quarantine"
    kept = world.spark.table(name).collect() if world.spark.catalog.tableExists(name) else []
    aside = {(x.object, int(x.row_no)): x.column_name for x in kept}
    assert aside == bad, f"{world.space}: other rows are set aside than the files say"
    for result in quarantine_replay.run(world.book(quarantine="replay")):
        assert not result.failed and not result.counts.get("replayed"), f"{world.space}: {result}"
    assert repr(_rows(world)) == repr(expected), f"{world.space}: reading again made a bad row good"


def _rows(world: World) -> list[tuple]:
    plain = [tuple(bytes(v) if isinstance(v, bytearray) else v for v in row) for row in world.rows("t")]
    return sorted(plain, key=repr)
