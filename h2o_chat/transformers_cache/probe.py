"""Finds the rotation of each layer of a model by probing, without knowledge of families.

Frequencies come from the model's buffers; one token fed at two positions shows which of them a layer uses.
"""

import threading
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from h2o_chat.base.errors import ModelError
from h2o_chat.cache.rope import Positions, Rope
from h2o_chat.policies.shares import MOST_TOKENS
from h2o_chat.transformers_cache.layer import held_of
from h2o_chat.transformers_cache.layout import Kind, kinds_of

_NAME = "h2o-probe"


def trained_window(config: Any) -> int:
    """Longest context of the model's training, in tokens.

    `longrope` (Phi-3) switches frequencies past `original_max_position_embeddings`: the window ends there, so
    that they never change.

    Raises:
        ModelError: the configuration has no such number, or one out of range.
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


def input_device(model: Any) -> torch.device:
    """The device that computes a model's first layer, wherever accelerate keeps its weights."""
    embedding = model.get_input_embeddings()
    held = embedding.weight.device
    return torch.device(embedding._hf_hook.execution_device) if held.type == "meta" else held


@torch.no_grad()
def probe(model: Any, chats: bool = False) -> Positions:
    """Finds the rotation of each layer of a loaded model.

    A single token attends only to itself: at any position, every layer gets the same input, and its keys at
    two positions differ only by the layer's rotation.

    Args:
        chats: the model was trained on conversations (its tokenizer has a chat template).

    Raises:
        ModelError: no known rotation explains how a layer's keys change with the position, or the
            configuration has no window.
    """
    window = trained_window(model.config)
    frequencies = _frequencies(model)
    kinds, at_zero = _keys_at(model, 0)
    if not frequencies:
        return Positions(window, (None,) * len(at_zero), learned=True, chats=chats, layers=kinds)
    steps = (1, max(1, min(window, 512) // 2 - 1))
    moved = {step: _keys_at(model, step)[1] for step in steps}
    # Layers with equal rotations share one object, and thereby an arena.
    shared: dict[Any, Rope] = {}
    found: list[Rope | None] = []
    for layer, key in enumerate(at_zero):
        size = key.shape[-1]
        known = [
            shared.setdefault(
                (number, interleaved, size, start, sign, key.device),
                Rope(sign * frequency.to(key.device), interleaved, size, start),
            )
            for number, frequency in enumerate(frequencies)
            for start in {0: 0, size - 2 * len(frequency): 0}
            for interleaved in (False, True)
            for sign in (1, -1)  # nanochat turns the other way
            if 2 * len(frequency) <= size
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
    return Positions(window, tuple(found), learned=False, chats=chats, layers=kinds)


_probed = threading.local()
"""Its `calls`: (module, query, key, value) of each layer that attended in this thread."""


def _attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any
) -> tuple[Tensor, None]:
    """Attention of a single token, which is its value."""
    _probed.calls.append((module, query, key, value))
    return value.repeat_interleave(query.shape[1] // value.shape[1], 1).transpose(1, 2), None


def _keys_at(model: Any, index: int) -> tuple[tuple[Kind, ...], list[Tensor]]:
    """The layers, and keys [1, H, 1, D] of each that has some, of one token fed at a position index.

    Raises:
        ModelError: other layers attend than the configuration names, or none through transformers' interface.
    """
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    from h2o_chat.transformers_cache.registered import padding_mask  # slow, see there

    AttentionInterface.register(_NAME, _attention)
    AttentionMaskInterface.register(_NAME, padding_mask)
    kinds = list(kinds_of(model.config))
    cache = DynamicCache(config=model.config)
    device = input_device(model)
    token = torch.ones(1, 1, dtype=torch.long, device=device)
    implementation = model.config.get_text_config()._attn_implementation
    _probed.calls = []
    model.set_attn_implementation(_NAME)  # this is no H2OCache
    try:
        model(
            input_ids=token, position_ids=torch.full_like(token, index), past_key_values=cache, use_cache=True
        )
    finally:
        model.set_attn_implementation(implementation)
    numbers = [number for number, kind in enumerate(kinds) if kind.attends]
    keys: list[Tensor] = []
    for module, query, key, value in _probed.calls:
        before = next((at for at, other in enumerate(keys) if other is key), None)
        if before is not None:
            number = numbers[before]
            kinds[number] = replace(kinds[number], sharers=kinds[number].sharers + 1)
            continue
        if len(keys) == len(numbers):
            raise _unknown(model, f"more than {len(numbers)} layers attend")
        number = numbers[len(keys)]
        held = cache.layers[number].keys
        if held is None:
            raise _unknown(model, f"{type(module).__name__} keeps no keys in the cache")
        shape = key.shape[1], query.shape[1] // key.shape[1], key.shape[-1], value.shape[-1]
        latent = held.shape != key.shape
        kinds[number] = replace(kinds[number], latent=latent, shape=shape)
        keys.append(key)
    for number, kind in enumerate(kinds):
        if kind.keeps_state:
            held = held_of(cache.layers[number]).items()
            kinds[number] = replace(
                kind, held={name: (tuple(one.shape[1:]), one.dtype) for name, one in held}
            )
    if len(keys) != len(numbers):
        raise _unknown(model, f"{len(keys)} of {len(numbers)} layers attend through AttentionInterface")
    return tuple(kinds), keys


def _unknown(model: Any, why: str) -> ModelError:
    return ModelError(
        f"{type(model).__name__} cannot be bounded: {why}.",
        "Choose a family that opens: h2o-chat models families",
    )


def _frequencies(model: Any) -> list[Tensor]:
    """Every distinct set of inverse frequencies [P] in the model's buffers (gemma3 has two)."""
    found: list[Tensor] = []
    for name, buffer in model.named_buffers():
        last = name.rpartition(".")[2]
        if last.endswith("inv_freq") and "original" not in last:
            one = buffer.detach().float().cpu()
            if not any(one.shape == other.shape and torch.equal(one, other) for other in found):
                found.append(one)
    return found


def _explains(rope: Rope | None, key: Tensor, moved: dict[int, Tensor]) -> bool:
    """Whether a rotation (None: none) turns the key [1, H, 1, D] at index 0 into those at other indices."""
    # Keys are results of matrix products in the model's precision: bf16 has 8 bits.
    tolerance = max(1e-3, 8 * torch.finfo(key.dtype).eps)
    key = key.double().cpu()
    for step, other in moved.items():
        guess = key if rope is None else rope.rotate(key, torch.tensor(float(step)))
        if (guess - other.double().cpu()).norm() > tolerance * key.norm():
            return False
    return True
