"""The records of runs of notebooks (`run.json`), their folders, and one page over all of them."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from frazil_old.config.private_files import replace
from frazil_old.config.processes import host, is_running
from frazil_old.errors import many, safe, safe_facts
from frazil_old.exit_codes import EXIT_CODES, NOTHING, outcome_of, why
from frazil_old.report.render import loader, render

FILE = "run.json"
STARTED = "FRAZIL_RUN"
"""The environment variable that `frazil run` sets for its notebook: it records the run itself."""
NAMES = ("00_setup", "01_full_load", "02_cdc_merge", "03_maintenance", "06_warehouses")
"""The notebooks that write."""
ROOM = 1 << 16
"""Bytes that a run needs at least to store its files."""
SHOWN, KEPT = 5, 500
"""Maximum numbers of tables that a line names, and of run folders that are kept."""


def applied(result: dict[str, Any]) -> int:
    """Return the number of changes, or of rows of a load, that a table's result in a record counts."""
    return result.get("changes", result.get("rows", 0)) or 0


def applied_rows(tables: dict[str, dict[str, Any]]) -> int:
    """Return the sum of `applied`; tables that were only inspected have no status."""
    return sum(applied(result) for result in tables.values() if "status" in result)


def restored(tables: dict[str, dict[str, Any]]) -> str:
    """Return what a run repeated or gave up, by its record's tables: loads, and rows of the quarantine; empty if nothing."""
    lines = []
    for word in ("reloaded", "replayed"):
        loads = [f"{t} ({f['rows']:,} rows)" for t, f in tables.items() if f.get("status") == word and "rows" in f]
        if loads:
            more = f" and {len(loads) - SHOWN} more" if loads[SHOWN:] else ""
            then = "; 02_cdc_merge applies their change files again" if word == "replayed" else ""
            lines.append(f"load {word}: {', '.join(loads[:SHOWN])}{more}{then}")
    for word in ("replayed", "discarded"):
        if rows := {t: f[word] for t, f in tables.items() if f.get(word)}:
            lines.append(f"{many(sum(rows.values()), 'row')} of the quarantine {word}: {', '.join([*rows][:SHOWN])}")
    return "; ".join(lines)


def write(folder: Path, **facts: Any) -> dict[str, Any]:
    """Write the facts of a run into its folder and return them as they are shown."""
    shown = safe_facts(facts)
    replace(folder / FILE, json.dumps(shown, indent=1, default=str))
    return shown


def new_folder(home: Path, name: str) -> Path:
    """Make a folder for a run that begins now."""
    while True:
        folder = home / f"{name}-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
        try:
            folder.mkdir()
            return folder
        except FileExistsError:
            time.sleep(0.2)


def record(home: Path, section: str, facts: dict[str, Any], env: str, began: float) -> None:
    """Store and index a notebook's run that `frazil run` did not start; a disk that is full or read-only does not stop it."""
    name = next((n for n in NAMES if n.partition("_")[2] == section), section)
    tables = facts["tables"]
    with suppress(OSError):
        folder = new_folder(home, name)
        write(
            folder,
            notebook=name,
            env=env,
            began=began,
            seconds=round(time.time() - began, 2),
            outcome=outcome_of(facts, ""),
            cause=why(facts),
            tables=tables,
            rows=applied_rows(tables),
            by="a kernel",
        )
        retain(home)
        write_index(home)


def as_page(notebook: Path, page: Path | None = None) -> Path:
    """Render an executed notebook as a self-contained HTML page, next to it or as `page`."""
    from nbconvert import HTMLExporter

    page = page or notebook.with_suffix(".html")
    exporter = HTMLExporter(embed_images=True, template_file="notebook.html.j2", extra_loaders=[loader()])
    page.write_text(exporter.from_filename(str(notebook))[0], encoding="utf-8")
    return page


def unusable(folder: Path, error: OSError | None = None) -> str:
    """Return why nothing can be stored in a folder, with its free space; empty if something can."""
    there = next(f for f in (folder, *folder.parents) if os.path.exists(f))  # of another user: the last that shows
    if error is None:
        try:
            with tempfile.TemporaryFile(dir=there) as room:
                room.write(b"0" * ROOM)
            return ""
        except OSError as e:
            error = e
    free = shutil.disk_usage(there).free
    return f"{folder} cannot be written: {error.strerror or error}; {free / 1e6:,.1f} MB are free there"


def read(folder: Path) -> list[dict[str, Any]]:
    """Return all runs of an environment, newest first.

    One whose process died without a record counts as `failed`, and so does one whose record is damaged.
    """
    found = []
    for file in folder.glob(f"*/{FILE}"):
        if not (run := _recorded(file)):
            continue
        if run["outcome"] == "running" and not is_running(run.get("host", host()), run["pid"], run["began"]):
            run |= {"outcome": "failed", "cause": "the process was killed"}
            with suppress(OSError):  # full or read-only
                write(file.parent, **run)
        found.append({**run, "folder": file.parent})
    return sorted(found, key=lambda r: (r["began"], r["folder"].name), reverse=True)


def _recorded(file: Path) -> dict[str, Any] | None:
    """Return a run's record; None if another process removed it. Another writer or a power cut may have damaged it."""
    try:
        began = file.stat().st_mtime
        run = json.loads(file.read_text(encoding="utf-8"))
        if {"notebook", "outcome", "began"} <= set(run):
            return run
    except FileNotFoundError:
        return None
    except (TypeError, ValueError):
        pass
    name = file.parent.name.rpartition("-")[0] or file.parent.name
    return {"notebook": name, "outcome": "failed", "cause": f"{file} is damaged", "began": began}


def retain(folder: Path, keep: int = KEPT) -> list[Path]:
    """Remove the oldest run folders beyond `keep` and return them; a running one stays."""
    old = [r["folder"] for r in read(folder)[keep:] if r["outcome"] != "running"]
    for gone in old:
        with suppress(FileNotFoundError):  # another run removes the same ones
            shutil.rmtree(gone)
    return old


def write_index(folder: Path) -> Path:
    """Write `index.html` over all runs of an environment: links, outcome, duration, rows, the worst latency."""
    page, rows = folder / "index.html", [_row(run) for run in read(folder)]
    replace(page, render("runs.html.j2", environment=safe(folder.name), runs=rows))
    return page


def _row(run: dict[str, Any]) -> dict[str, Any]:
    """Return what the page shows of a run."""
    code = EXIT_CODES.get(run["outcome"])
    kind = "" if not code else "bad" if code < NOTHING else "still"
    files = sorted(run["folder"].glob("[!.]*"))
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(run["began"]))
    known = {"seconds": 0, "rows": 0, "worst_lag_s": None, "cause": ""} | run
    return {**known, "at": began, "code": "" if code is None else code, "kind": kind, "files": files}
