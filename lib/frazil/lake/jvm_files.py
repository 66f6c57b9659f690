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

    from frazil.lake.jvm import JavaTable

FOLDER = "_frazil"
PART, PIECE, AT_ONCE = 64 << 20, 8 << 20, 4
"""A file is fetched in parts of so many bytes, each in pieces, and so many parts at the same time."""


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
    from frazil.lake.jvm import package

    file, new = table.io().newInputFile(place(table.location(), name)), to.with_name(f".{os.getpid()}.{to.name}")
    size = file.getLength()
    copy = package(spark, "org.apache.iceberg.io").IOUtil.readFully

    def part(start: int) -> None:
        stream, out = file.newStream(), package(spark, "java.io").RandomAccessFile(str(new), "rw")
        try:
            stream.seek(start)
            out.seek(start)
            end = min(start + PART, size)
            piece = spark.sparkContext._gateway.new_array(spark._jvm.byte, min(PIECE, end - start))
            for at in range(start, end, PIECE):
                count = min(PIECE, end - at)
                copy(stream, piece, 0, count)
                out.write(piece, 0, count)
        finally:
            out.close()
            stream.close()

    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(part, range(0, size, PART)))
        os.replace(new, to)
    finally:
        new.unlink(missing_ok=True)
