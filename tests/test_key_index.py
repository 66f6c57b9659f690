"""The key index alone: the place of a key is the one that was added last, on disk as in memory."""

import random
import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest

from frazil_old.config.spec import parse_spec
from frazil_old.lake import index_segment, key_index
from frazil_old.lake.index_segment import DamagedError, Layout, Segment, Writer, merged
from frazil_old.lake.key_index import KeyIndex, key_numbers_sql, parsed, written
from helpers import spec_of


def numbers(keys, width):
    """The numbers of keys; two of them share their first word where there are two words."""
    first = np.array([k // 3 if width == 2 else k for k in keys], np.int64)
    return [first, np.array([k % 3 for k in keys], np.int64)][:width]


@pytest.fixture
def small_parts(monkeypatch):
    """Blocks of 4 rows, and scans, merges and memory of 32: 400 keys are then what a billion are else."""
    monkeypatch.setattr(index_segment, "BLOCK", 4)
    for module in (index_segment, key_index):
        monkeypatch.setattr(module, "CHUNK", 32)


@pytest.fixture(params=["parts", "whole"])
def parts(request):
    """The number of random steps, with small parts and as it is."""
    if request.param == "whole":
        return 300
    request.getfixturevalue("small_parts")
    return 100


@pytest.mark.parametrize("row_ids", [False, True], ids=["v2", "v3"])
@pytest.mark.parametrize("width", [1, 2])
def test_it_answers_like_a_dict(tmp_path, width, row_ids, parts):
    rng, index, there, ids = (random.Random(width), KeyIndex(tmp_path, "t", width, row_ids), {}, {})
    for step in range(parts):
        keys = rng.sample(range(400), rng.choice([1, 5, 60]))
        gone = [rng.random() < 0.3 for _ in keys]
        path = f"f{step}"
        file = np.where(gone, -1, index.number(path)).astype(np.int32)
        ids |= {k: rng.getrandbits(50) for k in keys}
        known = [np.array([ids[k] for k in keys], np.int64)] * row_ids
        add = index.extend if rng.random() < 0.2 else index.add
        add(numbers(keys, width), file, np.arange(len(keys), dtype=np.int32), *known)
        there |= {k: None if g else (path, i) for i, (k, g) in enumerate(zip(keys, gone, strict=True))}
        live = {p for p in there.values() if p}
        index.marks = {path: "" for path, _ in live}
        if rng.random() < 0.2:  # somebody removes a file, and deletes some rows of others
            dead, rows = (rng.choice([*index.files.values()]), {p for p in sorted(live) if rng.random() < 0.1})
            by_file = {}
            for name, at in sorted(rows):
                by_file.setdefault(index.number(name), []).append(at)
            index.forget({index.number(dead)}, [(n, np.array(at, np.int64)) for n, at in by_file.items()])
            there = {k: None if p and (p[0] == dead or p in rows) else p for k, p in there.items()}
            index.marks.pop(dead, None)
        if rng.random() < 0.2:  # somebody puts the rows of some files into one, in order, with dead ones between
            files = [*index.files.values()]
            old, new = rng.sample(files, min(3, len(files))), f"m{step}"
            rows = sorted((old.index(p[0]), p[1], k) for k, p in there.items() if p and p[0] in old)
            kept = np.array(sorted(rng.sample(range(2 * len(rows)), len(rows))), np.int64)
            assert not index.move([index.number(f) for f in old], index.number(new), np.append(kept, 10**6))
            assert index.move([index.number(f) for f in old], index.number(new), kept)
            there |= {k: (new, int(at)) for (_, _, k), at in zip(rows, kept, strict=True)}
            index.marks = {p[0]: "" for p in there.values() if p}
        if rng.random() < 0.2:
            index.save()
            index = KeyIndex(tmp_path, "t", width, row_ids)
            assert index.load()
        asked = rng.sample(range(500), 200)
        file, pos, *kept = index.locate(numbers(asked, width))
        assert [of.tolist() for of in kept] == [[ids[k] if there.get(k) else -1 for k in asked]] * row_ids
        got = [(index.files[f], int(p)) if f >= 0 else None for f, p in zip(file, pos, strict=True)]
        assert got == [there.get(k) for k in asked]
        assert index.count() == sum(p is not None for p in there.values())
    index.save()  # it deletes the files of segments that were merged
    assert len(list(tmp_path.glob("*.seg"))) == len(index.segments) < 15


def test_files_that_are_gone_are_no_longer_named(tmp_path):
    index = KeyIndex(tmp_path, "t", 1)
    for i in range(2500):
        index.add([np.array([i % 5], np.int64)], np.array([index.number(f"f{i}")], np.int32), np.array([i], np.int32))
    index.marks = {f"f{i}": "" for i in range(2495, 2500)}
    index.save()
    again = KeyIndex(tmp_path, "t", 1)
    assert again.load() and len(again.files) == 5 and again.number("new") == 2500
    file, pos = again.locate([np.arange(5, dtype=np.int64)])
    assert [(again.files[f], int(p)) for f, p in zip(file, pos, strict=True)] == [
        (f"f{i}", i) for i in range(2495, 2500)
    ]


@pytest.mark.parametrize("row_ids", [False, True], ids=["v2", "v3"])
@pytest.mark.parametrize("width", [1, 2])
def test_a_key_takes_16_or_24_bytes_and_a_row_id_8(tmp_path, width, row_ids):
    keys = [np.arange(1 << 21, dtype=np.int64)] * width
    index = KeyIndex(tmp_path, "t", width, row_ids)
    place = [np.full(1 << 21, index.number("f"), np.int32), np.arange(1 << 21, dtype=np.int32)]
    index.add(keys, *place, *[keys[0]] * row_ids)
    index.marks = {"f": ""}
    index.save()
    assert index.bytes / (1 << 21) == 8 + 8 * width + 8 * row_ids + 12 / index_segment.BLOCK
    assert sum(f.stat().st_size for f in tmp_path.glob("*.seg")) == index.bytes
    assert isinstance(index.segments[0].words.base, np.memmap), "large segments are mapped, not held"


@pytest.mark.parametrize("harm", ["cut", "longer", "end", "manifest", "lost", "other table"])
def test_what_is_not_whole_is_not_taken(tmp_path, harm):
    index = KeyIndex(tmp_path, "t", 1)
    index.add([np.arange(9, dtype=np.int64)], np.zeros(9, np.int32), np.arange(9, dtype=np.int32))
    index.save()
    segment, manifest = next(tmp_path.glob("*.seg")), tmp_path / "manifest.json"
    data = segment.read_bytes()
    if harm in ("cut", "longer", "end"):
        segment.write_bytes({"cut": data[:-4], "longer": data + b"0", "end": data[:-1] + bytes([data[-1] ^ 1])}[harm])
    if harm == "manifest":
        manifest.write_text(manifest.read_text().replace('"snapshot":null', '"snapshot":1'))
    if harm == "lost":
        segment.unlink()
    assert KeyIndex(tmp_path, "t", 1).load() == (harm == "other table")
    assert not KeyIndex(tmp_path, "u" if harm == "other table" else "t", 1).load()


def saved(folder, rows: int, newer: int = 0) -> Path:
    """Save an index of two segments, and return the file of the larger one."""
    index = KeyIndex(folder, "t", 1)
    for first, count in ((0, rows), (5, newer)):
        keys = np.arange(first, first + count, dtype=np.int64)
        index.extend([keys], np.full(count, index.number("f"), np.int32), keys.astype(np.int32))
    index.marks = {"f": ""}
    index.save()
    return max(folder.glob("*.seg"), key=lambda f: f.stat().st_size)


def damage(file: Path, row: int) -> None:
    """Change one byte of a row in a segment with keys of one number."""
    data = bytearray(file.read_bytes())
    data[row * 16] ^= 1
    file.write_bytes(data)


def keys_at(*keys) -> list[np.ndarray]:
    return [np.array(keys, np.int64)]


def test_a_damaged_block_is_found_when_it_is_read_and_not_before(tmp_path, small_parts):
    damage(saved(tmp_path, 100), 50)  # in the block of the rows 48 to 51
    index = KeyIndex(tmp_path, "t", 1)
    assert index.load() and index.count() == 100
    assert index.locate(keys_at(3, 45, 60, 99, 1000))[1].tolist() == [3, 45, 60, 99, -1]
    for key in (49, 50, 51):
        with pytest.raises(DamagedError, match="block 12 of"):
            index.locate(keys_at(3, key))


@pytest.mark.parametrize("row", range(0, 100, 7))
@pytest.mark.parametrize("what", ["merge", "forget", "move", "count"])
def test_a_damaged_block_is_found_by_whatever_reads_it(tmp_path, small_parts, what, row):
    damage(saved(tmp_path, 100, newer=95 if what == "count" else 5), row)
    index = KeyIndex(tmp_path, "t", 1)
    assert index.load()
    with pytest.raises(DamagedError):
        if what == "merge":
            index.add(keys_at(*range(200, 300)), np.zeros(100, np.int32), np.arange(100, dtype=np.int32))
        elif what == "forget":
            index.forget({0}, [])
        elif what == "move":
            index.move([0], index.number("g"), np.arange(100))
        else:
            index.keys = None
            index.count()
            index.locate(keys_at(row))  # counts do not look at keys that no newer segment has
    if what == "merge":  # nothing is lost, and a part of a file is not left
        assert [len(s) for s in index.segments] == [100, 5, 100] and len(list(tmp_path.glob("*.seg"))) <= 3


def test_lookups_check_the_blocks_that_they_need_alone(tmp_path, small_parts):
    saved(tmp_path, 100)
    index = KeyIndex(tmp_path, "t", 1)
    index.load()
    (segment,) = index.segments
    index.locate(keys_at(1, 2, 50))
    assert np.flatnonzero(~segment.unread).tolist() == [0, 12]


@pytest.mark.parametrize("width", [1, 2])
def test_parts_of_a_merge_hold_few_rows_whatever_the_sizes(tmp_path, small_parts, width):
    """Many keys with the same first number make a part longer, and nothing else."""
    rng, layout, segments, there = random.Random(5), Layout(width, True), [], {}
    for age, count in enumerate((300, 1, 40, 150)):
        keys = sorted(rng.sample(range(400), count))
        columns = [
            *numbers(keys, width),
            np.full(count, age if age != 2 else -1, np.int32),
            np.arange(count, dtype=np.int32),
        ]
        entry = Writer.of(tmp_path, layout, [[*columns, np.array(keys, np.int64)]])
        segments.append(Segment.load(layout, tmp_path, entry))
        there |= dict.fromkeys(keys, age if age != 2 else -1)
    for without_deleted in (False, True):
        rows = list(merged(segments, without_deleted))
        assert len(rows) > 10 and max(len(r[0]) for r in rows) <= 4 * 8 + 4 * 3
        expected = [(k, f) for k, f in sorted(there.items()) if f >= 0 or not without_deleted]
        assert [(k, f) for r in rows for k, f in zip(r[-1].tolist(), r[width].tolist(), strict=True)] == expected


def test_a_full_disk_costs_memory_but_no_key(tmp_path, small_parts, monkeypatch):
    def full(*_):
        raise OSError("no space left on device")

    index = KeyIndex(tmp_path, "t", 1)
    with monkeypatch.context() as m:
        m.setattr(Writer, "_write", full)
        for first in (0, 100, 200):
            index.add(keys_at(*range(first, first + 100)), np.zeros(100, np.int32), np.arange(100, dtype=np.int32))
        assert len(index.segments) == 3 and not list(tmp_path.glob("*.seg"))
    assert index.locate(keys_at(7, 107, 299, 300))[1].tolist() == [7, 7, 99, -1] and index.count() == 300
    index.add(keys_at(300), np.zeros(1, np.int32), np.zeros(1, np.int32))
    index.compact()
    assert index.count() == 301


def test_an_index_of_another_version_is_built_anew(tmp_path):
    folder = Path(shutil.copytree(Path(__file__).parent / "data/keyindex_v1", tmp_path / "index"))
    assert not KeyIndex(folder, "t", 1).load()
    saved(folder, 9)
    assert KeyIndex(folder, "t", 1).load() and len(list(folder.glob("*.seg"))) == 1
    text = (folder / "manifest.json").read_text().split("\n", 1)[1].replace('"version":2', '"version":3')
    (folder / "manifest.json").write_text(f"{zlib.crc32(text.encode())}\n{text}")
    assert not KeyIndex(folder, "t", 1).load()


VALUES = {
    "INT4": ("-5", "0", "7"), "INT8": ("-9223372036854775808", "9223372036854775807"), "UINT8": ("0", "18446744073709551615"),
    "NUMERIC(30,2)": ("1.25", "-1.25", "12500.00"), "REAL8": ("0.1", "1e300", "-0.5"), "BOOLEAN": ("true", "false"),
    "STRING(9)": ("''", "'a'", "'A'", "'ä'", "'a '"), "BYTES(4)": ("X''", "X'00'", "X'0000'"),
    "DATE": ("date'0001-01-01'", "date'2024-02-29'"),
    "DATETIME": ("timestamp_ntz'2024-10-27 02:30:00.000001'", "timestamp_ntz'2024-10-27 02:30:00'"),
}  # fmt: skip


@pytest.mark.spark
def test_different_keys_have_different_numbers_in_any_zone(spark):
    for kind, values in VALUES.items():
        for other in (None, "INT4", "STRING(9)"):
            columns = [f"a {kind}", *([f"b {other}"] if other else [])]
            spec = parse_spec(spec_of("s.t", *columns, key=[c.split()[0] for c in columns]))
            types = {
                "INT4": "int",
                "INT8": "bigint",
                "UINT8": "decimal(20,0)",
                "NUMERIC(30,2)": "decimal(30,2)",
                "REAL8": "double",
            }
            seconds = {"INT4": ("1", "-1"), "STRING(9)": ("'1'", "'1:1'"), None: ("null",)}[other]
            rows = [(v, w) for v in values for w in seconds]
            listed = " UNION ALL ".join(
                f"SELECT cast({v} AS {types[kind]}) a, {w} b" if kind in types else f"SELECT {v} a, {w} b"
                for v, w in rows
            )
            seen = set()
            for zone in ("UTC", "Europe/Berlin") if kind == "DATETIME" else ("UTC",):
                spark.conf.set("spark.sql.session.timeZone", zone)
                got = spark.sql(f"SELECT {', '.join(key_numbers_sql(spec))} FROM ({listed})").collect()
                seen.add(tuple(tuple(r) for r in got))
            spark.conf.set("spark.sql.session.timeZone", "UTC")
            assert len(seen) == 1 and len(set(*seen)) == len(rows), (kind, other)


@pytest.mark.spark
def test_a_number_keeps_its_key_when_its_column_is_widened_in_any_mode(spark):
    seen, before = set(), spark.conf.get("spark.sql.ansi.enabled")
    for ansi in ("true", "false"):
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        for kind, wide in (("REAL4", "float"), ("REAL8", "double")):
            sql = ", ".join(key_numbers_sql(parse_spec(spec_of("s.t", f"a {kind}", key="a"))))
            seen.add(tuple(spark.sql(f"SELECT {sql} FROM (SELECT cast(cast(0.1 AS float) AS {wide}) a)").first()))
    spark.conf.set("spark.sql.ansi.enabled", before)
    assert len(seen) == 1


@pytest.mark.spark
def test_texts_that_run_together_are_different_keys(spark):
    spec = parse_spec(spec_of("s.t", "a STRING(9)", "b STRING(9)", key=["a", "b"]))
    pairs = "VALUES ('ab', 'c'), ('a', 'bc'), ('', 'abc'), ('abc', '')"
    got = spark.sql(f"SELECT {', '.join(key_numbers_sql(spec))} FROM {pairs} t(a, b)").collect()
    assert len(set(got)) == 4
    signed = spark.sql(
        f"SELECT {', '.join(key_numbers_sql(spec))} FROM (SELECT string(id) a, '' b FROM range(99))"
    ).collect()
    assert any(r[0] < 0 for r in signed) and len(set(signed)) == 99


ODD = ([], "x", 7, -1, 1.5, None, True, {}, [7], {"x": 5}, [None], [{}], [[]])
"""Each kind of JSON."""


def test_whatever_its_manifest_holds_an_index_is_whole_or_none(tmp_path):
    """Each kind of JSON in the place of all and of each entry, entries that are missing or cut; the checksum is right."""
    index = KeyIndex(tmp_path, "t", 1)
    for path in ("a", "b"):
        keys = np.arange(3, dtype=np.int64) + 10 * (path == "b")
        index.add([keys], np.full(3, index.number(path), np.int32), np.arange(3, dtype=np.int32))
    index.marks, index.snapshot = {"a": "", "b": "x"}, 7
    index.save()
    file = tmp_path / "manifest.json"
    whole = parsed(file.read_bytes())
    (segment,) = whole["segments"]
    damaged = [*ODD, {**whole, "version": 1}, {**whole, "of": [2, 2]}, {**whole, "next": 1}, {**whole, "keys": 5}]
    damaged += [
        {**whole, name: odd} for name in whole for odd in ODD if odd != whole[name] and (name, odd) not in (("snapshot", -1), ("next", 7))
    ]  # fmt: skip
    damaged += [{n: v for n, v in whole.items() if n != name} for name in whole]
    damaged += [{**whole, "files": files, "of": [len(files), 1]} for files in ([[0, "a"]], [[0, "a", ""], [0, "b", ""]],
                [[0, "a", ""], [1, "a", ""]], [[0, "a", 5]], [["0", "a", ""]], [[9, "a", ""]])]  # fmt: skip
    damaged += [
        {**whole, "segments": [{**segment, name: odd}]}
        for name in segment
        for odd in ODD
        if odd != segment[name] and (name, odd) != ("block", 7)  # which holds the six rows too
    ]
    damaged += [{**whole, "segments": [{**segment, "name": f"../{tmp_path.name}/{segment['name']}"}]}]
    damaged += [{**whole, "segments": [], "of": [2, 0]}]
    for manifest in damaged:
        file.write_bytes(written(manifest))
        again = KeyIndex(tmp_path, "t", 1)
        assert not again.load() or again.snapshot != 7, manifest  # of another snapshot: it follows, and is counted
        assert again.snapshot is None or isinstance(again.snapshot, int)
    file.write_bytes(written(whole))
    assert KeyIndex(tmp_path, "t", 1).load()
