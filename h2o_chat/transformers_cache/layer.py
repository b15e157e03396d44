"""The layers of the cache in transformers' interface.

A layer with slots passes keys and values on to `h2o_attention`; others keep a state of fixed size
(convolution, recurrence), do both, or do nothing.
"""

import threading
from typing import Any, NoReturn

import torch
from torch import Tensor
from transformers.cache_utils import CacheLayerMixin, DummyLayer, LinearAttentionLayer

from h2o_chat.base.errors import ModelError, UsageError
from h2o_chat.cache.arena import Arena
from h2o_chat.policies.policies import Slots
from h2o_chat.transformers_cache.cache_like import CacheLike
from h2o_chat.transformers_cache.layout import ORDINARY, Kind


class H2OLayer(CacheLayerMixin):
    """One layer of an `H2OCache` that attends; `number` counts only those."""

    def __init__(self, cache: CacheLike, number: int, kind: Kind = ORDINARY) -> None:
        super().__init__()
        self.cache, self.number, self.kind = cache, number, kind
        self.arena: Arena | None = None  # the arena of its slots; None before the first token
        self.at = 0  # its index in the arena
        self.fed = 0  # columns fed, padding included: transformers' sequence length

    def move_to(self, arena: Arena, at: int) -> None:
        self.arena, self.at, self.is_initialized = arena, at, True

    @property
    def slots(self) -> Slots:
        """Views of its states, [R, H, S, ...] each."""
        arenas = self.cache.current_arenas()  # absorbs what waits
        assert arenas, "there are no slots before the first token"
        assert self.arena is not None
        states = {name: state[self.at] for name, state in self.arena.slots.states.items()}
        return Slots(self.arena.slots.budget, (self.number,), **states)

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Does nothing: `ready.begin` creates the slots when the queries are known."""

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        """Passes the new keys and values [R, H, N, D] on to `h2o_attention`, which fills the slots.

        Latents are given back as they came: attention is given the keys and values that are made of them.

        Raises:
            UsageError: the batch has another number of rows than the cache, or comes from another model.
        """
        if self.kind.latent:
            expect_latent(self)
            return key_states, value_states
        if self.arena is not None:
            of, (rows, heads, _tokens, size) = self.arena.layer_shape, key_states.shape
            held = of.rows, of.heads, of.key, of.dtype, of.device
            fed = rows, heads, size, key_states.dtype, key_states.device
            if fed != held:
                says = "{} rows of {} KV heads of {} {} on {}"
                raise UsageError(
                    f"This H2OCache holds {says.format(*held)}, and is fed {says.format(*fed)}.",
                    "Use one cache per model, batch, precision and device, or cache.reset().",
                )
        handoff = Handoff(self, key_states, value_states)
        return handoff, handoff

    def get_seq_length(self) -> int:
        """Columns fed, not slots: transformers computes positions from it."""
        return self.fed

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.fed + query_length, 0

    def get_max_length(self) -> int:
        return -1  # there is no limit

    def crop(self, tokens_to_remove: int) -> NoReturn:
        """Not supported: raises UsageError."""
        raise UsageError(
            "An H2OCache cannot take tokens back: what was evicted for them is gone.",
            "Assisted generation does not work with it; otherwise use cache.snapshot() and restore().",
        )

    def reset(self) -> None:
        """Forgets everything; slots are made anew with the next tokens."""
        self.arena, self.is_initialized, self.fed = None, False, 0


class Handoff:
    """The result of `update()`, instead of tensors: a layer, and the new keys and values [R, H, N, D].

    Only `h2o_attention` unwraps it. Any other function would attend to the new tokens alone, silently;
    whatever it does to this object raises a ModelError instead.
    """

    def __init__(self, layer: H2OLayer, keys: Tensor, values: Tensor) -> None:
        self.layer, self.keys, self.values = layer, keys, values
        self.attended = False  # a layer has attended; those that share its slots come after it

    def __getattr__(self, name: str) -> NoReturn:
        _wrong_attention()

    @classmethod
    def __torch_function__(cls, *_: Any, **__: Any) -> NoReturn:
        _wrong_attention()


def _wrong_attention() -> NoReturn:
    raise ModelError(
        "An H2OCache was given to a model that was not loaded with its attention.",
        'Load it with from_pretrained(..., attn_implementation="h2o") after `from h2o_chat import H2OCache`,'
        ' or call model.set_attn_implementation("h2o").',
    )


_latent = threading.local()
"""Its `layer`: the one whose latents were read in this thread, and whose attention comes next."""


def expect_latent(layer: H2OLayer) -> None:
    """Notes whose attention comes next, without a `Handoff`; ModelError: the one before went elsewhere."""
    if getattr(_latent, "layer", None) is not None and layer.number:
        _wrong_attention()
    _latent.layer = layer


def expected_latent() -> H2OLayer | None:
    """The layer whose attention is due, once."""
    layer, _latent.layer = getattr(_latent, "layer", None), None
    return layer


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
