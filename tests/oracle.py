"""H2O as published, slow and literal: the reference that the real cache is held against.

"H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large Language Models", arXiv
2306.14048, section 4 and algorithm 1. One plain list of tokens per layer, row and KV head; one
token at a time; loops in plain sight; no line shared with `h2o_chat`. The paper is `OracleHead`:
attend, then score, then evict.

Shapes: [R, H, T, D] = rows, KV heads, tokens, head size; G = query heads that share one KV head.
"""

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.cache_utils import Cache, CacheLayerMixin

ATTENTION = "h2o-oracle"


@dataclass(eq=False)
class Held:
    """One token that one KV head still holds."""

    position: int
    key: Tensor
    value: Tensor
    score: float = 0.0


@dataclass(eq=False)
class OracleHead:
    """The tokens that one KV head holds: at most `budget`, oldest first."""

    budget: int
    held: list[Held] = field(default_factory=list)

    def step(self, token: Held, queries: Tensor, scaling: float) -> Tensor:
        """The new token attends to the survivors and itself, then one is dropped: [G, D] -> [G, D]."""
        self.held.append(token)
        output = self.attend(queries, scaling)
        self.evict()
        return output

    def attend(self, queries: Tensor, scaling: float) -> Tensor:
        """Softmax over who is held and nobody else; each score grows by what it just received.

        The paper has one query head per KV head; with grouped-query attention the probabilities
        of the G query heads are summed.
        """
        keys = torch.stack([token.key for token in self.held])
        values = torch.stack([token.value for token in self.held])
        probabilities = torch.softmax(queries @ keys.T * scaling, dim=-1)
        for token, received in zip(self.held, probabilities.sum(0).tolist(), strict=True):
            token.score += received
        return probabilities @ values

    def evict(self) -> None:
        """Over budget, the lowest score goes, except from the newest `budget // 2`; ties: the oldest."""
        if len(self.held) > self.budget:
            older = self.held[: len(self.held) - self.budget // 2]
            self.held.remove(min(older, key=lambda token: (token.score, token.position)))


def rounded(row: Tensor, bits: int) -> Tensor:
    """Every component [D] on the grid that `bits` allow from the row's lowest value to its highest.

    Lowest value and step are kept in fp16 (FlexGen, arXiv 2303.06865, has the same grid).
    """
    low = half(min(row.tolist()))
    step = half((max(row.tolist()) - low) / (2**bits - 1))
    levels = [min(2**bits - 1, max(0, round((x - low) / step))) for x in row.tolist()]
    return torch.tensor([low + step * level for level in levels], dtype=row.dtype)


def half(x: float) -> float:
    """To fp16 by way of fp32, as torch goes: it can differ in the last bit from going there at once."""
    single = struct.unpack("f", struct.pack("f", x))[0]
    return float(struct.unpack("e", struct.pack("e", single))[0])


def turned(row: Tensor, by: int, theta: float = 10_000.0) -> Tensor:
    """RoPE (arXiv 2104.09864) of one key [D], halves paired: as the Llama family has it."""
    half_size = len(row) // 2
    result = row.clone()
    for i in range(half_size):
        angle = by * float(torch.tensor(theta ** -(2 * i / len(row)), dtype=torch.float32))
        x, y = float(row[i]), float(row[i + half_size])
        result[i] = x * math.cos(angle) - y * math.sin(angle)
        result[i + half_size] = x * math.sin(angle) + y * math.cos(angle)
    return result


@dataclass(eq=False)
class RoundedHead(OracleHead):
    """Holds keys as they are before RoPE and values, both in a few bits."""

    bits: ClassVar[int]
    turns: ClassVar[bool]
    """Whether the model turns its keys."""

    def step(self, token: Held, queries: Tensor, scaling: float) -> Tensor:
        if self.turns:
            token.key = turned(rounded(turned(token.key, -token.position), self.bits), token.position)
        else:
            token.key = rounded(token.key, self.bits)
        token.value = rounded(token.value, self.bits)
        return super().step(token, queries, scaling)


class OracleLayer(CacheLayerMixin):
    """The heads of one layer, [R][H]; `update` only takes the new token in, `attention` does the work."""

    def __init__(self, make_head: Callable[[], OracleHead]) -> None:
        super().__init__()
        self.make_head = make_head
        self.heads: list[list[OracleHead]] = []
        self.seen = 0
        self.new: list[list[Held]] = []

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        rows, heads = key_states.shape[:2]
        self.heads = [[self.make_head() for _ in range(heads)] for _ in range(rows)]
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        """Passes itself on in the place of the keys, so that `attention` finds the lists."""
        assert key_states.shape[2] == 1, "the oracle takes one token at a time"
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.new = [
            [Held(self.seen, key[0], value[0]) for key, value in zip(*row, strict=True)]
            for row in zip(key_states, value_states, strict=True)
        ]
        self.seen += 1
        return self, value_states

    def get_seq_length(self) -> int:
        return self.seen

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.seen + query_length, 0

    def get_max_length(self) -> int:
        return -1


class OracleCache(Cache):
    """For models loaded with `attn_implementation=ATTENTION`."""

    def __init__(self, budget: int, head: type[OracleHead] = OracleHead) -> None:
        super().__init__(layer_class_to_replicate=partial(OracleLayer, partial(head, budget)))

    def kept(self) -> list[list[list[list[int]]]]:
        """Positions held, oldest first: [layers][R][H][...]."""
        return [
            [[[token.position for token in head.held] for head in row] for row in layer.heads]
            for layer in self.layers
        ]


def attention(
    module: torch.nn.Module,
    query: Tensor,
    layer: OracleLayer,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """One token through every head of one layer: query [R, H * G, 1, D] -> output [R, 1, H * G, D]."""
    assert attention_mask is None
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    output = torch.empty_like(query[:, :, 0])
    for r, row in enumerate(layer.heads):
        group = query.shape[1] // len(row)
        for h, head in enumerate(row):
            queries = slice(h * group, (h + 1) * group)
            output[r, queries] = head.step(layer.new[r][h], query[r, queries, 0], scaling)
    return output[:, None], None


AttentionInterface.register(ATTENTION, attention)  # type: ignore[arg-type]


@torch.no_grad()
def feed(model: Any, cache: Cache, token: int) -> Tensor:
    """One token in, the logits of the next out: [V], on the CPU. Any cache will do: both sides step alike."""
    ids = torch.tensor([[token]], device=model.device)
    return model(ids, past_key_values=cache).logits[0, -1].cpu()
