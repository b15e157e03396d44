"""`h2o-chat lab bench gpu`: what `bench speed` times, at the lengths that a GPU is for; and steps of many rows."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from h2o_chat.base.config import Settings
from h2o_chat.base.progress import progress_bar
from h2o_chat.engine.runner import Runner, cache_for
from h2o_chat.graph.loading import open_model
from h2o_chat.lab.bench.speed import Report, Wanted, run_speed
from h2o_chat.lab.bench.speed_table import show_speed
from h2o_chat.lab.shared.report_output import print_table
from h2o_chat.models.load import Loaded

WARM, TIMED = 40, 160
"""Steps before the timed ones, and those: some are followed by a settle, as one in `stride` is."""


@dataclass(frozen=True)
class RowsSpeed:
    """So many conversations that each get their likeliest token in every step."""

    rows: int
    step_ms: float
    """Median."""
    tokens_per_s: float
    """Of all rows, settles included."""


@dataclass(frozen=True)
class GpuReport:
    speed: Report
    rows: list[RowsSpeed]


def run_gpu(wanted: Wanted, rows: Sequence[int]) -> GpuReport:
    """Raises:
    H2OChatError: what `open_model` raises.
    """
    speed = run_speed(wanted)
    with progress_bar() as progress:
        loaded = open_model(wanted.settings, progress)
        return GpuReport(speed, [rows_speed(loaded, wanted.settings, number) for number in rows])


def rows_speed(
    loaded: Loaded, settings: Settings, rows: int, warm: int = WARM, timed: int = TIMED
) -> RowsSpeed:
    """All slots are in use, and all rows of one age."""
    runner = Runner(loaded, cache_for(loaded, settings), rows)
    prompt = torch.randint(3, loaded.sizes.vocabulary, (settings.budget,)).tolist()
    for start in range(0, len(prompt), runner.call_tokens):
        logits = runner.feed([prompt[start : start + runner.call_tokens]] * rows, prompt=True)
    times = []
    for _ in range(warm + timed):
        began = time.perf_counter()
        tokens = logits[:, -1].argmax(-1).tolist()  # waits for the step before
        logits = runner.feed([[token] for token in tokens], prompt=False)
        times.append(time.perf_counter() - began)
    times = times[warm:]
    return RowsSpeed(rows, 1000 * statistics.median(times), rows / statistics.fmean(times))


def show_gpu(found: GpuReport) -> None:
    """Writes both tables to stdout."""
    show_speed(found.speed)
    lines = [(f"{one.rows}", f"{one.step_ms:.2f}", f"{one.tokens_per_s:,.0f}") for one in found.rows]
    print_table(("rows", "ms a step", "tokens/s"), lines)
