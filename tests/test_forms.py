"""The same source transactions in every form that DMS writes, to S3 or to a stream, end in the same tables: all equal to the source."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from frazil_demo import shop
from frazil_demo.postgres import EmbeddedPostgres
from frazil_demo.simulator import DmsSimulator, Slot
from frazil_demo.workload import Workload
from frazil_old.config.settings import resolve
from frazil_old.flows import cdc, full_load, reconcile, setup
from frazil_old.flows.workbook import Workbook
from frazil_old.results import raise_if_failed
from helpers import slow

pytestmark = pytest.mark.spark
PARAMS = Path(__file__).parent.parent / "params"

TABLES = ["shop.customers", "shop.events", "shop.inventory"]
"""Single, composite and text keys; events has every type."""
FORMS = {
    "csv_with_header": {},
    "csv_headerless": {"AddColumnName": False},
    "csv_gzip_semicolon": {"CompressionType": "GZIP", "CsvDelimiter": ";"},
    "csv_load_without_op": {"IncludeOpForFullLoad": False},
    "csv_without_timestamp": {"TimestampColumnName": ""},
    "csv_date_folders": {"DatePartitionEnabled": True, "DatePartitionSequence": "YYYYMMDDHH"},
    "csv_transactions": {"PreserveTransactions": True, "CdcPath": "changes/all", "AddColumnName": False},
    "csv_transactions_no_sup": {
        "PreserveTransactions": True,
        "CdcPath": "all",
        "AddColumnName": False,
        "UseCsvNoSupValue": True,
        "CsvNoSupValue": "?unlogged?",
    },
    "csv_no_quotes": {"Rfc4180": False, "CsvDelimiter": "\x01", "CsvRowDelimiter": "\x02"},
    "parquet": {"DataFormat": "parquet"},
    "parquet_2_ms": {"DataFormat": "parquet", "ParquetVersion": "parquet-2-0", "CompressionType": "GZIP"},
}
NARROWED = {
    "csv_inserts_only": ({"CdcInsertsOnly": True}, "I"),
    "csv_inserts_and_updates": ({"CdcInsertsAndUpdates": True, "AddColumnName": False}, "IU"),
}
"""Forms that leave operations out by their setting: these, and the operations that they keep."""
STREAMS = {
    "kafka_one_line": ("KafkaSettings", {"MessageFormat": "json-unformatted", "IncludeTransactionDetails": True}, 1),
    "kafka_tabs_3_partitions": ("KafkaSettings", {"IncludeControlDetails": True, "NoHexPrefix": True}, 3),
    "kinesis_2_shards": ("KinesisSettings", {"IncludeTransactionDetails": True}, 2),
}
"""Which target, its settings, and how many partitions or shards."""


def _open_stream(form: str, root: Path, kafka, kinesis) -> Path:
    """Make a topic or stream, and the endpoint settings and the task that write to it."""
    kind, settings, partitions = STREAMS[form]
    if kind == "KafkaSettings":
        kafka.create_topic(form, partitions)
        where = {"Broker": kafka.brokers, "Topic": form}
    else:
        kinesis.create_stream(StreamName=form, ShardCount=partitions)
        where = {"StreamArn": f"arn:aws:kinesis:{kinesis.meta.region_name}:123456789012:stream/{form}"}
    rules = json.loads((PARAMS / "shop.mappings.json").read_text())["rules"]
    image = {"BeforeImageSettings": {"EnableBeforeImage": True, "FieldName": "was", "ColumnFilter": "pk-only"}}
    task = {
        "TableMappings": json.dumps({"rules": [r for r in rules if r["rule-type"] == "selection"]}),
        "ReplicationTaskSettings": json.dumps(image),
    }
    folder = root / form
    folder.mkdir()
    (folder / "task.json").write_text(json.dumps({"ReplicationTasks": [task]}))
    (folder / "endpoint.json").write_text(json.dumps({kind: {**where, "IncludeNullAndEmpty": True, **settings}}))
    return folder


@pytest.fixture(scope="module")
def source(tmp_path_factory, kafka, kinesis):
    """One database whose rows and changes every form's simulator wrote, each from a slot of its own."""
    root = tmp_path_factory.mktemp("forms")
    with pytest.MonkeyPatch.context() as patch, EmbeddedPostgres(root / "postgres") as postgres:
        patch.setenv("FRAZIL_SOURCE_URL", postgres.jdbc_url)
        patch.setenv("FRAZIL_SOURCE_USER", postgres.user)
        patch.setenv("FRAZIL_SOURCE_PASSWORD", postgres.password)
        with postgres.connect() as connection:
            shop.make(connection, scale=0.01)
        standard = json.loads((PARAMS / "shop.endpoint.json").read_text())["S3Settings"]
        writers = []
        for form, settings in (FORMS | {f: s for f, (s, _) in NARROWED.items()}).items():
            shutil.copytree(PARAMS, root / form / "params")
            file = root / form / "params" / "shop.endpoint.json"
            file.write_text(json.dumps({"S3Settings": {**standard, **settings}}))
            writers.append(
                DmsSimulator(
                    postgres.connect,
                    file,
                    PARAMS / "shop.mappings.json",
                    root / form / "s3",
                    slot=Slot(f"s_{len(writers)}"),
                )
            )
        for form in STREAMS:
            folder = _open_stream(form, root, kafka, kinesis)
            writers.append(
                DmsSimulator(
                    postgres.connect,
                    folder / "endpoint.json",
                    folder / "task.json",
                    folder / "note",
                    slot=Slot(f"s_{len(writers)}"),
                )
            )
        for writer in writers:
            writer.full_load()
        for seed in (11, 12):
            with postgres.connect() as connection:
                Workload(connection, seed).run(40)
            for writer in writers:
                writer.pump()
                writer.flush()
        for writer in writers:
            writer.close()
        yield root


@pytest.fixture(scope="module")
def ingested(source, spark, kafka, kinesis, catalog_options):
    """A function that takes a form through the flows, once, and returns its workbook."""
    done = {}

    def take(form: str) -> Workbook:
        if form not in done:
            address = (
                f"kafka://{kafka.brokers}" if form.startswith("kafka") else f"kinesis://{kinesis.meta.region_name}"
            )
            done[form] = _ingest(source, form, f"{address}/{form}" if form in STREAMS else "", catalog_options)
        return done[form]

    return take


def _ingest(source: Path, form: str, stream: str, catalog_options: dict) -> Workbook:
    def book(notebook: str) -> Workbook:
        cell = {"env": "demo", "source": stream or str(source / form / "s3"), "tables": TABLES}
        if stream:
            cell |= {"endpoint": str(source / form / "endpoint.json"), "mappings": str(source / form / "task.json")}
            cell |= {"full_load": {"stream_start": "earliest"}, "cdc_merge": {"max_batch_messages": 600}}.get(
                notebook, {}
            )
        settings = resolve(notebook, cell).settings
        opened = Workbook(replace(settings, catalog_options=catalog_options), progress=lambda text: None)
        opened.specs = {n: replace(s, target=f"form_{form}.{s.table_name}") for n, s in opened.specs.items()}
        return opened

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FRAZIL_PARAMS", str(PARAMS if stream else source / form / "params"))
        raise_if_failed(setup.create_tables(book("setup")))
        raise_if_failed(full_load.run(book("full_load")))
        merged = cdc.run(book("cdc_merge"))
        raise_if_failed(merged)
        assert {r.status for r in merged} == {"merged"}
        return book("cdc_merge")


OFTEN = ("csv_headerless", "csv_with_header", "csv_transactions", "parquet", "csv_inserts_and_updates")
"""Forms that are tried each time; `make test-slow` tries the others."""


def forms(names) -> list:
    return [name if name in OFTEN else slow(name) for name in names]


@pytest.mark.parametrize("form", forms([*(f for f in FORMS if not f.startswith("parquet")), *STREAMS]))
def test_every_text_form_ends_equal_to_the_source(ingested, form):
    compared, samples = reconcile.run(ingested(form))
    raise_if_failed(compared)
    assert samples == []
    assert {r.counts["differing_rows"] for r in compared} == {0}


@pytest.mark.parametrize("form", forms([f for f in FORMS if f.startswith("parquet")]))
def test_every_parquet_form_ends_like_text_but_for_times_that_dms_cuts_to_milliseconds(ingested, form):
    for source, spec in ingested(form).specs.items():
        columns = [
            f"left(`{c.name}`, 12) as `{c.name}`" if c.dms_type == "TIME" else f"`{c.name}`" for c in spec.columns
        ]
        tables = []
        for book in (ingested("csv_with_header"), ingested(form)):
            tables.append(book.spark.table(book.name(book.specs[source])).selectExpr(*columns))
        assert tables[0].count() == tables[1].count() > 0
        assert tables[0].exceptAll(tables[1]).take(1) == []


@pytest.mark.parametrize("form", forms(NARROWED))
def test_a_form_that_leaves_operations_out_ends_as_those_it_kept_say(source, ingested, form):
    """Every update or delete that DMS does not write is missing from the table, and nothing else."""
    book, left_out = ingested(form), 0
    for spec in book.specs.values():
        texts = [c.name for c in spec.columns if c.name in spec.key or c.dms_type in ("STRING", "WSTRING")]
        expected, n = _replayed(source / "csv_with_header/s3", spec, NARROWED[form][1], texts)
        rows = book.spark.table(book.name(spec)).select(*texts).collect()
        assert sorted(tuple("NULL" if v is None else str(v) for v in row) for row in rows) == sorted(expected)
        left_out += n
    assert left_out > 0


def _replayed(root: Path, spec, kept: str, columns: list[str]) -> tuple[list[tuple], int]:
    """Apply the kept operations of a table's files with a header, and count the others."""
    folder, rows, left_out = root / spec.schema_name / spec.table_name, {}, 0
    for file in sorted(folder.glob("LOAD*.csv")) + sorted(folder.glob("2*.csv")):
        with file.open(newline="", encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                if not file.name.startswith("LOAD") and row["Op"] not in kept:
                    left_out += 1
                    continue
                if row["Op"] == "U":  # its key may have been another one
                    rows.pop(tuple(row[f"BI_{k}"] or row[k] for k in spec.key), None)
                rows[tuple(row[k] for k in spec.key)] = tuple(row[c] for c in columns)
    return list(rows.values()), left_out
