"""The gate of a full load: a table is loaded once DMS calls it completed and all its rows are there. The others wait."""

import json

import boto3
import pytest
from botocore.stub import Stubber

from frazil_old.config.settings import FullLoadSettings
from frazil_old.flows.plan import plan
from frazil_old.results import TableResult
from helpers import LOAD1, U

TASK = "arn:aws:dms:eu-west-1:111111111111:task:ABC"


class Dms:
    """DMS as botocore's own model describes it: requests and answers that do not fit it fail."""

    def __init__(self, patch):
        self.client = boto3.client("dms", region_name="eu-west-1", aws_access_key_id="a", aws_secret_access_key="b")
        self.answers = Stubber(self.client)
        self.answers.activate()
        patch.setattr(boto3, "client", lambda name, region_name: self.client)

    def task(self, status="running", kind="full-load-and-cdc", **more) -> "Dms":
        asked = {"Filters": [{"Name": "replication-task-arn", "Values": [TASK]}], "WithoutSettings": True}
        task = {"ReplicationTaskArn": TASK, "Status": status, "MigrationType": kind, **more}
        self.answers.add_response("describe_replication_tasks", {"ReplicationTasks": [task]}, asked)
        return self

    def tables(self, marker="", after="", **tables) -> "Dms":
        """Tables by name, with their state and number of rows."""
        listed = [{"SchemaName": "public", "TableName": n, "TableState": s, "FullLoadRows": r} for n, (s, r) in tables.items()]  # fmt: skip
        answer = {"TableStatistics": listed, **({"Marker": marker} if marker else {})}
        self.answers.add_response(
            "describe_table_statistics", answer, {"ReplicationTaskArn": TASK, **({"Marker": after} if after else {})}
        )
        return self


@pytest.fixture
def dms(monkeypatch):
    return Dms(monkeypatch)


def by_table(results: list[TableResult]) -> dict[str, tuple[str, str]]:
    return {name: (r.status, r.note) for name, r in results.items()}


@pytest.mark.spark
def test_a_plan_says_that_dms_does_not_answer_if_there_is_something_to_load(world, dms):
    world.table("a").load("a", (1, "old"))
    asks = {"load_complete_when": f"dms:{TASK}"}
    (row,) = plan(world.book(FullLoadSettings, **asks))
    assert row["action"] == "stops" and "DMS does not answer" in row["decision"]
    world.loaded()
    (row,) = plan(world.book(FullLoadSettings, **asks))
    assert (row["action"], row["decision"]) == ("nothing new", "")


@pytest.mark.spark
def test_completed_tables_are_loaded_and_the_others_wait_with_their_changes(world, dms):
    for t in "abcd":
        world.table(t).load(t, (1, "old"), (2, "old"))
    world.table("e").setup()
    for _ in ("the plan", "the load"):
        dms.task().tables(a=("Table completed", 2), b=("Table error", 1), c=("Full load", 1), d=("Table completed", 3), e=("Table completed", 1))  # fmt: skip
    planned = {row["table"]: row for row in plan(world.book(FullLoadSettings, load_complete_when=f"dms:{TASK}"))}
    assert [planned[f"public.{t}"]["action"] for t in "abce"] == ["load", *["wait for DMS"] * 3]
    assert "reload the table in DMS" in planned["public.b"]["notes"]
    done = by_table(world.full_load(load_complete_when=f"dms:{TASK}"))
    assert done["a"] == ("loaded", "")
    assert done["b"][0] == "waiting" and "reload the table in DMS" in done["b"][1]
    assert done["c"][0] == "waiting" and "'Full load'" in done["c"][1]
    assert done["d"] == ("waiting", "2 rows are there, of 3 by DMS")
    assert done["e"] == ("waiting", "no load file is there, of 1 row by DMS")
    assert any("the DMS task is running" in line for line in world.said)
    for t in "ab":
        world.changes(t, U(1, "new"))
    merged = world.merge()
    assert (merged["a"].status, merged["b"].status) == ("merged", "waiting")

    world.load("d", (3, "old"), name=LOAD1.replace("1", "2"))  # the file that was still being written
    (world.root / "statistics.json").write_text(
        json.dumps(
            {
                "TableStatistics": [
                    {"SchemaName": "public", "TableName": "d", "TableState": "Table completed", "FullLoadRows": 3}
                ]
            }
        )  # fmt: skip
    )
    again = by_table(world.full_load(load_complete_when="statistics.json"))
    assert again["d"] == ("loaded", "") and again["a"] == ("unchanged", "loaded")
    assert world.rows("d") == [(1, "old"), (2, "old"), (3, "old")]
