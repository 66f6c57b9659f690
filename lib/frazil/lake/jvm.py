"""The bridge to Iceberg's Java API on the driver: the one module that calls into the JVM.

Python reaches Java objects through py4j (`spark._jvm`). Iceberg's `Table`, `Transaction` and `ManageSnapshots` are used as
their Javadoc says; what is peculiar is explained at each function. Class names hold for Iceberg 1.10 to 1.12.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, TypeVar

from frazil.config.jars import LOADED, LOCAL_FILES
from frazil.errors import safe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
JavaTable = Any
JavaSnapshot = Any

_KNOWN_FAILURES = ("CommitFailedException", "ValidationException", "IllegalArgumentException", "AlreadyExistsException")
_NO_ANSWER = (
    "CommitStateUnknownException", "ConnectException", "ConnectTimeoutException", "ConnectionClosedException", "ConnectionRequestTimeoutException",
    "HttpHostConnectException", "NoHttpResponseException", "RESTException", "ServiceFailureException", "ServiceUnavailableException",
    "SocketException", "SocketTimeoutException",
)  # fmt: skip
"""What Iceberg raises where a catalog did not answer, or said that it cannot now."""
PAUSES_S = (0.2, 1.0, 3.0)
"""How long a call waits before it asks such a catalog again."""
REF_ATTEMPTS = 10
_PLAIN = "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"


def package(spark: SparkSession, name: str) -> Any:
    """Return a Java package, to take classes from, without a word to the JVM.

    `spark._jvm.org.apache.iceberg` asks for a class `org`, a class `org.apache` and so on: each time all jars are searched in vain.
    """
    from py4j.java_gateway import JavaPackage

    return JavaPackage(name, spark.sparkContext._gateway._gateway_client, jvm_id=spark._jvm._id)


def use(spark: SparkSession) -> None:
    """Make a session this thread's own. Spark 3.5 parses an expression as the thread's session says, and without one as it likes."""
    package(spark, "org.apache.spark.sql").SparkSession.setActiveSession(spark._jsparkSession)


def plain_local_files(spark: SparkSession) -> None:
    """Let Hadoop write local files by Java's own calls, and without one beside each for its checksum.

    By itself it starts a process (`chmod`) for the mode of each file, and another one for that of its checksum; a commit writes
    six files or more, and a process takes 4 ms. Hadoop keeps one file system of a kind for everybody: the one that is there is
    closed, which only takes it from there, and the next to be asked for is the other one. Sessions that somebody else has made
    may lack it; a cluster's tables lie elsewhere.
    """
    conf, files = spark.sparkContext._jsc.hadoopConfiguration(), package(spark, "org.apache.hadoop.fs").FileSystem
    if LOCAL_FILES in (spark.conf.get(LOADED, None) or ""):
        conf.setClassLoader(package(spark, "java.lang").Thread.currentThread().getContextClassLoader())
        conf.set("fs.file.impl", _PLAIN)
        if (known := files.getLocal(conf)).getClass().getName() != _PLAIN:
            known.close()
    files.getLocal(conf).setWriteChecksum(False)


def texts(spark: SparkSession, collection: Any) -> list[str]:
    """Return the texts of a Java collection, none of which has a line break.

    A Python loop over one ends in a Java exception, and PySpark asks the JVM a hundred times what kind of one that is.
    """
    return package(spark, "java.lang").String.join("\n", collection).split("\n") if len(collection) else []


def branches(spark: SparkSession, table: JavaTable, prefix: str) -> list[str]:
    """Return the names of the table's branches and tags that begin so."""
    return [r for r in texts(spark, table.refs().keySet()) if r.startswith(prefix)]


def versions(spark: SparkSession) -> str:
    """Return the versions of Spark and Java: another one may write a number as another text."""
    return f"{spark.version} {package(spark, 'java.lang').System.getProperty('java.specification.version')}"


def load_table(spark: SparkSession, name: str) -> JavaTable:
    """Return a fresh handle of `catalog.namespace.table`; what it shows is the metadata of this moment until `refresh()`."""
    loader = package(spark, "org.apache.iceberg.spark").Spark3Util
    return steady(lambda: loader.loadIcebergTable(spark._jsparkSession, name))


def steady(call: Callable[[], T]) -> T:
    """Make a call that may be made twice again, after pauses, where the catalog does not answer; not what was tried so already."""
    for pause in (*PAUSES_S, None):
        try:
            return call()
        except Exception as error:
            if pause is None or not is_no_answer(error) or hasattr(error, "frazil_tried"):
                error.frazil_tried = True
                raise
            time.sleep(pause)
    raise AssertionError("unreachable")


def _causes(error: Exception) -> list[Any]:
    """Return the Java exceptions behind a py4j or Spark error, outermost first."""
    java, found = getattr(error, "java_exception", None) or getattr(error, "_origin", None), []
    while java is not None and len(found) < 20:
        found.append(java)
        java = java.getCause()
    return found


def is_no_answer(error: Exception) -> bool:
    """Tell whether a catalog did not answer, so that a commit may have happened or not."""
    return any(java.getClass().getSimpleName() in _NO_ANSWER for java in _causes(error))


def failure(error: Exception) -> str:
    """Return the simple class name of the Java exception behind a py4j or Spark error, innermost known one first."""
    names = [java.getClass().getSimpleName() for java in _causes(error)]
    for known in (*_KNOWN_FAILURES, "CommitStateUnknownException"):
        if known in names:
            return known
    return names[0] if names else type(error).__name__


def cause(error: Exception) -> str:
    """Return one line that names the innermost Java exception behind an error and what it says; no stack trace."""
    if not (found := _causes(error)):
        text = str(error).strip() or "no message"
        return f"{type(error).__name__}: {safe(text.splitlines()[0])[:300]}"
    java = found[-1]
    text = str(java.getMessage() or "no message")
    return f"{java.getClass().getSimpleName()}: {safe(text.splitlines()[0])[:300]}"


class MainMovedError(Exception):
    """Main is no longer at the snapshot that a batch was written on."""


def is_known_failure(error: Exception) -> bool:
    """Tell whether a failed commit surely did not happen; any other error leaves its outcome unknown."""
    return isinstance(error, MainMovedError) or failure(error) in _KNOWN_FAILURES


def java_class(spark: SparkSession, name: str) -> Any:
    """Load a Java class by the thread's context class loader: jars of a session are not on the system one."""
    lang = package(spark, "java.lang")
    return lang.Class.forName(name, True, lang.Thread.currentThread().getContextClassLoader())


def sql_with_commit_properties(spark: SparkSession, statement: str, properties: dict[str, str]) -> None:
    """Run one SQL statement whose Iceberg commit carries the properties in its snapshot summary.

    `CommitMetadata.withCommitProperties` wants a `java.util.concurrent.Callable`. A method handle bound to
    `SparkSession.sql(text)` is turned into one by `MethodHandleProxies`, so no callback server is needed. The properties
    are thread-local: other threads of the session are not touched (the session conf `snapshot-property.*` would leak).
    """
    invoke, dataset = package(spark, "java.lang.invoke"), java_class(spark, "org.apache.spark.sql.Dataset")
    handles, kind = invoke.MethodHandles, invoke.MethodType.methodType(dataset, java_class(spark, "java.lang.String"))
    sql = handles.publicLookup().bind(spark._jsparkSession, "sql", kind)
    arguments = spark.sparkContext._gateway.new_array(package(spark, "java.lang").Object, 1)
    arguments[0] = statement
    call = invoke.MethodHandleProxies.asInterfaceInstance(
        java_class(spark, "java.util.concurrent.Callable"), handles.insertArguments(sql, 0, arguments)
    )
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
    """Yield the current snapshot, its parent, and so on, as far as they are kept."""
    snapshot = table.currentSnapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parentId()
        snapshot = None if parent is None else table.snapshot(parent)


def start_position(table: JavaTable, tag: str, key: str, position, more: dict[str, str]) -> None:
    """Commit an empty first snapshot with the tag, the position property and `more` properties, as one metadata swap.

    `position(snapshot=…, sequence=…)` renders the property; `tx.table()` already shows the snapshot that the commit will make.
    """
    tx = table.newTransaction()
    tx.newAppend().commit()
    first = tx.table().currentSnapshot()
    tx.manageSnapshots().createTag(tag, first.snapshotId()).commit()
    change = tx.updateProperties().set(key, position(snapshot=first.snapshotId(), sequence=first.sequenceNumber()))
    for k, v in more.items():
        change.set(k, v)
    change.commit()
    tx.commitTransaction()


def change_refs(spark: SparkSession, name: str, change: Callable[[JavaTable, Any], Any]) -> None:
    """Change branches and tags in one metadata swap by `change(table, its ManageSnapshots)`, which returns None to leave them.

    Where somebody commits to the table meanwhile Iceberg gives up ("Table metadata refresh is required"), as it takes refs for what they
    were when the change began: then it is made again on what is there by then.
    """
    for attempt in range(1, REF_ATTEMPTS + 1):
        table = load_table(spark, name)
        try:
            if (refs := change(table, table.manageSnapshots())) is not None:
                refs.commit()
            return
        except Exception as error:
            if attempt == REF_ATTEMPTS or not (failure(error) == "CommitFailedException" or is_no_answer(error)):
                raise
            time.sleep(0.05 * attempt if not is_no_answer(error) else min(attempt * 0.2, 1.0))


def fork(spark: SparkSession, name: str, branch: str, snapshot: int) -> None:
    """Create a branch at a snapshot."""

    def create(table: JavaTable, refs: Any) -> Any:
        there = table.refs().get(branch)  # made already, where the answer was lost
        return None if there is not None and there.snapshotId() == snapshot else refs.createBranch(branch, snapshot)

    change_refs(spark, name, create)


def drop_branch(spark: SparkSession, name: str, branch: str) -> None:
    """Remove a branch if it is there."""
    change_refs(spark, name, lambda table, refs: refs.removeBranch(branch) if branch in table.refs() else None)


def forward(spark: SparkSession, name: str, branch: str, base: int) -> None:
    """Fast-forward main to the branch and drop the branch in one metadata swap, which fails where main is not at `base`."""
    table = load_table(spark, name)
    if table.currentSnapshot().snapshotId() != base:
        raise MainMovedError(branch)
    table.manageSnapshots().fastForwardBranch("main", branch).removeBranch(branch).commit()


def publish(
    table: JavaTable, branch: str, base: int, tag: str, key: str, position, summary: dict[str, str],
    properties: dict[str, str],
) -> JavaSnapshot:  # fmt: skip
    """Fast-forward main to the branch, drop the branch, move the tag and set the position and other properties in one metadata swap.

    Moving the tag is what makes it a compare-and-set: a ref that changed since `table` was loaded fails the commit with
    CommitFailedException instead of being rebased silently. If the branch holds nothing new (no row changed), an empty row
    delta makes a snapshot all the same, since REST catalogs assert refs, but not properties. Returns main's new snapshot.
    """
    if table.currentSnapshot().snapshotId() != base:
        raise MainMovedError(branch)
    tx, head = table.newTransaction(), table.snapshot(branch)
    if head is None:  # another host took this writer for dead
        raise MainMovedError(branch)
    if head.snapshotId() == base:
        empty = tx.newRowDelta()
        for k, v in summary.items():
            empty.set(k, v)
        empty.commit()
        head = tx.table().currentSnapshot()
        refs = tx.manageSnapshots()
    else:
        refs = tx.manageSnapshots().fastForwardBranch("main", branch)
    move = refs.replaceTag if tag in table.refs() else refs.createTag
    move(tag, head.snapshotId())
    refs.removeBranch(branch).commit()
    stamp = position(snapshot=head.snapshotId(), sequence=head.sequenceNumber())
    change = tx.updateProperties().set(key, stamp)
    for k, v in properties.items():
        change.set(k, v)
    change.commit()
    tx.commitTransaction()
    return head


def _expire(table: JavaTable, keep_hours: float, keep_at_least: int) -> JavaTable:
    """Build the expiry: by age, but never the newest `keep_at_least`; what a tag or a branch needs stays by itself."""
    older_than = round((time.time() - keep_hours * 3600) * 1000)
    return table.expireSnapshots().expireOlderThan(older_than).retainLast(keep_at_least)


def snapshots_to_expire(table: JavaTable, keep_hours: float, keep_at_least: int) -> tuple[int, int]:
    """Return how many snapshots a table has, and how many of them an expiry would remove (`apply()` only computes)."""
    total = table.snapshots().size()
    return total, _expire(table, keep_hours, keep_at_least).apply().size() if total else 0


def expire_snapshots(table: JavaTable, keep_hours: float, keep_at_least: int) -> int:
    """Expire snapshots on the driver, with the files that only they need, and return how many went.

    Where history is one line Iceberg deletes each file that an expired snapshot removed: a Puffin file too, though only one of
    its deletion vectors was replaced and others are live (`IncrementalFileCleanup`, apache/iceberg#17456). An expiry that names
    a snapshot compares what is reachable instead, path by path. So one is named; where there is none, no file is deleted.
    """
    before = table.snapshots().size()
    expiry = _expire(table, keep_hours, keep_at_least)
    gone = expiry.apply()
    if gone.isEmpty():
        expiry.cleanExpiredFiles(False).commit()  # tags may have aged all the same
    else:
        expiry.expireSnapshotId(gone.get(0).snapshotId()).commit()
    table.refresh()
    return before - table.snapshots().size()


def tag(spark: SparkSession, name: str, states: list[tuple[str, int, int]]) -> None:
    """Tag snapshots, all in one metadata swap: tag, snapshot, and after how many milliseconds an expiry drops the tag."""

    def add(table: JavaTable, refs: Any) -> Any:
        new = [state for state in states if state[0] not in table.refs()]
        for label, snapshot, keep_ms in new:
            refs.createTag(label, snapshot).setMaxRefAgeMs(label, keep_ms)
        return refs if new else None

    change_refs(spark, name, add)


def metadata_bytes(table: JavaTable) -> int:
    """Return the size of the table's current metadata file, which is written again by each commit."""
    return table.io().newInputFile(table.operations().current().metadataFileLocation()).getLength()


def let_go(frame: DataFrame) -> None:
    """Free what a local checkpoint keeps of a frame; by itself Spark does so when it next collects garbage.

    A long computation is kept so and not by `persist`: while one is under way, `unpersist` of any frame of the session waits for it.
    """
    frame._jdf.queryExecution().analyzed().rdd().unpersist(False)


class Retries:
    """Whether Spark did a task again in the jobs of a group since this was made; never in a local session."""

    def __init__(self, spark: SparkSession, group: str):
        self.context, self.group, master = spark.sparkContext, group, spark.sparkContext.master
        self.local = master.startswith("local") and not master.startswith("local-cluster")
        self.before = set() if self.local else {*self._jobs()}

    def _jobs(self) -> list[int]:
        return list(self.context.statusTracker().getJobIdsForGroup(self.group))

    def seen(self) -> bool:
        """Tell it of jobs that are over."""
        if self.local:
            return False
        self.context._jsc.sc().listenerBus().waitUntilEmpty()
        tracker = self.context.statusTracker()
        infos = [i for job in self._jobs() if job not in self.before and (i := tracker.getJobInfo(job))]
        stages = [s for i in infos for number in i.stageIds if (s := tracker.getStageInfo(number))]
        return any(s.currentAttemptId or s.numFailedTasks or s.numCompletedTasks > s.numTasks for s in stages)
