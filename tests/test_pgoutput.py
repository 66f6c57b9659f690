import struct
from datetime import UTC, datetime

import pytest

from frazil_demo import pgoutput as p

MICROS = 772_000_000_123_456  # 2024-06-18 04:26:40.123456 since 2000-01-01
TIME = datetime(2024, 6, 18, 4, 26, 40, 123456, tzinfo=UTC)


def text(value: str) -> bytes:
    return b"t" + struct.pack(">i", len(value.encode())) + value.encode()


def row(*values: bytes) -> bytes:
    return struct.pack(">H", len(values)) + b"".join(values)


def test_begin_and_commit():
    assert p.decode(b"B" + struct.pack(">QqI", 5, MICROS, 77)) == p.Begin(5, TIME, 77)
    assert p.decode(b"C\0" + struct.pack(">QQq", 5, 9, MICROS)) == p.Commit(5, 9, TIME)


def test_origin_type_and_truncate():
    assert p.decode(b"O" + struct.pack(">Q", 4) + b"elsewhere\0") == p.Origin(4, "elsewhere")
    assert p.decode(b"Y" + struct.pack(">I", 9) + b"shop\0tier\0") == p.Type(9, "shop", "tier")
    assert p.decode(b"T" + struct.pack(">IBII", 2, 1, 10, 11)) == p.Truncate((10, 11), 1)


def test_relation():
    column = b"\x01id\0" + struct.pack(">Ii", 20, -1) + b"\0n\xc3\xa4me\0" + struct.pack(">Ii", 1043, 44)
    message = p.decode(b"R" + struct.pack(">I", 7) + b"shop\0things\0d" + struct.pack(">H", 2) + column)
    columns = (p.RelationColumn("id", 20, -1, True), p.RelationColumn("näme", 1043, 44, False))
    assert message == p.Relation(7, "shop", "things", "d", columns)


def test_rows_of_all_kinds():
    head = struct.pack(">I", 7)
    assert p.decode(b"I" + head + b"N" + row(text("1"), b"n", text("é"))) == p.Insert(7, ("1", None, "é"))
    assert p.decode(b"U" + head + b"N" + row(text("1"), b"u")) == p.Update(7, ("1", p.UNCHANGED))
    changed = p.decode(b"U" + head + b"K" + row(text("1"), b"n") + b"N" + row(text("2"), text("")))
    assert changed == p.Update(7, ("2", ""), ("1", None), "K")
    assert p.decode(b"D" + head + b"K" + row(text("1"), b"n")) == p.Delete(7, ("1", None), "K")
    assert p.decode(b"D" + head + b"O" + row(text("1"), text("x"))) == p.Delete(7, ("1", "x"), "O")


@pytest.mark.parametrize(
    "data", [b"", b"?", b"B\0", b"I\0\0\0\x07N\0\x01b\0\0\0\0", b"I\0\0\0\x07N\0\x01t\0\0\0\x09x", b"R\0\0\0\x07shop"]
)
def test_what_cannot_be_read_is_refused(data):
    with pytest.raises(p.PgOutputError):
        p.decode(data)


def test_log_position():
    assert p.lsn_text(0x1_016B_3748) == "1/16B3748"


def test_live_server(tmp_path):
    pytest.importorskip("psycopg")
    from frazil_demo.postgres import EmbeddedPostgres

    with EmbeddedPostgres(tmp_path) as server, server.connect(autocommit=True) as c:
        c.execute("CREATE TABLE t (a int, b text, PRIMARY KEY (a))")
        c.execute("ALTER TABLE t ALTER b SET STORAGE EXTERNAL")
        c.execute("CREATE PUBLICATION p FOR TABLE t")
        c.execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
        c.execute("INSERT INTO t VALUES (1, repeat('x', 9000))")
        c.execute("UPDATE t SET a = 2")
        c.execute("DELETE FROM t")
        c.execute("TRUNCATE t")
        sql = "SELECT data FROM pg_logical_slot_peek_binary_changes('s', NULL, NULL, 'proto_version', '1', 'publication_names', 'p')"
        messages = [p.decode(data) for (data,) in c.cursor(binary=True).execute(sql)]
    messages.sort(key=lambda m: isinstance(m, p.Relation))  # shapes last: they come again after a TRUNCATE
    kinds = "".join(type(m).__name__[0] for m in messages)
    assert kinds.rstrip("R") == "BICBUCBDCBTC"
    assert [(c.name, c.key) for c in messages[-1].columns] == [("a", True), ("b", False)]
    update, delete = messages[4], messages[7]
    assert (update.old, update.old_kind, update.new) == (("1", None), "K", ("2", p.UNCHANGED))
    assert (delete.old, delete.old_kind) == (("2", None), "K")
    assert messages[2].end_lsn <= messages[3].commit_lsn
