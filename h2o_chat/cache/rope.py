"""Rotary positions of any family, so that kept keys can be moved.

RoPE (arXiv 2104.09864) turns pairs of a key's components by `position * frequency`. Attention sees only
differences of positions, so a kept key can be turned later, and a conversation of millions of tokens stays
inside the window that the model was trained for (`distance.py`).

Families differ in the frequencies (several thetas, scaled, none in some layers), in the share of the head
that is turned, and in the pairing of components. `transformers_cache/probe.py` finds out which.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rope:
    """The rotation of one layer: `inv_freq` [P] radians per position, for 2P components from `start` on."""

    inv_freq: Tensor
    interleaved: bool  # pairs are (0, 1), (2, 3) ... instead of (0, P), (1, P + 1) ...
    size: int  # components of a head, D; the others are not turned
    start: int = 0  # first turned component (latent attention turns the last 2P)

    def rotate(self, x: Tensor, by: Tensor) -> Tensor:
        """x turned by `by` further positions (negative: back). x [..., D], `by` [...] or broadcastable."""
        return self.turn(x, *self.angles(by, x.dtype))

    def angles(self, by: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines [..., D] of `by` positions, in fp32 (fp64 for fp64).

        With `H2OCache.position_ids`, `by` stays below the window: fp32 would be too coarse for larger angles.
        """
        exact = torch.float64 if dtype == torch.float64 else torch.float32
        frequencies, signs, _ = self._per_component
        angle = by.to(exact).unsqueeze(-1) * frequencies.to(by.device, exact)
        return angle.cos(), angle.sin() * signs.to(by.device, exact)

    def turn(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [..., D] turned by angles [..., D], in three operations."""
        exact = x.to(cos.dtype)
        partners = exact.index_select(-1, self._per_component[2].to(x.device))
        return torch.addcmul(exact * cos, partners, sin).to(x.dtype)

    @cached_property
    def _per_component(self) -> tuple[Tensor, Tensor, Tensor]:
        """Frequency (0: not turned), sign of the sine, and partner of every component. [D] each"""
        pairs, device = len(self.inv_freq), self.inv_freq.device
        first = self.start + torch.arange(pairs, device=device) * (2 if self.interleaved else 1)
        second = first + (1 if self.interleaved else pairs)
        frequencies = torch.zeros(self.size, dtype=self.inv_freq.dtype, device=device)
        signs = torch.ones_like(frequencies)
        partners = torch.arange(self.size, device=device)
        frequencies[first] = frequencies[second] = self.inv_freq
        signs[first] = -1
        partners[first], partners[second] = second, first
        return frequencies, signs, partners


@dataclass(frozen=True)
class Positions:
    """Positions that a model was trained on."""

    window: int  # tokens; position indices stay below it
    ropes: tuple[Rope | None, ...]  # per attention layer; None if it uses no rotary positions
    learned: bool  # positions are added to the embedding (OPT, GPT-2): keys cannot be moved
    chats: bool = False  # the model was trained on conversations
    layers: tuple[Any, ...] = ()  # transformers' layers (`layout.Kind`); empty: all attend, and share nothing

    @property
    def shapes(self) -> tuple[tuple[int, int, int, int], ...]:
        """`Kind.shape` of the attention layers; empty: all have the sizes of the configuration."""
        return tuple(kind.shape for kind in self.layers if kind.attends)
