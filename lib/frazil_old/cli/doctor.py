"""`frazil doctor`: is all there that a run needs? One line for each thing, with its remedy. Spark is not started."""

from __future__ import annotations

import argparse
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

from frazil_old import exit_codes
from frazil_old.cli.bundle import BundleError, pinned
from frazil_old.cli.terminal import wrapped
from frazil_old.config import jars
from frazil_old.config.paths import sqlite_file, without_scheme
from frazil_old.config.settings import NOTEBOOKS, Settings, resolve
from frazil_old.dms.storage import is_s3, location, put, read_head, remove, walk
from frazil_old.errors import FrazilError, many, safe
from frazil_old.flows.workbook import Workbook
from frazil_old.lake import pyiceberg_catalog
from frazil_old.lake.clocks import require_right_clock
from frazil_old.report import runs

JAVA = 17
FREE_GB = 1.0
"""Free space below which a disk counts as full."""


class DoctorError(FrazilError):
    """Something that a run needs is missing or wrong."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare no options."""


def main(options: argparse.Namespace) -> int:
    """Print a line for each check; return `exit_codes.FAILED` if one failed."""
    failed = 0
    book: list[Workbook] = []
    for name, check in _checks(options.env, book):
        try:
            found = check()
            print(f"{'!' if found.startswith('not ') else '✔'} {name}: {found}")
        except Exception as e:  # a driver has errors of its own
            failed += 1
            print("\n".join(_failure(name, e)))
    if failed:
        print(f"{failed} of the checks failed")
        return exit_codes.FAILED
    more = "ready for an environment; frazil doctor --env NAME also checks its parameters, source, catalog and rights"
    print(f"{options.env}: all that a run needs is there" if options.env else more)
    return exit_codes.OK


def _failure(name: str, error: Exception) -> list[str]:
    """Return the lines about a failed check: the problem, then the remedy if there is one."""
    is_known = isinstance(error, FrazilError)
    problem, cure = (error.problem, error.cure) if is_known else (f"{type(error).__name__}: {error}", "")
    lines = wrapped(f"✘ {name}: {safe(problem)[:400]}", more="  ")
    return [*lines, *wrapped(f"  cure: {cure}", more="        ")] if cure else lines


def _checks(env: str | None, book: list[Workbook]) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield each check's name and function, which returns what it found; without parameters those that need none."""
    yield "Python", _packages
    yield "Java", _java
    if env:
        yield "parameters", lambda: _parameters(env, book)
    if not book:
        yield "jars", lambda: _jars(Settings(env="", root="."))
        return
    b, settings = book[0], book[0].settings
    warehouse = settings.catalog_options.get("warehouse", "")
    place = warehouse if "://" in warehouse else str(Path(settings.root) / warehouse)
    place = location(without_scheme(place) if place.startswith("file:") else place)
    yield "jars", lambda: _jars(settings)
    yield "source", lambda: _source(b)
    yield "catalog", lambda: _catalog(settings)
    yield "warehouse", lambda: _writable(place)
    yield "runs", lambda: _writable(str(b.folder))
    yield "clock", lambda: _clock(b, place)


def _packages() -> str:
    """Compare the installed versions with those that Frazil pins."""
    wrong, python = [], sys.version.split()[0]
    try:
        packages = pinned("spark", "workbook")
    except BundleError:  # a folder or a zip on the path
        return f"{python}; Frazil is not installed as a package, so versions are not compared"
    for name, version in packages.items():
        try:
            there = metadata.version(name)
        except metadata.PackageNotFoundError:
            there = "missing"
        if there != version and not (name == "pyspark" and there.startswith("3.5.")):
            wrong.append(f"{name}=={version} ({there})")
    if wrong:
        raise DoctorError(
            f"other versions than Frazil's: {', '.join(wrong)}", "make env, or pip install 'frazil[spark,workbook]'"
        )
    return f"{python}, {len(packages)} packages as Frazil pins them"


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin/java") if home else "java"
    cure = f"install Java {JAVA} (Debian: apt-get install openjdk-{JAVA}-jre-headless), or set JAVA_HOME to it"
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20).stderr
    except OSError as e:
        raise DoctorError(f"{java}: {e.strerror}", cure) from None
    version = re.search(r'version "(\d+)[^"]*"', said)
    if not version or int(version[1]) < JAVA:
        raise DoctorError(f"{java} is {version[0] if version else said[:100]!r}", cure)
    return f"{version[1]}, {java}"


def _parameters(env: str, book: list[Workbook]) -> str:
    """Read all sections, specs, settings and mappings; keep the workbook for the other checks."""
    for section in NOTEBOOKS:
        resolve(section, {"env": env})
    book.append(Workbook(resolve("setup", {"env": env}).settings, lambda text: None))
    unsound = []
    for spec in book[0].specs.values():
        try:
            spec.require_sound()
        except FrazilError as e:
            unsound.append(e)
    if unsound:
        more = f"; and {many(unsound[1:], 'more table')}" if unsound[1:] else ""
        raise DoctorError(f"{unsound[0].problem}{more}", unsound[0].cure)
    return many(book[0].specs, "table")


def _jars(settings: Settings) -> str:
    line = ".".join(metadata.version("pyspark").split(".")[:2])
    there = line in jars.ICEBERG and jars.are_cached(line, settings)
    return f"in {jars.cache_folder()}" if there else "not there yet: the first run fetches them, once"


def _source(book: Workbook) -> str:
    if book.stream:
        return f"{sum(book.stream.ends().values()):,} messages so far"
    top = location(book.source)
    if not is_s3(top) and not Path(top).is_dir():
        raise DoctorError(f"source folder {top} does not exist", "set parameter 'source' to the folder DMS writes to")
    first = next((e for e in walk(top, page=10) if not e.folder and not e.special), None)
    if first is None:
        return f"{top} is readable, and empty"
    read_head(first.path, 1)
    return f"{top} is readable"


def _catalog(settings: Settings) -> str:
    file = sqlite_file(settings.root, settings.catalog_options)
    if file and not os.path.exists(file):
        return "not there yet: 00_setup makes it"
    return many(pyiceberg_catalog.open_catalog(settings).list_namespaces(), "namespace")


def _writable(place: str) -> str:
    """Write something into a folder and delete it again; a local one also needs free space."""
    if is_s3(place):
        put(mine := f"{place}/_frazil_doctor_{secrets.token_hex(4)}", b"")
        remove([mine])
        return f"{place} is writable"
    if "://" in place or place.startswith("arn:"):
        return f"{place}: only local folders and S3 are tried"
    if trouble := runs.unusable(Path(place)):
        raise DoctorError(trouble, "give this user the right to write there, or name another folder")
    free = shutil.disk_usage(next(p for p in (Path(place), *Path(place).parents) if p.exists())).free / 1e9
    if free < FREE_GB:
        raise DoctorError(f"{place}: {free:.1f} GB are free", "free some, or name another folder")
    return f"{place} is writable, {free:,.0f} GB are free"


def _clock(book: Workbook, warehouse: str) -> str:
    require_right_clock(book.folder / "frazil.log", [place for place in (warehouse, str(book.source)) if is_s3(place)])
    return "as the storage's"
