"""The events of OpenLineage about a run of a notebook: what it read, what it wrote, and how it ended."""

from __future__ import annotations

import os
import re
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from frazil_old import exit_codes
from frazil_old.errors import safe
from frazil_old.report.metrics import MonitoringError

if TYPE_CHECKING:
    from openlineage.client.event_v2 import OutputDataset, RunEvent

VARIABLES = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT__TYPE")
"""The standard variables, each of which switches the events on."""
PRODUCER = "urn:frazil"
CLOSE_S = 5.0
"""How long a transport that sends in the background may take for its last events."""


@dataclass(frozen=True)
class Place:
    """A dataset as OpenLineage's naming conventions call it."""

    namespace: str
    name: str


@dataclass(frozen=True)
class Written:
    """A table of the lake: its place, its columns with their types, and the number of rows or changes that were applied."""

    place: Place
    columns: list[tuple[str, str]]
    rows: int


@dataclass(frozen=True)
class RunFacts:
    """What the events say of a run. `outcome` is empty while it runs."""

    env: str
    notebook: str
    run_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    outcome: str = ""
    cause: str = ""
    read: list[Place] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)

    @property
    def state(self) -> str:
        """The type of the event: START, COMPLETE, FAIL, or ABORT for a run that was stopped."""
        if not self.outcome:
            return "START"
        if self.outcome in ("running", "timed out") or (self.outcome == "failed" and self.cause == "stopped"):
            return "ABORT"
        return "FAIL" if exit_codes.is_bad(self.outcome) else "COMPLETE"


def place(location: str) -> Place:
    """Return the place of a folder, which is a path or a URL."""
    url = re.fullmatch(r"([a-z]\w*):/{1,3}(.*)", location)
    if url is None or url[1] == "file":
        return Place("file", "/" + (url[2] if url else location).strip("/"))
    bucket, _, key = url[2].strip("/").partition("/")
    return Place(f"{'s3' if url[1] in ('s3a', 's3n') else url[1]}://{bucket}", key or "/")


def is_wanted() -> bool:
    """Return whether a standard variable asks for events."""
    return any(os.environ.get(name) for name in VARIABLES)


def event(facts: RunFacts, at: datetime) -> RunEvent:
    """Return the event of a run that began or ended at this time. No text in it has a known credential."""
    try:
        from openlineage.client.event_v2 import InputDataset, Job, Run, RunEvent, RunState
        from openlineage.client.facet_v2 import error_message_run, set_producer
    except ImportError:
        raise MonitoringError("openlineage-python is not installed", "pip install 'frazil[lineage]'") from None
    set_producer(PRODUCER)
    failed = facts.state in ("FAIL", "ABORT")
    error = error_message_run.ErrorMessageRunFacet(safe(facts.cause, lines=True) or facts.outcome, "python")
    return RunEvent(
        eventType=RunState[facts.state],
        eventTime=at.astimezone(UTC).isoformat(timespec="milliseconds"),
        run=Run(facts.run_id, {"errorMessage": error} if failed else {}),
        job=Job(os.environ.get("OPENLINEAGE_NAMESPACE") or f"frazil.{facts.env}", facts.notebook),
        inputs=[InputDataset(p.namespace, p.name) for p in facts.read],
        outputs=[_output(w) for w in facts.written],
        producer=PRODUCER,
    )


def _output(written: Written) -> OutputDataset:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics
    from openlineage.client.facet_v2 import schema_dataset as schema

    columns = [schema.SchemaDatasetFacetFields(name, kind) for name, kind in written.columns]
    return OutputDataset(
        written.place.namespace,
        written.place.name,
        facets={"schema": schema.SchemaDatasetFacet(columns)},
        outputFacets={"outputStatistics": statistics.OutputStatisticsOutputDatasetFacet(written.rows)},
    )


def emit(sent: RunEvent) -> None:
    """Send an event by the transport that the standard variables describe."""
    from openlineage.client import OpenLineageClient

    client = OpenLineageClient()
    client.emit(sent)
    client.close(CLOSE_S)
