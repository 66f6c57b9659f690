"""Random but repeatable transactions on the shop, of all kinds that a consumer of changes must handle correctly."""

from __future__ import annotations

import random
import time
from collections import Counter

from frazil_demo import words
from frazil_demo.statements import Statements


class Workload:
    """Runs real transactions on the shop; the same seed on the same data gives the same ones.

    Nothing else may use the connection, and it must hold no open transaction; it may be in autocommit mode or not.
    """

    KINDS = (
        "insert", "update", "delete", "null_and_back", "empty_string", "embedded_newline",
        "key_change", "text_key_change", "composite_key_change", "key_chain", "key_swap", "key_reuse",
        "delete_and_insert", "insert_update_delete", "several_tables", "big_value_untouched", "rolled_back",
    )  # fmt: skip

    _WEIGHTS = {"insert": 8, "update": 12, "delete": 3, "several_tables": 4}

    def __init__(self, connection, seed: int = 1):
        self._random = random.Random(seed)
        self._db = connection
        self._sql = Statements(connection, self._random)

    def transaction(self, kind: str | None = None) -> str:
        """Run one transaction of a kind (by default a random one) and return the kind."""
        if kind is None:
            weights = [self._WEIGHTS.get(k, 1) for k in self.KINDS]
            kind = self._random.choices(self.KINDS, weights)[0]
        with self._db.transaction() as transaction:
            getattr(self, f"_{kind}")()
            if kind == "rolled_back":
                import psycopg

                raise psycopg.Rollback(transaction)
        if not self._db.autocommit:
            self._db.commit()
        return kind

    def showcase(self) -> Counter:
        """Run one transaction of each kind, in a fixed order; return counts by kind."""
        return Counter(self.transaction(kind) for kind in self.KINDS)

    def run(self, transactions: int = 200, rate: float | None = None) -> Counter:
        """Run a showcase, then random transactions up to a total, at most `rate` a second; return counts by kind."""
        counts = self.showcase()
        started = time.monotonic()
        for done in range(max(0, transactions - counts.total())):
            if rate:
                time.sleep(max(0.0, started + done / rate - time.monotonic()))
            counts[self.transaction()] += 1
        return counts

    def _insert(self) -> None:
        maker = self._random.choice(("customer", "order", "payment", "event", "product", "bin"))
        for _ in range(self._random.randint(1, 5)):
            getattr(self._sql, f"new_{maker}")()

    def _update(self) -> None:
        for _ in range(self._random.randint(1, 4)):
            self._random.choice(
                (
                    lambda: self._sql.set("customers", notes=self._sql.text(words.NOTES), updated_at=self._sql.now()),
                    lambda: self._sql.set("orders", status="shipped", remark=self._sql.text(words.REMARKS)),
                    lambda: self._sql.set(
                        "order_lines", quantity=self._random.randint(1, 99), note=self._sql.text(words.REMARKS)
                    ),
                    lambda: self._sql.set(
                        "products", price=self._random.randint(1, 15_000) / 100, name=self._sql.product()
                    ),
                    lambda: self._sql.set("inventory", on_hand=self._random.randint(0, 999)),
                    lambda: self._sql.set("payments", refunded=True, card_digest=self._random.randbytes(5)),
                    lambda: self._sql.set("events", ratio8=self._random.uniform(-1e9, 1e9), raw=self._sql.text()),
                    lambda: self._sql.touch("orders"),
                )
            )()

    def _delete(self) -> None:
        table = self._random.choice(("orders", "order_lines", "payments", "inventory", "events", "products"))
        for _ in range(self._random.randint(1, 3)):
            self._sql.delete(table, self._sql.some(table))

    def _null_and_back(self) -> None:
        key = self._sql.some("customers")
        self._sql.set("customers", key, company=None, credit_limit=None, born=None, preferences=None)
        self._sql.set(
            "customers", key, company="Cedar Press", credit_limit=1200, born="1970-01-01", preferences='{"news": true}'
        )
        key = self._sql.some("events")
        self._sql.set("events", key, raw="", body=b"", numbers=[], code="")
        self._sql.set("events", key, raw=None, body=None, numbers=None, code=None)

    def _empty_string(self) -> None:
        self._sql.set("customers", company="", notes="", full_name="")
        self._sql.set("order_lines", note="")

    def _embedded_newline(self) -> None:
        self._sql.set("products", description='first\nsecond, "third"\r\nlast\\')
        row = self._db.execute("SELECT customer_id FROM shop.customers WHERE notes LIKE E'%\\n%' LIMIT 1").fetchone()
        self._sql.set("customers", row or self._sql.some("customers"), vip=True, notes=" \n ")

    def _key_change(self) -> None:
        self._sql.rekey("customers", self._sql.some("customers"), (self._sql.fresh("customers"),))
        self._sql.rekey("payments", self._sql.some("payments"), (self._sql.uuid(),))

    def _text_key_change(self) -> None:
        key = self._sql.some("products")
        self._sql.rekey("products", key, (f'NEW-"{self._sql.number()}", é\n{key[0][:40]}',))

    def _composite_key_change(self) -> None:
        order, line = self._sql.some("order_lines")
        self._sql.rekey("order_lines", (order, line), (order, self._sql.fresh_line(order)))
        warehouse, place = self._sql.some("inventory")
        self._sql.rekey(
            "inventory", (warehouse, place), (f"{warehouse[:40]} annexe", self._sql.fresh("inventory", "bin"))
        )

    def _key_chain(self) -> None:
        key = self._sql.some("orders")
        for _ in range(3):
            after = (self._sql.fresh("orders"),)
            self._sql.rekey("orders", key, after)
            key = after
        self._sql.set("orders", key, remark="end of the chain")

    def _key_swap(self) -> None:
        """Swap the keys of two rows by way of a third key."""
        for table, between in (("orders", (-1,)), ("products", ("between",)), ("inventory", ("between", -1))):
            a, b = self._sql.some(table), self._sql.some(table)
            if a == b:
                continue
            self._sql.rekey(table, a, between)
            self._sql.rekey(table, b, a)
            self._sql.rekey(table, between, b)

    def _key_reuse(self) -> None:
        """Change a key, then insert another row under the old one."""
        old = self._sql.some("events")
        self._sql.rekey("events", old, (self._sql.fresh("events"),))
        self._sql.new_event(old[0])
        old = self._sql.some("orders")
        self._sql.rekey("orders", old, (self._sql.fresh("orders"),))
        self._sql.new_order(old[0])

    def _delete_and_insert(self) -> None:
        key = self._sql.some("events")
        self._sql.delete("events", key)
        self._sql.new_event(key[0])

    def _insert_update_delete(self) -> None:
        key = (self._sql.new_event(),)
        self._sql.set("events", key, raw="short life", flag=None)
        self._sql.delete("events", key)
        self._sql.new_bin()

    def _several_tables(self) -> None:
        customer = self._sql.new_customer()
        order = self._sql.new_order(customer=customer)
        self._sql.new_payment(order)
        self._sql.set("inventory", on_hand=self._random.randint(0, 999), reserved=None)
        self._sql.set("orders", (order,), status="paid", total=None)

    def _big_value_untouched(self) -> None:
        """Update a row that has a value so large that the log leaves it out."""
        key = (self._sql.new_event(),)
        self._sql.big("events", key, "raw")
        self._sql.set("events", key, flag=True)

    def _rolled_back(self) -> None:
        for kind in ("insert", "update", "delete", "key_change"):
            getattr(self, f"_{kind}")()
        self._sql.new_event(raw="ROLLED BACK: must never appear")
