"""What to compare with: priorities of caches and sparse patterns known from elsewhere, as pure functions.

As in `policies.py`, whose table says how they are used: the lowest priority goes first, ties drop the oldest.
Shapes: L layers, R rows, H KV heads, S slots.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from h2o_chat.base.errors import UsageError

if TYPE_CHECKING:
    from h2o_chat.cache.policies import Slots

Priority = Callable[["Slots"], Tensor]

BLOCK = 32
"""Tokens: the stride, and the length of a fixed block; about the root of the window (1904.10509, 4.2)."""
SUMMARY = 4
"""Tokens at the end of a fixed block that later ones may see."""


SEES_THE_FUTURE = "This policy decides by what will be attended to, which nobody knows while generating."


def oldest_first(slots: "Slots") -> Tensor:
    """No opinion: ties drop the oldest, which leaves a sliding window. [L, R, H, S]"""
    return torch.zeros_like(slots.score[..., 0])


def by_lot(slots: "Slots") -> Tensor:
    """A draw for each token and head that never changes (Random Attention, arXiv 2609.03430). [L, R, H, S]"""
    head = torch.arange(slots.positions.shape[-2], device=slots.positions.device)[:, None]
    drawn = (slots.positions.long() * 2_654_435_761 + head * 40_503 + 12_345) & 0xFFFFFFFF
    for shift, factor in ((16, 0x45D9F3B), (16, 0x45D9F3B), (16, 1)):  # mixed, as hashes are
        drawn = ((drawn ^ (drawn >> shift)) * factor) & 0xFFFFFFFF
    return drawn.to(slots.score.dtype)


def from_the_future(slots: "Slots") -> Tensor:
    """Only the lab knows it: `lab/belady.py` puts its own priority here.

    Raises:
        UsageError: always.
    """
    raise UsageError(SEES_THE_FUTURE, "It is a reference for h2o-chat eval perplexity alone.")


def last_used(slots: "Slots") -> Tensor:
    """Least recently used goes (LRU); `score` is 1 + the position of its last use. [L, R, H, S]

    In fp32 positions are exact up to 16.7 million; past that, neighbours tie.
    """
    return torch.maximum(slots.score[..., 0], slots.positions.to(slots.score.dtype) + 1)


def pooled(kernel: int) -> Priority:
    """A token is worth what its best neighbour is: the maximum over `kernel` tokens held, by age.

    SnapKV (arXiv 2404.14469, section 4) pools so that what stands around a token stays with it.
    """

    def priority(slots: "Slots") -> Tensor:
        by_age = slots.positions.argsort(dim=-1, stable=True)
        ordered = slots.score.sum(-1).gather(-1, by_age)
        best = torch.nn.functional.max_pool1d(ordered.flatten(0, -2), kernel, stride=1, padding=kernel // 2)
        return torch.empty_like(ordered).scatter_(-1, by_age, best.view_as(ordered))

    return priority


def strided(then: Priority) -> Priority:
    """Every 32nd token stays (Sparse Transformer, arXiv 1904.10509, section 4.2); others as `then` says.

    There the stride is counted from the query, so every token is needed again 32 steps later; a cache that
    evicts has to count from the start. The newest such tokens get a quarter of the slots.
    """
    return _pattern(lambda place: place % BLOCK == 0, columns=1, then=then)


def fixed(then: Priority) -> Priority:
    """The last 4 tokens of every block of 32 stay (1904.10509, section 4.2); others as `then` says.

    The newest such tokens get a quarter of the slots. The local part is the newest tokens, not the block
    that is being written.
    """
    return _pattern(lambda place: place % BLOCK >= BLOCK - SUMMARY, columns=SUMMARY, then=then)


def _pattern(chosen: Callable[[Tensor], Tensor], columns: int, then: Priority) -> Priority:
    """`columns` tokens of every block are chosen; as many blocks back as a quarter of the slots holds."""

    def priority(slots: "Slots") -> Tensor:
        # What stands in a prompt chunk beside the slots makes no difference to what they can hold.
        reach = max(1, slots.budget // 4 // columns) * BLOCK
        newest = slots.positions.amax(-1, keepdim=True)
        stays = chosen(slots.positions) & (slots.positions > newest - reach)
        otherwise = then(slots)
        # Finite, so that what the frame protects stands above it.
        return otherwise.masked_fill(stays, torch.finfo(otherwise.dtype).max)

    return priority
