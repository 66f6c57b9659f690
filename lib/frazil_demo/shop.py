"""The demo's source: a shop in PostgreSQL, with every common type and the values that break readers."""

from __future__ import annotations

from frazil_demo import words
from frazil_demo.shop_ddl import COMMENTS, DDL, TABLES

ROWS = {
    "customers": 5_000, "products": 2_000, "orders": 20_000, "order_lines": 50_000,
    "payments": 12_000, "inventory": 6_000, "events": 5_000,
}  # fmt: skip
"""Rows by table at scale 1."""

HARD_TEXTS = [
    "plain", "", " leading", "trailing ", "  both  ", "comma, comma", 'say "hi"', '"', '""', "'single'",
    "two\nlines", "\nleading newline", "trailing newline\n", "carriage\r\nreturn", "lone\rreturn", "tab\there",
    "back\\slash", "ends in backslash\\", "\\n is not a newline", 'quote, "comma"\nand line', "Grüße, Ærø, Łódź",
    "日本語テキスト", "emoji 🧊🚀", "e\u0301 combining", "مرحبا", "null", "\\N", "0", "true", "#comment", "-", ";", ",", "\n",
]  # fmt: skip
"""Texts that CSV readers get wrong; none equals the null token of the demo's endpoint."""


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


class _Dice:
    """Writes SQL expressions of `i` (the row number) that give the same pseudo-random values for the same seed."""

    def __init__(self, seed: int):
        self._seed, self._salt = seed * 1000, 0

    def number(self, below: int) -> str:
        """Return an integer from 0 to below a bound."""
        self._salt += 1
        return f"abs(hashint8extended(i, {self._seed + self._salt}) % {below})"

    def maybe(self, expression: str, nulls: int = 8) -> str:
        """Return an expression that is null in one row of `nulls`."""
        return f"CASE WHEN {self.number(nulls)} > 0 THEN {expression} END"

    def pick(self, *values: str) -> str:
        """Return one of some SQL expressions of the same type."""
        return f"(ARRAY[{', '.join(values)}])[1 + {self.number(len(values))}]"

    def words(self, *lists: tuple[str, ...]) -> str:
        """Return a word of each list, separated by spaces."""
        return " || ' ' || ".join(self.pick(*(_literal(t) for t in words)) for words in lists)

    def text(self, *lists: tuple[str, ...], hard_in: int = 25) -> str:
        """Return words of some lists, and in one row of `hard_in` one of `HARD_TEXTS`."""
        hard = self.pick(*(_literal(t) for t in HARD_TEXTS))
        return f"CASE WHEN {self.number(hard_in)} = 0 THEN {hard} ELSE {self.words(*lists)} END"

    def uuid(self) -> str:
        """Return a uuid."""
        self._salt += 1
        return f"md5('{self._seed + self._salt}-' || i)::uuid"

    def moment(self) -> str:
        """Return a timestamp of 2020 to 2025, to the microsecond."""
        return (
            f"timestamp '2020-01-01' + {self.number(189_000_000)} * interval '1 second'"
            f" + {self.number(1_000_000)} * interval '1 microsecond'"
        )

    def date(self, first: str, days: int) -> str:
        """Return a date of some days from `first` on, sometimes one at the calendar's ends."""
        return (
            f"CASE {self.number(200)} WHEN 0 THEN date '0001-01-01' WHEN 1 THEN date '9999-12-31' "
            f"WHEN 2 THEN date '1582-10-10' ELSE date '{first}' + ({self.number(days)})::int END"
        )

    def time(self) -> str:
        """Return a time of day, sometimes at the day's ends."""
        return (
            f"CASE {self.number(50)} WHEN 0 THEN time '00:00' WHEN 1 THEN time '23:59:59.999999' "
            f"ELSE time '00:00' + {self.number(86_400_000)} * interval '1 millisecond' END"
        )

    def hex(self) -> str:
        """Return some bytes, or none."""
        return self.pick("''::bytea", "'\\x00'::bytea", "'\\x00ff5c220a0d2c'::bytea", "decode(md5(i::text), 'hex')")


def _customers(d: _Dice) -> list[str]:
    return [
        "i", "'user' || i || '@example.org'", d.words(words.FIRST_NAMES, words.LAST_NAMES), d.maybe(d.text(words.PLACES, words.FIRMS), 4),
        d.pick("'DE'", "'FR'", "'JP'", "'US'"), d.pick("'bronze'", "'silver'", "'gold'") + "::shop.tier",
        d.maybe(f"{d.number(100)} * 100.00"), f"({d.number(20_000_000)} - 5000000) / 10000.0",
        d.maybe(f"{d.number(1000)} / 10.0"), d.maybe(f"{d.number(1_000)} / 3.0"), f"{d.number(5)} = 0",
        d.maybe(d.date("1945-01-01", 22_000)), d.maybe(d.text(words.NOTES), 3),
        d.maybe("jsonb_build_object('news', i % 2 = 0, 'size', 'M, \"tall\"', 'phone', null)"),
        d.moment(), d.maybe(d.moment()),
    ]  # fmt: skip


def _products(d: _Dice) -> list[str]:
    return [
        "'SKU-' || lpad(i::text, 6, '0') || CASE i % 5 WHEN 0 THEN ' é' WHEN 1 THEN ', \"x\"' ELSE '' END",
        d.words(words.MATERIALS, words.THINGS), d.maybe(d.text(words.MATERIALS, words.THINGS, words.USES), 3),
        f"{d.number(15_000)} / 100.0",
        d.maybe(f"{d.number(100)} / 9.0"), d.maybe(f"{d.number(100)} / 11.0"),
        d.maybe("json_build_object('colour', 'red', 'sizes', json_build_array(1, 2, i))"),
        d.maybe(f"CASE i % 3 WHEN 0 THEN '{{}}'::int[] ELSE ARRAY[i::int, -1, NULL, {d.number(9)}::int] END"),
        d.maybe(d.hex()), f"{d.number(10)} > 0", d.maybe(d.date("2018-01-01", 2_800)), d.maybe("left(md5(i::text), (i % 9)::int)"),
    ]  # fmt: skip


def _orders(d: _Dice) -> list[str]:
    return [
        "i", f"1 + {d.number(5_000)}", d.pick("'open'", "'paid'", "'shipped'", "'closed'") + "::shop.order_status",
        d.moment(), d.maybe(d.time()), d.maybe(d.date("2025-01-01", 360)), d.maybe(f"{d.number(14_000)} * interval '1 minute'"),
        d.maybe(d.text(words.REMARKS), 3), d.maybe(d.pick("'10.1.2.3'::inet", "'192.168.0.0/16'::inet", "'2001:db8::1'::inet")),
        d.maybe(f"{d.number(60_000)} / 100.0"),
    ]  # fmt: skip


def _order_lines(d: _Dice) -> list[str]:
    return [
        "1 + (i - 1) / 3", "1 + (i - 1) % 3", f"'SKU-' || lpad((1 + {d.number(2_000)})::text, 6, '0')",
        f"1 + {d.number(5)}", f"{d.number(15_000)} / 100.0", d.maybe(f"{d.number(30)} / 100.0"),
        d.maybe(d.text(words.REMARKS), 3), d.maybe(f"{d.number(2)} = 0"),
    ]  # fmt: skip


def _payments(d: _Dice) -> list[str]:
    return [
        d.uuid(), f"1 + {d.number(20_000)}", f"({d.number(60_000)} - 3000) / 100.0",
        d.maybe(f"{d.number(100_000_000)} / 100000000.0"), d.pick("'card'", "'cash'", "'transfer'", "'gift, card'"),
        d.maybe(d.moment()), d.maybe(d.hex()), d.maybe(f"{d.number(9)} = 0"), d.maybe(d.uuid()),
    ]  # fmt: skip


def _inventory(d: _Dice) -> list[str]:
    return [
        "(ARRAY['Berlin', 'Łódź', 'São Paulo, BR', ' Oslo '])[1 + i % 4]", "i",
        f"'SKU-' || lpad((1 + {d.number(2_000)})::text, 6, '0')", d.number(1_000), d.maybe(f"{d.number(50)} - 25"),
        d.maybe(d.moment()), d.maybe(f"{d.number(600)} / 10.0 - 30"), d.maybe(d.time()),
    ]  # fmt: skip


def _events(d: _Dice) -> list[str]:
    extreme = {
        "small": d.pick("-32768", "32767", "0", "-1") + "::smallint",
        "medium": d.pick("-2147483648", "2147483647", "0", "42"),
        "large": d.pick("-9223372036854775808", "9223372036854775807", "0", "42"),
        "ratio4": d.pick(*(f"'{x}'::real" for x in ("3.4028235e38", "-3.4028235e38", "1.1754944e-38", "1e-45", "0.1"))),
        "ratio8": d.pick(
            *(f"'{x}'::float8" for x in ("1.7976931348623157e308", "-2.2250738585072014e-308", "5e-324", "0.1", "1e15"))
        ),
        "amount": d.pick(
            *("9999999999999999999999999999.9999999999", "-9999999999999999999999999999.9999999999", "0", "0.0000000001")
        ),
        "moment": d.pick(
            *(f"timestamptz '{x}'" for x in ("0001-01-02 00:00Z", "9999-12-30 23:59:59.999999Z", "1969-12-31 23:59:59.5Z")),
            "timestamptz '2024-03-31 01:30:00.000001+02'",
        ),
        "span": d.pick(*(f"interval '{x}'" for x in ("0", "1 year 2 mons -3 days", "-00:00:00.000001", "14 mons"))),
    }  # fmt: skip
    happened = (
        f"CASE {d.number(100)} WHEN 0 THEN timestamp '0001-01-01' "
        f"WHEN 1 THEN timestamp '9999-12-31 23:59:59.999999' ELSE {d.moment()} END"
    )
    return [
        "i", d.pick("'view'", "'click'", "'search'"), d.maybe(d.uuid()), happened,
        d.maybe("jsonb_build_array(i, 'a\"b', null, jsonb_build_object('k', 'v,w'))"), d.maybe(d.text(words.REMARKS, hard_in=2)),
        d.maybe(extreme["small"]), d.maybe(extreme["medium"]), d.maybe(extreme["large"]), d.maybe(extreme["ratio4"]),
        d.maybe(extreme["ratio8"]), d.maybe(extreme["amount"]), d.maybe(d.date("1925-01-01", 36_500)), d.maybe(extreme["moment"]),
        d.maybe(d.time()), d.maybe(d.hex()), d.maybe(f"{d.number(2)} = 0"), d.maybe("left(md5(i::text), (i % 7)::int)"),
        d.maybe(d.pick("'::1'::inet", "'10.0.0.0/8'::inet")), d.maybe(extreme["span"]),
        d.maybe("ARRAY[1, NULL, -2147483648]"),
    ]  # fmt: skip


_MAKERS = {
    "customers": _customers, "products": _products, "orders": _orders, "order_lines": _order_lines,
    "payments": _payments, "inventory": _inventory, "events": _events,
}  # fmt: skip


def create(connection) -> None:
    """Create the schema `shop`, with comments and the publication `frazil`; an older one is dropped."""
    connection.execute("DROP PUBLICATION IF EXISTS frazil")
    connection.execute("DROP SCHEMA IF EXISTS shop CASCADE")
    connection.execute(DDL)
    for name, comment in COMMENTS.items():
        kind = "TABLE" if name.count(".") == 1 else "COLUMN"
        connection.execute(f"COMMENT ON {kind} {name} IS '{comment.replace(chr(39), chr(39) * 2)}'")
    connection.execute("CREATE PUBLICATION frazil FOR TABLES IN SCHEMA shop")


def fill(connection, scale: float = 1.0, seed: int = 1) -> dict[str, int]:
    """Fill the tables with rows that depend only on scale and seed; return the row counts by table."""
    connection.execute("SET timezone = 'UTC'")
    counts = {}
    for table in TABLES:
        counts[table] = max(20, round(ROWS[table] * scale))
        values = ", ".join(_MAKERS[table](_Dice(seed)))
        connection.execute(
            f"INSERT INTO shop.{table} SELECT {values} FROM generate_series(1::bigint, {counts[table]}) AS i"
        )
    return counts


def make(connection, scale: float = 1.0, seed: int = 1) -> dict[str, int]:
    """Create and fill the shop in one transaction; return the row counts by table."""
    with connection.transaction():
        create(connection)
        return fill(connection, scale, seed)
