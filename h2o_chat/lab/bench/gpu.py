"""`h2o-chat lab bench gpu`: what `bench speed` times, at the lengths that a GPU is for, and many rows."""

import statistics
import time
from dataclasses import dataclass

import torch

from h2o_chat.base.config import Settings
from h2o_chat.engine.runner import Runner, cache_for
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
