"""Credentials among the options: nobody can read them on a command line, in a run folder or in a message."""

import grp
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import nbformat
import psutil
import pytest
import reference
import yaml
from frazil_old import exit_codes

ROOT = Path(__file__).parent.parent
CATALOG = (
    "header.Authorization", "credential", "token", "oauth2.token", "rest.auth.basic.password", "rest.auth.basic.pass",
    "s3.access-key-id", "s3.secret-access-key", "s3.session-token", "s3.remote-signing.own", "client.assume-role.external-id",
    "adls.auth.shared-key.account.key", "adls.sas-token.account", "adls.connection-string.account", "gcs.oauth2.token",
    "jdbc.user", "jdbc.password", "jdbc.app_password", "client.credentials-provider.own", "my.invented.option",
)  # fmt: skip
"""Options with which Iceberg's catalogs and file systems log in, and one that nobody has heard of."""
SPARK = (
    "spark.hadoop.fs.s3a.access.key", "spark.hadoop.fs.s3a.secret.key", "spark.hadoop.fs.s3a.session.token",
    "spark.hadoop.fs.azure.account.key.x", "spark.hadoop.fs.azure.sas.x", "spark.hadoop.fs.azure.account.oauth2.client.secret",
    "spark.hadoop.fs.gs.auth.service.account.private.key", "spark.hadoop.javax.jdo.option.ConnectionPassword",
    "spark.ssl.keyPassword", "spark.ssl.keyStorePassword", "spark.authenticate.secret", "spark.executorEnv.LOGIN",
    "spark.sql.catalog.other.credential", "spark.my.invented.option",
)  # fmt: skip
NOTEBOOKS = ("00_setup", "01_full_load", "02_cdc_merge")


class Marks:
    """Values that look like nothing in particular, each made for one option."""

    def __init__(self):
        self.of: dict[str, str] = {}

    def new(self, option: str) -> str:
        mark = f"MARK{len(self.of):03d}z{abs(hash(option)) % 10**6}"
        self.of[mark] = option
        return mark

    def found_in(self, text: str) -> set[str]:
        return {option for mark, option in self.of.items() if mark in text}


class Processes:
    """Reads the command lines of all processes of this machine again and again."""

    def __init__(self):
        self.seen: set[str] = set()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.look)

    def look(self) -> None:
        known: dict[tuple, int] = {}
        while not self.ended.wait(0.01):
            for process in psutil.process_iter():
                if known.get(process.__hash__(), 0) > 20:  # it has had time enough to become another program
                    continue
                try:
                    self.seen.add("\n".join(process.cmdline()))
                except psutil.Error:
                    continue
                known[process.__hash__()] = known.get(process.__hash__(), 0) + 1

    def __enter__(self) -> "Processes":
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.ended.set()
        self.thread.join()


def frazil(place: Path, *argv: str) -> subprocess.CompletedProcess:
    """Run a command as most machines would: what it makes is for everybody to read, if it does nothing about it."""
    environment = {**os.environ, "FRAZIL_PARAMS": str(place / "params"), "FRAZIL_MASTER": "local[2]"}
    command = [sys.executable, "-m", "frazil_old.cli", *argv]
    return subprocess.run(command, env=environment, capture_output=True, text=True, umask=0o022, timeout=900)


def marked(place: Path, marks: Marks) -> Path:
    """Fill the environment's file with options whose values are marks."""
    file = place / "params/demo.yml"
    given = yaml.safe_load(file.read_text())
    common = given["common"]
    common["catalog_options"] |= {option: marks.new(option) for option in CATALOG}
    common["catalog_options"]["uri"] += f"?app_pw={marks.new('uri: app_pw')}&password_x={marks.new('uri: password_x')}"
    common["spark_options"] = {option: marks.new(option) for option in SPARK}
    common["spark_options"]["spark.driver.extraJavaOptions"] = f"-Dmy.password={marks.new('java')} -Dmy.name='a \"b'"
    file.write_text(yaml.safe_dump(given))
    return place


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Three notebooks with marks as credentials: the folder, the marks, what the commands printed, all command lines meanwhile."""
    place, marks = reference.workspace(tmp_path_factory.mktemp("secrets")), Marks()  # no notebooks beside `params/`
    marked(place, marks)
    with Processes() as processes:
        told = [frazil(place, "run", notebook, "--env", "demo") for notebook in NOTEBOOKS]
    assert [t.returncode for t in told] == [exit_codes.OK] * 3, [t.stdout + t.stderr for t in told]
    return place, marks, "".join(t.stdout + t.stderr for t in told), processes.seen


@pytest.mark.notebooks
def test_no_process_has_a_credential_among_its_arguments(ran):
    _, marks, _, commands = ran
    for program in ("bin/spark-class", "org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit"):
        assert any(program in command for command in commands), f"{program} was not seen"
    assert {(o, c[:80]) for c in commands for o in marks.found_in(c)} == set()


@pytest.mark.notebooks
def test_no_file_of_a_run_and_no_output_has_a_credential(ran):
    place, marks, told, _ = ran
    kept = [f for f in (place / "runs").rglob("*") if f.is_file()]
    names = {f.name for f in kept}
    assert {"spark.log", "frazil.log", "run.log", "run.json", "00_setup.ipynb", "02_cdc_merge.html"} <= names
    found = {(f.name, option) for f in kept for option in marks.found_in(f.read_bytes().decode("utf-8", "replace"))}
    assert found == set() and marks.found_in(told) == set()
    page = next((place / "runs").rglob("01_full_load.html")).read_text()
    assert all(option in page for option in (*CATALOG, *SPARK)), "which options there are is shown"


@pytest.mark.notebooks
def test_nobody_else_can_read_what_runs_and_a_local_lake_keep(ran):
    place, *_ = ran
    made = [f for root in ("runs", "lake") for f in [place / root, *(place / root).rglob("*")]]
    assert any(f.suffix == ".parquet" for f in made) and any(f.name.startswith("catalog.db") for f in made)
    assert {oct(f.stat().st_mode & 0o777) for f in made if f.is_dir()} == {"0o700"}
    assert {oct(f.stat().st_mode & 0o777) for f in made if f.is_file()} == {"0o600"}


@pytest.mark.notebooks
def test_a_page_of_a_run_needs_nothing_from_outside(ran):
    place, *_ = ran
    pages = list((place / "runs").rglob("*.html"))
    assert len(pages) == 4
    for page in pages:
        text = page.read_text()
        assert not re.search(
            r"<script|@import|url\(\s*['\"]?(?!data:|#)|<(img|link|iframe)\b[^>]*(src|href)=['\"]?(?!data:)", text
        )
        assert "Content-Security-Policy" in text and "MathJax" not in text


@pytest.mark.notebooks
def test_what_the_environment_and_spark_say_of_a_session_holds_as_well(tmp_path):
    """The user's PYSPARK_SUBMIT_ARGS and spark-defaults.conf, Java options with blanks, values that a properties file escapes."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/spark-defaults.conf").write_text("spark.my.default  d 1\nspark.driver.memory  1g\n")
    odd = " a=b\\c:\t#\nd"
    options = {"spark.my.odd": odd, "spark.driver.extraJavaOptions": """-Dx.y="a 'b" -Dx.z=1\\\\2"""}
    code = f"""
import os
from frazil_old.config.spark_session import get_spark
from frazil_old.config.settings import Settings
spark = get_spark(Settings(root={str(tmp_path)!r}, spark_options={options!r}))
conf, java = spark.sparkContext.getConf(), spark.sparkContext._jvm.System.getProperty
print([conf.get(k) for k in ("spark.my.default", "spark.my.odd", "spark.my.arg", "spark.driver.memory")], java("x.y"), java("x.z"))
print(os.environ["PYSPARK_SUBMIT_ARGS"])
spark.stop()
print(get_spark(Settings(root={str(tmp_path)!r}, spark_options={{"spark.my.odd": "again"}})).sparkContext.getConf().get("spark.my.odd"))
"""
    more = {"SPARK_CONF_DIR": str(tmp_path / "conf"), "PYSPARK_SUBMIT_ARGS": "--conf spark.my.arg=3 pyspark-shell"}
    ran = subprocess.run([sys.executable, "-c", code], env={**os.environ, **more}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.splitlines() == [f"{['d 1', odd, '3', '4g']} a 'b 1\\2", more["PYSPARK_SUBMIT_ARGS"], "again"]


@pytest.mark.notebooks
def test_a_group_may_read_if_a_parameter_says_so_and_a_parameter_with_a_credential_is_not_in_the_notebook(tmp_path):
    """The folders' group is handed on to what is made in them. The notebook is one of the folder that a parameter names."""
    place, marks, group = (
        reference.workspace(tmp_path),
        Marks(),
        grp.getgrgid(os.getgroups()[-1] if os.getgroups() else os.getgid()),
    )
    (place / "own").mkdir()
    with open(place / "params/demo.yml", "a") as file:
        file.write("\noperate:\n  notebooks: own\n")
    (place / "runs/demo").mkdir(parents=True)
    (place / "runs/demo").chmod(0o755)  # as an earlier version made it
    stub = nbformat.read(ROOT / "notebooks/00_setup.ipynb", as_version=4)
    stub.cells = [c for c in stub.cells if c.cell_type == "code"][:4]
    code = "import os\nassert resolved.settings.catalog_options['my.own'] == os.environ['EXPECTED'], 'lost'\nprint('\\x1b[2J$a$b$')"
    stub.cells.append(nbformat.v4.new_code_cell(code))
    result = "from frazil_old.report.notebook_output import NotebookResult\nNotebookResult('setup', 'ok', tables={'t': {'status': 'created'}})"
    stub.cells.append(nbformat.v4.new_code_cell(result))
    nbformat.write(stub, place / "own/00_setup.ipynb")
    options = {
        **yaml.safe_load((place / "params/demo.yml").read_text())["common"]["catalog_options"],
        "my.own": marks.new("-p"),
    }
    with pytest.MonkeyPatch.context() as patch, Processes() as processes:
        patch.setenv("EXPECTED", options["my.own"])
        given = ("-p", "catalog_options", json.dumps(options), "-p", "file_group", group.gr_name)
        told = frazil(place, "run", "setup", "--env", "demo", *given)
    assert told.returncode == exit_codes.OK, told.stdout + told.stderr
    assert [c[:60] for c in processes.seen if marks.found_in(c) and "frazil_old.cli\nrun" not in c] == []
    made = [f for f in (place / "runs").rglob("*") if f.is_file()]
    assert {f.name for f in made if marks.found_in(f.read_text())} == set() and marks.found_in(told.stdout) == set()
    (page,) = (place / "runs").rglob("00_setup.html")
    assert "\\x1b[2J$a$b$" in page.read_text()
    for file in list((place / "runs/demo").rglob("*")):
        assert (file.stat().st_mode & 0o777, file.stat().st_gid) == (0o750 if file.is_dir() else 0o640, group.gr_gid), (
            file
        )
