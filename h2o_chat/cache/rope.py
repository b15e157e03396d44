"""Rotary positions of any family, found by probing, so that kept keys can be moved.

RoPE (arXiv 2104.09864) turns pairs of a key's components by `position * frequency`. Attention sees only
differences of positions, so a kept key may be turned later: so a conversation of millions of tokens stays
inside the window that the model was trained for (`distance.py`).

Families differ in the frequencies (several thetas, scaled, none in some layers), in how much of the head is
turned, and in which components pair up. Nothing here knows a family: the frequencies come from the model's
own buffers, and each layer is asked, with one token at two positions, which of them it uses.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from h2o_chat.base.errors import ModelError

MOST_TOKENS = 2**31 - 2**16
"""Positions are int32."""


@dataclass(frozen=True)
class Rope:
    """How one layer turns its keys: `inv_freq` [P] radians per position, of the first 2P components."""

    inv_freq: Tensor
    interleaved: bool
    """Pairs are (0, 1), (2, 3) ... instead of (0, P), (1, P + 1) ..."""
    size: int
    """Components of a head, D; those past 2P are not turned."""

    def rotate(self, x: Tensor, by: Tensor) -> Tensor:
        """x turned by `by` further positions (negative: back). x [..., D], `by` [...] or broadcastable."""
        return self.turn(x, *self.angles(by, x.dtype))

    def angles(self, by: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines [..., D] of `by` positions, in fp32 (fp64 for fp64).

        With `H2OCache.position_ids` `by` stays below the window: fp32 would not do for growing angles.
        """
        exact = torch.float64 if dtype == torch.float64 else torch.float32
        frequencies, signs, _ = self._per_component
        angle = by.to(exact).unsqueeze(-1) * frequencies.to(by.device, exact)
        return angle.cos(), angle.sin() * signs.to(by.device, exact)

    def turn(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [..., D] turned by angles [..., D]: every component with its partner, in three operations."""
        exact = x.to(cos.dtype)
        partners = exact.index_select(-1, self._per_component[2].to(x.device))
        return torch.addcmul(exact * cos, partners, sin).to(x.dtype)

    @cached_property
    def _per_component(self) -> tuple[Tensor, Tensor, Tensor]:
        """Frequency (0 past 2P), sign of the sine, and partner of every component. [D] each"""
        pairs, device = len(self.inv_freq), self.inv_freq.device
        first = torch.arange(pairs, device=device) * (2 if self.interleaved else 1)
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
    """What a model was trained to see."""

    window: int  # tokens; the largest position index fed stays below it
    ropes: tuple[Rope | None, ...]  # per layer; None where a layer uses no rotary positions
    learned: bool  # positions are added to the embedding (OPT, GPT-2): a kept key cannot be moved
    chats: bool = False  # it was trained on conversations


def trained_window(config: Any) -> int:
    """Tokens the model was trained to look back.

    `longrope` (Phi-3) switches its frequencies past `original_max_position_embeddings`: staying below keeps
    them the same for ever.

    Raises:
        ModelError: the configuration does not say, or says what can be no window.
    """
    config = config.get_text_config()
    window = getattr(config, "max_position_embeddings", None)
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":
        original = rope.get("original_max_position_embeddings")
        window = original or getattr(config, "original_max_position_embeddings", None) or window
    if not window:
        raise ModelError(
            f"{type(config).__name__} does not say how many positions the model was trained for.",
            "Expected max_position_embeddings in config.json.",
        )
    if type(window) is not int or not 0 < window < MOST_TOKENS:
        raise ModelError(
            f"The model's config.json names a window of {str(window)[:60]} positions.",
            f"It must be a number of tokens below {MOST_TOKENS:,}: mend it, or fetch the file again.",
        )
    return window


@torch.no_grad()
def probe(model: Any, chats: bool = False) -> Positions:
    """Finds out how each layer of a loaded model turns its keys.

    A single token attends only to itself, so whatever its position, every layer gets the same input; its
    keys at two positions then differ by the layer's own rotation and nothing else.

    Args:
        chats: the model was trained on conversations (its tokenizer has a chat template).

    Raises:
        ModelError: a layer's keys move with the position in a way that no known rotation explains, or the
            configuration does not say how many positions the model was trained for.
    """
    window = trained_window(model.config)
    frequencies = _frequencies(model)
    at_zero = _keys_at(model, 0)
    if not frequencies:
        return Positions(window, (None,) * len(at_zero), learned=True, chats=chats)
    steps = (1, max(1, min(window, 512) // 2 - 1))
    moved = {step: _keys_at(model, step) for step in steps}
    # Layers that turn alike share one object, and with it the angles of a step.
    shared: dict[Any, Rope] = {}
    found: list[Rope | None] = []
    for layer, key in enumerate(at_zero):
        known = [
            shared.setdefault(
                (number, interleaved, key.shape[-1], key.device),
                Rope(frequency.to(key.device), interleaved, key.shape[-1]),
            )
            for number, frequency in enumerate(frequencies)
            for interleaved in (False, True)
            if 2 * len(frequency) <= key.shape[-1]
        ]
        there = {step: moved[step][layer] for step in steps}
        rope = next((rope for rope in (None, *known) if _explains(rope, key, there)), known)
        if isinstance(rope, list):
            raise ModelError(
                f"{type(model.config).__name__}: the keys of layer {layer} move with the position in a way"
                f" that none of {len(known)} rotations explains.",
                "This family's positions are not supported yet.",
            )
        found.append(rope)
    return Positions(window, tuple(found), learned=False, chats=chats)


def _keys_at(model: Any, index: int) -> list[Tensor]:
    """Keys [1, H, 1, D] per layer of one token fed at a position index."""
    cache = Cache(layer_class_to_replicate=DynamicLayer)
    device = model.get_input_embeddings().weight.device
    token = torch.ones(1, 1, dtype=torch.long, device=device)
    at = torch.full_like(token, index)
    implementation = model.config._attn_implementation
    model.set_attn_implementation("eager")  # this is no H2OCache
    try:
        model(input_ids=token, position_ids=at, past_key_values=cache, use_cache=True)
    finally:
        model.set_attn_implementation(implementation)
    return [layer.keys for layer in cache.layers]


def _frequencies(model: Any) -> list[Tensor]:
    """Every distinct set of inverse frequencies [P] the model carries (gemma3 has two)."""
    found: list[Tensor] = []
    for name, buffer in model.named_buffers():
        last = name.rpartition(".")[2]
        if last.endswith("inv_freq") and "original" not in last:
            one = buffer.detach().float().cpu()
            if not any(one.shape == other.shape and torch.equal(one, other) for other in found):
                found.append(one)
    return found


def _explains(rope: Rope | None, key: Tensor, moved: dict[int, Tensor]) -> bool:
    """Whether a rotation (None: none) takes the key [1, H, 1, D] at index 0 to those at other indices."""
    # Keys come out of matrix products in the model's precision: bf16 keeps 8 bits.
    tolerance = max(1e-3, 8 * torch.finfo(key.dtype).eps)
    key = key.double().cpu()
    for step, other in moved.items():
        guess = key if rope is None else rope.rotate(key, torch.tensor(float(step)))
        if (guess - other.double().cpu()).norm() > tolerance * key.norm():
            return False
    return True
