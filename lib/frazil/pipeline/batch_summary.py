"""What a snapshot's summary says of its batch: files, counts and delays, which readers add up."""

from __future__ import annotations

import json
import time

import numpy as np

from frazil.dms.applied import summary_of
from frazil.engine.delay_histograms import histogram
from frazil.pipeline.batch import Batch

KIND, COUNTS, DELAYS = "frazil.kind", "frazil.counts", "frazil.delays"
NEWEST, DECISION = "frazil.newest", "frazil.decision"
"""Entries of a summary: the kind of a batch; its counts; its delays by stage; the newest time of the source in it, in epoch seconds; what a person decided."""


def of_batch(batch: Batch, counts: dict[str, int], committed: np.ndarray, landed: np.ndarray | None) -> dict[str, str]:
    """Return what is known of a batch once it is written, with its delays until now.

    `committed` and `landed` are those of each change, in epoch seconds; without `landed` there are no delays, as of a
    load. Delays by stage: `dms` from the source's commit to the file, `wait` from the file to its batch, `work` from there
    to the written files, `total` of all.
    """
    found = {KIND: batch.kind, COUNTS: json.dumps(counts)}
    if batch.kind != "replay":
        found |= summary_of(batch.reader.storage, batch.files, batch.left)
    if not np.isnan(committed).all():
        found[NEWEST] = str(float(np.nanmax(committed)))
    if landed is not None:
        now = time.time()
        work = np.full(len(committed), now - batch.picked_up)
        stages = {"dms": landed - committed, "wait": batch.picked_up - landed, "work": work, "total": now - committed}
        found[DELAYS] = json.dumps({stage: histogram(seconds) for stage, seconds in stages.items()})
    return found
