"""Conversations in so much K/V memory, here and in programs that keep every token: `speed.py --kv-gib`.

A whole run takes hours, so steady rates are measured and added up: one prompt is read, then all rows are
filled to the middle of each quarter of the answer, and a few tokens of all of them are timed there. The rate
of a program is then the tokens of all answers, divided by the time of all prompts, read one after the other,
and of all steps. This program's rows are full after the budget, so where the prompt is longer they are
measured once.
"""

import gc
import json
import random
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import programs

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import H2OChatError, UsageError
from h2o_chat.base.progress import Progress, progress_bar
from h2o_chat.engine.batch import Batch
from h2o_chat.engine.engine import Engine
from h2o_chat.engine.request import Request, RequestPiece
from h2o_chat.engine.row_capacity import slots_bytes
from h2o_chat.events.events import Token
from h2o_chat.graph.loading import open_model
from h2o_chat.lab.bench.speed import Absent, one_line
from h2o_chat.lab.bench.timed_programs import wait_until_idle
from h2o_chat.lab.shared.report_output import print_table
from h2o_chat.models.choices import default_threads
from h2o_chat.models.load import check_family
from h2o_chat.models.resolve import find

STEPS = 32
"""Steps of all rows in one sample: twice the tokens between two evictions at 512 slots."""
APART = 32
"""Tokens between the beginnings of rows at most: they evict at different steps, as they do in use."""
PARTS = 4
"""Parts of an answer; each is measured in its middle."""
TURNS = 2
"""Turns of `STEPS` tokens a row, of this program."""
OTHER_STEPS = 4
"""Steps timed at each length, of a program whose steps are all alike."""
LLAMA_FORMS = {"int8": "q8_0", "int4": "q4_0"}
"""Forms of llama.cpp's weights that are most like ours."""


@dataclass(frozen=True)
class Memory:
    """Bytes of keys and values of all rows, and tokens of each prompt and answer.

    For this program everything that a slot takes counts.
    """

    kv_bytes: int
    tokens_in: int
    tokens_out: int

    @property
    def lengths(self) -> list[int]:
        """Tokens of a conversation in the middle of each part of its answer."""
        return [self.tokens_in + (2 * part + 1) * self.tokens_out // (2 * PARTS) for part in range(PARTS)]

    def rows(self, row_bytes: int) -> int:
        """Rows that fit.

        Raises:
            UsageError: not one does.
        """
        if self.kv_bytes < row_bytes:
            raise UsageError(
                f"Not one row fits: its K/V takes {row_bytes / 1e6:,.1f} MB, and there are"
                f" {self.kv_bytes / 1e6:,.1f} MB.",
                "Give more: --kv-gib.",
            )
        return self.kv_bytes // row_bytes


@dataclass(frozen=True)
class FullSpeed:
    """Figures of a program with as many rows as it has room for."""

    program: str
    given: str
    rows: int
    kv_mb: float
    """K/V of all rows at the end of their answers."""
    prompt_ms: float
    """One prompt."""
    step_ms: list[float]
    """A token of each row, in the middle of each part of the answer: medians."""
    decode_tok_s: float
    """Tokens a second of all rows, while they answer."""
    tok_s: float
    """Tokens of all answers, divided by the time of all prompts and all answers."""


@dataclass(frozen=True)
class Report:
    """All figures; ours is the first row."""

    memory: Memory
    rows: list[FullSpeed]
    absent: list[Absent]


def run_equal_memory(settings: Settings, memory: Memory, folder: Path | None) -> Report:
    """Measures one program after the other: each has the memory to itself.

    Args:
        folder: of the other programs' environments; None: llama.cpp is absent.

    Raises:
        BudgetError: this program's rows do not fit.
        UsageError: not one row fits into the K/V memory.
    """
    found, absent = list[FullSpeed](), list[Absent]()
    with progress_bar() as progress:
        ours, form = measure_ours(settings, memory, progress)
        found.append(ours)
        gc.collect()  # its rows and weights: the others need the memory
        others: list[tuple[str, str, int | None]] = [
            ("transformers", "float32", None),
            ("transformers", "bfloat16", None),
            (programs.LLAMA, form, None),
            (programs.LLAMA, form, ours.rows),
        ]
        for program, kind, rows in others:
            name = f"{program} {kind}" + (f", {rows} slots" if rows else "")
            progress(name, None)
            try:
                found.append(measure_other(settings, memory, folder, name, kind, rows))
            except H2OChatError as error:
                absent.append(Absent(name, one_line(error)))
    return Report(memory, found, absent)


def measure_ours(settings: Settings, memory: Memory, progress: Progress) -> tuple[FullSpeed, str]:
    """This program, and the form of llama.cpp's weights that is most like its own."""
    settings = replace(settings, events_every=0)
    loaded, rng = open_model(settings, progress), random.Random(settings.seed)
    engine = Engine(loaded, settings)
    vocabulary, each = loaded.sizes.vocabulary, slots_bytes(engine.runner)
    rows = memory.rows(each)
    batch = Batch(loaded, settings, rows)
    wait_until_idle()

    def read_to(tokens: int) -> float:
        clock = time.perf_counter()
        engine.feed([rng.randrange(3, vocabulary) for _ in range(tokens - engine.seen)])
        return 1000 * (time.perf_counter() - clock)

    prompt_ms = read_to(memory.tokens_in)
    full = max(memory.tokens_in, settings.budget + 2 * APART)
    steps: dict[int, float] = {}
    lengths = [min(tokens, full) for tokens in memory.lengths]  # more tokens do not take longer
    for number, tokens in enumerate(lengths):
        progress("this program", number / PARTS)
        if tokens not in steps:
            read_to(tokens)
            batch = batch if not steps else Batch(loaded, settings, rows)
            fill(batch, engine, vocabulary, rng)
            steps[tokens] = _step_ms(batch)
    session = engine.session
    given = (
        f"{session.engine}, weights {session.quantization}, K/V {session.kv_dtype}, {settings.budget} slots,"
        f" {session.threads} threads"
    )
    step_ms = [steps[tokens] for tokens in lengths]
    found = _speed(memory, "h2o-chat", given, rows, rows * each, prompt_ms, step_ms)
    return found, LLAMA_FORMS.get(session.quantization, "q8_0")


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


def _step_ms(batch: Batch) -> float:
    """A token of each row."""
    samples = []
    for _ in range(TURNS):
        clock = time.perf_counter()
        tokens = sum(isinstance(told.event, Token) for _ in range(STEPS) for told in batch.step())
        samples.append(1000 * (time.perf_counter() - clock) / STEPS)
        assert tokens == STEPS * batch.runner.rows, "no row has ended"
    return statistics.median(samples)


def measure_other(
    settings: Settings, memory: Memory, folder: Path | None, name: str, kind: str, rows: int | None
) -> FullSpeed:
    """A program that keeps every token, with as many rows as fit, or with `rows`.

    Args:
        kind: transformers' dtype, or the form of llama.cpp's weights, whose K/V is in fp16.

    Raises:
        H2OChatError: it did not come to its end; says why.
    """
    model = find(settings.model).folder
    tokens, size = memory.tokens_in + memory.tokens_out, {"float32": 4}.get(kind, 2)
    each = tokens * token_bytes(check_family(model), size)
    rows = memory.rows(each) if rows is None else rows
    if name.startswith("transformers"):
        if model.is_file():
            raise UsageError("It is measured with a model folder, and this is a GGUF file.")
        python, script, file, more = programs.python_in(None, ""), "stock.py", model, ["--format", kind]
    else:
        python, script, file, more = programs.python_in(folder, programs.LLAMA), "llama.py", model, []
        if model.is_dir():
            assert folder is not None
            file, _ = programs.weights(folder, programs.LLAMA, kind, model)
    wait_until_idle()
    command = [python, programs.SCRIPTS / script, file, "--rows", rows, "--prompt", memory.tokens_in]
    command += ["--contexts", *memory.lengths, "--steps", OTHER_STEPS]
    command += ["--threads", settings.threads or default_threads(), *more]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=programs.offline())
    if done.returncode:
        raise H2OChatError(f"It has ended with {done.returncode}.", done.stderr.strip()[-1000:])
    found = json.loads(done.stdout.splitlines()[-1])
    step_ms = [statistics.median(times) for times in found["step_ms"]]
    return _speed(memory, name, found["given"], rows, rows * each, found["prompt_ms"], step_ms)


def token_bytes(config: Any, itemsize: int) -> int:
    """Bytes of the keys and values of one token in a full cache."""
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    return int(2 * config.num_hidden_layers * kv_heads * size * itemsize)


def _speed(
    memory: Memory,
    program: str,
    given: str,
    rows: int,
    kv_bytes: int,
    prompt_ms: float,
    step_ms: list[float],
) -> FullSpeed:
    answers_ms, tokens = memory.tokens_out * statistics.mean(step_ms), 1000 * rows * memory.tokens_out
    rates = tokens / answers_ms, tokens / (answers_ms + rows * prompt_ms)
    return FullSpeed(program, given, rows, kv_bytes / 1e6, prompt_ms, step_ms, *rates)


def show_equal_memory(report: Report) -> None:
    """A table on stdout, how each was set up, and a verdict."""
    memory, lines = report.memory, []
    columns = ["program", "rows", "MB of K/V", "s a prompt"]
    columns += [*(f"ms a step at {tokens:,}" for tokens in memory.lengths), "tok/s decoding", "tok/s in all"]
    rows = []
    for one in report.rows:
        row = [one.program, f"{one.rows:,}", f"{one.kv_mb:,.1f}", f"{one.prompt_ms / 1000:,.2f}"]
        rows.append([*row, *(f"{number:,.1f}" for number in (*one.step_ms, one.decode_tok_s, one.tok_s))])
        lines.append(f"{one.program}: {one.given}")
    title = f"{memory.tokens_in:,} tokens in, {memory.tokens_out:,} out, {memory.kv_bytes / (1 << 30):g} GiB"
    print_table(columns, rows, f"{title} of K/V")
    lines += [f"{one.peer}: not measured. {one.reason}" for one in report.absent]
    ours, *others = report.rows
    beside = [
        f"{one.tok_s:,.1f} tok/s of {one.program}: {ours.tok_s / one.tok_s:.2f} times as many"
        f" ({ours.decode_tok_s / one.decode_tok_s:.2f} without the prompts)"
        for one in others
    ]
    verdict = [f"Verdict: {ours.tok_s:,.1f} tok/s with {ours.rows:,} rows", *beside]
    sys.stdout.write("".join(f"{line}\n" for line in [*lines, "; ".join(verdict) + "."]))
