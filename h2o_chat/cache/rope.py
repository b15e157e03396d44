"""Rotary positions of any family, found by probing, so that kept keys can be moved.

RoPE (arXiv 2104.09864) turns pairs of a key's components by `position * frequency`. Attention sees only
differences of positions, so a kept key may be turned later: that is what keeps a conversation of millions
of tokens inside the window that the model was trained for (see `H2OCache.position_ids`).

Families differ in the frequencies (several thetas, scaled, none in some layers), in how much of the head is
turned, and in which components pair up. Nothing here knows a family: the frequencies come from the model's
own buffers, and each layer is asked, with one token at two positions, which of them it uses.
"""

from collections.abc import Iterator
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

        `by` stays below the window, see `H2OCache.position_ids`: fp32 would not do for growing angles.
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

    window: int
    """Tokens; the largest position index fed stays below it."""
    ropes: tuple[Rope | None, ...]
    """Per layer; None where a layer uses no rotary positions."""
    learned: bool
    """Positions are added to the embedding (OPT, GPT-2): a kept key cannot be moved."""
    chats: bool = False
    """It was trained on conversations."""


class _KeyCatcher(Cache):
    """Keeps the keys of one forward pass, as each layer hands them to its attention."""

    def __init__(self) -> None:
        super().__init__(layer_class_to_replicate=DynamicLayer)

    def keys(self) -> list[Tensor]:
        return [layer.keys for layer in self.layers]


def trained_window(config: Any) -> int:
    """Tokens the model was trained to look back.

    `longrope` (Phi-3) switches its frequencies past `original_max_position_embeddings`: staying below keeps
    them the same for ever.

    Raises:
        ModelError: the configuration does not say.
    """
    config = config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":
        original = rope.get("original_max_position_embeddings")
        original = original or getattr(config, "original_max_position_embeddings", None)
        if original:
            return _window(original)
    window = getattr(config, "max_position_embeddings", None)
    if not window:
        raise ModelError(
            f"{type(config).__name__} does not say how many positions the model was trained for.",
            "Expected max_position_embeddings in config.json.",
        )
    return _window(window)


def _window(tokens: Any) -> int:
    """A window that a configuration names.

    Raises:
        ModelError: it can be none.
    """
    if type(tokens) is not int or not 0 < tokens < MOST_TOKENS:
        raise ModelError(
            f"The model's config.json names a window of {str(tokens)[:60]} positions.",
            f"It must be a number of tokens below {MOST_TOKENS:,}: mend it, or fetch the file again.",
        )
    return tokens


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
    candidates = list(_frequencies(model))
    far = max(1, min(window, 512) // 2 - 1)
    at_zero = _keys_at(model, 0)
    if not candidates:
        return Positions(window, (None,) * len(at_zero), learned=True, chats=chats)
    steps = [1, far]
    moved = {step: _keys_at(model, step) for step in steps}
    found: list[Rope | None] = []
    for layer, key in enumerate(at_zero):
        rope = _which(layer, key, {step: moved[step][layer] for step in steps}, candidates, model.config)
        # Layers that turn alike share one object, and with it the angles of a step.
        found.append(next((other for other in found if _alike(rope, other)), rope))
    return Positions(window, tuple(found), learned=False, chats=chats)


def _alike(one: Rope | None, other: Rope | None) -> bool:
    if one is None or other is None:
        return one is other
    same = (one.interleaved, one.size) == (other.interleaved, other.size)
    together = one.inv_freq.device == other.inv_freq.device
    return same and together and torch.equal(one.inv_freq, other.inv_freq)


def _keys_at(model: Any, index: int) -> list[Tensor]:
    """Keys [1, H, 1, D] per layer of one token fed at a position index."""
    catcher = _KeyCatcher()
    device = model.get_input_embeddings().weight.device
    token = torch.ones(1, 1, dtype=torch.long, device=device)
    implementation = model.config._attn_implementation
    model.set_attn_implementation("eager")  # the catcher is no H2OCache
    try:
        model(
            input_ids=token,
            position_ids=torch.full_like(token, index),
            past_key_values=catcher,
            use_cache=True,
        )
    finally:
        model.set_attn_implementation(implementation)
    return catcher.keys()


def _frequencies(model: Any) -> Iterator[Tensor]:
    """Every distinct set of inverse frequencies [P] the model carries (gemma3 has two)."""
    seen: list[Tensor] = []
    for name, buffer in model.named_buffers():
        last = name.rpartition(".")[2]
        if last.endswith("inv_freq") and "original" not in last:
            freq = buffer.detach().float().cpu()
            if not any(freq.shape == other.shape and torch.equal(freq, other) for other in seen):
                seen.append(freq)
                yield freq


def _which(
    layer: int, key: Tensor, moved: dict[int, Tensor], candidates: list[Tensor], config: Any
) -> Rope | None:
    """The rotation that takes the key at index 0 to the keys at the other indices; None: they are the same.

    Args:
        key: [1, H, 1, D] of one token at index 0.
        moved: the key of the same token by index.
        candidates: inverse frequencies [P] that the model carries.

    Raises:
        ModelError: none does.
    """
    # Keys come out of matrix products in the model's precision: bf16 keeps 8 bits.
    tolerance = max(1e-3, 8 * torch.finfo(key.dtype).eps)
    exact = {step: other.double().cpu() for step, other in moved.items()}
    device = key.device
    key = key.double().cpu()

    def explains(rope: Rope | None) -> bool:
        for step, other in exact.items():
            guess = key if rope is None else rope.rotate(key, torch.tensor(float(step)))
            if (guess - other).norm() > tolerance * key.norm():
                return False
        return True

    ropes = [
        Rope(freq, interleaved, key.shape[-1])
        for freq in candidates
        for interleaved in (False, True)
        if 2 * len(freq) <= key.shape[-1]
    ]
    for rope in (None, *ropes):
        if explains(rope):
            return rope and Rope(rope.inv_freq.to(device), rope.interleaved, rope.size)
    raise ModelError(
        f"{type(config).__name__}: the keys of layer {layer} move with the position in a way that none of"
        f" {len(ropes)} rotations explains.",
        "This family's positions are not supported yet.",
    )
