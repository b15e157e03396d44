"""`bench rows`: how many tokens a second several conversations make in one process, and one beside them."""

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.progress import progress_bar
from h2o_chat.engine.batch import Batch
from h2o_chat.engine.engine import Engine
from h2o_chat.engine.request import Request, RequestPiece
from h2o_chat.engine.row_capacity import row_bytes
from h2o_chat.events.events import Token
from h2o_chat.graph.loading import open_model
from h2o_chat.lab.bench.timed_programs import Sample
from h2o_chat.lab.shared.report_output import print_table
from h2o_chat.native.spin_wait import let_torch_sleep

STEPS = 32
"""Steps of all rows in one sample: twice the tokens between two settles at 512 slots."""
APART = 32
"""Tokens between the beginnings of rows at most: they settle at different steps, as they do in use."""


@dataclass(frozen=True)
class RowsSpeed:
    """Figures of one number of rows."""

    rows: int
    tok_s: float
    """Tokens a second of all rows together, the median of the samples."""
    step_ms: float
    """Milliseconds of a step, which makes a token of each row."""
    times_one: float
    """`tok_s`, as a multiple of what the first number of rows makes."""
    row_mb: float
    """Memory of one row."""
    samples: int
    disturbed: int
    """Samples in which something else ran."""
    engine: str
    quantization: str
    kv_dtype: str
    budget: int
    threads: int


def run_rows(settings: Settings, rows: Sequence[int], turns: int, seed: int) -> list[RowsSpeed]:
    """Times each number of rows in turns, all slots in use from the beginning.

    Raises:
        BudgetError: so many rows do not fit.
    """
    let_torch_sleep(settings)
    settings = replace(settings, events_every=0)
    with progress_bar() as progress:
        loaded = open_model(settings, progress)
        engine, rng = Engine(loaded, settings), random.Random(seed)
        vocabulary = loaded.sizes.vocabulary
        progress("read", None)
        engine.feed([rng.randrange(3, vocabulary) for _ in range(settings.budget + 2 * APART)])
        batches = [Batch(loaded, settings, number) for number in rows]
        for at, batch in enumerate(batches):
            progress("fill rows", at / len(batches))
            fill(batch, engine, vocabulary, rng)
        times: list[list[Sample]] = [[] for _ in batches]
        for turn in range(turns):
            progress("time", turn / turns)
            for batch, samples in zip(batches, times, strict=True):
                batch.step()  # its slots and the weights lie where they did
                with Sample() as sample:
                    tokens = sum(isinstance(t.event, Token) for _ in range(STEPS) for t in batch.step())
                assert tokens == STEPS * batch.runner.rows, "no row has ended"
                samples.append(sample)
    session = engine.session
    ms = [statistics.median(sample.ms for sample in samples) / STEPS for samples in times]
    return [
        RowsSpeed(
            rows=number,
            tok_s=1000 * number / step_ms,
            step_ms=step_ms,
            times_one=(number / step_ms) / (rows[0] / ms[0]),
            row_mb=row_bytes(batch.runner) / 1e6,
            samples=len(samples),
            disturbed=sum(sample.disturbed for sample in samples),
            engine=session.engine,
            quantization=session.quantization,
            kv_dtype=session.kv_dtype,
            budget=settings.budget,
            threads=torch.get_num_threads(),
        )
        for number, batch, samples, step_ms in zip(rows, batches, times, ms, strict=True)
    ]


def fill(batch: Batch, engine: Engine, vocabulary: int, rng: random.Random) -> None:
    """Fills every row with a conversation: they begin alike, and each reads some tokens more.

    Raises:
        Exception: that of a row which fails.
    """
    taken, sampling = engine.snapshot(), Sampling(max_tokens=None, ignore_eos=True)
    for number in range(batch.runner.rows):
        more = [rng.randrange(3, vocabulary) for _ in range(rng.randint(1, APART))]
        batch.add(Request([RequestPiece(more)], sampling, number, begin=taken))
    while batch.talking < batch.runner.rows:
        for told in batch.step():
            if told.error is not None:  # that row would be waited for for ever
                raise told.error


def show_rows(found: Sequence[RowsSpeed]) -> None:
    """Writes a table to stdout."""
    columns = ("rows", "tok/s", "ms a step", f"of {found[0].rows}", "MB a row", "disturbed")
    rows = [
        (
            *(f"{one.rows:,}", f"{one.tok_s:,.1f}", f"{one.step_ms:.2f}", f"{one.times_one:.2f}"),
            *(f"{one.row_mb:,.1f}", f"{one.disturbed} of {one.samples}"),
        )
        for one in found
    ]
    print_table(columns, rows)
