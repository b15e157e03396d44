"""A model opened for the step that computes it: packed weights for the native one, else transformers'."""

from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers

import h2o_chat.cache.attention
from h2o_chat.base.config import Settings
from h2o_chat.base.errors import UsageError
from h2o_chat.base.progress import Progress
from h2o_chat.cache.rope import Positions, Rope
from h2o_chat.models import ollama
from h2o_chat.models.choices import choose_device, default_threads, free_bytes, stored_quantization
from h2o_chat.models.fingerprint import fingerprint
from h2o_chat.models.fits import HEADROOM_BYTES, Need, require, slot_bytes
from h2o_chat.models.load import Loaded, check_family, load, quiet
from h2o_chat.models.load_tokenizer import load_tokenizer
from h2o_chat.models.resolve import Weights, check_weights, find
from h2o_chat.models.tokenizing import blamed_on_the_model
from h2o_chat.native import library
from h2o_chat.native.frame import Frame
from h2o_chat.native.packed import Packed
from h2o_chat.native.packing import packed_for, usual_bits
from h2o_chat.native.places import place_of
from h2o_chat.native.probing import frame_of


@dataclass(frozen=True)
class LoadedNative(Loaded):
    """A model in packed weights. `model` has none: it is there for its configuration."""

    packed: Packed = field(kw_only=True)


def open_model(settings: Settings, progress: Progress) -> Loaded:
    """Finds and opens the model of the settings for the step that they ask for, or that suits it.

    Raises:
        UsageError: the native step was asked for, and cannot compute this.
        PackedError: weights cannot be packed.
        H2OChatError: what `models.load` raises.
    """
    progress("resolve", None)
    found = find(settings.model)
    ollama.check(found.folder, progress)
    with quiet():
        config = check_family(found.folder)
        weights = check_weights(found.folder)
        bits = bits_of(settings, weights)
        is_packed = place_of(fingerprint(found.folder), bits).exists()
        why = why_not_native(settings, config, is_packed)
        require_asked(found.name, settings, why)
        if why:
            return replace(load(settings, progress), why_not_native=why)
        torch.set_num_threads(settings.threads or default_threads())
        tokenizer = load_tokenizer(found.folder, config)
        require_room(found.name, settings, config, weights)
        packed = packed_for(found.folder, bits, progress)
        return LoadedNative(
            model=_without_weights(found.folder, config),
            tokenizer=tokenizer,
            name=found.name,
            revision=found.revision or packed.header.fingerprint,
            quantization=f"int{bits}",
            dtype="float32",
            device="cpu",
            packed=packed,
        )


def why_not_native(settings: Settings, config: Any, is_packed: bool = False) -> str:
    """Why transformers computes it and not the native step, in words; nothing where the native step does.

    Args:
        is_packed: its packed weights are there, so that the native step is known to compute it.
    """
    if settings.engine == "transformers":
        return "--engine transformers was given"
    if settings.quantize in ("none", "nf4"):
        return f"--quantize {settings.quantize} was given, and it computes with int8 and int4"
    if settings.dtype != "auto":
        return f"--dtype {settings.dtype} was given, and it chooses its own"
    if settings.engine == "auto" and choose_device(settings.device).type != "cpu":
        return "it computes on a CPU, and there is a GPU"
    if settings.device not in ("auto", "cpu"):
        return f"it computes on a CPU, and --device {settings.device} was given"
    if stored_quantization(config):
        return "the weights are stored quantised already"
    if missing := library.why_not():
        return missing
    if is_packed:
        return ""
    frame = _frame_of(config.to_json_string())
    return frame if isinstance(frame, str) else ""


@cache
def _frame_of(config: str) -> Frame | str:
    """`frame_of` a configuration in JSON, asked once."""
    import json

    fields = json.loads(config)
    with blamed_on_the_model(
        "The configuration is not valid", "Fetch it again."
    ):  # e.g. what JSON cannot say
        return frame_of(transformers.AutoConfig.for_model(**fields))


def bits_of(settings: Settings, weights: Weights) -> int:
    """Of the layers' weights, 4 or 8."""
    if settings.quantize in ("int4", "int8"):
        return int(settings.quantize.removeprefix("int"))
    return weights.held_bits or usual_bits(weights.parameters)


def positions_of(frame: Frame, chats: bool) -> Positions:
    """How the layers turn keys, as `rope.probe` says it of a loaded model."""
    ropes = [Rope(torch.tensor(one.inv_freq), False, frame.head_size) for one in frame.ropes]
    layers = tuple(None if number is None else ropes[number] for number in frame.rope_of)
    return Positions(frame.window_tokens, layers, learned=False, chats=chats)


def require_asked(name: str, settings: Settings, why: str) -> None:
    """
    Raises:
        UsageError: what only the native step has was asked for, and there is a reason why not.
    """
    if why and settings.engine == "native":
        raise UsageError(
            f"The native step cannot compute {name}: {why}.",
            "Use --engine transformers; h2o-chat doctor says more.",
        )
    if why and settings.quantize == "int4":
        raise UsageError(
            f"--quantize int4 is of the native step, which cannot compute {name}: {why}.",
            "Use --quantize nf4.",
        )


def needs_of(settings: Settings, config: Any, weights: Weights) -> dict[str, Need]:
    """What a model needs in packed weights, by their quantization."""
    slots = (settings.budget + 1) * slot_bytes(config, 4, settings.kv_dtype)
    tables = (1 if config.tie_word_embeddings else 2) * config.vocab_size * config.hidden_size
    rest = max(0, weights.parameters - tables)
    return {
        f"int{bits}": Need(int(tables * 17 / 16 + rest * (2 * bits + 1) / 16), slots, HEADROOM_BYTES)
        for bits in (4, 8)
    }


def require_room(name: str, settings: Settings, config: Any, weights: Weights) -> None:
    """
    Raises:
        OutOfMemoryError: the packed weights and the slots do not fit.
    """
    needs, bits = needs_of(settings, config, weights), bits_of(settings, weights)
    require(name, "the CPU", free_bytes(torch.device("cpu")), f"int{bits}", needs, settings.budget)


def _without_weights(folder: Path, config: Any) -> Any:
    """The model's class and configuration, without memory for weights."""
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(
            config, dtype=torch.float32, attn_implementation=h2o_chat.cache.attention.NAME
        )
    if (folder / "generation_config.json").is_file():
        model.generation_config = transformers.GenerationConfig.from_pretrained(folder, local_files_only=True)
    return model.eval()
