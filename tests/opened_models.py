"""Models as the program opens them, each once in a process: nothing of a chat changes what was opened."""

import shutil
from pathlib import Path
from typing import Any

from h2o_chat.base.config import Settings
from h2o_chat.base.progress import Progress

_OPENED: dict[Any, Any] = {}


def loaded(settings: Settings, progress: Progress = lambda *_: None) -> Any:
    """The model of the settings: for the native step, where that was compiled and is not ruled out."""
    from h2o_chat.native.native_model import open_model

    asked = (settings.model, settings.engine, settings.quantize, settings.dtype, settings.device)
    if asked not in _OPENED:
        _OPENED[asked] = open_model(settings, progress)
    return _OPENED[asked]


def little(tokenizer_of: Path, into: Path, window: int = 2048) -> Path:
    """A random Llama of 3 layers (`tiny_models.py`), with the tokenizer of another model."""
    import torch  # here, as a test of the screen sees that it is not imported with this file
    from tiny_models import tiny

    sizes = {"vocab_size": 4096, "max_position_embeddings": window, "eos_token_id": 5}
    tiny("llama", "eager", torch.float32, **sizes).save_pretrained(into)
    copy_tokenizer(tokenizer_of, into)
    return into


def copy_tokenizer(tokenizer_of: Path, into: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(tokenizer_of / name, into)
