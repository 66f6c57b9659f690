"""`frazil doctor`: each thing that is missing is named with its remedy, without Spark and without a secret."""

import os
import shutil
import subprocess
import sys
from collections import namedtuple

import pytest
import yaml

import reference
from frazil_old import exit_codes
from frazil_old.cli import doctor, main
from frazil_old.dms import storage
from frazil_old.lake import clocks


@pytest.fixture
def place(tmp_path, monkeypatch):
    made = reference.workspace(tmp_path)
    monkeypatch.setenv("FRAZIL_PARAMS", str(made / "params"))
    return made


def examined(capsys) -> tuple[int, str]:
    """Return the exit code and all that is printed."""
    code = main(["doctor", "--env", "demo"])
    out, err = capsys.readouterr()
    assert err == "" and "Traceback" not in out
    return code, out


def changed(place, **common):
    """Change entries of the environment file."""
    file = place / "params/demo.yml"
    known = yaml.safe_load(file.read_text())
    known["common"] |= common
    file.write_text(yaml.safe_dump(known))


def test_all_is_there_and_nothing_is_left_behind(place, capsys):
    before = sorted(f for f in place.rglob("*") if "runs" not in f.parts)
    code, out = examined(capsys)
    assert code == exit_codes.OK, out
    lines = [line.split(":")[0][2:] for line in out.splitlines()]
    assert lines[:9] == ["Python", "Java", "parameters", "jars", "source", "catalog", "warehouse", "runs", "clock"]
    assert "✔ parameters: 2 tables" in out and "! catalog: not there yet: 00_setup makes it" in out
    assert out.endswith("demo: all that a run needs is there\n")
    assert sorted(f for f in place.rglob("*") if "runs" not in f.parts) == before


def test_spark_is_not_loaded(place):
    code = "from frazil_old.cli import main\nimport sys\nmain(['doctor', '--env', 'demo'])\nprint('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
    assert done.stdout.splitlines()[-1] == "False", done.stderr


def damaged_catalog(place):
    uri = yaml.safe_load((place / "params/demo.yml").read_text())["common"]["catalog_options"]["uri"]
    file = place / uri.removeprefix("jdbc:sqlite:")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("no database " * 99)


FAULTS = {
    "Java": lambda place, patch: patch.setenv("JAVA_HOME", "/no-java-here"),
    "old Java": lambda place, patch: patch.setattr(doctor.subprocess, "run", lambda *a, **k: namedtuple("R", "stderr")('openjdk version "11.0.2"')),
    "Python": lambda place, patch: patch.setattr(doctor.metadata, "version", lambda name: "0.0.1"),
    "parameters": lambda place, patch: changed(place, max_batch=3),
    "no key": lambda place, patch: (place / "params/tiny/person.yml").write_text((place / "params/tiny/person.yml").read_text().replace("key: [id]", "key: []")),
    "source": lambda place, patch: shutil.rmtree(place / "s3"),
    "catalog": lambda place, patch: damaged_catalog(place),
    "runs": lambda place, patch: changed(place, runs="params/demo.yml"),
    "warehouse": lambda place, patch: patch.setattr(doctor.shutil, "disk_usage", lambda p: namedtuple("D", "free")(10**8)),
    "clock": lambda place, patch: patch.setattr(clocks, "server_time", lambda p: (0.0, 1e6)),
}  # fmt: skip
SAYS = {
    "Java": ("✘ Java: /no-java-here/bin/java: No such file", "JAVA_HOME"),
    "old Java": ("✘ Java: java is 'version \"11.0.2\"'", "apt-get install openjdk-17"),
    "Python": ("✘ Python: other versions", "pip install"),
    "parameters": ("✘ parameters: ", "unknown parameter 'max_batch'"),
    "no key": ("✘ parameters: ", "has no key"),
    "source": ("✘ source: source folder", "set parameter 'source'"),
    "catalog": ("✘ catalog: the lake cannot be read", "file is not a database"),
    "runs": ("✘ runs: ", "cannot be written"),
    "warehouse": ("✘ warehouse: ", "0.1 GB are free"),
    "clock": ("✘ clock: the clock of host", "set the clock"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_missing_is_named_with_its_remedy(place, capsys, monkeypatch, fault):
    if fault == "catalog":
        pytest.importorskip("sqlalchemy")
    FAULTS[fault](place, monkeypatch)
    code, out = examined(capsys)
    said = " ".join(out.split())
    assert code == exit_codes.FAILED and "failed" in out.splitlines()[-1]
    assert all(text in said for text in SAYS[fault]), out
    assert max(len(line) for line in out.splitlines() if "/" not in line) <= 80


def test_an_environment_that_does_not_exist_ends_the_checks(place, capsys):
    assert main(["doctor", "--env", "dmeo"]) == exit_codes.FAILED
    out = capsys.readouterr().out
    assert "did you mean 'demo'?; frazil init writes a new one" in " ".join(out.split()) and "source" not in out


def test_without_an_environment_the_machine_is_checked(place, capsys, monkeypatch):
    monkeypatch.delenv("FRAZIL_ENV", raising=False)
    code = main(["doctor"])
    out = capsys.readouterr().out
    assert code == exit_codes.OK and [line.split(":")[0][2:] for line in out.splitlines()][:3] == [
        "Python",
        "Java",
        "jars",
    ]
    assert "frazil doctor --env NAME" in out
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert main(["doctor"]) == exit_codes.FAILED and "apt-get install openjdk-17" in capsys.readouterr().out


def test_s3_is_tried_and_left_as_it_was_and_no_secret_is_shown(place, capsys, monkeypatch):
    boto3 = pytest.importorskip("boto3")
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    try:
        url = "http://{}:{}".format(*server.get_host_and_port())
        for name, value in {"ENDPOINT_URL_S3": url, "ACCESS_KEY_ID": "AKIAKEY", "SECRET_ACCESS_KEY": "very-secret-key", "DEFAULT_REGION": "eu-west-1"}.items():  # fmt: skip
            monkeypatch.setenv(f"AWS_{name}", value)
        s3 = boto3.client("s3")
        s3.create_bucket(Bucket="doctor-bucket", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        s3.put_object(Bucket="doctor-bucket", Key="dms/app/person/LOAD00000001.csv", Body=b"I,1\n")
        options = {
            "type": "rest",
            "uri": "http://127.0.0.1:9/x",
            "warehouse": "s3://doctor-bucket/lake",
            "credential": "user:hidden-word-1",
        }
        changed(place, source="s3://doctor-bucket/dms", catalog_options=options)
        code, out = examined(capsys)
        assert (
            "✔ source: s3://doctor-bucket/dms is readable" in out
            and "✔ warehouse: s3://doctor-bucket/lake is writable" in out
        )
        assert code == exit_codes.FAILED and "✘ catalog: " in out and "✔ clock" in out
        assert "very-secret-key" not in out and "hidden-word-1" not in out
        assert [o["Key"] for o in s3.list_objects_v2(Bucket="doctor-bucket")["Contents"]] == [
            "dms/app/person/LOAD00000001.csv"
        ]

        def refused(**request):
            raise storage.StorageError("s3://doctor-bucket/lake: access is denied", "the role needs s3:PutObject")

        monkeypatch.setattr(doctor, "put", lambda path, data: refused())
        code, out = examined(capsys)
        assert "✘ warehouse: s3://doctor-bucket/lake: access is denied" in out and "s3:PutObject" in out
        changed(place, source="s3://other-bucket/dms")
        assert "✘ source: s3://other-bucket/dms/: the bucket does not exist" in " ".join(examined(capsys)[1].split())
    finally:
        server.stop()
