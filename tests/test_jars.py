"""The jars of a Spark session come only from the repositories that the options name, whole, and once, whatever other programs left on the machine."""

import hashlib
import io
import socket
import zipfile
from pathlib import Path

import pytest

from frazil_old.config import jars
from frazil_old.config.jars import JarsError, fetch, packages
from frazil_old.config.settings import CdcMergeSettings, Settings

POM = "<project><modelVersion>4.0.0</modelVersion><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}</project>"
NEEDS = "<dependencies><dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency></dependencies>"


class Repository:
    """A Maven repository in a folder."""

    def __init__(self, root: Path):
        self.root, self.options = root, {"spark.jars.repositories": root.as_uri()}

    def put(self, coordinate: str, needs: str = "", jar: bytes | None = None) -> "Repository":
        group, name, version = coordinate.split(":")
        folder = self.root / group.replace(".", "/") / name / version
        folder.mkdir(parents=True)
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as opened:
            opened.writestr("what", coordinate * 100)
        pom = POM.format(group, name, version, NEEDS.format(*needs.split(":")) if needs else "").encode()
        for suffix, content in (("pom", pom), ("jar", jar or packed.getvalue())):
            file = folder / f"{name}-{version}.{suffix}"
            file.write_bytes(content)
            file.with_name(f"{file.name}.sha1").write_text(hashlib.sha1(content).hexdigest())
        return self

    def content(self, coordinate: str) -> bytes:
        group, name, version = coordinate.split(":")
        return (self.root / group.replace(".", "/") / name / version / f"{name}-{version}.jar").read_bytes()


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """A user's home directory with an empty cache; Java looks there for what other programs keep."""
    monkeypatch.setattr(jars, "CACHE", tmp_path / "cache")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Duser.home={tmp_path / 'home'}")
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", (tmp_path / "repository").as_uri())
    return tmp_path / "home"


@pytest.fixture
def repository(home, tmp_path) -> Repository:
    return Repository(tmp_path / "repository").put("org.one:first:1.0", needs="org.two:second:2.0").put("org.two:second:2.0")  # fmt: skip


BOTH = ("org.one:first:1.0", "org.two:second:2.0")


def same(paths: list[str], repository: Repository, coordinates=BOTH) -> bool:
    """Tell whether files are those of the repository."""
    return [Path(p).read_bytes() for p in paths] == [repository.content(c) for c in coordinates]


def leave(folder: Path, name: str, content: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(content)


def test_what_maven_and_ivy_left_on_the_machine_is_not_looked_at(home, repository):
    """A pom without its jar, half a jar, and notes of Ivy that point to one."""
    for coordinate in BOTH:
        group, name, version = coordinate.split(":")
        leave(home / ".m2/repository" / group.replace(".", "/") / name / version, f"{name}-{version}.pom", POM.format(group, name, version, ""))  # fmt: skip
        for ivy in (".ivy2", ".ivy2.5.2"):
            leave(home / ivy / "cache" / group / name / "jars", f"{name}-{version}.jar", "half")
            leave(home / ivy / "jars", f"{group}_{name}-{version}.jar", "half")
            leave(home / ivy / "cache" / group / name, f"ivydata-{version}.properties", "resolver=local-m2-cache\n")
    leave(home / ".m2/repository/org/two/second/2.0", "second-2.0.jar", "half")
    assert same(fetch(BOTH[:1]), repository)


def test_they_are_fetched_once_and_then_taken_without_network_or_java(repository, monkeypatch):
    said: list[str] = []
    first = fetch(BOTH[:1], say=said.append)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    repository.root.rename(repository.root.with_name("gone"))
    assert fetch(BOTH[:1], say=said.append) == first and len(said) == 1


@pytest.mark.parametrize("cut", [lambda whole: whole[:-20], lambda whole: b"\0" * len(whole)], ids=["half", "zeros"])
def test_a_jar_that_was_damaged_since_is_fetched_again(repository, cut):
    damaged = Path(fetch(BOTH[:1], say=lambda _: None)[1])
    damaged.write_bytes(cut(damaged.read_bytes()))
    assert same(fetch(BOTH[1:]), repository, BOTH[1:]), "another set of jars that has it in common"
    assert same(fetch(BOTH[:1]), repository)


def test_a_jar_that_is_not_what_its_checksum_says_is_refused(repository):
    (repository.root / "org/two/second/2.0/second-2.0.jar").write_bytes(b"cut off")
    with pytest.raises(JarsError, match="second"):
        fetch(BOTH[:1])


def test_a_repository_that_cannot_be_reached_is_named_without_its_password(home):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}/maven"
    with pytest.raises(JarsError, match=f"http://{address}/org/one.*refused") as raised:
        fetch(BOTH[:1], {"spark.jars.repositories": f"http://me:hidden@{address}"})
    assert "hidden" not in str(raised.value)


def test_a_jar_that_no_repository_has_is_named(repository):
    with pytest.raises(JarsError, match="org.one#missing;7.*repository/org/one/missing"):
        fetch(["org.one:missing:7"])
    with pytest.raises(JarsError, match="group:artifact:version"):
        fetch(["org.one:missing"])


def test_repositories_of_the_users_own_settings_are_asked(home, tmp_path):
    """By Spark's option for addresses, beside the usual one, and by its option for a file of Ivy's settings."""
    Repository(tmp_path / "repository").put(BOTH[0])
    other = Repository(tmp_path / "other").put("org.two:second:2.0")
    assert same(fetch(BOTH[1:], other.options), other, BOTH[1:])
    settings = tmp_path / "mine.xml"
    settings.write_text(f'<ivysettings><settings defaultResolver="r"/><resolvers><ibiblio name="r" root="{other.root.as_uri()}/" m2compatible="true"/></resolvers></ivysettings>')  # fmt: skip
    assert same(fetch(BOTH[1:], {"spark.jars.ivySettings": str(settings)}), other, BOTH[1:])
    with pytest.raises(JarsError, match="first"):
        fetch(BOTH[:1], {"spark.jars.ivySettings": str(settings)})


# --- which they are


@pytest.mark.parametrize("line", jars.ICEBERG)
def test_the_users_packages_add_to_frazils_own(line, monkeypatch):
    monkeypatch.delenv("FRAZIL_SOURCE_URL", raising=False)
    own = packages(line, Settings())
    more = packages(line, Settings(spark_options={"spark.jars.packages": "a:b:1, c:d:2"}))
    assert more == [*own, "a:b:1", "c:d:2"]
    assert packages(line, Settings(spark_options={"spark.jars.packages": ""})) == [], "Spark has them all"


@pytest.mark.parametrize(
    ("url", "artifact"),
    [
        ("jdbc:mysql://h/d", "mysql-connector-j"), ("jdbc:mariadb://h/d", "mysql-connector-j"), ("jdbc:sqlserver://h;databaseName=d", "mssql-jdbc"),
        ("jdbc:oracle:thin:@//h/d", "ojdbc11"), ("jdbc:postgresql://h/d", "postgresql"),
    ],
)  # fmt: skip
def test_the_driver_of_the_source_database_is_among_them(monkeypatch, url, artifact):
    monkeypatch.setenv("FRAZIL_SOURCE_URL", url)
    assert [p for p in packages("4.1", CdcMergeSettings()) if p.split(":")[1] == artifact]


def test_an_address_of_no_known_database_stops_no_session(monkeypatch):
    monkeypatch.setenv("FRAZIL_SOURCE_URL", "jdbc:unheard-of://h/d")
    assert packages("4.1", CdcMergeSettings(check_source=True))
