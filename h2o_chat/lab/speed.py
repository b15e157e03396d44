"""`h2o-chat bench speed`: a token of this program against a token of stock transformers with a full cache.

Both use the same loaded weights, in one process, turn and turn about, so that the machine's moods hit both
alike. Stock attends by SDPA to a DynamicCache that is cut back after each turn; ours goes through the engine,
with the observer's account kept, as the program does.
"""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from h2o_chat.base.config import Settings
from h2o_chat.base.progress import progress_bar
from h2o_chat.engine.engine import Engine
from h2o_chat.lab.idle import Sample, wait_until_idle
from h2o_chat.models.load import Loaded, load

STOCK = "stock transformers"
TURN_TOKENS = 32
"""Decoded by each in a turn: at least two settles at 512 slots."""
COPY_BYTES = 1 << 30
"""Read to measure the bandwidth: far beyond every cache."""


@dataclass(frozen=True)
class Speed:
    """What was measured of one contestant; every figure has its unit in its name."""

    contestant: str
    seen_tokens: int
    token_ms: float
    """Mean over turns of a turn's time by its tokens, settles included; the median of the turns."""
    spread_ms: float
    """Between the quartiles of the turns."""
    token_to_stock: float
    """Median over turns of the ratio to stock's turn beside it."""
    prompt_tokens: int
    first_ms: float
    """Until the logits after the prompt, median."""
    first_to_stock: float
    disturbed_turns: int
    turns: int
    quantization: str
    dtype: str
    threads: int
    weight_bytes: int
    read_gb_s: float
    """Bandwidth that one pass over 1 GiB reaches, in the same run."""
    floor_ms: float
    """The weights' bytes at that bandwidth: no token can be faster."""


class _Stock:
    """Transformers' own way."""

    def __init__(self, loaded: Loaded) -> None:
        self.model = loaded.model
        self.cache: Any = None

    def read(self, ids: Sequence[int]) -> None:
        self.cache = DynamicCache(config=self.model.config)
        int(self._forward(list(ids)).argmax())

    def decode(self, ids: Sequence[int]) -> None:
        for token in ids:
            int(self._forward([token]).argmax())

    def back(self, tokens: int) -> None:
        """Forgets the newest tokens, to have seen as many as before."""
        self.cache.crop(-tokens)

    def _forward(self, ids: list[int]) -> Tensor:
        self.model.set_attn_implementation("sdpa")
        with torch.inference_mode():
            tokens = torch.tensor([ids], device=self.model.device)
            output = self.model(tokens, past_key_values=self.cache, use_cache=True, logits_to_keep=1)
        return torch.as_tensor(output.logits[0, -1])


class _Ours:
    """This program's engine under one policy."""

    def __init__(self, loaded: Loaded, settings: Settings) -> None:
        self.engine = Engine(loaded, settings)

    def read(self, ids: Sequence[int]) -> None:
        self.engine.model.set_attn_implementation("h2o")
        self.engine.reset()
        logits = self.engine.feed(list(ids))
        assert logits is not None
        int(logits.argmax())

    def decode(self, ids: Sequence[int]) -> None:
        self.engine.model.set_attn_implementation("h2o")
        for token in ids:
            int(self.engine.forward([token]).argmax())

    def back(self, tokens: int) -> None:
        """Nothing: a token costs the same however many were seen."""


def run_speed(
    settings: Settings, policies: Sequence[str], seen: int, prompt: int, turns: int, seed: int
) -> list[Speed]:
    """Stock first, then every policy.

    Args:
        seen: tokens before the first one that is timed.
        prompt: tokens of the prompt whose first token is timed.
        turns: each decodes TURN_TOKENS tokens in one.
    """
    with progress_bar() as progress:
        loaded = load(settings, progress)
    generator = torch.Generator().manual_seed(seed)
    vocabulary = loaded.model.config.get_text_config().vocab_size
    ids = torch.randint(3, vocabulary, (max(seen, prompt, TURN_TOKENS),), generator=generator).tolist()
    rivals: dict[str, _Stock | _Ours] = {STOCK: _Stock(loaded)}
    for policy in policies:
        rivals[policy] = _Ours(loaded, replace(settings, policy=policy, events_every=0))  # type: ignore[arg-type]
    wait_until_idle()
    firsts: dict[str, list[Sample]] = {name: [] for name in rivals}
    for _ in range(max(1, turns // 4)):
        for name, rival in rivals.items():
            with Sample() as sample:
                rival.read(ids[:prompt])
            firsts[name].append(sample)
    decodes: dict[str, list[Sample]] = {name: [] for name in rivals}
    for rival in rivals.values():
        if seen != prompt:
            rival.read(ids[:seen])
        rival.decode(ids[:TURN_TOKENS])  # warm
        rival.back(TURN_TOKENS)
    for _ in range(turns):
        for name, rival in rivals.items():
            with Sample() as sample:
                rival.decode(ids[:TURN_TOKENS])
            rival.back(TURN_TOKENS)
            decodes[name].append(sample)
    weight_bytes, read_gb_s = _weight_bytes(loaded.model), _bandwidth_gb_s(loaded.model.device)
    return [
        Speed(
            contestant=name,
            seen_tokens=seen,
            token_ms=statistics.median(sample.ms for sample in decodes[name]) / TURN_TOKENS,
            spread_ms=_spread([sample.ms / TURN_TOKENS for sample in decodes[name]]),
            token_to_stock=_ratio(decodes[name], decodes[STOCK]),
            prompt_tokens=prompt,
            first_ms=statistics.median(sample.ms for sample in firsts[name]),
            first_to_stock=_ratio(firsts[name], firsts[STOCK]),
            disturbed_turns=sum(sample.disturbed for sample in (*decodes[name], *firsts[name])),
            turns=len(decodes[name]) + len(firsts[name]),
            quantization=loaded.quantization,
            dtype=str(loaded.model.dtype).removeprefix("torch."),
            threads=torch.get_num_threads(),
            weight_bytes=weight_bytes,
            read_gb_s=read_gb_s,
            floor_ms=weight_bytes / read_gb_s / 1e6,
        )
        for name in rivals
    ]


def _ratio(mine: list[Sample], theirs: list[Sample]) -> float:
    """Median of the ratios, turn by turn."""
    return statistics.median(one.ms / other.ms for one, other in zip(mine, theirs, strict=True))


def _spread(samples: list[float]) -> float:
    if len(samples) < 2:
        return 0.0
    low, _, high = statistics.quantiles(samples, n=4)
    return high - low


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


def _bandwidth_gb_s(device: torch.device) -> float:
    """The best of five passes over COPY_BYTES of fp32, in the memory of the weights."""
    numbers = torch.ones(COPY_BYTES // 4, device=device)
    best = float("inf")
    for _ in range(5):
        clock = time.perf_counter()
        float(numbers.sum())  # read, so that the device is waited for
        best = min(best, time.perf_counter() - clock)
    return COPY_BYTES / best / 1e9
