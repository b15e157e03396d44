"""Programs that `bench speed` times, this one and stock transformers; waiting until the machine is idle."""

import os
import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import psutil
import torch
from torch import Tensor
from transformers import CompileConfig, DynamicCache, StaticCache

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import Event, Token
from h2o_chat.models.load import Loaded
from h2o_chat.native.gguf_weights import GgufWeights
from h2o_chat.native.layout import parts
from h2o_chat.native.packed import Packed

IDLE_SHARE = 0.1
"""Share of one core that other processes may take in a sample that counts as undisturbed."""


def others_s() -> float:
    """Seconds of processor time that other processes have taken so far."""
    busy = psutil.cpu_times()
    all_s = busy.user + busy.nice + busy.system + getattr(busy, "irq", 0) + getattr(busy, "softirq", 0)
    own = os.times()
    return float(all_s) - own.user - own.system


def wait_until_idle(most_s: float = 60.0) -> None:
    """Waits until a second passes in which nothing else runs, `most_s` at most."""
    give_up = time.monotonic() + most_s
    while time.monotonic() < give_up:
        before = others_s()
        time.sleep(1.0)
        if others_s() - before < IDLE_SHARE:
            return


class Sample:
    """A stretch of time, as a context manager: how long it took, and whether something disturbed it."""

    ms: float
    disturbed: bool

    def __enter__(self) -> "Sample":
        self._others, self._clock = self.others_s(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        took_s = time.perf_counter() - self._clock
        self.ms = 1000 * took_s
        # Processor time is counted in hundredths of a second.
        self.disturbed = self.others_s() - self._others > max(0.02, IDLE_SHARE * took_s)

    def others_s(self) -> float:
        return others_s()


GREEDY = Sampling(max_tokens=None, ignore_eos=True)
STATIC_ROOM = 64
"""Slots of a static cache beside what was read: at least the tokens of a turn."""
STATIC_PIECE = 2048
"""Prompt tokens read at once into a static cache: its mask has so many rows."""

WARM, TIMED = 40, 160
"""Steps of many rows before the timed ones, and those: some are followed by an eviction."""


class Program(Protocol):
    """A program that reads a prompt and decodes tokens; both methods return the time that it took."""

    def read(self, ids: Sequence[int]) -> Sample:
        """Forgets everything and reads a prompt, until the first token is known."""

    def decode(self, tokens: int) -> Sample:
        """Generates so many tokens. As many are seen before the next turn as before this one, or more where a
        token costs the same however many were seen."""

    def close(self) -> None:
        """Gives back its memory and threads."""


class Stock:
    """Stock transformers: a full cache, SDPA.

    Args:
        compiled: with a static cache, as its `generate` compiles a step on a GPU; the first turn takes a
            minute.
    """

    def __init__(self, loaded: Loaded, compiled: bool = False) -> None:
        self.model, self.compiled = loaded.model, compiled
        self.cache: Any = None
        self.token = torch.zeros(1, 1)

    @torch.no_grad()
    def read(self, ids: Sequence[int]) -> Sample:
        self.model.set_attn_implementation("sdpa")
        config, at_once = self.model.config, STATIC_PIECE if self.compiled else len(ids)
        with Sample() as sample:
            self.cache = DynamicCache(config=config)
            if self.compiled:
                self.cache = StaticCache(config=config, max_cache_len=len(ids) + STATIC_ROOM)
            for piece in torch.tensor([list(ids)], device=self.model.device).split(at_once, 1):  # type: ignore[no-untyped-call]
                self.token = self._next(self.model, piece)
            int(self.token)
        return sample

    @torch.no_grad()
    def decode(self, tokens: int) -> Sample:
        self.model.set_attn_implementation("sdpa")
        step, token = self.model, self.token
        if self.compiled:  # on a CPU only to try it out
            backend = "inductor" if token.is_cuda else "eager"
            step = self.model.get_compiled_call(CompileConfig(dynamic=False, backend=backend))
        with Sample() as sample:
            for _ in range(tokens):
                token = self._next(step, token)
                int(token)
        if self.compiled:
            for layer in self.cache.layers:
                layer.cumulative_length.sub_(tokens)
        else:
            self.cache.crop(-tokens)
        return sample

    def close(self) -> None:
        self.cache = None

    def _next(self, step: Any, ids: Tensor) -> Tensor:
        """The likeliest token after ids [1, N]. [1, 1]"""
        output = step(input_ids=ids, past_key_values=self.cache, use_cache=True, logits_to_keep=1)
        return torch.as_tensor(output.logits[:, -1:].argmax(-1))


class Ours:
    """This program as it runs: `Engine.generate` with choosing, detokenising and `cache` events."""

    def __init__(self, loaded: Loaded, settings: Settings, threads: int) -> None:
        self.threads = threads
        torch.set_num_threads(threads)  # before the engine: it takes as many
        self.engine = Engine(loaded, settings)
        self.events: Iterator[Event] = iter(())

    def read(self, ids: Sequence[int]) -> Sample:
        self._take_back()
        self.engine.reset()
        with Sample() as sample:
            self.events = self.engine.generate(ids, GREEDY)
            self._decode(1)
        return sample

    def decode(self, tokens: int) -> Sample:
        self._take_back()
        with Sample() as sample:
            self._decode(tokens)
        return sample

    def close(self) -> None:
        self.events = iter(())
        self.engine.close()

    def _take_back(self) -> None:
        """Another's turn may have changed the threads, and the attention of a model that both use."""
        torch.set_num_threads(self.threads)
        if self.engine.session.engine != "native":
            self.engine.model.set_attn_implementation("h2o")

    def _decode(self, tokens: int) -> None:
        while tokens:
            tokens -= isinstance(next(self.events), Token)


def packed_bytes(packed: Packed | GgufWeights) -> int:
    """Bytes of weights that one token reads: all, but of an untied embedding a row, of experts its own."""
    frame = packed.frame
    skipped = 0 if frame.tied else sum(one.bytes for one in packed.matrices("embedding"))
    if frame.experts:
        names = (part.name for part in parts(frame) if ".experts." in part.name)
        experts = sum(one.bytes for name in names for one in packed.matrices(name))
        skipped += experts * (frame.experts - frame.chosen) // frame.experts
    return packed.bytes - skipped


def weight_bytes(model: Any) -> int:
    """Bytes that one token reads: all parameters and their scales, but of an untied embedding only a row."""
    weights = {p.data_ptr(): p.nbytes for p in model.parameters()}
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings()
    if head is not None and head.weight.data_ptr() != embedding.data_ptr():
        weights.pop(embedding.data_ptr(), None)
    in_4_bits = [m.held for m in model.modules() if hasattr(m, "held")]  # `graph.int4.Int4Linear`
    weights |= {one.words.data_ptr(): one.words.nbytes + one.scales.nbytes for one in in_4_bits}
    states = [p.quant_state for p in model.parameters() if getattr(p, "quant_state", None) is not None]
    scales = [one for state in states for one in state.as_dict(packed=False).values()]
    return int(sum(weights.values())) + sum(int(one.nbytes) for one in scales if hasattr(one, "nbytes"))
