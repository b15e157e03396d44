"""The class of transformers that computes a configuration; of one that also sees or hears, the text part."""

from typing import Any

import transformers


def classes_of(config: Any) -> list[Any]:
    """The classes of transformers that generate text with a configuration, the usual one first."""
    sees = config.get_text_config() is not config
    kinds = ["CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM"]
    kinds = [*kinds[1:], *kinds[:1]] if sees else kinds
    mappings = [getattr(transformers, f"MODEL_FOR_{kind}_MAPPING") for kind in kinds]
    return [mapping[type(config)] for mapping in mappings if type(config) in mapping]


def class_of(config: Any, named: str | None = None) -> Any:
    """The class for a configuration, `named` if that is one; of several parts only the one for text."""
    classes = classes_of(config)
    cls = next((one for one in classes if one.__name__ == named), classes[0])
    return cls if config.get_text_config() is config else _text_only(cls)


def _text_only(cls: Any) -> Any:
    """The class of a model that also reads pictures or sound, without the modules that do."""

    class TextOnly(cls):  # type: ignore[misc]
        def __init__(self, config: Any, *args: Any, **more: Any) -> None:
            super().__init__(config, *args, **more)
            kept = {id(self.get_decoder()), id(self.get_output_embeddings())}
            _drop(self, kept)

    TextOnly.__name__, TextOnly.__module__ = cls.__name__, cls.__module__
    return TextOnly


def _drop(module: Any, kept: set[int]) -> bool:
    """Drops submodules that are not kept, and do not hold one that is; returns whether it holds one."""
    if id(module) in kept:
        return True
    holds = [name for name, child in module.named_children() if _drop(child, kept)]
    for name in [name for name, _ in module.named_children() if holds and name not in holds]:
        setattr(module, name, None)
    return bool(holds)
