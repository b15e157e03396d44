"""Saved memories that somebody made: their checksums are right, and what they say is not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import load_file, save_file

from h2o_chat.engine.saved_cache import _check

Harm = Callable[[dict[str, Any], dict[str, Any]], object]
"""Changes what a file says of itself, and its tensors."""


def craft(file: Path, harm: Harm) -> None:
    with safe_open(file, framework="pt") as opened:
        about = json.loads(opened.metadata()["h2o-chat"])
    tensors = load_file(file)
    harm(about, tensors)
    if isinstance(about["checks"], dict):
        about["checks"] = {name: _check(tensor) for name, tensor in tensors.items()}
    save_file(tensors, file, metadata={"h2o-chat": json.dumps(about)})
