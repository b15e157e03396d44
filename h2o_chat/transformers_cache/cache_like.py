"""The part of `H2OCache` that functions in other files use; it keeps imports free of circles."""

from typing import Any, Protocol

from torch import Tensor

from h2o_chat.cache.arena import Arena
from h2o_chat.cache.clock import Clock
from h2o_chat.cache.forward_call import Step
from h2o_chat.cache.plan import Plan
from h2o_chat.cache.rope import Positions, Rope


class CacheLike(Protocol):
    """See `cache.H2OCache`."""

    plan: Plan
    clocks: list[Clock]
    fresh: Clock
    arenas_as_they_are: list[Arena]
    layers: list[Any]
    step: Step | None
    states_before: list[dict[str, Tensor]]
    trained: Positions | None

    def current_arenas(self) -> list[Arena]: ...
    @property
    def attention_layers(self) -> list[Any]: ...
    @property
    def state_layers(self) -> list[Any]: ...
    @property
    def shares_slots(self) -> bool: ...
    @property
    def fed(self) -> int: ...
    def rope(self, layer: int) -> Rope | None: ...
    def new_layer(self) -> Any: ...
    def prepare(self, step: Step) -> None: ...
    def reset(self) -> None: ...
