"""Frazil's own files next to a table's, below its location, by the table's file access (Iceberg's FileIO).

Their folder begins with `_`, so Iceberg's removal of orphan files skips it.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil_old.lake.jvm import JavaTable

FOLDER = "_frazil"
PART, AT_ONCE = 64 << 20, 4
"""The bytes of a part of a fetched file, and how many parts are fetched at the same time."""


def place(location: str, name: str) -> str:
    """Return the location of a file below a table's location."""
    return f"{location.rstrip('/')}/{FOLDER}/{name}"


def exists(table: JavaTable, name: str) -> bool:
    """Return whether a file is there."""
    return table.io().newInputFile(place(table.location(), name)).exists()


def read(table: JavaTable, name: str) -> bytes:
    """Return the bytes of a file."""
    stream = table.io().newInputFile(place(table.location(), name)).newStream()
    try:
        return bytes(stream.readAllBytes())
    finally:
        stream.close()


def write(table: JavaTable, name: str, data: bytes) -> None:
    """Write a file, over the one that is there."""
    stream = table.io().newOutputFile(place(table.location(), name)).createOrOverwrite()
    try:
        stream.write(bytearray(data))
    finally:
        stream.close()


def delete(table: JavaTable, name: str) -> None:
    """Delete a file."""
    table.io().deleteFile(place(table.location(), name))


def names(table: JavaTable, folder: str) -> dict[str, int]:
    """Return the files in a folder, and for each the milliseconds of its creation."""
    found, listed = {}, table.io().listPrefix(place(table.location(), folder)).iterator()
    while listed.hasNext():
        file = listed.next()
        found[file.location().rsplit("/", 1)[-1]] = file.createdAtMillis()
    return found


def fetch(spark: SparkSession, table: JavaTable, name: str, to: Path) -> None:
    """Copy a file to this machine. Several parts of a large one are copied at a time: a store serves each read slowly."""
    from frazil_old.lake.jvm import package

    file, new = table.io().newInputFile(place(table.location(), name)), to.with_name(f".{os.getpid()}.{to.name}")
    size, channels = file.getLength(), package(spark, "java.nio.channels").Channels
    copy = package(spark, "org.apache.commons.io").IOUtils.copyLarge

    def part(start: int) -> None:
        stream, out = file.newStream(), package(spark, "java.io").RandomAccessFile(str(new), "rw")
        try:
            stream.seek(start)
            out.seek(start)
            copy(stream, channels.newOutputStream(out.getChannel()), 0, min(PART, size - start))
        finally:
            out.close()
            stream.close()

    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(part, range(0, size, PART)))
        os.replace(new, to)
    finally:
        new.unlink(missing_ok=True)
