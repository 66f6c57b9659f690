"""Take pictures of what users look at, to be looked at: `make screens` after `make demo`.

Each page is taken in light and dark at the width of a desktop, and at the width of a phone, by a headless Chromium.
JupyterLab's start page is taken from a server of its own on a free port of loopback, which this process stops.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image, ImageChops

ROOT = Path(__file__).resolve().parent.parent
DESKTOP, PHONE, TALLEST = 1100, 420, 16_000
MODES = {"light": (DESKTOP, False), "dark": (DESKTOP, True), "phone": (PHONE, False), "phone-dark": (PHONE, True)}
"""Width and whether the page is asked for in dark colours."""
PART = 1_500
"""A long page becomes several pictures of this height."""


def browser() -> str:
    """Return the browser's program; raise SystemExit with the remedy if there is none."""
    names = [os.environ.get("CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome"]
    found = next((program for name in names if name and (program := shutil.which(name))), None)
    if not found:
        raise SystemExit("no Chromium: install it (Debian: chromium), or name the program in CHROMIUM")
    return found


def take(address: str, file: Path, width: int, is_dark: bool, wait_s: float = 0.0) -> list[Path]:
    """Take a page from top to bottom and return the pictures, each at most `PART` pixels high."""
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole.png"
        height = TALLEST if not wait_s else 900  # an application fills its window, a page does not
        command = [
            browser(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}/profile",
            f"--window-size={width},{height}", f"--screenshot={whole}", f"--blink-settings=preferredColorScheme={int(not is_dark)}",
            *([f"--timeout={wait_s * 1000:.0f}", f"--virtual-time-budget={wait_s * 1000:.0f}"] if wait_s else []), address,
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, timeout=180)
        return _parts(Image.open(whole).convert("RGB"), file)


def _parts(picture: Image.Image, file: Path) -> list[Path]:
    """Cut off what is empty below a page, and store the rest in parts."""
    ground = Image.new("RGB", picture.size, picture.getpixel((5, picture.height - 5)))
    filled = ImageChops.difference(picture, ground).getbbox()
    height = min(picture.height, (filled[3] if filled else PART) + 20)
    parts = []
    for number, top in enumerate(range(0, height, PART)):
        parts.append(file.with_name(f"{file.name}-{number:02}.png"))
        picture.crop((0, top, picture.width, min(height, top + PART))).save(parts[-1])
    return parts


@contextmanager
def lab() -> Iterator[str]:
    """Run JupyterLab with the demo's notebooks and yield the address of its start page."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    options = ["--no-browser", f"--port={port}", "--ServerApp.port_retries=0", "--IdentityProvider.token="]
    server = subprocess.Popen(
        [sys.executable, "-m", "frazil_old.cli", "lab", "--", *options],
        cwd=ROOT,
        env={**os.environ, "FRAZIL_PARAMS": str(ROOT / "params")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        address = f"http://127.0.0.1:{port}/lab/tree/runs/lab/start.ipynb"
        _wait_for(address, server)
        yield address
    finally:
        server.terminate()
        server.wait(30)


def _wait_for(address: str, server: subprocess.Popen, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and server.poll() is None:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise SystemExit("JupyterLab did not start: see what `make lab` prints")


def main() -> None:
    """Take every page in every mode, and print where the pictures are."""
    demo, to = ROOT / "runs" / "demo", ROOT / "runs" / "screens"
    pages = [demo / "report.html", demo / "index.html", *sorted((demo / "notebooks").glob("*.html"))]
    there = [page for page in pages if page.exists()]
    if not there:
        raise SystemExit("nothing to take pictures of: run `make demo` first")
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    for page in there:
        for mode, (width, is_dark) in MODES.items():
            taken = take(page.as_uri(), to / f"{page.stem}-{mode}", width, is_dark)
            print(f"{page.stem} {mode}: {len(taken)} picture(s)", flush=True)
    with lab() as address:
        for mode, (width, is_dark) in MODES.items():
            take(address, to / f"lab-{mode}", max(width, 800), is_dark, wait_s=20.0)
            print(f"JupyterLab {mode}", flush=True)
    print(f"look at them in {to}")


if __name__ == "__main__":
    main()
