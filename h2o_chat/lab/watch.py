"""Sees what a model is fed."""

from typing import Any


class Watch:
    """Every position index that a model is fed, until `close`."""

    def __init__(self, model: Any) -> None:
        self.largest_index = 0
        self._hook = model.register_forward_pre_hook(self._look, with_kwargs=True)

    def _look(self, _: Any, __: Any, inputs: dict[str, Any]) -> None:
        self.largest_index = max(self.largest_index, int(inputs["position_ids"].max()))

    def close(self) -> None:
        self._hook.remove()
