"""The child process of `frazil run`: runs one notebook with papermill; its output has no credentials and no control characters."""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from frazil_old.config.private_files import replace
from frazil_old.config.settings import GIVEN
from frazil_old.errors import hide, safe_output


@dataclass
class Task:
    """A notebook to run, and the folder for its output: `folder`, or `spare` if that cannot be written."""

    notebook: str
    folder: str
    spare: str
    parameters: dict[str, Any]
    sealed: dict[str, Any]
    """Parameters that may hold a credential: the notebook does not get them in its cell."""
    credentials: list[str]
    follow: int = 0
    """A descriptor for lines about the notebook's progress; 0: none."""

    def text(self) -> bytes:
        """Return the task as its process reads it from standard input: any user can read a command line."""
        return json.dumps(asdict(self)).encode()


MARKS = ("✔", "✘", "!", "·")
"""What the text of a result begins with."""


class Follower:
    """Prints the headings of cells that begin, what cells print, and results; lines are cut to a terminal's width."""

    def __init__(self, descriptor: int):
        self.out = os.fdopen(descriptor, "w", encoding="utf-8", errors="replace")
        self.width = os.get_terminal_size(descriptor).columns if os.isatty(descriptor) else 0
        self.shown: set[int] = set()

    def write(self, text: str) -> None:
        """Print what a cell has printed."""
        for line in safe_output(text).splitlines():
            with suppress(OSError):  # nobody reads it any more
                self.out.write(f"{line[: self.width or None]}\n")
                self.out.flush()

    def flush(self) -> None:
        """Do nothing: each line is flushed when it is printed."""

    def look(self, cells: list[dict[str, Any]]) -> None:
        """Print the headings and the results of cells that ended since the last look."""
        for i, cell in enumerate(cells):
            if i in self.shown or cell["metadata"].get("papermill", {}).get("status") != "completed":
                continue
            self.shown.add(i)
            if cell["cell_type"] == "markdown":
                self.write(
                    "".join(f"{line}\n" for line in "".join(cell["source"]).splitlines() if line.startswith("#"))
                )
            for output in cell.get("outputs", ()):
                text = "".join(output.get("data", {}).get("text/plain", ""))
                if text.startswith(MARKS):
                    self.write(text)


class NotebookWriter:
    """Papermill's handler for the executed notebook: it is written again after each cell, completely or not at all."""

    def __init__(self, task: Task, follower: Follower | None = None):
        self.task, self.follower = task, follower

    def write(self, text: str, path: str) -> None:
        """Write the notebook with outputs that are safe to show."""
        notebook = json.loads(text)
        if self.follower:
            self.follower.look(notebook["cells"])
        for cell in notebook["cells"]:
            cell.update({"outputs": _safe(cell["outputs"])} if "outputs" in cell else {})
        shown = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
        spare = Path(self.task.spare) / Path(path).name
        try:
            replace(Path(path), shown)
        except OSError:
            with suppress(OSError):
                spare.parent.mkdir(mode=0o700, exist_ok=True)
                replace(spare, shown)
        else:
            if spare != Path(path):
                spare.unlink(missing_ok=True)

    def pretty_path(self, path: str) -> str:
        """Return the path for papermill's log."""
        return path


def _safe(output: Any) -> Any:
    if isinstance(output, str):
        return safe_output(output)
    if isinstance(output, dict):
        return {k: v if k.startswith("image/") and k != "image/svg+xml" else _safe(v) for k, v in output.items()}
    return [_safe(v) for v in output] if isinstance(output, list) else output


class _Safe(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return safe_output(super().format(record))


def main() -> int:
    """Run the notebook that standard input names; return 1 if it ended with an error."""
    task = Task(**json.load(sys.stdin))
    hide(task.credentials)
    os.environ[GIVEN] = json.dumps(task.sealed)  # the kernel inherits it; no other user can read it
    log = logging.StreamHandler(sys.stderr)
    log.setFormatter(_Safe())
    logging.basicConfig(level=logging.INFO, handlers=[log])
    import papermill
    from papermill.iorw import papermill_io

    follower = Follower(task.follow) if task.follow else None
    papermill_io.register(task.folder, NotebookWriter(task, follower))
    out = str(Path(task.folder) / Path(task.notebook).name)
    try:
        papermill.execute_notebook(
            task.notebook,
            out,
            task.parameters,
            kernel_name="python3",
            progress_bar=False,
            log_output=True,
            stdout_file=follower,
        )
    except Exception:
        with suppress(OSError):
            print(safe_output(traceback.format_exc()), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
