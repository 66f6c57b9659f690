"""`frazil run`: check the parameters, run a notebook under papermill in a child process, store and index the result.

Signals are passed on to the notebook, and the end of its process takes all that it started.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, get_type_hints

import yaml

from frazil_old import exit_codes
from frazil_old.cli import check, monitor
from frazil_old.cli.hooks import call_hooks
from frazil_old.cli.notebook_process import Task
from frazil_old.cli.run_folder import RunFolder, run_lock
from frazil_old.config import redaction
from frazil_old.config.environment_file import RENAMED, earlier_names, find_params, root_of
from frazil_old.config.private_files import open_runs
from frazil_old.config.processes import host
from frazil_old.config.settings import NOTEBOOKS, CdcMergeSettings, OperateSettings, ParameterError, Settings, resolve
from frazil_old.config.yaml_files import yaml_fault
from frazil_old.dms.stream_source import UnreachableError
from frazil_old.errors import FrazilError, many, nearest
from frazil_old.flows import lag, pending_work, quarantine_counts
from frazil_old.flows.workbook import Workbook
from frazil_old.report import runs
from frazil_old.report.notebook_output import read_record

if TYPE_CHECKING:
    import psutil


NOTEBOOK_FILES = Path(__file__).parent.parent / "notebooks"
"""The notebooks that are installed with Frazil."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("notebook", help="a notebook's name, with or without its number, or its file")
    parser.add_argument("-p", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"), help="a parameter")
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="stop the run after this many seconds; left out: timeout_s"
    )
    parser.add_argument(
        "--idle-ok", action="store_true", help="exit code 0 in place of 10 (nothing to do) and 11 (skipped)"
    )
    parser.add_argument("--follow", action="store_true", help="show what the notebook does, as on a terminal")


def main(options: argparse.Namespace) -> int:
    """Run the notebook; return the exit code of its outcome."""
    # Used if the environment's own file has a fault.
    operate = OperateSettings(env=options.env, root=str(root_of(find_params())))
    try:
        operate = resolve("operate", {"env": options.env}).settings
        options.timeout = operate.timeout_s if options.timeout is None else options.timeout
        file, section = find_notebook(options.notebook, operate)
        book, given = validated(section, options.env, options.p)
    except Exception as e:  # on a schedule nobody may see this command's output
        if (find_params() / f"{options.env}.yml").is_file():
            _refused(operate, options, e)
            monitor.write_metrics(operate, lambda: check.look(operate))
        raise
    settings, shown = book.settings, {n: redaction.shown(n, v) for n, v in given.items()}
    run = RunFolder(
        open_runs(replace(operate, file_group=settings.file_group)), file.stem, env=options.env, parameters=shown
    )
    run.keep(outcome="running", pid=os.getpid(), host=host())
    with monitor.traced(book, run):
        try:
            facts = _outcome(options, book, run, _task(file, run, settings, given))
        except Exception as e:  # nobody may see this command's output
            traceback.print_exc()
            facts = {"outcome": "failed", "cause": f"{type(e).__name__}: {e}"}
        _ended(operate, run, facts)
    monitor.write_metrics(operate, lambda: check.look(operate))
    code = exit_codes.EXIT_CODES[run.facts["outcome"]]
    return exit_codes.OK if options.idle_ok and code >= exit_codes.NOTHING else code


def _outcome(options: argparse.Namespace, book: Workbook, run: RunFolder, task: Task) -> dict[str, Any]:
    """Run the notebook unless another run of it is in progress, or nothing is pending; return the facts."""
    settings = book.settings
    with run_lock(run.home / f".{run.facts['notebook']}.lock") as lock:
        if not lock:
            return {"outcome": "skipped", "cause": "another run of this notebook is in progress"}
        if isinstance(settings, CdcMergeSettings) and (without := _without_spark(book)):
            facts = without
        else:
            began = time.time()
            with _followed(options.follow) as follow:
                facts = _papermill(replace(task, follow=follow), run, options.timeout, lock)
            facts["unreadable"] = (
                quarantine_counts.newly_unreadable(book, began) if settings.on_unreadable == "quarantine" else ""
            )
            facts["worst_lag_s"] = lag.worst_latency(settings, began) if facts.get("rows") else None
        if facts["outcome"] == "nothing to do":
            facts["waiting"] = quarantine_counts.waiting_in_words(book)
    return facts


def _without_spark(book: Workbook) -> dict[str, Any] | None:
    """Return the outcome of a run that need not or cannot start; None if it has to start."""
    try:
        still = pending_work.nothing_pending(book)
    except UnreachableError as e:
        return {"outcome": exit_codes.outcome_of(None, type(e).__name__), "cause": str(e)}
    return {"outcome": "nothing to do", "tables": still} if still else None


def _refused(operate: OperateSettings, options: argparse.Namespace, error: Exception) -> None:
    """Record a run that was not started on the page too: on a schedule nobody reads the command's output."""
    given = {n: redaction.shown_text(n, v) for n, v in options.p}
    name = Path(options.notebook).stem
    with suppress(FrazilError):
        name = find_notebook(options.notebook, operate)[0].stem
    run = RunFolder(open_runs(operate), name, env=operate.env, parameters=given)
    outcome = exit_codes.outcome_of(None, type(error).__name__)
    run.end(outcome=outcome, cause=str(error))
    _alarm(operate, run)


def _ended(operate: OperateSettings, run: RunFolder, facts: dict[str, Any]) -> None:
    """Store, index and print a run's result; report one that did not succeed, or could not be stored."""
    run.end(**facts, seconds=round(time.time() - run.facts["began"], 2))
    facts = run.facts
    tables = facts.get("tables", {})
    aside = sum(t.get("quarantined") or 0 for t in tables.values())
    line = f"{facts['notebook']}: {facts['outcome']} in {facts['seconds']:.1f} s {facts.get('cause', '')}".rstrip()
    line += f"; {many(aside, 'row')} quarantined" if aside else ""
    line += f"; {again}" if (again := runs.restored(tables)) else ""
    line += f"; {lost}, quarantined" if (lost := facts.get("unreadable")) else ""
    line += f"; waiting in the quarantine: {wait}" if (wait := facts.get("waiting")) else ""
    bad = run.trouble or exit_codes.is_bad(facts["outcome"])
    print(f"{line}\n{run.where_stored()}", file=sys.stderr if bad else sys.stdout)
    if bad:
        _alarm(operate, run)


def _alarm(operate: OperateSettings, run: RunFolder) -> None:
    result = {k: run.facts.get(k) for k in ("notebook", "env", "outcome", "cause")}
    call_hooks(operate, {**result, "folder": str(run.folder), **({"trouble": run.trouble} if run.trouble else {})})


def find_notebook(name: str, operate: OperateSettings) -> tuple[Path, str]:
    """Return a notebook's file and the section of its parameters; `cdc_merge` and `02` find `02_cdc_merge.ipynb`.

    It is searched in the folder of parameter `notebooks`, else in `notebooks/` next to `params/`, else in the installed
    notebooks.
    """
    own = operate.notebooks and Path(operate.root) / operate.notebooks
    folders = [own] if own else [find_params().parent / "notebooks", NOTEBOOK_FILES]
    known = {f.stem: f for folder in reversed(folders) for f in folder.glob("*.ipynb")}
    named = [known[name]] if name in known else [f for stem, f in known.items() if name in stem.split("_", 1)]
    file = Path(name) if name.endswith(".ipynb") else named[0] if len(named) == 1 else None
    if file is None or not file.is_file():
        near = nearest(name, [*known, *(k.partition("_")[2] for k in known)])
        raise ParameterError(f"no notebook '{name}' in {' or '.join(map(str, folders))}", near)
    section = file.stem.partition("_")[2] if file.stem[:1].isdigit() else file.stem
    if section not in NOTEBOOKS:
        raise ParameterError(f"{file}: not a notebook of Frazil", nearest(section, NOTEBOOKS))
    return file.absolute(), section


def validated(section: str, env: str, pairs: list[list[str]]) -> tuple[Workbook, dict[str, Any]]:
    """Return the notebook's workbook and typed parameters; parameters, specs and endpoint are read before anything starts."""
    hints, renamed = get_type_hints(NOTEBOOKS[section]), earlier_names(RENAMED, section)
    try:
        given = {n: v if hints.get(renamed.get(n, n)) is str else yaml.safe_load(v) for n, v in pairs}
    except yaml.YAMLError as e:
        raise ParameterError(f"a value of -p is no YAML: {yaml_fault(e)}", "write a list as '[a, b]'") from None
    return Workbook(resolve(section, {**given, "env": env}).settings), {**given, "env": env}


def _task(file: Path, run: RunFolder, settings: Settings, given: dict[str, Any]) -> Task:
    """Return the task for the notebook's process; parameters that may hold a credential stay out of the notebook's cell."""
    sealed = {n: v for n, v in given.items() if redaction.shown(n, v) != v}
    shown = {n: v for n, v in given.items() if n not in sealed}
    hidden = sorted(redaction.credentials(settings))
    return Task(str(file), str(run.folder), str(run.spare), shown, sealed, hidden)


def _papermill(task: Task, run: RunFolder, timeout: float | None, lock) -> dict[str, Any]:
    """Run the notebook in a child process and return the facts; a time-out ends it and every process that it started."""
    name = Path(task.notebook).name
    command = [sys.executable, "-m", "frazil_old.cli.notebook_process"]
    environment = {**os.environ, "FRAZIL_PARAMS": str(find_params()), runs.STARTED: str(run.folder)}
    with _log(run) as kept:
        child = subprocess.Popen(
            command,
            cwd=root_of(find_params()),
            env=environment,
            stdin=subprocess.PIPE,
            stdout=kept,
            stderr=kept,
            pass_fds=[lock.fileno(), *([task.follow] if task.follow else [])],
            start_new_session=True,
        )
        try:
            with pass_signals_on(child) as stopped:
                with suppress(BrokenPipeError), child.stdin as stdin:
                    stdin.write(task.text())
                child.wait(timeout or None)
        except subprocess.TimeoutExpired:
            end_child(child)
            return {"outcome": "timed out", "cause": f"stopped after {timeout:g} s"}
        except BaseException:
            end_child(child)
            run.keep(outcome="failed", cause="stopped")
            raise
    out, log = run.file(name), run.file("run.log")
    error, cause = _error(out) if child.returncode else ("", "")
    record = read_record(out) if out.exists() else None
    if child.returncode and not error:
        error, cause = "DeadKernelError", "stopped" if stopped else f"the notebook did not end, see {log}"
    facts: dict[str, Any] = {
        "outcome": exit_codes.outcome_of(record, error),
        "cause": "\n".join(filter(None, (cause, exit_codes.why(record)))),
    }
    tables = (record or {}).get("tables", {})
    return {**facts, "tables": tables, "rows": runs.applied_rows(tables)}


@contextmanager
def _followed(wanted: bool) -> Iterator[int]:
    """Yield a descriptor of this command's output for the notebook's process: on a terminal, or if it is `wanted`; else 0."""
    if not wanted and not sys.stdout.isatty():
        yield 0
        return
    sys.stdout.flush()
    descriptor = os.dup(sys.stdout.fileno())
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _log(run: RunFolder) -> BinaryIO:
    for folder in (run.folder, run.spare):
        with run.in_trouble():
            folder.mkdir(mode=0o700, exist_ok=True)
            return open(folder / "run.log", "ab")
    return open(os.devnull, "ab")


def _error(out: Path) -> tuple[str, str]:
    """Return the class and message of the error that ended a notebook; empty if it has none."""
    if not out.exists():
        return "", ""
    outputs = [o for c in json.loads(out.read_text(encoding="utf-8"))["cells"] for o in c.get("outputs", ())]
    errors = [o for o in outputs if o["output_type"] == "error"]
    return (errors[-1]["ename"], errors[-1]["evalue"]) if errors else ("", "")


@contextmanager
def pass_signals_on(child: subprocess.Popen) -> Iterator[list[int]]:
    """Pass the first SIGTERM or SIGINT on to the notebook, and yield the signals; the second one ends papermill and its children.

    A service manager signals this process alone, and papermill would die of the signal. A long-running cell completes
    its work in progress (`flows.interrupts`), and the notebook continues to its end. At any other moment the kernel ends.
    """
    import psutil

    came: list[int] = []

    def on_signal(number: int, frame: object) -> None:
        came.append(number)
        if len(came) > 1:
            raise SystemExit(128 + number)
        for process in [p for p in _below(child) if is_kernel(p)] or [child]:
            with suppress(psutil.NoSuchProcess):
                process.terminate()

    def is_kernel(process: psutil.Process) -> bool:
        with suppress(psutil.NoSuchProcess):  # ended since, or a zombie
            return "ipykernel_launcher" in " ".join(process.cmdline())
        return False

    main = threading.current_thread() is threading.main_thread()
    before = {n: signal.signal(n, on_signal) for n in (signal.SIGTERM, signal.SIGINT) if main}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _below(child: subprocess.Popen) -> list[psutil.Process]:
    """Return all descendants of a child process; none if it has ended."""
    import psutil

    with suppress(psutil.NoSuchProcess):
        return psutil.Process(child.pid).children(recursive=True) if child.poll() is None else []
    return []


def end_child(child: subprocess.Popen) -> None:
    """End papermill, its kernel (which has its own process group), and the kernel's Spark."""
    import psutil

    family = _below(child)
    child.terminate()
    with suppress(subprocess.TimeoutExpired):
        child.wait(5)
    child.kill()
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    child.wait()
