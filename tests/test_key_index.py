"""The key index alone: the place of a key is the one that was added last, on disk as in memory."""

import json
import random
import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest

from frazil.config.spec import parse_spec
from frazil.lake.key_index import KeyIndex, key_sql
from helpers import spec_of


def numbers(keys, width):
    """The numbers of keys; two of them share their first word where there are two words."""
    first = np.array([k // 3 if width == 2 else k for k in keys], np.int64)
    return [first, np.array([k % 3 for k in keys], np.int64)][:width]


@pytest.mark.parametrize("row_ids", [False, True], ids=["v2", "v3"])
@pytest.mark.parametrize("width", [1, 2])
def test_it_answers_like_a_dict(tmp_path, width, row_ids):
    rng, index, there, ids = random.Random(width), KeyIndex(tmp_path, "t", width, row_ids), {}, {}
    for step in range(300):
        keys = rng.sample(range(400), rng.choice([1, 5, 60]))
        gone = [rng.random() < 0.3 for _ in keys]
        path = f"f{step}"
        file = np.where(gone, -1, index.number(path)).astype(np.int32)
        ids |= {k: rng.getrandbits(50) for k in keys}
        known = [np.array([ids[k] for k in keys], np.int64)] * row_ids
        index.add(numbers(keys, width), file, np.arange(len(keys), dtype=np.int32), *known)
        there |= {k: None if g else (path, i) for i, (k, g) in enumerate(zip(keys, gone, strict=True))}
        live = {p for p in there.values() if p}
        index.marks = {path: "" for path, _ in live}
        if rng.random() < 0.2:  # somebody removes a file, and deletes some rows of others
            dead, rows = rng.choice(index.files), {p for p in live if rng.random() < 0.1}
            by_file = {}
            for name, at in rows:
                by_file.setdefault(index.number(name), []).append(at)
            index.forget({index.number(dead)}, {n: np.array(at, np.int64) for n, at in by_file.items()})
            there = {k: None if p and (p[0] == dead or p in rows) else p for k, p in there.items()}
            index.marks.pop(dead, None)
        if rng.random() < 0.2:  # somebody puts the rows of some files into one, in order, with dead ones between
            old, new = rng.sample(index.files, min(3, len(index.files))), f"m{step}"
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
    assert len(list(tmp_path.glob("*.seg"))) < 10


def test_files_that_are_gone_lose_their_numbers(tmp_path):
    index = KeyIndex(tmp_path, "t", 1)
    for i in range(2500):
        index.add([np.array([i % 5], np.int64)], np.array([index.number(f"f{i}")], np.int32), np.array([i], np.int32))
    index.marks = {f"f{i}": "" for i in range(2495, 2500)}
    index.save()
    again = KeyIndex(tmp_path, "t", 1)
    assert again.load() and len(again.files) == 5
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
    assert index.bytes / (1 << 21) == 8 + 8 * width + 8 * row_ids
    assert sum(f.stat().st_size for f in tmp_path.glob("*.seg")) == index.bytes
    assert isinstance(index.segments[0].keys[0].base, np.memmap), "large segments are mapped, not held"


@pytest.mark.parametrize("harm", ["cut", "flipped", "manifest", "other table"])
def test_what_is_not_whole_is_not_taken(tmp_path, harm):
    index = KeyIndex(tmp_path, "t", 1)
    index.add([np.arange(9, dtype=np.int64)], np.zeros(9, np.int32), np.arange(9, dtype=np.int32))
    index.save()
    segment, manifest = next(tmp_path.glob("*.seg")), tmp_path / "manifest.json"
    if harm == "cut":
        segment.write_bytes(segment.read_bytes()[:-4])
    if harm == "flipped":
        segment.write_bytes(bytes([segment.read_bytes()[0] ^ 1]) + segment.read_bytes()[1:])
    if harm == "manifest":
        manifest.write_text(manifest.read_text().replace('"snapshot":null', '"snapshot":1'))
    assert not KeyIndex(tmp_path, "u" if harm == "other table" else "t", 1).load()


def test_an_index_that_the_first_version_wrote_is_read_and_one_of_a_newer_version_is_built_anew(tmp_path):
    folder = Path(shutil.copytree(Path(__file__).parent / "data/keyindex_v1", tmp_path / "index"))
    index = KeyIndex(folder, "t", 1)
    assert index.load() and index.snapshot == 4137462311225348095
    file, pos = index.locate([np.array([2, 4], np.int64)])
    assert (index.files[file[0]], pos[0], file[1]) == ("data/a.parquet", 1, -1)
    text = (folder / "manifest.json").read_text().split("\n", 1)[1].replace('"version":1', '"version":2')
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
                got = spark.sql(f"SELECT {', '.join(key_sql(spec))} FROM ({listed})").collect()
                seen.add(tuple(tuple(r) for r in got))
            spark.conf.set("spark.sql.session.timeZone", "UTC")
            assert len(seen) == 1 and len(set(*seen)) == len(rows), (kind, other)


@pytest.mark.spark
def test_a_number_keeps_its_key_when_its_column_is_widened_in_any_mode(spark):
    seen, before = set(), spark.conf.get("spark.sql.ansi.enabled")
    for ansi in ("true", "false"):
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        for kind, wide in (("REAL4", "float"), ("REAL8", "double")):
            sql = ", ".join(key_sql(parse_spec(spec_of("s.t", f"a {kind}", key="a"))))
            seen.add(tuple(spark.sql(f"SELECT {sql} FROM (SELECT cast(cast(0.1 AS float) AS {wide}) a)").first()))
    spark.conf.set("spark.sql.ansi.enabled", before)
    assert len(seen) == 1


@pytest.mark.spark
def test_texts_that_run_together_are_different_keys(spark):
    spec = parse_spec(spec_of("s.t", "a STRING(9)", "b STRING(9)", key=["a", "b"]))
    pairs = "VALUES ('ab', 'c'), ('a', 'bc'), ('', 'abc'), ('abc', '')"
    got = spark.sql(f"SELECT {', '.join(key_sql(spec))} FROM {pairs} t(a, b)").collect()
    assert len(set(got)) == 4
    signed = spark.sql(f"SELECT {', '.join(key_sql(spec))} FROM (SELECT string(id) a, '' b FROM range(99))").collect()
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
    whole = json.loads(file.read_text().split("\n", 1)[1])
    (segment,) = whole["segments"]
    damaged = [*ODD, {**whole, "version": 2}, {**whole, "version": "1"}, {**whole, "of": [2, 2]}]
    damaged += [{**whole, name: odd} for name in whole for odd in ODD if odd != whole[name] and (name, odd) not in (("snapshot", -1), ("version", True))]  # fmt: skip
    damaged += [
        {n: v for n, v in whole.items() if n != name} for name in whole if name != "of"
    ]  # the first version has none
    damaged += [
        {**whole, "files": ["a"]},
        {**whole, "files": ["b"], "of": [1, 2, 1]},
        {**whole, "marks": {"c": ""}, "of": [2, 1, 1]},
    ]
    damaged += [
        {**whole, "segments": [{**segment, name: odd}]} for name in segment for odd in ODD if odd != segment[name]
    ]
    for manifest in damaged:
        text = json.dumps(manifest)
        file.write_text(f"{zlib.crc32(text.encode())}\n{text}")
        again = KeyIndex(tmp_path, "t", 1)
        assert not again.load() or again.snapshot != 7, (
            manifest
        )  # of no or another snapshot: it follows, and is counted
        assert again.snapshot is None or isinstance(again.snapshot, int)
    text = json.dumps(whole)
    file.write_text(f"{zlib.crc32(text.encode())}\n{text}")
    assert KeyIndex(tmp_path, "t", 1).load()
