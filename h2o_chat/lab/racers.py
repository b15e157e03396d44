"""Who takes part in `bench speed`: stock transformers, this program, other programs."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import transformers

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import H2OChatError
from h2o_chat.base.progress import Progress
from h2o_chat.graph.loading import open_model
from h2o_chat.lab import peer
from h2o_chat.lab.idle import Sample, Watched
from h2o_chat.lab.rivals import GREEDY, SCREEN, Other, Ours, Rival, Stock
from h2o_chat.models.choices import default_threads
from h2o_chat.native.layout import layout
from h2o_chat.native.loading import LoadedNative
from h2o_chat.native.packed import Packed

OURS, STOCK, PEER = "ours", "stock", "peer"
TURN_TOKENS = 32
"""Decoded by each in a turn: at least two settles at 512 slots, and two `cache` events."""
AGES = (512, 2048, 8192)
"""Tokens that peers have seen."""


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
    peers: Sequence[str] = ()
    """Of `peer.PROGRAMS`."""
    peers_folder: Path | None = None
    """Where their environments are."""
    peer_formats: Sequence[str] = ("q4_0",)
    """Of llama.cpp's weights; the others have one."""
    peer_seen: Sequence[int] = ()
    """Empty: those of AGES that the model's window has room for."""
    seed: int = 0


@dataclass(frozen=True)
class Absent:
    """A peer that was asked for and has no row."""

    contestant: str
    reason: str


@dataclass
class Racer:
    """Somebody who is timed."""

    name: str
    program: str
    kind: str
    given: str
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
    failed: str = ""
    """Why a peer takes no more turns."""

    def read(self, ids: list[int], known: Watched) -> list[Sample]:
        """One sample; none of a peer that has failed."""
        return self._sampled(lambda: self.rival.read(ids, known))

    def decode(self, known: Watched) -> list[Sample]:
        """A turn, likewise."""
        return self._sampled(lambda: self.rival.decode(TURN_TOKENS, known))

    def _sampled(self, work: Callable[[], Sample]) -> list[Sample]:
        if self.failed:
            return []
        try:
            return [work()]
        except H2OChatError as error:
            if self.kind != PEER:
                raise
            self.failed = _in_words(error)
            return []


def stock_and_ours(wanted: Wanted, stack: ExitStack, progress: Progress) -> list[Racer]:
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
            name, given = (
                f"stock {form}",
                f"transformers {transformers.__version__}: {form}; SDPA, full cache",
            )
            stocks.append(Racer(name, name, STOCK, given, Stock(loaded), wanted.seen[0], threads[0], *about))
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
            given = f"{form} weights, policy {policy}, {settings.budget} slots, as the program runs"
            known = mine, named(0, count, how), OURS, given, rival, seen, count, *about
            ours.append(Racer(*known, beside, timed_prompt=not beside))
    for one in (*stocks, *ours):
        stack.callback(one.rival.close)
    return [*stocks, *ours]


def _name(wanted: Wanted, what: str, policy: str, seen: int, threads: int, how: str) -> str:
    """Of one of ours: what computes, and what not all others share; `seen` 0: whatever it saw."""
    parts = [
        policy if len(wanted.policies) > 1 else "",
        f"{seen:,} seen" if seen and len(wanted.seen) > 1 else "",
        f"{threads} threads" if len(wanted.threads) > 1 else "",
        how,
    ]
    return ", ".join(filter(None, [what, *parts]))


def other_programs(
    wanted: Wanted, model: Path, stack: ExitStack, progress: Progress
) -> tuple[list[Racer], list[Absent]]:
    """Each program that was asked for, at each age; those that do not start."""
    threads = wanted.threads[0] if wanted.threads else default_threads()
    found, absent = [], []
    of_llama = [peer.AS_IT_IS] if model.is_file() else wanted.peer_formats
    forms = [
        (name, form)
        for name in wanted.peers
        for form in (of_llama if name == peer.LLAMA else [peer.PROGRAMS[name].form])
    ]
    for number, (name, form) in enumerate(forms):
        program = name if name.endswith(form) else f"{name} {form}"
        contexts = list(dict.fromkeys([*wanted.peer_seen, wanted.prompt]))
        how = peer.Conditions(wanted.peers_folder, model, contexts, threads, wanted.settings.budget)
        try:
            started, about = peer.start(name, form, how)
        except H2OChatError as error:
            absent.append(Absent(program, _in_words(error)))
            continue
        finally:
            progress("other programs", (number + 1) / len(forms))
        stack.callback(started.close)
        of_weights = form, about.get("dtype", "float32"), int(about["token_bytes"])
        for seen in wanted.peer_seen:
            named = f"{program}, {seen:,} seen", program, PEER, str(about["given"])
            first = seen == wanted.peer_seen[0]
            found.append(Racer(*named, Other(started), seen, threads, *of_weights, timed_prompt=first))
    return found, absent


def _in_words(error: H2OChatError) -> str:
    """On one line: of a traceback the last."""
    return " ".join([error.message, *error.hint.splitlines()[-1:]])


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
