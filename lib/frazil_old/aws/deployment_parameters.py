"""What is deployed for an environment: names, places, and the parameters of the CloudFormation template."""

from __future__ import annotations

import re
from dataclasses import dataclass

from frazil_old.aws import engines
from frazil_old.config.aws_calls import TASK_ARN
from frazil_old.config.settings import AwsSettings
from frazil_old.config.spec import load_specs
from frazil_old.errors import FrazilError

TAG = "frazil"
"""The tag of everything that is made; its value is the environment."""
OLDEST_PYTHON = f"{engines.PYTHON}.6"
"""The oldest release of it for which the packages are chosen."""


class AwsError(FrazilError):
    """Something cannot be deployed, started or removed on AWS."""


@dataclass(frozen=True)
class Place:
    """A folder in a bucket; the prefix has no slashes around it."""

    bucket: str
    prefix: str

    @classmethod
    def of(cls, name: str, url: str) -> Place:
        """Return the place that a parameter names; raise AwsError if it is not in a folder of a bucket."""
        found = re.fullmatch(r"s3a?://([a-z0-9.-]+)/+([^/].*?)/*", url)
        if not found:
            raise AwsError(f"{name} = '{url}' is no folder on S3", f"write {name}: s3://bucket/folder")
        return cls(found[1], found[2])

    def under(self, *parts: str) -> Place:
        """Return a folder in this one."""
        return Place(self.bucket, "/".join((self.prefix, *parts)))

    def holds(self, other: Place) -> bool:
        """Return whether a folder is this one or in it."""
        return self.bucket == other.bucket and f"{other.prefix}/".startswith(f"{self.prefix}/")

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"


@dataclass(frozen=True)
class Deployment:
    """The deployment of one environment."""

    settings: AwsSettings
    source: Place
    lake: Place
    artifacts: Place
    databases: tuple[str, ...]

    @classmethod
    def of(cls, settings: AwsSettings) -> Deployment:
        """Return what the settings describe; raise AwsError for what cannot be deployed."""
        env, task = settings.env, settings.replication_task
        if not re.fullmatch(r"[a-z][a-z0-9-]{0,30}", env):
            raise AwsError(
                f"the name '{env}' cannot be used for a deployment", "rename the file: a-z, 0-9 and - (31 letters)"
            )
        if not re.fullmatch(r"[a-z]{2}(-[a-z]+)+-\d", settings.region):
            raise AwsError(f"aws: region = '{settings.region}' is no region", "write region: eu-west-1, for example")
        if settings.is_stream:
            raise AwsError("the source is a stream; only files on S3 are deployed", "run 02_cdc_merge with run_for_s")
        if settings.catalog_kind != "glue":
            raise AwsError(
                f"jobs on AWS cannot use a catalog of type '{settings.catalog_kind}'",
                "write type: glue into catalog_options",
            )
        _check_engine(settings)
        if task and not TASK_ARN.fullmatch(task):
            raise AwsError(
                f"aws: replication_task = '{task}' is no ARN of a DMS task",
                "copy it from aws dms describe-replication-tasks",
            )
        targets = [spec.target for spec in load_specs(settings.path("specs")).values()]
        source = Place.of("source", settings.source)
        lake = Place.of("warehouse", settings.catalog_options.get("warehouse", ""))
        artifacts = Place.of("artifacts", settings.artifacts).under(env)
        if found := next((place for place in (source, lake) if artifacts.holds(place)), None):
            raise AwsError(
                f"aws: artifacts: {found} would be in {artifacts}, which frazil aws down deletes",
                "name another folder as artifacts",
            )
        named = {*(t.rpartition(".")[0] for t in targets), settings.ops_namespace}
        return cls(settings, source, lake, artifacts, tuple(sorted(named)))

    @property
    def name(self) -> str:
        """The name of the stack, the application and the state machine."""
        return f"frazil-{self.settings.env}"

    def parameters(
        self, account: str, partition: str, archives: dict[str, str], cluster_role: str = "none"
    ) -> dict[str, str]:
        """Return the values of the template's parameters; `archives`: the URLs of `driver`, `workbook` and `job`."""
        s = self.settings
        return {
            "Env": s.env, "SourceBucket": self.source.bucket, "SourcePrefix": self.source.prefix,
            "LakeBucket": self.lake.bucket, "LakePrefix": self.lake.prefix,
            "ArtifactBucket": self.artifacts.bucket, "ArtifactPrefix": self.artifacts.prefix,
            "CatalogArns": ",".join(self._catalog(account, partition)), "ReplicationTaskArn": s.replication_task,
            "SourceSecretArn": s.source_secret, "Engine": s.engine, "ApplicationId": s.application, "ClusterId": s.cluster,
            "ClusterRole": cluster_role, "Release": s.release or engines.RELEASES[s.engine], "MaxVcpu": str(s.max_vcpu),
            "FullLoadWorkers": str(s.full_load_workers), "ChangesWorkers": str(s.changes_workers), "JobFile": archives["job"],
            "PackagesArchive": archives["driver"], "WorkbookArchive": archives["workbook"],
            "SparkShared": engines.spark_options(s.engine, archives),
            "SparkFullLoad": s.full_load_spark, "SparkChanges": s.changes_spark, "WaitSeconds": str(s.wait_s),
            "KeepRunning": "ENABLED" if s.keep_running else "DISABLED",
            "AlarmTopicArn": s.alarm_topic,
        }  # fmt: skip

    def _catalog(self, account: str, partition: str) -> list[str]:
        """Return the ARNs of Glue's catalog, and of the databases with their tables."""
        of = f"arn:{partition}:glue:{self.settings.region}:{account}"
        names = [(f"{of}:database/{name}", f"{of}:table/{name}/*") for name in self.databases]
        return [f"{of}:catalog", *(arn for pair in names for arn in pair)]


def _check_engine(settings: AwsSettings) -> None:
    """Raise AwsError for parameters that do not fit the engine."""
    s = settings
    if not re.fullmatch("j-[A-Z0-9]+" if s.engine == "emr-steps" else "", s.cluster):
        cure = "write cluster: j-… with engine: emr-steps, and leave it out with others"
        raise AwsError(f"aws: cluster = '{s.cluster}' does not fit engine = '{s.engine}'", cure)
    if s.application and s.engine != "emr-serverless":
        raise AwsError(f"aws: engine = '{s.engine}' uses no application", "leave out application")
    for name in ("full_load_spark", "changes_spark"):
        if re.search("[\"'\\\\]", getattr(s, name)):
            raise AwsError(f"aws: {name} holds a quote or a backslash", "write options without them")
