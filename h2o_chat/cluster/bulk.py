"""`run --batch --ray`: Ray Data gives lines to processes that answer them as one process alone does."""

import pickle
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import ray
from ray.data import ActorPoolStrategy, from_items

from h2o_chat.chat.files.batch_lines import BatchLine
from h2o_chat.cli import run_batch
from h2o_chat.models.hub import stay_offline
from h2o_chat.remote.engine_here import batch_here

LINES = 32
"""Lines that a process takes at a time, and that are lost with it."""


class Answering:
    """A process that answers lines."""

    def __init__(self, asked: run_batch.BatchTask) -> None:
        stay_offline()
        self._asked = asked
        self._batch = batch_here(asked.settings, asked.rows, sys.maxsize, lambda *_: None)

    def __call__(self, lines: dict[str, Any]) -> dict[str, Any]:
        jobs = [pickle.loads(line) for line in lines["line"]]
        told = [one for one in run_batch.answers(self._asked, self._batch, jobs) if one]
        return {"line": np.array([pickle.dumps(one) for one in told], dtype=object)}


def answers(asked: run_batch.BatchTask, left: Sequence[BatchLine]) -> Iterator[run_batch.Answered | None]:
    """The answers as they come from the cluster, each line once."""
    ray.init(asked.ray, ignore_reinit_error=True, log_to_driver=False)
    cpus, there = asked.settings.threads or 1, ray.cluster_resources()
    gpus = 1 if there.get("GPU") else 0
    most = max(1, int(there["GPU"] if gpus else there["CPU"] // cpus))
    sys.stderr.write(f"h2o-chat: {len(left):,} to answer, by up to {most} processes\n")
    lines = from_items(
        [{"line": pickle.dumps(job)} for job in left], override_num_blocks=-(-len(left) // LINES)
    )
    told = lines.map_batches(
        Answering, fn_constructor_args=(asked,), batch_size=LINES, num_cpus=cpus, num_gpus=gpus,
        compute=ActorPoolStrategy(min_size=1, max_size=most),
    )  # fmt: skip
    waiting = {job.id for job in left}
    for row in told.iter_rows():
        job, turn, error = pickle.loads(row["line"])
        if job.id in waiting:
            waiting.remove(job.id)
            yield job, turn, error
            yield None
