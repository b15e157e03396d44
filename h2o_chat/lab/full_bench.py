"""`bench full`: conversations in so much K/V memory, here and in programs that keep every token.

A whole run takes hours, so steady rates are measured and added up: one prompt is read, then all rows are
filled to the middle of each quarter of the answer, and a few tokens of all of them are timed there. What a
program then makes in a second is the tokens of all answers, divided by the time of all prompts, read one
after the other, and of all steps. This program's rows are full after the budget, so where the prompt is
longer they are measured once.
"""

import gc
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import H2OChatError, UsageError
from h2o_chat.base.progress import Progress, progress_bar
from h2o_chat.engine.answer import ms_since
from h2o_chat.engine.batch import Batch
from h2o_chat.engine.engine import Engine
from h2o_chat.engine.row_capacity import slots_bytes
from h2o_chat.events.events import Token
from h2o_chat.graph.loading import open_model
from h2o_chat.lab import peer
from h2o_chat.lab.idle import wait_until_idle
from h2o_chat.lab.output import print_tables
from h2o_chat.lab.rows_bench import APART, STEPS, fill
from h2o_chat.models.choices import default_threads
from h2o_chat.models.load import check_family
from h2o_chat.models.resolve import find
from h2o_chat.native.waiting import let_torch_sleep

OURS = "h2o-chat"
PARTS = 4
"""Of an answer; each is measured in its middle."""
PEER_STEPS = 4
"""Timed at each length, of a program whose steps are all alike."""
LLAMA_FORMS = {"int8": "q8_0", "int4": "q4_0"}
"""Of llama.cpp's weights, beside ours."""


@dataclass(frozen=True)
class Wanted:
    """What is compared.

    Args:
        kv_bytes: of keys and values of all rows; of this program all that a slot takes counts.
        turns: of `STEPS` tokens a row, of this program.
        peers_folder: with llama.cpp's environment; None: without it.
    """

    settings: Settings
    kv_bytes: int
    tokens_in: int
    tokens_out: int
    turns: int
    peers_folder: Path | None
    seed: int

    @property
    def lengths(self) -> list[int]:
        """Tokens of a conversation in the middle of each part of its answer."""
        return [self.tokens_in + (2 * part + 1) * self.tokens_out // (2 * PARTS) for part in range(PARTS)]


@dataclass(frozen=True)
class FullSpeed:
    """A program with as many rows as it has room for."""

    program: str
    given: str
    rows: int
    kv_mb: float
    """Of all rows at the end of their answers."""
    prompt_ms: float
    """One prompt."""
    step_ms: list[float]
    """A token of each row, in the middle of each part of the answer: medians."""
    decode_tok_s: float
    """Of all rows, while they answer."""
    tok_s: float
    """Tokens of all answers, divided by the time of all prompts and all answers."""
    was_idle: bool
    """Nothing else ran just before."""


@dataclass(frozen=True)
class Absent:
    """A program that was not measured, and why."""

    program: str
    why: str


@dataclass(frozen=True)
class Report:
    """All that was found; ours is the first row."""

    kv_gib: float
    tokens_in: int
    tokens_out: int
    lengths: list[int]
    rows: list[FullSpeed]
    absent: list[Absent]


def run_full(wanted: Wanted) -> Report:
    """Measures one program after the other: each has the memory to itself.

    Raises:
        BudgetError: this program's rows do not fit.
        UsageError: not one row fits into the K/V memory.
    """
    found, absent = list[FullSpeed](), list[Absent]()
    with progress_bar() as progress:
        ours, form = _ours(wanted, progress)
        found.append(ours)
        gc.collect()  # its rows and weights: the others need the memory
        for name, measure in _others(wanted, ours.rows, form).items():
            progress(name, None)
            try:
                found.append(measure())
            except H2OChatError as error:
                absent.append(Absent(name, " ".join([error.message, *error.hint.splitlines()[-1:]])))
    gib = wanted.kv_bytes / (1 << 30)
    return Report(gib, wanted.tokens_in, wanted.tokens_out, wanted.lengths, found, absent)


def _ours(wanted: Wanted, progress: Progress) -> tuple[FullSpeed, str]:
    """This program, and the form of llama.cpp's weights that is most like its own."""
    let_torch_sleep(wanted.settings)
    settings = replace(wanted.settings, events_every=0)
    loaded, rng = open_model(settings, progress), random.Random(wanted.seed)
    engine = Engine(loaded, settings)
    vocabulary = loaded.sizes.vocabulary
    each = slots_bytes(engine.runner)
    rows = _fitting(wanted.kv_bytes, each)
    batch = Batch(loaded, settings, rows)
    idle = wait_until_idle()

    def read_to(tokens: int) -> float:
        clock = time.perf_counter()
        engine.feed([rng.randrange(3, vocabulary) for _ in range(tokens - engine.seen)])
        return ms_since(clock)

    progress("this program: a prompt", None)
    prompt_ms = read_to(wanted.tokens_in)
    full = max(wanted.tokens_in, settings.budget + 2 * APART)
    steps: dict[int, float] = {}
    lengths = [min(tokens, full) for tokens in wanted.lengths]  # more tokens do not take longer
    for number, tokens in enumerate(lengths):
        if tokens not in steps:
            progress("this program: answers", number / PARTS)
            read_to(tokens)
            batch = batch if not steps else Batch(loaded, settings, rows)
            fill(batch, engine, vocabulary, rng)
            steps[tokens] = _step_ms(batch, wanted.turns)
    session = engine.session
    given = (
        f"{session.engine}, weights {session.quantization}, K/V {session.kv_dtype}, {settings.budget} slots,"
        f" {torch.get_num_threads()} threads"
    )
    step_ms = [steps[tokens] for tokens in lengths]
    found = _speed(wanted, OURS, given, rows, rows * each, prompt_ms, step_ms, idle)
    return found, LLAMA_FORMS.get(session.quantization, "q8_0")


def _step_ms(batch: Batch, turns: int) -> float:
    """A token of each row."""
    samples = []
    for _ in range(turns):
        clock = time.perf_counter()
        tokens = sum(isinstance(told.event, Token) for _ in range(STEPS) for told in batch.step())
        samples.append(ms_since(clock) / STEPS)
        assert tokens == STEPS * batch.runner.rows, "no row has ended"
    return statistics.median(samples)


def _others(wanted: Wanted, rows: int, form: str) -> dict[str, Callable[[], FullSpeed]]:
    """What else is measured, by name: stock transformers, and llama.cpp with two numbers of slots."""
    folder = find(wanted.settings.model).folder
    found: dict[str, Callable[[], FullSpeed]] = {}
    for dtype, itemsize in (("float32", 4), ("bfloat16", 2)):
        name = f"transformers {dtype}"
        found[name] = partial(_stock, wanted, name, folder, dtype, itemsize)
    found[f"llama.cpp {form}"] = partial(_llama, wanted, f"llama.cpp {form}", folder, form, None)
    name = f"llama.cpp {form}, {rows} slots"
    found[name] = partial(_llama, wanted, name, folder, form, rows)
    return found


def _stock(wanted: Wanted, name: str, folder: Path, dtype: str, itemsize: int) -> FullSpeed:
    if folder.is_file():
        raise UsageError("It is measured with a model folder, and this is a GGUF file.")
    each = (wanted.tokens_in + wanted.tokens_out) * token_bytes(check_family(folder), itemsize)
    rows = _fitting(wanted.kv_bytes, each)
    return _measured(wanted, name, "stock_rows.py", "", folder, rows, each, ["--dtype", dtype])


def _llama(wanted: Wanted, name: str, folder: Path, form: str, rows: int | None) -> FullSpeed:
    """
    Args:
        rows: None: as many as fit into the K/V memory, in fp16.
    """
    if wanted.peers_folder is None:
        raise UsageError("It needs --peers-folder.", "Make one: python tools/make_peers.py FOLDER (minutes).")
    each = (wanted.tokens_in + wanted.tokens_out) * token_bytes(check_family(folder), 2)
    rows = _fitting(wanted.kv_bytes, each) if rows is None else rows
    file = folder if folder.is_file() else peer.weights(wanted.peers_folder, peer.LLAMA, form, folder)[0]
    return _measured(wanted, name, "llama_rows.py", peer.LLAMA, file, rows, each, [])


def _measured(
    wanted: Wanted,
    name: str,
    script: str,
    environment: str,
    file: Path,
    rows: int,
    each: int,
    more: list[str],
) -> FullSpeed:
    """
    Args:
        each: bytes of K/V of a row at the end of its answer.

    Raises:
        H2OChatError: it did not come to its end; says why.
    """
    python, idle = peer.python_in(wanted.peers_folder, environment), wait_until_idle()
    command = [python, peer.SCRIPTS / script, file, "--rows", rows, "--prompt", wanted.tokens_in]
    command += ["--contexts", *wanted.lengths, "--steps", PEER_STEPS]
    command += ["--threads", wanted.settings.threads or default_threads(), *more]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=peer.offline())
    if done.returncode:
        raise H2OChatError(f"It has ended with {done.returncode}.", done.stderr.strip()[-1000:])
    told = json.loads(done.stdout.splitlines()[-1])
    step_ms = [statistics.median(times) for times in told["step_ms"]]
    return _speed(wanted, name, told["given"], rows, rows * each, told["prompt_ms"], step_ms, idle)


def _fitting(kv_bytes: int, each: int) -> int:
    """
    Raises:
        UsageError: none does.
    """
    if kv_bytes < each:
        raise UsageError(
            f"Not one row fits: its K/V takes {each / 1e6:,.1f} MB, and there are {kv_bytes / 1e6:,.1f} MB.",
            "Give more: --kv-gib.",
        )
    return kv_bytes // each


def token_bytes(config: Any, itemsize: int) -> int:
    """Of the keys and values of one token in a full cache."""
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    return int(2 * config.num_hidden_layers * kv_heads * size * itemsize)


def _speed(
    wanted: Wanted,
    program: str,
    given: str,
    rows: int,
    kv_bytes: int,
    prompt_ms: float,
    step_ms: list[float],
    idle: bool,
) -> FullSpeed:
    answers_ms = wanted.tokens_out * statistics.mean(step_ms)
    tokens = 1000 * rows * wanted.tokens_out
    return FullSpeed(
        program=program,
        given=given,
        rows=rows,
        kv_mb=kv_bytes / 1e6,
        prompt_ms=prompt_ms,
        step_ms=step_ms,
        decode_tok_s=tokens / answers_ms,
        tok_s=tokens / (answers_ms + rows * prompt_ms),
        was_idle=idle,
    )


def show_full(report: Report) -> None:
    """On stdout."""
    steps = [f"ms a step at {tokens:,}" for tokens in report.lengths]
    table = Table(
        title=f"{report.tokens_in:,} tokens in, {report.tokens_out:,} out, {report.kv_gib:g} GiB of K/V"
    )
    for column in ("program", "rows", "MB of K/V", "s a prompt", *steps, "tok/s decoding", "tok/s in all"):
        table.add_column(column, justify="left" if column == "program" else "right")
    for one in report.rows:
        times = [f"{ms:,.1f}" for ms in one.step_ms]
        rates = f"{one.decode_tok_s:,.1f}", f"{one.tok_s:,.1f}"
        table.add_row(
            one.program, f"{one.rows:,}", f"{one.kv_mb:,.1f}", f"{one.prompt_ms / 1000:,.2f}", *times, *rates
        )
    print_tables(table)
    for one in report.rows:
        disturbed = "" if one.was_idle else "; something else ran just before"
        sys.stdout.write(f"{one.program}: {one.given}{disturbed}\n")
    for gone in report.absent:
        sys.stdout.write(f"{gone.program}: not measured. {gone.why}\n")
