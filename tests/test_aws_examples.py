"""The example environments for AWS: each is read by every notebook, and tried on emulators as far as these go."""

from pathlib import Path

import pytest
import yaml

from dms_streams import Shards
from dms_writer import U
from frazil_old.config.settings import NOTEBOOKS, resolve
from frazil_old.flows.workbook import Workbook

pytestmark = pytest.mark.aws

PARAMS = Path(__file__).parent.parent / "params"
EXAMPLES = sorted(file.stem for file in PARAMS.glob("aws-*.yml"))


def told(env: str) -> dict:
    """An example as it is written."""
    return yaml.safe_load((PARAMS / f"{env}.yml").read_text())


@pytest.fixture(autouse=True)
def shipped(monkeypatch):
    monkeypatch.setenv("FRAZIL_PARAMS", str(PARAMS))


@pytest.mark.parametrize("section", NOTEBOOKS)
@pytest.mark.parametrize("env", EXAMPLES)
def test_every_notebook_and_command_reads_an_example_and_what_it_names(env, section):
    book = Workbook(resolve(section, {"env": env}).settings, lambda text: None)
    assert len(book.specs) == 7 and bool(book.stream) is (env == "aws-kinesis")


def test_there_is_an_example_for_glue_s3_tables_and_kinesis():
    assert EXAMPLES == ["aws-glue", "aws-kinesis", "aws-s3tables"]


@pytest.mark.spark
def test_a_stream_is_loaded_and_followed_by_the_parameters_of_the_example(kinesis, open_world):
    """The stream is moto's, and the tables are in the tests' own catalog."""
    example = told("aws-kinesis")
    w = open_world(**example["full_load"], **example["cdc_merge"]).table("t")
    assert example["common"]["source"].startswith("kinesis://")
    stream = Shards(w, kinesis)
    stream.load("t", *((key, "a") for key in range(3)))
    stream.changes("t", U(1, "b"))
    w.loaded().merged(run_for_s=60.0, idle_s=3.0, trigger_s=0.5)
    assert w.rows("t") == [(0, "a"), (1, "b"), (2, "a")]
