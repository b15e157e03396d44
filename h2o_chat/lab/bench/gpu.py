"""`h2o-chat lab bench gpu`: the speed of one row (`speed.py`), then steps of many rows."""

import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch

from h2o_chat.base.config import Settings
from h2o_chat.engine.runner import Runner, cache_for
from h2o_chat.graph.loading import open_model
from h2o_chat.lab.bench.speed import Wanted, run_speed
from h2o_chat.lab.bench.speed_table import show_speed
from h2o_chat.lab.bench.timed_programs import TIMED, WARM
from h2o_chat.lab.shared.report_output import print_table
from h2o_chat.models.load import Loaded


def run_gpu(wanted: Wanted, rows: Sequence[int]) -> dict[str, Any]:
    speed = run_speed(wanted)
    loaded = open_model(wanted.settings, lambda *_: None)
    return {"speed": speed, "rows": [rows_speed(loaded, wanted.settings, number) for number in rows]}


def show_gpu(found: dict[str, Any]) -> None:
    show_speed(found["speed"])
    steps = found["rows"]
    print_table([*steps[0]], [[f"{one:,.4g}" for one in row.values()] for row in steps])


def rows_speed(
    loaded: Loaded, settings: Settings, rows: int, warm: int = WARM, timed: int = TIMED
) -> dict[str, float]:
    """Steps in which so many conversations of one age each get their likeliest token; all slots are in use.

    Returns:
        `rows`, `step_ms` (the median), `tokens_per_s` (of all rows, evictions included).
    """
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
    step_ms = 1000 * statistics.median(times)
    return {"rows": rows, "step_ms": step_ms, "tokens_per_s": rows / statistics.fmean(times)}
