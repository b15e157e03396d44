"""`h2o-chat lab bench speed`: a token of this program beside one of stock transformers.

All peers are prepared first. Then they decode in turns of TURN_TOKENS tokens, so that whatever else the
machine does slows all alike; while one runs the others wait. Stock (SDPA, full cache) and ours share the
loaded weights. `tools/peers/speed.py` times other programs in the same turns.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import product

import torch
import transformers
from torch import Tensor

from h2o_chat.base.config import PolicyName, Settings
from h2o_chat.base.errors import H2OChatError
from h2o_chat.base.progress import Progress, progress_bar
from h2o_chat.graph.loading import open_model
from h2o_chat.lab.bench.timed_programs import (
    Ours,
    Program,
    Sample,
    Stock,
    packed_bytes,
    wait_until_idle,
    weight_bytes,
)
from h2o_chat.lab.shared.intervals import interval, samples
from h2o_chat.models.choices import choose_device, default_threads
from h2o_chat.models.load import check_family
from h2o_chat.models.resolve import find
from h2o_chat.native.native_model import LoadedNative

OURS, STOCK, OTHER = "ours", "stock", "other"
TURN_TOKENS = 32
"""Tokens of a turn: at least two evictions at 512 slots, and two `cache` events."""
COPY_BYTES = 1 << 30
"""Bytes read to measure the bandwidth: far beyond every cache."""


@dataclass(frozen=True)
class Wanted:
    """Combinations that are timed: each form of weights, policy, budget and number of tokens seen.

    Stock is timed where its window holds them.
    """

    settings: Settings
    quantize: Sequence[str] = ("auto",)
    seen: Sequence[int] = (640,)
    """Tokens before the first that is timed."""
    prompt: int = 640
    """Tokens of the prompt whose first token is timed."""
    turns: int = 12
    seed: int = 0
    policies: Sequence[PolicyName] = ("h2o",)
    budgets: Sequence[int] = ()
    """Slots, one after another; none: as `settings` has it."""

    @property
    def threads(self) -> int:
        return self.settings.threads or default_threads()


@dataclass(frozen=True)
class Absent:
    """A peer that was asked for and has no figures."""

    peer: str
    reason: str


@dataclass
class Peer:
    """One program with one setting, and its samples."""

    name: str
    program: str
    """Its name without the tokens seen."""
    kind: str
    """ours | stock | other"""
    given: str
    """How it was set up."""
    runs: Program
    seen: int
    threads: int
    quantization: str
    dtype: str
    weight_bytes: int
    timed_prompt: bool = True
    firsts: list[Sample] = field(default_factory=list)
    decodes: list[Sample] = field(default_factory=list)
    failed: str = ""
    """Why another program takes no more turns."""

    def read(self, ids: list[int]) -> list[Sample]:
        """One sample; none of a program that has failed."""
        return self._sample(lambda: self.runs.read(ids))

    def decode(self) -> list[Sample]:
        """One turn; none of a program that has failed."""
        return self._sample(lambda: self.runs.decode(TURN_TOKENS))

    def _sample(self, work: Callable[[], Sample]) -> list[Sample]:
        if self.failed:
            return []
        try:
            return [work()]
        except H2OChatError as error:
            if self.kind != OTHER:
                raise
            self.failed = one_line(error)
            return []


Others = Callable[[ExitStack, Progress], tuple[list[Peer], list[Absent]]]
"""Starts other programs, which the stack ends."""


@dataclass(frozen=True)
class Speed:
    peer: str
    program: str
    kind: str
    given: str
    seen_tokens: int
    threads: int
    quantization: str
    dtype: str
    token_ms: float
    """Mean over a turn, evictions included; the median of the turns."""
    spread_ms: float
    """Between the quartiles of the turns."""
    floor_ms: float
    """The weights' bytes at the bandwidth: no token can be faster."""
    of_floor: float
    """`floor_ms` by `token_ms`."""
    weight_bytes: int
    """Bytes of the weights that one token reads."""
    read_gb_s: float
    """Bandwidth that a pass over 1 GiB reaches, once a turn: the median."""
    prompt_tokens: int
    first_ms: float
    """Until the first token after the prompt, median; 0 where it was not timed."""
    disturbed_turns: int
    turns: int
    turn_ms: list[float]
    """Milliseconds a token, of each turn."""


@dataclass(frozen=True)
class Ratio:
    """Time of one peer divided by that of another: the median over turns beside each other."""

    peer: str
    beside: str
    token: float
    low: float
    """The median's 95% interval, bootstrap over turns."""
    high: float
    worst: float
    """The largest of all turns."""
    first: float
    """Ratio of the first tokens after the prompt; 0 where they were not timed."""


@dataclass(frozen=True)
class Report:
    """All rows; the first of ours beside everything else, each further one of ours beside the first."""

    rows: list[Speed]
    ratios: list[Ratio]
    absent: list[Absent]


def run_speed(wanted: Wanted, others: Others = lambda stack, progress: ([], [])) -> Report:
    """Prepares all, lets them take turns, compares.

    Raises:
        H2OChatError: what `open_model` raises. Another program that does not run is named in the report.
    """
    vocabulary = check_family(find(wanted.settings.model).folder).get_text_config().vocab_size
    with ExitStack() as stack:
        progress = stack.enter_context(progress_bar())
        found, absent = others(stack, progress)
        peers = [*stock_and_ours(wanted, stack, progress), *found]
        longest = max(wanted.prompt, *(one.seen for one in peers))
        generator = torch.Generator().manual_seed(wanted.seed)
        ids = torch.randint(3, vocabulary, (longest,), generator=generator).tolist()
        wait_until_idle()
        memory = torch.ones(COPY_BYTES // 4, device=choose_device(wanted.settings.device))
        read_gb_s = _take_turns(wanted, peers, ids, progress, memory)
    absent += [Absent(one.name, one.failed) for one in peers if one.failed]
    ran = [one for one in peers if not one.failed]
    return Report([_speed(one, wanted.prompt, read_gb_s) for one in ran], _ratios(ran), absent)


def stock_and_ours(wanted: Wanted, stack: ExitStack, progress: Progress) -> list[Peer]:
    """Loads each form of weights once, for all that use it."""
    stocks, ours = list[Peer](), list[Peer]()
    for quantize in wanted.quantize:
        loaded = open_model(replace(wanted.settings, quantize=quantize), progress)  # type: ignore[arg-type]
        form = loaded.dtype if loaded.quantization == "none" else loaded.quantization
        if isinstance(loaded, LoadedNative):
            about = form, loaded.dtype, packed_bytes(loaded.packed)
        else:
            about = form, loaded.dtype, weight_bytes(loaded.model)
            window = loaded.model.config.get_text_config().max_position_embeddings
            given = f"transformers {transformers.__version__}: {form}; SDPA, full cache"
            for seen in [one for one in wanted.seen if one <= window]:
                stocks.append(_peer(wanted, f"stock {form}", STOCK, given, Stock(loaded), seen, about))
                stocks[-1].timed_prompt = seen == wanted.seen[0]
        budgets = wanted.budgets or [wanted.settings.budget]
        for policy, budget, seen in product(wanted.policies, budgets, wanted.seen):
            runs = Ours(loaded, replace(wanted.settings, policy=policy, budget=budget), wanted.threads)
            given = f"{form} weights, policy {policy}, {budget:,} slots, as the program runs"
            parts = [f"{runs.engine.session.engine} {form}", *([policy] if len(wanted.policies) > 1 else [])]
            program = ", ".join([*parts, *([f"{budget:,} slots"] if len(budgets) > 1 else [])])
            ours.append(_peer(wanted, program, OURS, given, runs, seen, about))
            ours[-1].timed_prompt = len(ours) == 1
    for one in (*stocks, *ours):
        stack.callback(one.runs.close)
    return [*stocks, *ours]


def _peer(
    wanted: Wanted, program: str, kind: str, given: str, runs: Program, seen: int, about: tuple[str, str, int]
) -> Peer:
    name = f"{program}, {seen:,} seen" if len(wanted.seen) > 1 else program
    return Peer(name, program, kind, given, runs, seen, wanted.threads, *about)


def _take_turns(
    wanted: Wanted, peers: list[Peer], ids: list[int], progress: Progress, memory: Tensor
) -> float:
    """Prompts first, then tokens, in turns; returns the memory's bandwidth: the median of the turns, GB/s."""
    rounds, count = max(1, wanted.turns // 4), len(peers)
    timed = [one for one in peers if one.timed_prompt]
    for one in timed:
        one.read(ids[: wanted.prompt])  # warm
    for number in range(rounds):
        for one in timed:
            one.firsts += one.read(ids[: wanted.prompt])
        progress("prompts", (number + 1) / rounds)
    for number, one in enumerate(peers):
        one.read(ids[: one.seen])
        one.decode()  # warm
        progress("tokens seen before", (number + 1) / count)
    read_gb_s = []
    for number in range(wanted.turns):
        for one in peers:
            one.decodes += one.decode()
        torch.set_num_threads(wanted.threads)
        read_gb_s.append(bandwidth_gb_s(memory))
        progress("turns", (number + 1) / wanted.turns)
    return statistics.median(read_gb_s)


def _speed(one: Peer, prompt: int, read_gb_s: float) -> Speed:
    turn_ms = [sample.ms / TURN_TOKENS for sample in one.decodes]
    token_ms, floor_ms = statistics.median(turn_ms), one.weight_bytes / read_gb_s / 1e6
    low, _, high = statistics.quantiles(turn_ms, n=4) if len(turn_ms) > 1 else [0.0] * 3
    return Speed(
        peer=one.name,
        program=one.program,
        kind=one.kind,
        given=one.given,
        seen_tokens=one.seen,
        threads=one.threads,
        quantization=one.quantization,
        dtype=one.dtype,
        token_ms=token_ms,
        spread_ms=high - low,
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


def _ratios(peers: Sequence[Peer]) -> list[Ratio]:
    ours = first, *more = [one for one in peers if one.kind == OURS]
    baselines = [one for one in peers if one.kind != OURS]
    # Beside those that have seen as much, if there are any.
    beside = [
        (one, other)
        for other in baselines
        for one in [one for one in ours if one.seen == other.seen] or [first]
    ]
    return [_ratio(*pair) for pair in beside] + [_ratio(one, first) for one in more]


def _ratio(one: Peer, other: Peer) -> Ratio:
    tokens = _by_turns(one.decodes, other.decodes)
    low, high = interval(samples(torch.tensor(tokens, dtype=torch.float64), 0).quantile(0.5, 1))
    both = one.firsts and other.firsts
    first = statistics.median(_by_turns(one.firsts, other.firsts)) if both else 0.0
    return Ratio(one.name, other.name, statistics.median(tokens), low, high, max(tokens), first)


def _by_turns(mine: list[Sample], theirs: list[Sample]) -> list[float]:
    return [one.ms / other.ms for one, other in zip(mine, theirs, strict=True)]


def bandwidth_gb_s(memory: Tensor) -> float:
    """The better of two passes, which follow each other at once; on a GPU a copy, read and written."""
    best, part = float("inf"), len(memory) // 2
    for _ in range(2):
        clock = time.perf_counter()
        if memory.is_cuda:
            memory[:part].copy_(memory[part:])
            torch.cuda.synchronize()
        else:
            memory.sum()
        best = min(best, time.perf_counter() - clock)
    return memory.nbytes / best / 1e9


def one_line(error: H2OChatError) -> str:
    """The message, and the last line of the hint: of a traceback the error itself."""
    return " ".join([error.message, *error.hint.splitlines()[-1:]])
