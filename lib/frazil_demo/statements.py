"""The single statements of the workload's transactions."""

from __future__ import annotations

import random
import uuid
from datetime import datetime, timedelta

from frazil_demo import words
from frazil_demo.catalog import quoted
from frazil_demo.shop import HARD_TEXTS

KEYS = {
    "customers": ("customer_id",),
    "products": ("sku",),
    "orders": ("order_id",),
    "order_lines": ("order_id", "line_no"),
    "payments": ("payment_id",),
    "inventory": ("warehouse", "bin"),
    "events": ("event_id",),
}
"""The key columns by table."""


class Statements:
    """Inserts, updates, deletes and re-keys rows of the shop; every choice comes from the given random source."""

    def __init__(self, connection, source: random.Random):
        self._db, self._random = connection, source
        self._number = 0

    def number(self) -> int:
        """Return 1, 2, 3, …"""
        self._number += 1
        return self._number

    def now(self) -> datetime:
        """Return a repeatable "now"."""
        return datetime(2026, 1, 1) + timedelta(seconds=self._random.uniform(0, 1e6))

    def uuid(self) -> uuid.UUID:
        """Return a repeatable uuid."""
        return uuid.UUID(int=self._random.getrandbits(128))

    def some(self, table: str) -> tuple:
        """Return the key of a random row."""
        names, first = quoted_list(KEYS[table]), quoted(KEYS[table][0])
        source = f"SELECT {names} FROM shop.{table}"
        if table in ("payments", "products", "inventory"):
            place = f"OFFSET (SELECT floor(%s * count(*))::bigint FROM shop.{table})"
            return self._db.execute(f"{source} ORDER BY {names} {place} LIMIT 1", (self._random.random(),)).fetchone()
        low, high = self._db.execute(f"SELECT min({first}), max({first}) FROM shop.{table}").fetchone()
        sql = f"{source} WHERE {first} >= %s ORDER BY {names} LIMIT 1"
        return self._db.execute(sql, (self._random.randint(low, high),)).fetchone()

    def fresh(self, table: str, column: str = "") -> int:
        """Return an integer key that no row has."""
        column = quoted(column or KEYS[table][0])
        return self._db.execute(f"SELECT coalesce(max({column}), 0) + 1 FROM shop.{table}").fetchone()[0]

    def fresh_line(self, order: int) -> int:
        """Return a line number that an order does not have yet."""
        sql = "SELECT coalesce(max(line_no), 0) + 1 FROM shop.order_lines WHERE order_id = %s"
        return self._db.execute(sql, (order,)).fetchone()[0]

    def insert(self, table: str, **values) -> None:
        """Insert one row."""
        sql = f"INSERT INTO shop.{table} ({quoted_list(values)}) VALUES ({', '.join(['%s'] * len(values))})"
        self._db.execute(sql, list(values.values()))

    def set(self, table: str, key: tuple | None = None, **values) -> None:
        """Update one row, by default some row."""
        key = key or self.some(table)
        changes = ", ".join(f"{quoted(c)} = %s" for c in values)
        self._db.execute(f"UPDATE shop.{table} SET {changes} WHERE {_where(table)}", [*values.values(), *key])

    def touch(self, table: str) -> None:
        """Update some row without changing a value."""
        column = quoted(KEYS[table][0])
        self._db.execute(f"UPDATE shop.{table} SET {column} = {column} WHERE {_where(table)}", self.some(table))

    def rekey(self, table: str, old: tuple, new: tuple) -> None:
        """Change a row's key."""
        self.set(table, old, **dict(zip(KEYS[table], new, strict=True)))

    def delete(self, table: str, key: tuple) -> None:
        """Delete one row."""
        self._db.execute(f"DELETE FROM shop.{table} WHERE {_where(table)}", key)

    def big(self, table: str, key: tuple, column: str) -> None:
        """Give a column a value that is stored outside its row (some 20 kB that do not compress)."""
        text = self._random.randbytes(10_000).hex()
        self.set(table, key, **{column: text})

    def new_customer(self) -> int:
        """Insert a customer and return its number."""
        key = self.fresh("customers")
        self.insert(
            "customers", customer_id=key, email=f"new{key}@example.org", full_name=self.person(), country="DE",
            tier="gold", balance=self._random.randint(-10**7, 10**7) / 10_000, vip=False, notes=self.text(words.NOTES),
            rating=self._random.random() * 10 ** self._random.randint(-300, 300), created_at=f"{self.now()}+00",
        )  # fmt: skip
        return key

    def new_order(self, key: int | None = None, customer: int = 1) -> int:
        """Insert an order with one line and return its number."""
        key = key if key is not None else self.fresh("orders")
        self.insert(
            "orders", order_id=key, customer_id=customer, status="open", ordered_at=f"{self.now()}+00",
            remark=self.text(words.REMARKS), client_ip="10.0.0.1", total=self._random.randint(0, 60_000) / 100,
        )  # fmt: skip
        line = self.fresh_line(key)
        self.insert("order_lines", order_id=key, line_no=line, sku="SKU-000001", quantity=line, unit_price=1.5)
        return key

    def new_payment(self, order: int = 1) -> None:
        """Insert a payment."""
        self.insert(
            "payments", payment_id=self.uuid(), order_id=order, amount=self._random.randint(1, 60_000) / 100,
            method="card", paid_at=self.now(), card_digest=self._random.randbytes(4),
        )  # fmt: skip

    def new_event(self, key: int | None = None, raw: str | None = None) -> int:
        """Insert an event and return its number."""
        key = key if key is not None else self.fresh("events")
        self.insert(
            "events", event_id=key, kind="click", happened_at=self.now(), payload='{"new": "a, \\"b\\""}',
            raw=self.text() if raw is None else raw, ratio4=self._random.random(), flag=False, code="ab",
            numbers=[1, None, 3], span="1 day 02:00", body=self._random.randbytes(3), amount="0.1",
        )  # fmt: skip
        return key

    def new_product(self) -> None:
        """Insert a product."""
        key = f"NEW {self.number()} {self._random.getrandbits(32):08x}, '{self.text()}'"
        name, use = self.product(), self._random.choice(words.USES)
        self.insert("products", sku=key, name=name, description=f"{name} {use}", price=1, active=True, thumbnail=b"")

    def new_bin(self) -> None:
        """Insert a bin."""
        self.insert("inventory", warehouse="Nové", bin=self.fresh("inventory", "bin"), sku="SKU-000002", on_hand=0)

    def person(self) -> str:
        """Return a name."""
        return f"{self._random.choice(words.FIRST_NAMES)} {self._random.choice(words.LAST_NAMES)}"

    def product(self) -> str:
        """Return the name of a product."""
        return f"{self._random.choice(words.MATERIALS)} {self._random.choice(words.THINGS)}"

    def text(self, easy: tuple[str, ...] = ()) -> str:
        """Return one of `HARD_TEXTS`, or in half of the cases one of some easy texts."""
        return self._random.choice(easy if easy and self._random.random() < 0.5 else HARD_TEXTS)


def quoted_list(names) -> str:
    """Return quoted column names, separated by commas."""
    return ", ".join(quoted(n) for n in names)


def _where(table: str) -> str:
    return " AND ".join(f"{quoted(k)} = %s" for k in KEYS[table])
