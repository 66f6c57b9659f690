"""Run benchmark groups and keep their figures: `python tests/bench [group …] [--quick]` (`make bench BENCH="parse list"`).

A group is a module beside this one with `run(quick)` that returns `{name, value, unit, conditions}` rows. A row of `lib/frazil`
has `house: new`; the figure of `lib/frazil_old` in the same run has the suffix `_old`, or no suffix where only the old library has it.
Figures are written after each group into `runs/bench/results.json`, over those of the same name, so that a long series can be resumed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
sys.path[:0] = [str(HERE.parent), str(ROOT / "lib")]
RESULTS = ROOT / "runs" / "bench" / "results.json"
GROUPS = sorted(f.stem for f in HERE.glob("[a-z]*.py"))
BY_DOORS = {"fullload", "drain", "quarantine", "idle", "visible", "cluster"}
"""Groups that measure one library, as the suite tests it: both in one run, one after the other."""


def keep(rows: list[dict]) -> None:
    """Write figures over those of the same name that are there from earlier."""
    there = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    named = {r["name"]: r for r in (*there, *rows)}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(sorted(named.values(), key=lambda r: r["name"]), indent=1) + "\n")


def table(rows: list[dict]) -> list[str]:
    """Return lines with the figures of both libraries side by side."""
    figures: dict[str, dict] = {}
    for r in rows:
        figures.setdefault(r["name"].removesuffix("_old"), {})[r.get("house", "old")] = r
    lines = [f"  {'figure':32} {'frazil':>14} {'frazil_old':>14} {'unit':10} conditions"]
    for name, found in figures.items():
        new, old = (f"{found[h]['value']:,}" if h in found else "" for h in ("new", "old"))
        any_of = found.get("new") or found["old"]
        lines.append(f"  {name:32} {new:>14} {old:>14} {any_of['unit']:10} {any_of['conditions']}")
    return lines


def main() -> int:
    """Run the groups named, all if none is, print each figure and keep it; 2 for a group that is not there."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__.splitlines()[0])
    parser.add_argument("groups", nargs="*", help=f"of {', '.join(GROUPS)}; all if none is named")
    parser.add_argument("--quick", action="store_true", help="smaller data and fewer repeats: minutes, not figures to quote")  # fmt: skip
    asked = parser.parse_args()
    if unknown := [g for g in asked.groups if g not in GROUPS]:
        parser.error(f"no group {', '.join(unknown)}; there are: {', '.join(GROUPS)}")
    wanted = asked.groups or [g for g in GROUPS if g != "quarantine"]  # which `streams` measures too
    if "FRAZIL_HOUSE" not in os.environ:
        # A process of its own for each: none finds a warm JVM, or memory that is taken.
        again = [sys.executable, str(HERE), *(["--quick"] if asked.quick else [])]
        runs = [(g, house) for g in wanted for house in ("old", "new") if house == "old" or g in BY_DOORS]
        return max(subprocess.call([*again, g], env=os.environ | {"FRAZIL_HOUSE": house}) for g, house in runs)
    failed = [g for g in wanted if not _measured(g, asked.quick)]
    print(f"kept in {RESULTS}" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return int(bool(failed))


def _measured(group: str, quick: bool) -> bool:
    """Run a group, print and keep its figures, and end its Spark session; tell whether it went well."""
    from bench._lake import stop_spark
    from world import house_name

    began = time.monotonic()
    print(f"— {group}", flush=True)
    try:
        rows = importlib.import_module(f"bench.{group}").run(quick)
    except Exception:
        traceback.print_exc()
        return False
    finally:
        stop_spark()
    if group in BY_DOORS:
        old = {"name": "_old", "house": "old"} if house_name() == "old" else {"name": "", "house": "new"}
        rows = [row | old | {"name": row["name"] + old["name"]} for row in rows]
    keep(rows)
    print("\n".join([*table(rows), f"  {time.monotonic() - began:.0f} s"]), flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
