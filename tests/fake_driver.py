"""A DB-API driver that records what it is sent, and answers as a test says: with rows, errors, delays, or not at all."""

import re
import threading
import time
from dataclasses import dataclass, field

SNOW = {
    "engine": "snowflake", "database": "analytics", "region": "eu-west-1", "account": "123456789012", "location": "s3://lake/warehouse/",
    "role": "arn:aws:iam::123456789012:role/reader", "connect": "fake_driver:connect",
}  # fmt: skip
"""What an environment declares of a warehouse that this driver reaches."""


@dataclass
class FakeServer:
    """A database that keeps the names of what was created; `answers` are tried in order, before that."""

    sent: list[str] = field(default_factory=list)
    there: set[str] = field(default_factory=set)
    answers: list[tuple[str, object]] = field(default_factory=list)
    arguments: dict = field(default_factory=dict)
    in_flight: int = 0
    most_in_flight: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def execute(self, statement: str):
        with self.lock:
            self.sent.append(statement)
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return self._answer(statement)
        finally:
            with self.lock:
                self.in_flight -= 1

    def _answer(self, statement: str):
        for pattern, answer in self.answers:
            if re.search(pattern, statement):
                found = answer(statement) if callable(answer) else answer
                if isinstance(found, Exception):
                    raise found
                if isinstance(found, float):
                    time.sleep(found)
                    return []
                return found
        name = re.search(r'EXISTS (["`\w.]+)', statement)
        last = name and re.findall(r"\w+", name[1])[-1]
        if statement.startswith("CREATE"):
            self.there.add(last)
        elif statement.startswith(("SHOW", "SELECT")):
            return [("x", name, "public") for name in sorted(self.there)]
        return []


SERVERS: dict[str, FakeServer] = {}


class Cursor:
    description = None

    def __init__(self, server: FakeServer):
        self.server = server

    def execute(self, statement: str) -> None:
        self.rows = self.server.execute(statement)
        self.description = [("created_on",), ("name",), ("schema_name",)] if self.rows else None

    def fetchall(self):
        return self.rows

    def close(self) -> None:
        pass


class Connection:
    autocommit = False

    def __init__(self, server: FakeServer):
        self.cursor = lambda: Cursor(server)

    def close(self) -> None:
        pass


def connect(server: str = "fake", **arguments) -> Connection:
    """Connect to a server that the test made."""
    SERVERS[server].arguments = arguments
    return Connection(SERVERS[server])
