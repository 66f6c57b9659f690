"""The bridge to Iceberg's Java API on the driver.

Python reaches Java objects through py4j (`spark._jvm`). Iceberg's `Table`, `Transaction` and `ManageSnapshots` are used
as their Javadoc says; peculiarities are explained at each function. Class names hold for Iceberg 1.10 to 1.12.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from frazil_old.config.jars import LOADED, LOCAL_FILES
from frazil_old.dms.position import POSITION
from frazil_old.errors import safe
from frazil_old.lake.commit_retry import MainMovedError, causes, failure, is_no_answer, steady, until_committed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyarrow import Table
    from pyspark.sql import DataFrame, SparkSession


JavaTable = Any
JavaSnapshot = Any

TAG = "frazil"
"""The tag of the snapshot that was committed with the position."""
REF_ATTEMPTS = 10
AT_ONCE = 1000
"""The number of files that go over to Java, or come from there, as one text."""
_PLAIN = "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"


def package(spark: SparkSession, name: str) -> Any:
    """Return a Java package, to take classes from, without a call into the JVM.

    `spark._jvm.org.apache.iceberg` first looks for classes `org`, `org.apache` and so on, and each time searches all
    jars in vain.
    """
    from py4j.java_gateway import JavaPackage

    return JavaPackage(name, spark.sparkContext._gateway._gateway_client, jvm_id=spark._jvm._id)


def use(spark: SparkSession) -> None:
    """Make a session active in this thread. Spark 3.5 parses expressions by the thread's session, and unpredictably without one."""
    package(spark, "org.apache.spark.sql").SparkSession.setActiveSession(spark._jsparkSession)


def plain_local_files(spark: SparkSession) -> None:
    """Let Hadoop write local files through Java's own calls, and without checksum files.

    By default it starts a process (`chmod`) to set the mode of each file and of its checksum file. A commit writes six
    files or more, and a process takes 4 ms. Hadoop caches one file system per kind for all users. Closing the present
    one only removes it from the cache, and the next request creates the other kind. Sessions that Frazil did not build
    may lack that class; a cluster's tables are not on local disk.
    """
    conf, files = spark.sparkContext._jsc.hadoopConfiguration(), package(spark, "org.apache.hadoop.fs").FileSystem
    if LOCAL_FILES in (spark.conf.get(LOADED, None) or ""):
        conf.setClassLoader(package(spark, "java.lang").Thread.currentThread().getContextClassLoader())
        conf.set("fs.file.impl", _PLAIN)
        if (known := files.getLocal(conf)).getClass().getName() != _PLAIN:
            known.close()
    files.getLocal(conf).setWriteChecksum(False)


def texts(spark: SparkSession, collection: Any) -> list[str]:
    """Return the texts of a Java collection, none of which may have a line break.

    A Python loop over it ends in a Java exception, and PySpark makes a hundred JVM calls to classify that.
    """
    return package(spark, "java.lang").String.join("\n", collection).split("\n") if len(collection) else []


def java_list(spark: SparkSession, items: Iterable[Any]) -> Any:
    """Return Java objects as a Java list."""
    found = package(spark, "java.util").ArrayList()
    for item in items:
        found.add(item)
    return found


def branches(spark: SparkSession, table: JavaTable, prefix: str) -> list[str]:
    """Return the names of the table's branches and tags with this prefix."""
    return [r for r in texts(spark, table.refs().keySet()) if r.startswith(prefix)]


def versions(spark: SparkSession) -> str:
    """Return the versions of Spark and Java: another version may format a number differently."""
    return f"{spark.version} {package(spark, 'java.lang').System.getProperty('java.specification.version')}"


def load_table(spark: SparkSession, name: str) -> JavaTable:
    """Return a fresh handle of `catalog.namespace.table`; it shows the present metadata until `refresh()`."""
    loader = package(spark, "org.apache.iceberg.spark").Spark3Util
    return steady(lambda: loader.loadIcebergTable(spark._jsparkSession, name))


def format_version(table: JavaTable) -> int:
    """Return the table's format version."""
    return table.operations().current().formatVersion()


def cause(error: Exception) -> str:
    """Return one line with the name and message of the innermost Java exception of an error; no stack trace."""
    if not (found := causes(error)):
        text = str(error).strip() or "no message"
        return f"{type(error).__name__}: {safe(text.splitlines()[0])[:300]}"
    java = found[-1]
    text = str(java.getMessage() or "no message")
    return f"{java.getClass().getSimpleName()}: {safe(text.splitlines()[0])[:300]}"


def java_class(spark: SparkSession, name: str) -> Any:
    """Load a Java class with the thread's context class loader: the system one does not see a session's jars."""
    lang = package(spark, "java.lang")
    return lang.Class.forName(name, True, lang.Thread.currentThread().getContextClassLoader())


class Handles:
    """Makes Java lambdas from method handles, as py4j has no lambdas. Types are names of classes, or `boolean`."""

    def __init__(self, spark: SparkSession):
        self.spark, self.invoke = spark, package(spark, "java.lang.invoke")
        self.public = self.invoke.MethodHandles.publicLookup()
        self.loader = package(spark, "java.lang").Thread.currentThread().getContextClassLoader()

    def _type(self, returns: str, takes: tuple[str, ...]) -> Any:
        """Return the type of a method, from its descriptor."""
        back, *given = ("Z" if name == "boolean" else f"L{name.replace('.', '/')};" for name in (returns, *takes))
        return self.invoke.MethodType.fromMethodDescriptorString(f"({''.join(given)}){back}", self.loader)

    def of(self, kind: str, method: str, returns: str, *takes: str) -> Any:
        """Return the handle of a class's or an interface's method; its first argument is the object."""
        return self.public.findVirtual(java_class(self.spark, kind), method, self._type(returns, takes))

    def static(self, kind: str, method: str, returns: str, *takes: str) -> Any:
        """Return the handle of a static method."""
        return self.public.findStatic(java_class(self.spark, kind), method, self._type(returns, takes))

    def bound(self, target: Any, method: str, returns: str, *takes: str) -> Any:
        """Return the handle of an object's method; its class must be public."""
        return self.public.bind(target, method, self._type(returns, takes))

    def given(self, handle: Any, at: int, value: Any) -> Any:
        """Return a handle whose argument `at` is this value."""
        values = self.spark.sparkContext._gateway.new_array(package(self.spark, "java.lang").Object, 1)
        values[0] = value
        return self.invoke.MethodHandles.insertArguments(handle, at, values)

    def chained(self, first: Any, then: Any) -> Any:
        """Return the handle `x -> then(first(x))` of two handles, each of one argument."""
        firsts = self.spark.sparkContext._gateway.new_array(self.invoke.MethodHandle, 1)
        firsts[0] = first
        kind = self.invoke.MethodType.methodType(then.type().returnType(), first.type().returnType())
        return self.invoke.MethodHandles.filterArguments(then.asType(kind), 0, firsts)

    def as_lambda(self, interface: str, handle: Any) -> Any:
        """Return a handle as an interface with one method."""
        return self.invoke.MethodHandleProxies.asInterfaceInstance(java_class(self.spark, interface), handle)


def for_each(spark: SparkSession, items: Any, target: Any, method: str, types: tuple[str, str]) -> None:
    """Call `target.method(x)` for each item: one py4j call for all of a Java list. A Python list should have few.

    `types` are the public interface with the method, which is also what it returns, and the class of the items.
    """
    if isinstance(items, list):
        for item in items:
            getattr(target, method)(item)
        return
    handles = Handles(spark)
    bound = handles.of(types[0], method, *types).bindTo(target)
    items.forEach(handles.as_lambda("java.util.function.Consumer", bound))


def sql_with_commit_properties(spark: SparkSession, statement: str, properties: dict[str, str]) -> None:
    """Run one SQL statement whose Iceberg commit carries the properties in its snapshot summary.

    Iceberg's `CommitMetadata.withCommitProperties` requires a `java.util.concurrent.Callable`. That is a handle of
    `SparkSession.sql(text)`, so no callback server is needed. The properties are thread-local and do not affect other
    threads of the session (the session conf `snapshot-property.*` would leak).
    """
    handles = Handles(spark)
    sql = handles.bound(spark._jsparkSession, "sql", "org.apache.spark.sql.Dataset", "java.lang.String")
    call = handles.as_lambda("java.util.concurrent.Callable", handles.given(sql, 0, statement))
    summary = package(spark, "java.util").HashMap()
    for key, value in properties.items():
        summary.put(key, value)
    package(spark, "org.apache.iceberg.spark").CommitMetadata.withCommitProperties(
        summary, call, java_class(spark, "java.lang.RuntimeException")
    )


def summary_of(spark: SparkSession, snapshot: JavaSnapshot) -> dict[str, str]:
    """Return a snapshot's summary, in one call."""
    return json.loads(package(spark, "org.apache.iceberg").SnapshotParser.toJson(snapshot))["summary"]


def ancestors(table: JavaTable) -> Iterator[JavaSnapshot]:
    """Yield the current snapshot and its kept ancestors, newest first."""
    snapshot = table.currentSnapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parentId()
        snapshot = None if parent is None else table.snapshot(parent)


@dataclass(frozen=True)
class SwapMetadata:
    """What a swap sets besides rows: the tag, the position, other properties, the snapshot's summary.

    `position(snapshot=…, sequence=…)` renders the position's property.
    """

    position: Callable[..., str]
    properties: dict[str, str]
    summary: dict[str, str] = field(default_factory=dict)


def begin(table: JavaTable, base: int) -> Any:
    """Start a transaction on a table whose main is at `base`; raise MainMovedError if main, or the position, moved since.

    A transaction starts at the newest metadata, not at that of `table`.
    """
    tx = table.newTransaction()
    now = tx.table()
    if now.currentSnapshot().snapshotId() != base or now.properties().get(POSITION) != table.properties().get(POSITION):
        raise MainMovedError(f"{table.name()} is no longer at snapshot {base}")
    return tx


def finish(table: JavaTable, tx: Any, head: JavaSnapshot, metadata: SwapMetadata, refs: Any = None) -> JavaSnapshot:
    """Let a transaction also move the tag to its new snapshot `head` and set the properties, then commit it all in one swap.

    Moving the tag makes it a compare-and-set: if a ref changed since `table` was loaded, the commit fails with
    CommitFailedException instead of being rebased silently. `refs` are changes of refs that belong to the same step.
    """
    refs = refs or tx.manageSnapshots()
    (refs.replaceTag if TAG in table.refs() else refs.createTag)(TAG, head.snapshotId())
    refs.commit()
    position = metadata.position(snapshot=head.snapshotId(), sequence=head.sequenceNumber())
    change = tx.updateProperties().set(POSITION, position)
    for k, v in metadata.properties.items():
        change.set(k, v)
    change.commit()
    tx.commitTransaction()
    return head


def start_position(table: JavaTable, metadata: SwapMetadata) -> None:
    """Commit an empty first snapshot with its metadata, in one swap."""
    tx = table.newTransaction()
    tx.newAppend().commit()
    finish(table, tx, tx.table().currentSnapshot(), metadata)


def change_refs(spark: SparkSession, name: str, change: Callable[[JavaTable, Any], Any]) -> None:
    """Change branches and tags in one metadata swap by `change(table, its ManageSnapshots)`, which returns None to change nothing.

    If another writer commits meanwhile, Iceberg gives up ("Table metadata refresh is required"): it requires refs to be
    unchanged. The change is then made again on the new state.
    """

    def attempt() -> None:
        table = load_table(spark, name)
        if (refs := change(table, table.manageSnapshots())) is not None:
            refs.commit()

    def failed(error: Exception) -> None:
        if failure(error) != "CommitFailedException" and not is_no_answer(error):
            raise error  # no other writer: the change is not possible

    until_committed(attempt, failed=failed, attempts=REF_ATTEMPTS)


def fork(spark: SparkSession, name: str, branch: str, snapshot: int) -> None:
    """Create a branch at a snapshot."""

    def create(table: JavaTable, refs: Any) -> Any:
        there = table.refs().get(branch)  # created already, but the answer was lost
        return None if there is not None and there.snapshotId() == snapshot else refs.createBranch(branch, snapshot)

    change_refs(spark, name, create)


def drop_branch(spark: SparkSession, name: str, branch: str) -> None:
    """Remove a branch if it exists."""
    change_refs(spark, name, lambda table, refs: refs.removeBranch(branch) if branch in table.refs() else None)


def forward(spark: SparkSession, name: str, branch: str, base: int) -> None:
    """Fast-forward main to the branch and drop the branch in one metadata swap, which fails if main is not at `base`."""
    table = load_table(spark, name)
    if table.currentSnapshot().snapshotId() != base:
        raise MainMovedError(branch)
    table.manageSnapshots().fastForwardBranch("main", branch).removeBranch(branch).commit()


def publish(table: JavaTable, branch: str, base: int, metadata: SwapMetadata) -> JavaSnapshot:
    """Fast-forward main from `base` to the branch, drop the branch and set the metadata, in one swap; return main's new snapshot.

    If the branch holds nothing new (no row changed), an empty row delta still makes a snapshot, since REST catalogs
    assert refs but not properties.
    """
    tx, head = begin(table, base), table.snapshot(branch)
    if head is None:  # another host considered this writer dead
        raise MainMovedError(branch)
    if head.snapshotId() == base:
        empty = tx.newRowDelta()
        for k, v in metadata.summary.items():
            empty.set(k, v)
        empty.commit()
        head, refs = tx.table().currentSnapshot(), tx.manageSnapshots()
    else:
        refs = tx.manageSnapshots().fastForwardBranch("main", branch)
    return finish(table, tx, head, metadata, refs.removeBranch(branch))


def tag(spark: SparkSession, name: str, states: list[tuple[str, int, int]]) -> None:
    """Tag snapshots in one metadata swap: tag, snapshot, and the milliseconds after which an expiry drops the tag."""

    def add(table: JavaTable, refs: Any) -> Any:
        new = [state for state in states if state[0] not in table.refs()]
        for label, snapshot, keep_ms in new:
            refs.createTag(label, snapshot).setMaxRefAgeMs(label, keep_ms)
        return refs if new else None

    change_refs(spark, name, add)


def keep_metadata_files(table: JavaTable) -> None:
    """Keep old metadata files after commits: an engine may be bound to one. Orphan removal deletes those without a reader."""
    deletes = "write.metadata.delete-after-commit.enabled"
    if table.properties().get(deletes) == "true":
        table.updateProperties().set(deletes, "false").commit()


def newest_state(table: JavaTable) -> tuple[int, int, str]:
    """Return the id and time (ms) of a table's current snapshot, and its metadata file."""
    now = table.currentSnapshot()
    return now.snapshotId(), now.timestampMillis(), table.operations().current().metadataFileLocation()


def metadata_bytes(table: JavaTable) -> int:
    """Return the size of the table's current metadata file, which each commit writes again."""
    return table.io().newInputFile(table.operations().current().metadataFileLocation()).getLength()


def metadata_json(spark: SparkSession, table: JavaTable) -> str:
    """Return the table's current metadata as the JSON text of Iceberg's specification, with all snapshots."""
    return package(spark, "org.apache.iceberg").TableMetadataParser.toJson(table.operations().current())


def release(frame: DataFrame) -> None:
    """Free what a local checkpoint stores of a DataFrame; otherwise Spark does so at its next garbage collection.

    Long computations are stored this way and not by `persist`: while one runs, `unpersist` of any DataFrame of the
    session waits for it.
    """
    frame._jdf.queryExecution().analyzed().rdd().unpersist(False)


def arrow_frame(spark: SparkSession, rows: Table) -> DataFrame:
    """Return an Arrow table as a DataFrame."""
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer
    from pyspark.sql.pandas.types import from_arrow_schema

    utils = spark._jvm.PythonSQLUtils
    batches = spark.sparkContext._serialize_to_jvm(
        rows.to_batches(), ArrowStreamSerializer(), utils.readArrowStreamFromFile, spark._jvm.ArrowIteratorServer
    )
    schema = from_arrow_schema(rows.schema).json()
    return DataFrame(utils.toDataFrame(batches, schema, spark._jsparkSession), spark)
