"""The live status of continuous ingestion: a line per table, refreshed in a notebook, printed from time to time elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from frazil.errors import safe
from frazil.report.progress import watched
from frazil.report.render import render


class Board:
    """The newest line of each table. `set` is cheap and may be called from any thread."""

    def __init__(self, say: Callable[[str], None], every_s: float = 10.0):
        self.lines: dict[str, str] = {}
        self.say, self.every_s, self.said = say, every_s, {}
        self.lock = threading.Lock()
        self.handle = None
        if watched():
            from IPython.display import display

            self.handle = display(self, display_id=True)

    def __repr__(self) -> str:
        width = max((len(t) for t in self.lines), default=0)
        return (
            "\n".join(f"{t.ljust(width)}  {line}" for t, line in sorted(self.lines.items())) or "(waiting for changes)"
        )

    def _repr_html_(self) -> str:
        return render("live_status.html.j2", bars=[], text=repr(self))

    def set(self, table: str, line: str, important: bool = False) -> None:
        """Show a table's newest line; outside a notebook at most one every `every_s` seconds unless it is important."""
        table, line = safe(table), safe(line, lines=True)
        with self.lock:
            changed, self.lines[table] = self.lines.get(table) != line, line
            if self.handle is not None:
                self.handle.update(self)
            elif changed and (important or time.monotonic() - self.said.get(table, -self.every_s) >= self.every_s):
                self.said[table] = time.monotonic()
                for part in f"{table}: {line}".split("\n"):
                    self.say(part)


def status(
    changes: int,
    seconds: float,
    commit_s: float,
    pending: float | None = None,
    lag_p50_s: float | None = None,
    lag_p99_s: float | None = None,
) -> str:
    """Return the status line of a table's newest pass: its rate, the lag and commit time of its last batch, and what is pending."""
    lag = "lag unknown" if lag_p50_s is None else f"lag p50 {lag_p50_s:.1f} s, p99 {lag_p99_s:.1f} s"
    left = "" if pending is None else f", {pending:.0f} file(s) pending"
    return f"{changes / max(seconds, 1e-3):,.0f} changes/s, {lag}, commit {commit_s:.2f} s{left}"
