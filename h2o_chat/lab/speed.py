"""`h2o-chat bench speed`: a token of this program beside one of stock transformers and of llama.cpp.

All are prepared first. Then they decode in turns of TURN_TOKENS tokens, so that the machine's moods hit all
alike; while one runs the others wait. Stock (SDPA, full cache) and ours share the loaded weights. Ours is
`Engine.generate` as the program calls it: with choosing, detokenising and `cache` events.
"""

import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from h2o_chat.base.config import Settings
from h2o_chat.base.progress import Progress, progress_bar
from h2o_chat.lab import peer
from h2o_chat.lab.figures import DRAWS, interval
from h2o_chat.lab.idle import Sample, Watched, busy_processes, wait_until_idle
from h2o_chat.lab.rivals import GREEDY, SCREEN, LlamaCpp, Ours, Rival, Stock
from h2o_chat.models.choices import choose_device, default_threads
from h2o_chat.models.resolve import find
from h2o_chat.native.layout import layout
from h2o_chat.native.loading import LoadedNative, open_model
from h2o_chat.native.packed import Packed

OURS, STOCK, PEER = "ours", "stock", "peer"
TURN_TOKENS = 32
"""Decoded by each in a turn: at least two settles at 512 slots, and two `cache` events."""
COPY_BYTES = 1 << 30
"""Read to measure the bandwidth: far beyond every cache."""


@dataclass(frozen=True)
class Wanted:
    """What is compared with what: every one of ours under each combination; stock and peers once."""

    settings: Settings
    policies: Sequence[str] = ("h2o",)
    quantize: Sequence[str] = ("auto",)
    seen: Sequence[int] = (640,)
    """Tokens before the first that is timed."""
    threads: Sequence[int] = ()
    """Empty: as many as the program takes by itself. Stock and peers have the first of them."""
    sampled: bool = False
    """Ours also with the screen's own sampling."""
    prompt: int = 640
    """Tokens of the prompt whose first token is timed."""
    turns: int = 12
    busy: int = 0
    """Other processes that keep a core busy each."""
    peers_folder: Path | None = None
    """None: no peers."""
    peer_formats: Sequence[str] = ("q4_0",)
    peer_seen: Sequence[int] = (512, 2048, 8192)
    seed: int = 0


@dataclass(frozen=True)
class Speed:
    """What was measured of one contestant; every figure has its unit in its name."""

    contestant: str
    kind: str
    """ours | stock | peer"""
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


@dataclass
class _Contestant:
    """Somebody who is timed."""

    name: str
    kind: str
    rival: Rival
    seen: int
    threads: int
    quantization: str
    dtype: str
    weight_bytes: int
    beside: list[str] = field(default_factory=list)
    """Of ours: whom it differs from in one thing."""
    timed_prompt: bool = True
    firsts: list[Sample] = field(default_factory=list)
    decodes: list[Sample] = field(default_factory=list)


def run_speed(wanted: Wanted) -> Report:
    """Prepares all, lets them take turns, compares.

    Raises:
        H2OChatError: what `open_model` raises, no peers' environment, or a peer that has ended.
    """
    folder = find(wanted.settings.model).folder
    vocabulary = (
        transformers.AutoConfig.from_pretrained(folder, local_files_only=True).get_text_config().vocab_size
    )
    with ExitStack() as stack:
        progress = stack.enter_context(progress_bar())
        contestants = [*_stock_and_ours(wanted, stack, progress), *_peers(wanted, folder, stack)]
        longest = max(wanted.prompt, *(one.seen for one in contestants))
        generator = torch.Generator().manual_seed(wanted.seed)
        ids = torch.randint(3, vocabulary, (longest,), generator=generator).tolist()
        wait_until_idle()
        known = stack.enter_context(busy_processes(wanted.busy))
        memory = torch.ones(COPY_BYTES // 4, device=choose_device(wanted.settings.device))
        read_gb_s = _take_turns(wanted, contestants, ids, known, progress, memory)
    return Report([_speed(one, wanted.prompt, read_gb_s) for one in contestants], _ratios(contestants))


def _stock_and_ours(wanted: Wanted, stack: ExitStack, progress: Progress) -> list[_Contestant]:
    """Each format is loaded once, for all that use it."""
    threads = wanted.threads or [default_threads()]
    stocks, ours = [], []
    samplings = {"": GREEDY} | ({"sampled": SCREEN} if wanted.sampled else {})
    for quantize in wanted.quantize:
        loaded = open_model(replace(wanted.settings, quantize=quantize), progress)  # type: ignore[arg-type]
        form = loaded.dtype if loaded.quantization == "none" else loaded.quantization
        if isinstance(loaded, LoadedNative):
            about = form, loaded.dtype, _packed_bytes(loaded.packed)
        else:
            about = form, loaded.dtype, _weight_bytes(loaded.model)
            stocks.append(
                _Contestant(f"stock {form}", STOCK, Stock(loaded), wanted.seen[0], threads[0], *about)
            )
        for policy, seen, count, how in product(wanted.policies, wanted.seen, threads, samplings):
            settings = replace(wanted.settings, policy=policy)  # type: ignore[arg-type]
            rival = Ours(loaded, settings, count, samplings[how])
            named = partial(_name, wanted, f"{rival.engine.session.engine} {form}", policy)
            mine = named(seen, count, how)
            others = [
                named(wanted.seen[0], count, how),
                named(seen, threads[0], how),
                named(seen, count, ""),
            ]
            beside = [other for other in others if other != mine]
            ours.append(_Contestant(mine, OURS, rival, seen, count, *about, beside, timed_prompt=not beside))
    for one in (*stocks, *ours):
        stack.callback(one.rival.close)
    return [*stocks, *ours]


def _name(wanted: Wanted, what: str, policy: str, seen: int, threads: int, how: str) -> str:
    """Of one of ours: what computes, and what it does not share with all others."""
    parts = [
        policy if len(wanted.policies) > 1 else "",
        f"{seen:,} seen" if len(wanted.seen) > 1 else "",
        f"{threads} threads" if len(wanted.threads) > 1 else "",
        how,
    ]
    return ", ".join(filter(None, [what, *parts]))


def _peers(wanted: Wanted, model: Path, stack: ExitStack) -> list[_Contestant]:
    """llama.cpp with each format at each age; none where no folder is named."""
    if wanted.peers_folder is None:
        return []
    threads = wanted.threads[0] if wanted.threads else default_threads()
    found = []
    for form, seen in product(wanted.peer_formats, wanted.peer_seen):
        file, token_bytes = peer.gguf(wanted.peers_folder, model, form)
        context = max(seen, wanted.prompt) + TURN_TOKENS
        rival = LlamaCpp(wanted.peers_folder, file, context, threads)
        stack.callback(rival.close)
        name, first = f"{peer.LLAMA} {form}, {seen:,} seen", seen == wanted.peer_seen[0]
        about = form, "float32", token_bytes
        found.append(_Contestant(name, PEER, rival, seen, threads, *about, timed_prompt=first))
    return found


def _take_turns(
    wanted: Wanted,
    contestants: list[_Contestant],
    ids: list[int],
    known: Watched,
    progress: Progress,
    memory: Tensor,
) -> float:
    """Prompts first, then tokens: one after the other, again and again.

    Returns:
        The bandwidth that the memory was read with, once a turn; the median, GB/s.
    """
    rounds, count = max(1, wanted.turns // 4), len(contestants)
    for number in range(rounds):
        for one in filter(lambda one: one.timed_prompt, contestants):
            one.firsts.append(one.rival.read(ids[: wanted.prompt], known))
        progress("prompts", (number + 1) / rounds)
    for number, one in enumerate(contestants):
        one.rival.read(ids[: one.seen], known)
        one.rival.decode(TURN_TOKENS, known)  # warm
        progress("tokens seen before", (number + 1) / count)
    read_gb_s = []
    for number in range(wanted.turns):
        for one in contestants:
            one.decodes.append(one.rival.decode(TURN_TOKENS, known))
        torch.set_num_threads(max(wanted.threads or [default_threads()]))
        read_gb_s.append(_read_gb_s(memory))
        progress("turns", (number + 1) / wanted.turns)
    return statistics.median(read_gb_s)


def _speed(one: _Contestant, prompt: int, read_gb_s: float) -> Speed:
    """What its samples say."""
    turn_ms = [sample.ms / TURN_TOKENS for sample in one.decodes]
    token_ms, floor_ms = statistics.median(turn_ms), one.weight_bytes / read_gb_s / 1e6
    return Speed(
        contestant=one.name,
        kind=one.kind,
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


def _ratios(contestants: Sequence[_Contestant]) -> list[Ratio]:
    """Each of ours beside stock and peers; if it differs from another of ours in one thing, beside that."""
    by_name = {one.name: one for one in contestants}
    baselines = [one.name for one in contestants if one.kind != OURS]
    return [
        _ratio(one, by_name[other])
        for one in contestants
        if one.kind == OURS
        for other in one.beside or baselines
        if other in by_name
    ]


def _ratio(one: _Contestant, other: _Contestant) -> Ratio:
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


def _packed_bytes(packed: Packed) -> int:
    """What one token reads of a packed file: all, but of an untied embedding only a row."""
    if packed.frame.tied:
        return packed.bytes
    rows = [place.bytes for place in layout(packed.frame) if place.name.startswith("embedding.")]
    return packed.bytes - sum(rows)


def _weight_bytes(model: Any) -> int:
    """What one token reads: all parameters and their scales, but of an untied embedding only a row."""
    weights = {p.data_ptr(): p.nbytes for p in model.parameters()}
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings()
    if head is not None and head.weight.data_ptr() != embedding.data_ptr():
        weights.pop(embedding.data_ptr(), None)
    scales = 0
    for parameter in model.parameters():
        state = getattr(parameter, "quant_state", None)
        if state is not None:
            scales += sum(
                tensor.nbytes for tensor in state.as_dict(packed=False).values() if hasattr(tensor, "nbytes")
            )
    return int(sum(weights.values()) + scales)


def _read_gb_s(memory: Tensor) -> float:
    """The better of two passes, which follow each other at once."""
    best = float("inf")
    for _ in range(2):
        clock = time.perf_counter()
        float(memory.sum())  # read, so that the device is waited for
        best = min(best, time.perf_counter() - clock)
    return memory.nbytes / best / 1e9
