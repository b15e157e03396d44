"""`h2o-chat bench speed`: a token of this program beside one of stock transformers and of other programs.

All are prepared first. Then they decode in turns of TURN_TOKENS tokens, so that the machine's moods hit all
alike; while one runs the others wait. Stock (SDPA, full cache) and ours share the loaded weights. Ours is
`Engine.generate` as the program calls it: with choosing, detokenising and `cache` events.
"""

import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from h2o_chat.base.progress import Progress, progress_bar
from h2o_chat.lab.figures import DRAWS, interval
from h2o_chat.lab.idle import Sample, Watched, busy_processes, wait_until_idle
from h2o_chat.lab.racers import (
    AGES,
    OURS,
    TURN_TOKENS,
    Absent,
    Racer,
    Wanted,
    other_programs,
    stock_and_ours,
)
from h2o_chat.models.choices import choose_device, default_threads
from h2o_chat.models.load import check_family
from h2o_chat.models.resolve import find

COPY_BYTES = 1 << 30
"""Read to measure the bandwidth: far beyond every cache."""


@dataclass(frozen=True)
class Speed:
    """What was measured of one contestant; every figure has its unit in its name."""

    contestant: str
    program: str
    """The same, whatever it has seen."""
    kind: str
    """ours | stock | peer"""
    given: str
    """How it was set up."""
    seen_tokens: int
    threads: int
    quantization: str
    dtype: str
    token_ms: float
    """Mean over a turn, settles included; the median of the turns."""
    spread_ms: float
    """Between the quartiles of the turns."""
    floor_ms: float
    """The weights' bytes at the bandwidth: no token can be faster."""
    of_floor: float
    """`floor_ms` by `token_ms`."""
    weight_bytes: int
    """Of the weights that one token reads."""
    read_gb_s: float
    """Bandwidth that a pass over 1 GiB reaches, once a turn: the median."""
    prompt_tokens: int
    first_ms: float
    """Until the first token after the prompt, median; 0 where it was not timed."""
    disturbed_turns: int
    turns: int
    turn_ms: list[float]
    """Of each turn, by its tokens."""


@dataclass(frozen=True)
class Ratio:
    """How long one contestant takes, by how long another does: median over turns beside each other."""

    contestant: str
    beside: str
    token: float
    low: float
    """The median's 95% interval, bootstrap over turns."""
    high: float
    worst: float
    """Of all turns."""
    first: float
    """The same for the first token after the prompt; 0 where it was not timed."""


@dataclass(frozen=True)
class Report:
    """All rows, and each of ours beside stock, peers, and what differs from it in one thing."""

    rows: list[Speed]
    ratios: list[Ratio]
    absent: list[Absent]


def run_speed(wanted: Wanted) -> Report:
    """Prepares all, lets them take turns, compares.

    Raises:
        H2OChatError: what `open_model` raises. A peer that does not run is named in the report.
    """
    folder = find(wanted.settings.model).folder
    config = check_family(folder)
    ages = wanted.peer_seen or [age for age in AGES if age <= config.max_position_embeddings] or AGES[:1]
    vocabulary = config.vocab_size
    with ExitStack() as stack:
        progress = stack.enter_context(progress_bar())
        others, absent = other_programs(replace(wanted, peer_seen=ages), folder, stack, progress)
        racers = [*stock_and_ours(wanted, stack, progress), *others]
        longest = max(wanted.prompt, *(one.seen for one in racers))
        generator = torch.Generator().manual_seed(wanted.seed)
        ids = torch.randint(3, vocabulary, (longest,), generator=generator).tolist()
        wait_until_idle()
        known = stack.enter_context(busy_processes(wanted.busy))
        memory = torch.ones(COPY_BYTES // 4, device=choose_device(wanted.settings.device))
        read_gb_s = _take_turns(wanted, racers, ids, known, progress, memory)
    absent += [Absent(one.name, one.failed) for one in racers if one.failed]
    ran = [one for one in racers if not one.failed]
    return Report([_speed(one, wanted.prompt, read_gb_s) for one in ran], _ratios(ran), absent)


def _take_turns(
    wanted: Wanted,
    racers: list[Racer],
    ids: list[int],
    known: Watched,
    progress: Progress,
    memory: Tensor,
) -> float:
    """Prompts first, then tokens: one after the other, again and again.

    Returns:
        The bandwidth that the memory was read with, once a turn; the median, GB/s.
    """
    rounds, count = max(1, wanted.turns // 4), len(racers)
    for one in filter(lambda one: one.timed_prompt, racers):
        one.read(ids[: wanted.prompt], known)  # warm
    for number in range(rounds):
        for one in filter(lambda one: one.timed_prompt, racers):
            one.firsts += one.read(ids[: wanted.prompt], known)
        progress("prompts", (number + 1) / rounds)
    for number, one in enumerate(racers):
        one.read(ids[: one.seen], known)
        one.decode(known)  # warm
        progress("tokens seen before", (number + 1) / count)
    read_gb_s = []
    for number in range(wanted.turns):
        for one in racers:
            one.decodes += one.decode(known)
        torch.set_num_threads(max(wanted.threads or [default_threads()]))
        read_gb_s.append(_read_gb_s(memory))
        progress("turns", (number + 1) / wanted.turns)
    return statistics.median(read_gb_s)


def _speed(one: Racer, prompt: int, read_gb_s: float) -> Speed:
    """What its samples say."""
    turn_ms = [sample.ms / TURN_TOKENS for sample in one.decodes]
    token_ms, floor_ms = statistics.median(turn_ms), one.weight_bytes / read_gb_s / 1e6
    return Speed(
        contestant=one.name,
        program=one.program,
        kind=one.kind,
        given=one.given,
        seen_tokens=one.seen,
        threads=one.threads,
        quantization=one.quantization,
        dtype=one.dtype,
        token_ms=token_ms,
        spread_ms=_spread(turn_ms),
        floor_ms=floor_ms,
        of_floor=floor_ms / token_ms,
        weight_bytes=one.weight_bytes,
        read_gb_s=read_gb_s,
        prompt_tokens=prompt,
        first_ms=statistics.median(sample.ms for sample in one.firsts) if one.firsts else 0.0,
        disturbed_turns=sum(sample.disturbed for sample in (*one.decodes, *one.firsts)),
        turns=len(one.decodes) + len(one.firsts),
        turn_ms=turn_ms,
    )


def _ratios(racers: Sequence[Racer]) -> list[Ratio]:
    """Each of ours beside stock and peers; if it differs from another of ours in one thing, beside that."""
    by_name = {one.name: one for one in racers}
    baselines = [one.name for one in racers if one.kind != OURS]
    return [
        _ratio(one, by_name[other])
        for one in racers
        if one.kind == OURS
        for other in one.beside or baselines
        if other in by_name
    ]


def _ratio(one: Racer, other: Racer) -> Ratio:
    """Turn by turn."""
    tokens = _by_turns(one.decodes, other.decodes)
    draws = torch.randint(len(tokens), (DRAWS, len(tokens)), generator=torch.Generator().manual_seed(0))
    low, high = interval(torch.tensor(tokens, dtype=torch.float64)[draws].quantile(0.5, 1))
    both = one.firsts and other.firsts
    first = statistics.median(_by_turns(one.firsts, other.firsts)) if both else 0.0
    return Ratio(one.name, other.name, statistics.median(tokens), low, high, max(tokens), first)


def _by_turns(mine: list[Sample], theirs: list[Sample]) -> list[float]:
    return [one.ms / other.ms for one, other in zip(mine, theirs, strict=True)]


def _spread(samples: list[float]) -> float:
    if len(samples) < 2:
        return 0.0
    low, _, high = statistics.quantiles(samples, n=4)
    return high - low


def _read_gb_s(memory: Tensor) -> float:
    """The better of two passes, which follow each other at once."""
    best = float("inf")
    for _ in range(2):
        clock = time.perf_counter()
        float(memory.sum())  # read, so that the device is waited for
        best = min(best, time.perf_counter() - clock)
    return memory.nbytes / best / 1e9
