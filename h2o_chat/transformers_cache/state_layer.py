"""Layers that keep a state of fixed size (convolution, recurrence), in transformers' interface."""

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DummyLayer, LinearAttentionLayer

from h2o_chat.transformers_cache.layer import H2OLayer
from h2o_chat.transformers_cache.layout import Kind


def held_of(layer: LinearAttentionLayer) -> dict[str, Tensor]:
    """The tensors of a layer's state, [R, ...] each; none before the first token."""
    both = {"conv": layer.conv_states, "recurrent": layer.recurrent_states}
    return {
        f"{name}{number}": state
        for name, states in both.items()
        for number, state in states.items()
        if state is not None
    }


class StateLayer(LinearAttentionLayer):
    """A layer without keys, whose state has a fixed size."""

    @property
    def held(self) -> dict[str, Tensor]:
        return held_of(self)

    @torch.inference_mode(False)  # tensors made in inference mode can only be written in it
    def lazy_initialization(self, *_: Any, **given: Any) -> None:
        super().lazy_initialization(**given)

    def put(self, held: dict[str, Tensor]) -> None:
        """Takes over the tensors of `held`, of another layer or time."""
        LinearAttentionLayer.__init__(self, self.number_of_states)
        for name, state in held.items():
            kind = name.rstrip("0123456789")
            number = int(name.removeprefix(kind))
            if kind == "conv":
                self.conv_states[number], self.is_conv_states_initialized[number] = state, True
                self.conv_kernel_size[number] = state.shape[-1]
            else:
                self.recurrent_states[number], self.is_recurrent_states_initialized[number] = state, True
            self.has_previous_state[number] = True
            self.device, self.dtype = state.device, state.dtype

    def reset(self) -> None:
        self.put({})


class AttentionAndStateLayer(StateLayer, H2OLayer):
    """A layer that attends and keeps a state."""

    crop = H2OLayer.crop

    def __init__(self, cache: Any, number: int, kind: Kind) -> None:
        H2OLayer.__init__(self, cache, number, kind)
        LinearAttentionLayer.__init__(self, kind.states)

    def lazy_initialization(self, *_: Any, **given: Any) -> None:
        if given:  # slots are created when the queries are known
            super().lazy_initialization(**given)

    def reset(self) -> None:
        StateLayer.reset(self)
        H2OLayer.reset(self)


def layers_of(cache: Any, kinds: tuple[Kind, ...]) -> list[Any]:
    layers: list[Any] = []
    number = 0
    for kind in kinds:
        if kind.attends and kind.keeps_state:
            layers.append(AttentionAndStateLayer(cache, number, kind))
        elif kind.attends:
            layers.append(H2OLayer(cache, number, kind))
        else:
            layers.append(StateLayer(kind.states) if kind.keeps_state else DummyLayer())
        number += kind.attends
    return layers
