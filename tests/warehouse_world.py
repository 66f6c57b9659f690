"""An environment with warehouses and a lake of one or two tables that PyIceberg wrote: no Spark is needed."""

import json
from pathlib import Path

import pyarrow as pa
import yaml
from pyiceberg.catalog.sql import SqlCatalog

ENTRIES = {
    "database": "analytics", "region": "eu-west-1", "account": "123456789012", "location": "s3://lake/warehouse/",
    "role": "arn:aws:iam::123456789012:role/reader", "credential": "glue_reader", "connect": "fake_driver:connect",
}  # fmt: skip


class WarehouseWorld:
    """A folder with `params/wh.yml`, and a lake with the tables `shop.orders` and `shop.items`."""

    def __init__(self, root: Path, monkeypatch, **warehouses):
        self.root, params = root, root / "params"
        (params / "shop").mkdir(parents=True)
        (root / "lake").mkdir()
        columns = [{"name": "id", "type": "INT8"}, {"name": "v", "type": "WSTRING"}]
        for table in ("orders", "items"):
            spec = {"source": f"public.{table}", "target": f"shop.{table}", "key": ["id"], "columns": columns}
            (params / f"shop/{table}.yml").write_text(yaml.safe_dump(spec))
        endpoint = {"S3Settings": {"CsvNullValue": "", "TimestampColumnName": "ts"}}
        (params / "endpoint.json").write_text(json.dumps(endpoint))
        options = {"type": "jdbc", "uri": "jdbc:sqlite:lake/catalog.db", "warehouse": "lake"}
        common = {
            "source": "dms",
            "endpoint": "params/endpoint.json",
            "specs": "params/shop",
            "catalog_options": options,
        }
        self.file = params / "wh.yml"
        self.file.write_text(yaml.safe_dump({"common": common, "warehouses": warehouses}))
        monkeypatch.setenv("FRAZIL_PARAMS", str(params))
        self.catalog = SqlCatalog("lake", uri=f"sqlite:///{root}/lake/catalog.db", warehouse=f"file://{root}/lake")
        self.catalog.create_namespace("shop")
        schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
        for table in ("orders", "items"):
            self.catalog.create_table(f"shop.{table}", schema)
            self.commit(table, 1)

    def commit(self, table: str, *ids: int) -> int:
        """Append rows in one commit and return its snapshot."""
        there = self.catalog.load_table(f"shop.{table}")
        there.append(pa.table({"id": list(ids), "v": [f"v{i}" for i in ids]}, schema=there.schema().as_arrow()))
        return there.current_snapshot().snapshot_id
