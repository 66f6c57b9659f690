"""The Iceberg room on other catalogs and stores: REST and Glue, S3, credentials that end, encryption, faults, and catalogs that forget."""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest
from py4j.java_gateway import GatewayClient
from pyiceberg.table.snapshots import Summary

import aws_emulator
from faulty_s3 import RETRIES, FaultyS3
from frazil.iceberg import commits, compaction, refusals, table
from frazil.iceberg.row_delta import write_rows
from frazil_demo.seaweed import Seaweed
from rest_catalog import RestCatalog
from unit.iceberg_world import Kept, Lake

pytestmark = pytest.mark.spark
ON_S3 = {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", "s3.path-style-access": "true", "client.region": "us-east-1"}


def rest(catalog: RestCatalog, **more: str) -> dict[str, str]:
    return {"type": "rest", "uri": catalog.uri, "warehouse": str(catalog.folder), **RETRIES, **more}


def on_s3(url: str, key: str = "test", secret: str = "test") -> dict[str, str]:
    return {**ON_S3, "s3.endpoint": url, "s3.region": "us-east-1", "s3.access-key-id": key, "s3.secret-access-key": secret}  # fmt: skip


@pytest.fixture(scope="module")
def rest_lake(lake, tmp_path_factory):
    """A lake on SeaweedFS with a REST catalog."""
    with Seaweed(tmp_path_factory.mktemp("seaweed")) as store, RestCatalog("s3://lake/tables") as catalog:
        store.client().create_bucket(Bucket="lake")
        catalog.write = lambda at, text: store.client().put_object(Bucket="lake", Key=at.removeprefix("s3://lake/"), Body=text.encode())  # fmt: skip
        options = rest(catalog, **on_s3(store.endpoint, *[store.environment[f"AWS_{k}"] for k in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY")]))  # fmt: skip
        yield Lake(tmp_path_factory.mktemp("rest"), "rest", **options), catalog
        os.kill(store.pid, signal.SIGKILL)  # else it waits ten seconds for open connections


@pytest.fixture(scope="module")
def glue_lake(lake, aws, tmp_path_factory):
    """A lake in MiniStack's Glue and S3, and what stands between."""
    aws_emulator.make_buckets(aws, "lake")
    for name, value in (
        ("accessKeyId", aws_emulator.ACCOUNT),
        ("secretAccessKey", "test"),
    ):  # the JVM is older than their variables
        lake.session._jvm.java.lang.System.setProperty(f"aws.{name}", value)
    with aws_emulator.Between(aws) as glue:
        options = {"type": "glue", "warehouse": "s3://lake/tables", "glue.endpoint": glue.address, **on_s3(aws, aws_emulator.ACCOUNT)}  # fmt: skip
        options |= {"client.region": aws_emulator.REGION, "s3.region": aws_emulator.REGION}
        yield Lake(tmp_path_factory.mktemp("glue"), "glue", **options), glue


@pytest.fixture(scope="module")
def disk_lake(lake, tmp_path_factory):
    """A lake on disk with a REST catalog."""
    with RestCatalog(tmp_path_factory.mktemp("disk")) as catalog:
        yield Lake(tmp_path_factory.mktemp("of"), "disk", **rest(catalog)), catalog


BATCH = {"rest_lake": {"GET namespaces/db/tables/seen": 1, "POST namespaces/db/tables/seen": 1}, "glue_lake": {"GetTable": 3, "UpdateTable": 1}}  # fmt: skip
"""The requests of a batch: one load, one commit. Iceberg's Glue catalog looks once more in a commit, and once after it."""


@pytest.mark.parametrize(("there", "version"), [("rest_lake", 3), pytest.param("glue_lake", 2, marks=pytest.mark.aws)])
def test_a_history_ends_as_its_replay_with_one_load_and_one_commit_a_batch(there, version, request):
    lake, catalog = request.getfixturevalue(there)
    w = Kept(lake, "seen", "bigint", partitioned="region", version=version)
    refusals.require_kept(w.table)
    new, _ = w.changes(200, 120)
    w.commit_change(lambda: write_rows(w.table, "replace", [w.changes_of(new, []).rows]))
    w.replay(new, [])
    for _ in range(4):
        catalog.requests.clear()
        w.apply_random(200, 60)
        assert Counter(catalog.requests) == BATCH[there]
    assert compaction.compact(w.table, 1 << 20, 2, waits=False)["groups"]
    w.apply_random(200, 60)
    w.check()


FAULTS = ["500 before", "500 after", "503 before", "cut before", "cut after"]
PLACES = [
    *(("disk_lake", n, 2) for n in range(3)),
    *(pytest.param("glue_lake", n, 4, marks=pytest.mark.aws) for n in range(5)),
]
"""Each request of a look and a batch, and how often the fault is shown: once more than the client of the catalog repeats it."""


@pytest.mark.parametrize(("there", "number", "times"), PLACES)
def test_at_a_fault_in_any_request_of_a_batch_it_is_there_once(there, number, times, request):
    lake, catalog = request.getfixturevalue(there)
    w = Kept(lake, f"fault_{number}", "bigint")
    w.apply_random()
    for n, (fault, often) in enumerate([*[(f, times) for f in FAULTS], *([("409 before", 1)] if number == 2 and there == "disk_lake" else [])]):  # fmt: skip
        catalog.requests.clear()
        catalog.choose = lambda n, asked, fault=fault, often=often: fault if number <= n < number + often else ""
        commits.steadily(w.table.refresh)
        w.apply_random()
        catalog.choose = lambda n, asked: ""
        assert len(catalog.requests) > number and len([*w.table.ancestors()]) == n + 2, fault
    w.check()


FORGETS = {
    "drops refs": lambda m: m.model_copy(update={"refs": {}}),
    "ends tags": lambda m: m.model_copy(update={"refs": {n: r.model_copy(update={"max_ref_age_ms": 1000}) for n, r in m.refs.items()}}),
    "drops summaries": lambda m: m.model_copy(update={"snapshots": [s.model_copy(update={"summary": Summary(s.summary.operation)}) for s in m.snapshots]}),
}  # fmt: skip


@pytest.mark.parametrize("fault", [*FORGETS, "moves no tag", "moves no ref"])
def test_a_catalog_that_forgets_is_refused(disk_lake, monkeypatch, fault):
    lake, catalog = disk_lake
    w, keep, do = Kept(lake, fault.replace(" ", "_"), "bigint"), catalog.keep, catalog.of_table
    refusals.require_kept(w.table)

    def forgetful(method: str, key: tuple, body: dict):
        kept = [u for u in body.get("updates", []) if u["action"] != "set-snapshot-ref" or (u["ref-name"], fault) == ("main", "moves no tag")]  # fmt: skip
        return do(method, key, body | {"updates": kept})

    forget = FORGETS.get(fault, lambda metadata: metadata)
    monkeypatch.setattr(catalog, "keep", lambda key, metadata: keep(key, forget(metadata)))
    monkeypatch.setattr(catalog, "of_table", do if fault in FORGETS else forgetful)
    with pytest.raises(commits.ForgetfulCatalogError):
        refusals.require_kept(w.table)
    assert len(w.opened().snapshots) == 2 and w.opened().head


def test_a_table_gets_new_credentials_when_its_own_are_old(lake, tmp_path, monkeypatch):
    made = []
    with FaultyS3() as s3, RestCatalog("s3://vend/tables", s3.put) as catalog:
        s3.bucket("vend")
        catalog.vended = lambda: made.append(1) or {"s3.access-key-id": f"key{len(made)}", "s3.secret-access-key": "x"}
        w = Kept(Lake(tmp_path / "v", "vend", **rest(catalog, **on_s3(s3.url))), "t", "bigint")
        w.apply_random()
        for longest_s in (600, 0):
            monkeypatch.setattr(table, "LONGEST_IO_S", longest_s)
            before, io = len(made), w.table.io
            w.table.refresh()
            monkeypatch.undo()
            s3.logins.clear()
            w.apply_random()
            assert (w.table.io is io) == bool(longest_s)
            assert {(client, int(key[3:]) > before) for client, key in s3.logins} == {(c, not longest_s) for c in ("java", "cpp")}  # fmt: skip


def test_every_object_has_the_encryption_that_the_options_name(lake, tmp_path):
    with FaultyS3() as s3:
        s3.bucket("sse")
        options = {"type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/sse.db", "warehouse": "s3://sse/t"}
        w = Kept(Lake(tmp_path / "s", "sse", **options, **on_s3(s3.url), **{"s3.sse.type": "kms", "s3.sse.key": "alias/mine"}), "t", "bigint")  # fmt: skip
        for _ in range(4):
            w.apply_random()
        compaction.compact(w.table, 1 << 20, 2, waits=False)
        with w.table.io.new_output("s3://sse/t/large").create() as out:
            out.write(bytes(12 << 20))  # in several parts
        kept = s3.backend.buckets["sse"].keys
        assert {f.rpartition(".")[2] for f in kept} == {"parquet", "puffin", "avro", "json", "t/large"}
        assert {(k.encryption, k.kms_key_id) for k in kept.values()} == {("aws:kms", "alias/mine")}


def test_a_batch_makes_few_calls_into_the_jvm(lake, monkeypatch):
    w, calls, real = Kept(lake, "calls", "bigint"), [], GatewayClient.send_command
    w.apply_random()
    monkeypatch.setattr(GatewayClient, "send_command", lambda *a, **k: calls.append(a[1]) or real(*a, **k))
    w.table.refresh()
    w.apply_random()
    assert 0 < len(calls) <= 60, len(calls)
