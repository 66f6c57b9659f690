"""What tests of monitoring need, without Spark: a lake that PyIceberg makes, a notebook that only reports, a receiver.

The lake has the tables of `data/tiny`. Their load is applied, and no change.
"""

from __future__ import annotations

import gzip
import http.server
import threading
from pathlib import Path

import nbformat
import pyarrow as pa
import yaml
from pyiceberg.catalog.sql import SqlCatalog

import reference
from frazil_old.config.settings import resolve
from frazil_old.dms.position import POSITION, Position, after_load
from frazil_old.flows.workbook import Workbook

ROOT = Path(__file__).parent.parent
SCHEMAS = {
    "app.person": pa.schema([pa.field("id", pa.int32(), nullable=False), ("name", pa.string())]),
    "app.visit": pa.schema(
        [pa.field("person_id", pa.int32(), nullable=False), pa.field("place", pa.string(), nullable=False)]
    ),
}
ROWS = {"app.person": [{"id": n, "name": f"n{n}"} for n in range(3)], "app.visit": [{"person_id": 1, "place": "Rome"}]}


def place_with_lake(folder: Path, monkeypatch) -> Path:
    """Make a workspace whose tables have the position after their load; its environment is the one that is used."""
    made = reference.workspace(folder)
    monkeypatch.setenv("FRAZIL_PARAMS", str(made / "params"))
    (made / "lake").mkdir()
    catalog = SqlCatalog("lake", uri=f"sqlite:///{made}/lake/catalog.db", warehouse=f"file://{made}/lake/warehouse")
    catalog.create_namespace("app")
    book = Workbook(resolve("cdc_merge", {"env": "demo"}).settings, lambda text: None)
    for source, schema in SCHEMAS.items():
        table = catalog.create_table(source, schema)
        table.append(pa.Table.from_pylist(ROWS[source], schema=schema))
        position, at = after_load(Position(), book.objects(book.specs[source]), "b1"), table.current_snapshot()
        stored = position.to_json(snapshot=at.snapshot_id, sequence=at.sequence_number)
        table.transaction().set_properties({POSITION: stored, "frazil.source": source}).commit_transaction()
    return made


def with_notebook(made: Path, name: str, code: str) -> Path:
    """Put a notebook of this code in the place of another: what is tested is what becomes of its record."""
    (made / "notebooks").mkdir(exist_ok=True)
    notebook = nbformat.read(ROOT / f"notebooks/{name}.ipynb", as_version=4)
    parameters = next(c for c in notebook.cells if "parameters" in c.metadata.get("tags", []))
    notebook.cells = [parameters, nbformat.v4.new_code_cell(code)]
    nbformat.write(notebook, made / f"notebooks/{name}.ipynb")
    return made


class Receiver:
    """A server on this machine that keeps what is sent to it: the path and the body of each request."""

    def __init__(self, status: int = 200):
        self.heard: list[tuple[str, bytes]] = []
        heard = self.heard

        class Hear(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                packed = self.headers.get("Content-Encoding") == "gzip"
                heard.append((self.path, gzip.decompress(body) if packed else body))
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hear)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> Receiver:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self.server.shutdown()
        self.server.server_close()


def set_operate(made: Path, **settings) -> None:
    """Write the section `operate` of the workspace's environment, instead of the one before."""
    file = made / "params/demo.yml"
    environment = yaml.safe_load(file.read_text()) | {"operate": settings}
    file.write_text(yaml.safe_dump(environment))
