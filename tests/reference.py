"""A tiny source with its params, which several tests and a benchmark run notebooks on."""

import shutil
from pathlib import Path


def workspace(folder: Path) -> Path:
    """Copy the tiny source and its params into a folder of its own, where the lake will lie too."""
    return Path(shutil.copytree(Path(__file__).parent / "data" / "tiny", folder / "tiny"))
