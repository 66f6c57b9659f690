"""Spark's session, its jars and its catalog; the budget of memory; the state folder; the catalogs of real source databases."""

from __future__ import annotations

import json
import os
import re
import threading
import time

import pytest
from obstore.store import LocalStore, MemoryStore

from frazil.discover import source_catalog
from frazil.errors import FrazilError, safe
from frazil.settings import jars, memory, source_database, state_folder
from frazil.settings.settings_model import Settings
from frazil.settings.state_folder import StateFolderError, require_create_only
from helpers import run_python
from source_servers import mariadb

GB = memory.GB
SESSION = """
import os, subprocess
from frazil.settings.environment import resolve
from frazil.settings.spark import heap, session
s = resolve("e")
spark = session(s)
spark.sql("CREATE NAMESPACE lake.n"), spark.sql("CREATE TABLE lake.n.t (id INT) USING iceberg"), spark.sql("INSERT INTO lake.n.t VALUES (1)")
assert session(resolve("e", {"max_batch_mb": 9})) is spark
print("rows", spark.table("lake.n.t").count(), "heap", heap(s))
print("driver", spark.conf.get("spark.driver.host"), spark.sparkContext.uiWebUrl)
print("secret in ps", os.environ["LAKE"] in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout)
listening = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True).stdout if os.path.exists("/usr/bin/ss") else ""
print("foreign", [line for line in listening.splitlines() if "java" in line and "127.0.0.1" not in line])
for other in ({"catalog_options": {**s.catalog_options, "warehouse": "runs/other"}}, {"catalog": "second", "catalog_options": {}}):
    try:
        session(resolve("e", other))
    except Exception as error:
        print("refused", error.code, str(error).replace(chr(10), " "))
"""


@pytest.mark.spark
def test_a_session_has_the_environments_catalog_and_refuses_another_lake(tmp_path):
    (tmp_path / "params").mkdir()
    options = {"type": "jdbc", "uri": "jdbc:sqlite:runs/lake.db", "warehouse": "runs/lake", "jdbc.password": "${LAKE}"}
    more = {"spark.driver.memory": "700m"}
    (tmp_path / "params/e.yml").write_text(json.dumps({"catalog_options": options, "spark_options": more}))
    said = run_python(SESSION, tmp_path, FRAZIL_PARAMS=str(tmp_path / "params"), LAKE="s3cr3t-value")
    assert 0.9 * (700 << 20) < int(re.search(r"rows 1 heap (\d+)", said)[1]) <= 700 << 20  # less one survivor space
    assert "driver 127.0.0.1 None" in said
    assert "secret in ps False" in said and "foreign []" in said
    assert (
        "refused session this session has another spark.sql.catalog.lake.warehouse" in said
        and "restart the kernel" in said
    )
    assert "refused session nothing says what the catalog 'second' is" in said
    assert (tmp_path / "runs/lake.db").exists() and (tmp_path / "runs/e/spark.log").exists()


@pytest.mark.spark
def test_a_session_that_does_not_start_says_why(tmp_path):
    (tmp_path / "params").mkdir()
    (tmp_path / "params/e.yml").write_text("spark_options: {spark.driver.memory: 1x}\n")
    code = "from frazil.settings.environment import resolve\nfrom frazil.settings.spark import session\ntry:\n    session(resolve('e'))\nexcept Exception as error:\n    print(error.code, error)"  # fmt: skip
    assert "session Spark did not start" in run_python(code, tmp_path, FRAZIL_PARAMS=str(tmp_path / "params"))


FETCH = """
import sys, time
from frazil.settings import jars
from frazil.settings.settings_model import Settings
with jars.on_class_path(Settings(), lambda text: None) as found:
    if "spark.jars.ivy" in found:
        from pathlib import Path
        time.sleep(1)
        folder = Path(found["spark.jars.ivy"], "jars")
        folder.mkdir()
        (folder / "iceberg.jar").touch()
print(sorted(found))
"""


def test_of_two_first_starts_one_fetches_the_jars_and_the_other_waits_for_them(tmp_path):
    said: list[str] = []
    starts = [threading.Thread(target=lambda: said.append(run_python(FETCH, tmp_path, XDG_CACHE_HOME=str(tmp_path)))) for _ in range(3)]  # fmt: skip
    for start in starts:
        start.start()
    for start in starts:
        start.join()
    assert sorted("spark.jars.ivy" in s for s in said) == [False, False, True]
    assert sum("'spark.jars'" in s for s in said) == 2


def test_a_start_that_failed_leaves_no_jars_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), jars.on_class_path(Settings(), print) as found:
            assert jars.ICEBERG in found[jars.PACKAGES]
            raise ZeroDivisionError


def test_jars_follow_the_catalog_and_the_users_own_ones_win():
    def of(options: dict, **spark: str) -> list[str]:
        return jars.coordinates(Settings(catalog_options=options, spark_options=spark))

    assert jars.AWS in of({"type": "glue"}) and jars.AWS not in of({}) and jars.ICEBERG in of({})
    assert jars.DATABASES["jdbc:sqlite"] in of({"type": "jdbc", "uri": "jdbc:sqlite:x", "warehouse": "w"})
    older = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"
    own = of({}, **{"spark.jars.packages": f"{older}, a:b:1"})
    assert older in own and "a:b:1" in own and jars.ICEBERG not in own
    assert of({"type": "glue"}, **{"spark.jars.packages": ""}) == []


# --- memory


@pytest.mark.parametrize(
    ("groups", "limit"),
    [
        ({"memory.max": "max"}, None),
        ({"memory.max": str(3 * GB)}, 3 * GB),
        ({"memory.max": str(3 * GB), "slice/memory.max": "max", "slice/job/memory.max": str(2 * GB)}, 2 * GB),
        ({"memory/memory.limit_in_bytes": str(2 * GB), "memory/slice/memory.limit_in_bytes": str(9 << 60)}, 2 * GB),
        ({"memory/slice/job/memory.limit_in_bytes": str(GB)}, GB),
        ({"slice/memory.max": str(GB), "slice/job/memory.max": str(2 * GB)}, GB),
        ({"slice/cri:a/memory.max": str(GB)}, GB),
        ({}, None),
    ],
)
def test_the_least_limit_of_all_containers_counts(tmp_path, groups, limit):
    for name, text in groups.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    (tmp_path / "own").write_text("12:memory:/slice/job\n0::/slice/job\n0::/slice/cri:a\n")
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert memory.memory_limit(tmp_path, tmp_path / "own") == (limit or machine)
    assert memory.memory_limit(tmp_path / "none", tmp_path / "none") == machine


def test_batches_share_the_budget_and_a_larger_one_runs_alone():
    budget, inside, most = memory.Budget(2 * GB, 6 * GB), [], []
    assert budget.size == 3.5 * GB and "3.5 GB for batches: 6.0 less 2.0" in budget.shown

    def work(size: int) -> None:
        with budget.take(size):
            inside.append(size)
            most.append(list(inside))
            time.sleep(0.05)
            inside.remove(size)

    threads = [threading.Thread(target=work, args=[size]) for size in (2 * GB, GB, 9 * GB, GB, 2 * GB, GB)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(sum(sizes) <= budget.size or sizes == [9 * GB] for sizes in most) and len(most) == 6
    assert any(len(sizes) > 1 for sizes in most) and budget.used == 0


def test_a_large_batch_gets_its_turn_although_small_ones_keep_coming():
    budget, ended = memory.Budget(2 * GB, 6 * GB), threading.Event()

    def small() -> None:
        while not ended.is_set():
            with budget.take(2 * GB):
                time.sleep(0.02)

    threads = [threading.Thread(target=small) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        begin = time.monotonic()
        with budget.take(9 * GB):
            assert time.monotonic() - begin < 1
    finally:
        ended.set()


def test_a_process_has_one_budget(monkeypatch):
    monkeypatch.setattr(memory, "_of_process", [])
    assert memory.budget(GB) is memory.budget(2 * GB)


def test_too_little_memory_is_refused_with_the_line_to_write():
    with pytest.raises(memory.TooLittleMemoryError, match="set spark.driver.memory to 1536m"):
        memory.Budget(2 * GB, 3 * GB)
    with pytest.raises(memory.TooLittleMemoryError, match="2 GB or more"):
        memory.Budget(GB, 19 * GB // 10)


# --- the state folder


def test_a_store_must_refuse_to_create_what_is_there(tmp_path, monkeypatch):
    for store in (LocalStore(str(tmp_path)), MemoryStore()):
        require_create_only(store)
        assert list(store.list()) == []
    (tmp_path / "file").touch()
    with pytest.raises(StateFolderError, match="cannot be used"):
        require_create_only(LocalStore(str(tmp_path / "file")))
    put = state_folder.obstore.put
    monkeypatch.setattr(state_folder.obstore, "put", lambda *what, mode: put(*what))  # a store that ignores create-only
    with pytest.raises(StateFolderError, match="written twice"):
        require_create_only(store)
    assert list(store.list()) == []


# --- source databases

TABLES = """
create table {s}.orders (id int not null, day date not null, price numeric(12,2), note varchar(20), primary key (day, id));
create table {s}.plain (v text);
"""
COMMENTS = {
    "postgresql": ["comment on table s.orders is 'Orders'", "comment on column s.orders.note is 'A note'"],
    "mariadb": [
        "alter table s.orders comment 'Orders'",
        "alter table s.orders modify note varchar(20) comment 'A note'",
    ],
}


@pytest.fixture(scope="module", params=["postgresql", "mariadb"])
def database(request, tmp_path_factory):
    """The kind and the address of a real database."""
    folder = tmp_path_factory.mktemp("server")
    if request.param == "mariadb":
        with mariadb(folder) as url:
            yield "mariadb", f"{url}/"
    else:
        from frazil_demo.postgres import EmbeddedPostgres

        with EmbeddedPostgres(folder / "postgres") as server:
            address = f"127.0.0.1:{server.port}/{server.database}"
            url = f"postgresql://{server.user}:${{SOURCE_PASSWORD}}@{address}"
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("SOURCE_PASSWORD", server.password)
                yield "postgresql", url


def test_the_catalog_of_a_source_shows_tables_columns_keys_and_comments(database):
    import sqlalchemy as sa

    kind, url = database
    engine = source_database.connect(Settings(source_database=url))
    with engine.begin() as connection:
        connection.execute(sa.text("create schema s"))
        for statement in [*TABLES.format(s="s").strip().split("\n"), *COMMENTS[kind]]:
            connection.execute(sa.text(statement.rstrip(";")))
    found = {t.fullname: t for t in source_catalog.tables(engine, ["s"])}
    assert list(found) == ["s.orders", "s.plain"] and len(source_catalog.tables(engine)) >= 2
    orders = found["s.orders"]
    assert [c.name for c in orders.columns] == ["id", "day", "price", "note"]
    assert [c.name for c in orders.primary_key] == ["day", "id"] and not list(found["s.plain"].primary_key)
    assert (orders.comment, orders.c.note.comment, str(orders.c.price.type)) == ("Orders", "A note", "NUMERIC(12, 2)" if kind == "postgresql" else "DECIMAL(12, 2)")  # fmt: skip
    with pytest.raises(FrazilError, match="write 's'"):
        source_catalog.tables(engine, ["S"])
    assert (orders.c.price.nullable, orders.c.id.nullable) == (True, False)


def test_a_source_is_named_by_address_or_by_a_secret_as_rds_stores_it(monkeypatch):
    monkeypatch.setenv("PW", "s3cr3t/va@l%41ue:x")
    url = source_database.source_url(Settings(source_database="postgresql://u:${PW}@h:5432/d"))
    assert (url.password, url.host, url.database) == ("s3cr3t/va@l%41ue:x", "h", "d")
    url = source_database.source_url(Settings(source_database="jdbc:postgresql://u@h:5432/d"))
    assert url.drivername == "postgresql+psycopg" and url.port == 5432
    login = {"engine": "mysql", "host": "h", "port": 3306, "username": "u", "password": "p@ss/word", "dbname": "d"}
    monkeypatch.setattr("frazil.settings.secrets.read_secret", lambda id, key: json.dumps(login))
    url = source_database.source_url(Settings(source_database="${secret:prod/shop}"))
    assert (url.drivername, url.host, url.password, url.database) == ("mysql+pymysql", "h", "p@ss/word", "d")
    assert "p@ss/word" not in safe("no p@ss/word here")
    login["engine"] = None
    assert "is no address" in str(
        pytest.raises(FrazilError, source_database.source_url, Settings(source_database="${secret:x}")).value
    )
    for wrong, words in (("", "is no address"), ("db2://h/d", "'db2' is not known"), ("postgresql://u@127.0.0.1:1/d", "does not answer")):  # fmt: skip
        with pytest.raises(FrazilError, match=words):
            source_database.connect(Settings(source_database=wrong))
