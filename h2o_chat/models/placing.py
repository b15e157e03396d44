"""Places a transformers model on its devices by accelerate's map, part of it in main memory where it must."""

from typing import Any

import torch

from h2o_chat.base.devices import free_bytes
from h2o_chat.models.choices import Choice


def placing(choice: Choice) -> dict[str, Any]:
    """Keywords that say on which devices the layers are."""
    if choice.room:  # accelerate's map: what stays in main memory is copied for each token
        room = {one.index: most for one, most in zip(choice.devices, choice.room, strict=True)}
        return {"device_map": "auto", "max_memory": room | {"cpu": free_bytes(torch.device("cpu"))}}
    return {"device_map": {"": choice.devices[0]} if len(choice.devices) == 1 else "balanced"}


def pin_offloaded(model: Any) -> None:
    """Locks weights that accelerate keeps in main memory there: a GPU copies them several times as fast."""
    for module in model.modules():
        held = getattr(getattr(module, "_hf_hook", None), "weights_map", None)
        if weights := getattr(getattr(held, "dataset", None), "state_dict", None):
            weights |= {name: one if one.is_pinned() else one.pin_memory() for name, one in weights.items()}
