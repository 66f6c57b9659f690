"""Objects that may be next to a task's files and are no table's data: a reader must ignore them."""

from __future__ import annotations

from frazil_demo.place import Place
from frazil_demo.rules import TableRules

_STATUS = "I,server,task,RUNNING,2024-06-12 10:30:25.000000,0,0,512,00000002/7C007178.3.00000002/7C007178\n"
_EXCEPTION = "I,task,shop,orders,2024-06-12 10:30:25.000000,INSERT,no error at all\n"


def put(place: Place, table: TableRules) -> list[str]:
    """Put control tables, a validation failure and a foreign object next to a table's files; return their paths."""
    # Unconfirmed: whether and in which form DMS writes control tables to S3. Their names and columns are documented.
    objects = {
        "awsdms_status/LOAD00000001.csv": _STATUS,
        "awsdms_status/20240612-103025000.csv": _STATUS,
        f"{table.schema}/awsdms_apply_exceptions/20240612-103025001.csv": _EXCEPTION,
        "s3_validation_failures/awsdms_validation_failures_v1/20240612-103025002.csv": _EXCEPTION,
        f"{table.folder}/_SUCCESS": "",
        f"{table.folder}/notes from the crawler.txt": "not written by DMS\n",
    }
    for path, text in objects.items():
        place.place(path, text.encode())
    return list(objects)
