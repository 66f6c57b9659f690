"""What an engine changes: the tasks of the state machine that start jobs, and Spark's options.

`pipeline.asl.json` has the tasks of EMR Serverless. Those of the other engines are made from them.
"""

from __future__ import annotations

import json
import re
from typing import Any

from frazil_old.config.spark_session import EXTENSIONS

PYTHON = "3.11"
"""The Python of EMR 7 and Glue 5 that the jobs take."""
ICEBERG_JAR = "/usr/share/aws/iceberg/lib/iceberg-spark3-runtime.jar"
"""Where EMR keeps Iceberg, as its page about Iceberg on EMR Serverless states."""
RELEASES = {"emr-serverless": "emr-7.12.0", "glue": "5.1", "emr-steps": "none"}
"""The release that a new application or job gets; a cluster has its own."""
WORKER = "G.1X"
"""Glue's worker with 4 vCPUs and 16 GB."""
_SHARED = {
    "spark.sql.extensions": EXTENSIONS,
    "spark.sql.session.timeZone": "UTC",
    "spark.scheduler.mode": "FAIR",
    "spark.executorEnv.PYTHONPATH": "./frazil",
}


def adapted(machine: dict[str, Any], engine: str) -> dict[str, Any]:
    """Return the state machine with the tasks of an engine; those of EMR Serverless are there."""
    change = {"glue": _glue, "emr-steps": _step}.get(engine)
    for state in machine["States"].values():
        if change and ":emr-serverless:" in state.get("Resource", ""):
            state |= change(state["Arguments"], state["Arguments"]["JobDriver"]["SparkSubmit"])
    return machine


def _glue(arguments: dict[str, Any], submit: dict[str, Any]) -> dict[str, Any]:
    given = submit["EntryPointArguments"]
    (size,) = re.findall(r"\$\{Spark(FullLoad|Changes)\}", submit["SparkSubmitParameters"])
    return {
        "Resource": "arn:aws:states:::glue:startJobRun.sync",
        "Arguments": {
            "JobName": "frazil-${Env}",
            "Timeout": arguments["ExecutionTimeoutMinutes"],
            "WorkerType": WORKER,
            "NumberOfWorkers": f"{{% ${{{size}Workers}} %}}",
            "Arguments": dict(zip(given[::2], given[1::2], strict=True)),
        },
    }


def _step(arguments: dict[str, Any], submit: dict[str, Any]) -> dict[str, Any]:
    command = f"spark-submit --deploy-mode cluster {submit['SparkSubmitParameters']} {submit['EntryPoint']}"
    args = f"$append($split('{command}', /\\s+/), {json.dumps(submit['EntryPointArguments'])})"
    step = {"Jar": "command-runner.jar", "Args": f"{{% {args} %}}"}
    return {
        "Resource": "arn:aws:states:::elasticmapreduce:addStep.sync",
        "TimeoutSeconds": arguments["ExecutionTimeoutMinutes"] * 60,
        "Arguments": {
            "ClusterId": "${ClusterId}",
            "Step": {"Name": arguments["Name"], "ActionOnFailure": "CONTINUE", "HadoopJarStep": step},
        },
    }


def spark_options(engine: str, archives: dict[str, str]) -> str:
    """Return the options of spark-submit that all jobs share; for Glue without the first `--conf`."""
    packed = f"{archives['driver']}#frazil,{archives['workbook']}#workbook"
    if engine == "glue":  # The entry point unpacks them for the driver, and Glue itself has Iceberg.
        conf = {"spark.archives": packed, **_SHARED}
        return " --conf ".join(f"{name}={value}" for name, value in conf.items())
    driver = {"emr-serverless": "spark.emr-serverless.driverEnv", "emr-steps": "spark.yarn.appMasterEnv"}[engine]
    conf = {
        "spark.archives" if engine == "emr-serverless" else "spark.yarn.dist.archives": packed,
        "spark.jars": ICEBERG_JAR,
        **_SHARED,
        "spark.executorEnv.PYSPARK_PYTHON": f"python{PYTHON}",
        f"{driver}.PYTHONPATH": "./frazil",
        f"{driver}.PYSPARK_PYTHON": f"python{PYTHON}",
        f"{driver}.PYSPARK_DRIVER_PYTHON": f"python{PYTHON}",
        f"{driver}.FRAZIL_PARAMS": "./workbook/params",
    }
    return " ".join(f"--conf {name}={value}" for name, value in conf.items())
