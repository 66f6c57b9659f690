"""The jars of a Spark session that Frazil builds: which it needs, and how they are fetched into Frazil's own cache."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from xml.sax.saxutils import quoteattr

from frazil_old.config import private_files
from frazil_old.config.settings import Settings
from frazil_old.config.source_database import ENGINES, SourceDatabaseError, engine_of, source_connection
from frazil_old.errors import FrazilError

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "frazil"
"""Frazil's cache for this user, shared by all projects."""
ICEBERG = {
    "4.1": ["org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"],
    "3.5": ["org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.10.2"],
}
AWS_SDK = "software.amazon.awssdk:"
HADOOP_AWS = {
    "4.1": ["org.apache.hadoop:hadoop-aws:3.4.2",
            *[f"{AWS_SDK}{m}:2.29.52" for m in ("s3", "s3-transfer-manager", "sts", "sso", "ssooidc", "apache-client", "netty-nio-client")]],
    "3.5": ["org.apache.hadoop:hadoop-aws:3.3.4", *[f"com.amazonaws:aws-java-sdk-{m}:1.12.262" for m in ("s3", "sts", "dynamodb")]],
}  # fmt: skip
"""Hadoop's S3 file system for a workstation: for the Hadoop that pyspark bundles, with only the AWS SDK modules that it uses."""
WITH_BUNDLE = {
    "4.1": ["org.apache.hadoop:hadoop-aws:3.4.2", f"{AWS_SDK}s3-transfer-manager:2.54.17", f"{AWS_SDK}apache-client:2.54.17", f"{AWS_SDK}ssooidc:2.54.15"],
    "3.5": HADOOP_AWS["3.5"],
}  # fmt: skip
"""The same next to `iceberg-aws-bundle`, on the version of the SDK inside that: a session can have only one."""
AWS_BUNDLE = {
    "4.1": ["org.apache.iceberg:iceberg-aws-bundle:1.12.0"],
    "3.5": ["org.apache.iceberg:iceberg-aws-bundle:1.10.1"],
}
"""AWS's clients for the Glue catalog, signed calls and S3FileIO. EMR and Glue have them."""
SDK_BUNDLES = ("software.amazon.awssdk:bundle", "com.amazonaws:aws-java-sdk-bundle")
"""The complete AWS SDK in one jar of 600 MB: excluded."""
CARRIED = (
    "org.scala-lang:scala-library",
    "org.apache.spark:spark-tags_.*",
    "org.apache.hadoop:hadoop-client-(api|runtime)",
)
"""Artifacts that pyspark bundles, as patterns."""
DRIVERS = ["org.xerial:sqlite-jdbc:3.50.3.0", ENGINES["postgresql"][3]]
"""JDBC drivers for catalogs in a database."""
LOCAL_FILES = "com.globalmentor:hadoop-bare-naked-local-fs:0.1.0"
"""Local file access through Java's own calls; see `jvm.plain_local_files`."""
LOADED = "spark.frazil.packages"
"""A Spark setting that records the jars of a session that Frazil built. Spark ignores it."""
PACKAGES, REPOSITORIES, IVY = "spark.jars.packages", "spark.jars.repositories", "spark.jars.ivySettings"
_TIMEOUT = "-Dsun.net.client.defaultConnectTimeout=20000 -Dsun.net.client.defaultReadTimeout=60000"


class JarsError(FrazilError):
    """Jars cannot be fetched from the repositories that the options name."""


def packages(line: str, settings: Settings) -> list[str]:
    """Return the Maven coordinates of the jars that a session of these settings needs, on this line of Spark (`4.1`).

    `spark.jars.packages` in the Spark options adds to Frazil's own. An empty value says that Spark already has all
    jars.
    """
    own = settings.spark_options.get(PACKAGES)
    if own == "":
        return []
    bundle = _needs_aws_bundle(settings)
    needed = [
        *ICEBERG[line],
        *DRIVERS,
        LOCAL_FILES,
        *((WITH_BUNDLE if bundle else HADOOP_AWS)[line] if needs_s3(settings) else []),
        *(AWS_BUNDLE[line] if bundle else []),
        *_source_driver(settings),
        *[p.strip() for p in (own or "").split(",")],
    ]
    return [p for p in dict.fromkeys(needed) if p]


def needs_s3(settings: Settings) -> bool:
    """Return whether Spark reads or writes S3 through Hadoop: the source, or a warehouse without Iceberg's own S3FileIO."""
    places = (settings.source, "" if _has_s3_file_io(settings) else settings.catalog_options.get("warehouse", ""))
    return any(place.startswith(("s3://", "s3a://")) for place in places)


def _has_s3_file_io(settings: Settings) -> bool:
    return settings.catalog_options.get("io-impl", "").endswith(".S3FileIO")


def _needs_aws_bundle(settings: Settings) -> bool:
    """Return whether Iceberg itself talks to AWS: to Glue, to a REST catalog by signed calls, or to S3 as a REST catalog may ask."""
    options, kind = settings.catalog_options, settings.catalog_kind
    may_ask = kind == "rest" and not options.get("io-impl")
    return kind == "glue" or "rest.sigv4-enabled" in options or _has_s3_file_io(settings) or may_ask


def _source_driver(settings: Settings) -> list[str]:
    """Return the driver of the source database, if one is named. An invalid address is ignored here; connecting reports it."""
    url = os.environ.get("FRAZIL_SOURCE_URL", "")
    asked = settings.follow_source or getattr(settings, "check_source", False)
    try:
        if url:
            return [ENGINES[engine_of(url.removeprefix("jdbc:").split(":")[0])][3]]
        return [ENGINES[source_connection().engine][3]] if asked else []
    except SourceDatabaseError:
        return []


def conf(line: str, settings: Settings, say: Callable[[str], None]) -> dict[str, str]:
    """Return the Spark settings that give a session its jars as local files; Spark itself resolves nothing."""
    own, wanted = settings.spark_options, packages(line, settings)
    paths = fetch(wanted, own, _excludes(own), say)
    given = [p for p in own.get("spark.jars", "").split(",") if p]
    return {"spark.jars": ",".join([*paths, *given]), PACKAGES: "", LOADED: ",".join(wanted)}


def _excludes(options: dict[str, str]) -> tuple[str, ...]:
    own = [re.escape(e.strip()) for e in options.get("spark.jars.excludes", "").split(",") if e.strip()]
    return (*CARRIED, *SDK_BUNDLES, *own)


def cache_folder() -> Path:
    """Return the folder of the jars that were fetched."""
    return CACHE / "jars"


def _request(wanted: Sequence[str], options: dict[str, str], excludes: Sequence[str]) -> str:
    return hashlib.sha256(repr((sorted(wanted), sorted(excludes), _resolvers(options))).encode()).hexdigest()


def are_cached(line: str, settings: Settings) -> bool:
    """Return whether a session of these settings finds all its jars in the cache."""
    wanted, index = packages(line, settings), _read(cache_folder() / "index.json")
    found = index["sets"].get(_request(wanted, settings.spark_options, _excludes(settings.spark_options)), [])
    return not wanted or bool(found and all(_whole(cache_folder(), jar, index["jars"]) for jar in found))


def fetch(
    wanted: Sequence[str],
    options: dict[str, str] | None = None,
    excludes: Sequence[str] = (),
    say: Callable[[str], None] = print,
) -> list[str]:
    """Return the paths of jars and their dependencies; fetch those that the cache lacks. `options` are Spark's.

    `excludes` are patterns of `group:artifact`. Jars come only from the repositories that the options name: those in the
    file of `spark.jars.ivySettings`, else the usual one followed by those of `spark.jars.repositories`.
    DEFAULT_ARTIFACT_REPOSITORY replaces the usual one. Ivy, which pyspark bundles, verifies the checksums.
    """
    if not wanted:
        return []
    options = options or {}
    request = _request(wanted, options, excludes)
    with _alone() as folder:
        index = _read(folder / "index.json")
        jars = index["sets"].get(request, [])
        if not jars or not all(_whole(folder, jar, index["jars"]) for jar in jars):
            say(f"fetching jars for Spark into {folder}, once")
            for jar in (str(f.relative_to(folder)) for f in (folder / "ivy").rglob("*.jar")):
                if not _whole(folder, jar, index["jars"], thorough=True):  # Ivy would use it unchecked
                    (folder / jar).unlink()
            jars = _resolved(folder, wanted, options, excludes)
            index["sets"][request] = jars
            index["jars"] |= {jar: [(folder / jar).stat().st_size, _sum(folder / jar)] for jar in jars}
            private_files.replace(folder / "index.json", json.dumps(index, indent=1))
    return [str(folder / jar) for jar in jars]


def _read(file: Path) -> dict[str, dict]:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {"sets": {}, "jars": {}}


def _sum(file: Path) -> str:
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _whole(folder: Path, jar: str, known: dict[str, list], thorough: bool = False) -> bool:
    """Return whether a jar is the one whose checksum was verified: by its size, or by its hash if `thorough`."""
    file, (size, digest) = folder / jar, known.get(jar, (-1, ""))
    return file.is_file() and file.stat().st_size == size and (not thorough or _sum(file) == digest)


def _resolvers(options: dict[str, str]) -> str:
    """Return Ivy's settings with the repositories."""
    if file := options.get(IVY):
        return file
    usual = os.environ.get("DEFAULT_ARTIFACT_REPOSITORY", "")
    own = [r.strip() for r in options.get(REPOSITORIES, "").split(",") if r.strip()]
    roots = ["", *[f" root={quoteattr(r.rstrip('/') + '/')}" for r in (usual, *own) if r]][bool(usual) :]
    found = "".join(
        f'<ibiblio name="repository{i}"{root} m2compatible="true" checksums="sha1,md5"/>'
        for i, root in enumerate(roots)
    )
    return f'<ivysettings><settings defaultResolver="stated"/><resolvers><chain name="stated" returnFirst="true">{found}</chain></resolvers></ivysettings>'


def _dependencies(wanted: Sequence[str], excludes: Sequence[str]) -> str:
    """Return an Ivy module description that depends on all of `wanted`."""
    lines = []
    for coordinate in wanted:
        parts = coordinate.split(":")
        if len(parts) != 3 or not all(parts):
            raise JarsError(f"'{coordinate}' in {PACKAGES} names no jar", "write group:artifact:version")
        org, name, rev = map(quoteattr, parts)
        lines.append(f'<dependency org={org} name={name} rev={rev} conf="default->default(runtime)"/>')
    for pattern in excludes:
        org, module = map(quoteattr, pattern.split(":", 1))
        lines.append(f'<exclude org={org} module={module} matcher="regexp"/>')
    return (
        '<ivy-module version="2.0"><info organisation="frazil" module="session"/><configurations><conf name="default"/>'
        f"</configurations><dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )


def _resolved(folder: Path, wanted: Sequence[str], options: dict[str, str], excludes: Sequence[str]) -> list[str]:
    """Let Ivy fetch missing jars, and return the paths of all jars, relative to `folder`."""
    import pyspark

    java = os.path.join(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else "java"
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    # The options may hold a proxy's password: other users can read a command line but not the environment.
    own = shlex.split(options.get("spark.driver.extraJavaOptions", ""))
    own = [o for o in own if o.startswith(("-Dhttp", "-Djava.net", "-Djavax.net"))]
    java_options = {"JAVA_TOOL_OPTIONS": shlex.join([*shlex.split(os.environ.get("JAVA_TOOL_OPTIONS", "")), *own])}
    with tempfile.TemporaryDirectory(prefix="frazil-") as place:  # mode 0700
        module, found, resolvers = Path(place) / "ivy.xml", Path(place) / "found", Path(place) / "settings.xml"
        module.write_text(_dependencies(wanted, excludes), encoding="utf-8")
        if not options.get(IVY):
            resolvers.write_text(_resolvers(options), encoding="utf-8")
        command = [
            java, *shlex.split(_TIMEOUT), f"-Divy.default.ivy.user.dir={place}", "-jar", str(ivy), "-settings", options.get(IVY) or str(resolvers),
            "-cache", str(folder / "ivy"), "-ivy", str(module), "-confs", "default", "-types", "jar", "bundle", "-cachepath", str(found),
        ]  # fmt: skip
        try:
            done = subprocess.run(command, env={**os.environ, **java_options}, capture_output=True, text=True)
        except OSError as e:
            raise JarsError(f"Java does not start: {e}", "is Java 17 on the PATH?") from None
        if done.returncode or not found.is_file():
            raise _why(done.stdout + done.stderr)
        paths = found.read_text(encoding="utf-8").strip().split(os.pathsep)
    return [str(Path(p).relative_to(folder)) for p in paths]


def _why(message: str) -> JarsError:
    """Return the error that Ivy's report describes, with the address that failed."""
    shown = re.sub(r"(://)[^/@\s]+@", r"\1", message)  # without user and password in an address
    elsewhere = (
        f"or name another repository or a mirror: Spark option {REPOSITORIES} or {IVY}, or DEFAULT_ARTIFACT_REPOSITORY"
    )
    if found := re.search(r"Server access error at url (\S+) \((?:[\w.]+\.)?(\w+: .*)\)", shown):
        return JarsError(
            f"jars for Spark cannot be fetched: {found[1]}: {found[2]}", f"can this machine reach it? {elsewhere}"
        )
    if found := re.search(r"(?:invalid (?:sha1|md5)|\[FAILED +\]|download failed:).*", shown):
        return JarsError(f"jars for Spark cannot be fetched: {found[0].strip()}", f"run again, {elsewhere}")
    missing = re.findall(r":: (\S+#\S+): not found", shown)
    tried = re.findall(r"^\s+(\w+://?\S+|/\S+)\.(?:pom|jar)$", shown, re.M)
    if missing:
        where = f"; tried {tried[0]}" if tried else ""
        return JarsError(f"no repository has {', '.join(missing)}{where}", f"correct the name, {elsewhere}")
    return JarsError(f"jars for Spark cannot be fetched: {shown.strip()[-500:]}", f"see what Ivy says, {elsewhere}")


@contextmanager
def _alone() -> Iterator[Path]:
    """Yield the cache's folder under a lock against other processes of this user: Ivy's own locks do not work.

    The kernel frees the lock however this process ends.
    """
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as e:
        raise JarsError(f"no cache for jars: {e}", "set XDG_CACHE_HOME to a folder that can be written") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(lock)
