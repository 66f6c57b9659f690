"""Mutated files: each must end as right rows, as rows set aside with a reason, or as a named error; never as a wrong or lost row.

The judge (`mutated_files`) reads the mutated bytes itself, in plain Python, and shares no code with Frazil.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLongError
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "lib")]

from frazil.changes.changeset import change_set  # noqa: E402
from frazil.changes.quarantine import judged, set_aside  # noqa: E402
from frazil.config.spec import parse_spec  # noqa: E402
from frazil.dms.again import read_again  # noqa: E402
from frazil.dms.endpoint import Endpoint, Mappings  # noqa: E402
from frazil.dms.ends import look  # noqa: E402
from frazil.dms.objects import DmsObject  # noqa: E402
from frazil.dms.read import CHANGE_PHASE, may_hide_open_text, read_rows, reading  # noqa: E402
from frazil.engine.read_files import require_readable  # noqa: E402
from frazil.errors import FrazilError  # noqa: E402
from helpers import spec_of  # noqa: E402
from mutated_files import BAD, COLUMNS, DIALECTS, Dialect, judge, mutated_file, valid_file  # noqa: E402

SPEC = parse_spec(spec_of("public.t", *COLUMNS))
LIMIT_S, CHUNK = 300, 500


def endpoint_of(dialect: Dialect) -> Endpoint:
    return Endpoint(
        null_value=dialect.null,
        delimiter=dialect.delimiter,
        rfc4180=dialect.quotes,
        header=dialect.header,
        timestamp_column="ts",
    )


# --- what Frazil makes of them


def _collected(spark, dialect: Dialect, files: list[DmsObject]) -> dict[str, list]:
    """Return each file's rows in order: its values, or BAD; raise FrazilError where a file cannot be read."""
    with reading(SPEC, dialect.header):
        hidden = may_hide_open_text(SPEC, files, endpoint_of(dialect), Mappings(()), CHANGE_PHASE)
        all_end = look(SPEC, endpoint_of(dialect), files, hidden)
        raw = read_rows(spark, SPEC, endpoint_of(dialect), Mappings(()), files, CHANGE_PHASE)
        rows = change_set(raw, SPEC)
        found: dict[str, list] = {f.name: [] for f in files}
        right = "if(bad is null, after, null) as after"
        for r in rows.selectExpr("object", "block", "row_no", "op", right).collect():
            after = r.after and tuple(bytes(v) if isinstance(v, bytearray) else v for v in r.after)
            found[r.object].append((r.block, r.row_no, (r.op, *after) if after else BAD))
        all_end(True)
        _set_aside(raw, dialect, sum(row[2] is BAD for rows in found.values() for row in rows))
    return {name: [row for *_, row in sorted(rows, key=lambda r: r[:2])] for name, rows in found.items()}


def _set_aside(raw, dialect: Dialect, bad: int) -> None:
    """Put the bad rows into records, as a quarantine does, and read them again: each is there, and none is good by that."""
    if not bad:
        return
    records = set_aside(raw, raw, SPEC, "batch", 1)
    again = judged(read_again(records.drop("place"), SPEC, endpoint_of(dialect), Mappings(()), ""), SPEC)
    told = again.selectExpr(
        "count(*)", "count(distinct r.id)", "count_if(outcome <> 'still bad')", "count(r.reason)"
    ).first()
    assert tuple(told) == (bad, bad, 0, bad), f"{dialect.name}: {bad} bad rows, read again {told}"


def _read(spark, dialect: Dialect, files: list[DmsObject]) -> dict[str, list]:
    """Read files as the flows do: where Spark's error names no file, the one that cannot be read is looked for."""
    try:
        return _collected(spark, dialect, files)
    except FrazilError:
        raise
    except Exception:
        require_readable([f.path for f in files])
        raise


def _outcomes(spark, dialect: Dialect, files: list[DmsObject]) -> dict[str, list | str]:
    """Read files together; where that fails, without the one that the error names, or by halves until it stands alone."""
    try:
        return _read(spark, dialect, files)
    except FrazilError as e:
        if len(files) == 1:
            return {files[0].name: str(e)}
        named = [f for f in files if f.path in str(e)]
        if len(named) == 1:
            rest = [f for f in files if f is not named[0]]
            return {named[0].name: str(e)} | _outcomes(spark, dialect, rest)
    half = len(files) // 2
    return _outcomes(spark, dialect, files[:half]) | _outcomes(spark, dialect, files[half:])


def _verdict(said: list | None, got: list | str) -> str:
    if isinstance(got, str):
        return "named error"
    if said is not None and len(said) == len(got) and all(g is BAD or g == s for s, g in zip(said, got, strict=True)):
        return "rows set aside" if BAD in got else "right rows"
    return "rows set aside" if said is None and BAD in got else "WRONG"


COUNT = 10_000


def run(count: int, seed: int = 1, spark=None) -> dict[str, int]:
    """Mutate `count` files and judge what becomes of each; raise AssertionError with the first that went wrong."""
    if spark is None:
        from frazil.config.session import get_spark
        from frazil.config.settings import Settings

        spark = get_spark(Settings(root=tempfile.mkdtemp(prefix="frazil-torture-")))
    r, counts, wrong = random.Random(seed), Counter(), []
    pool = ThreadPoolExecutor(1)
    for first in range(0, count, CHUNK):
        dialects = [r.choice(DIALECTS) for _ in range(min(CHUNK, count - first))]
        for dialect in DIALECTS:
            with tempfile.TemporaryDirectory(prefix="frazil-torture-") as folder:
                files = {}
                for number in range(dialects.count(dialect)):
                    name, raw = (
                        f"20260101-{number:09d}{dialect.ending}",
                        mutated_file(r, valid_file(r, dialect), dialect),
                    )
                    Path(folder, name).write_bytes(raw)
                    files[DmsObject(name, f"{folder}/{name}", len(raw), "")] = raw
                if not files:
                    continue
                try:
                    got = pool.submit(_outcomes, spark, dialect, list(files)).result(LIMIT_S)
                except TooLongError:
                    raise AssertionError(
                        f"{dialect.name}: a batch of files hangs (seed {seed}, from {first})"
                    ) from None
            for file, raw in files.items():
                said = judge(raw, dialect)
                verdict = _verdict(said, got[file.name])
                counts[verdict] += 1
                if verdict == "WRONG":
                    wrong.append(
                        f"{dialect.name}: {raw[:3000]!r}\n  the bytes say {str(said)[:2000]}\n  Frazil reads {str(got[file.name])[:2000]}"
                    )
        if (first + CHUNK) % 1000 == 0:
            print(f"  {first + CHUNK:,} files, {len(wrong)} read wrong", flush=True)
    pool.shutdown()
    assert not wrong, f"{len(wrong)} file(s) read wrong, seed {seed}:\n" + "\n".join(wrong[:8])
    return dict(counts)
