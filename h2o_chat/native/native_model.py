"""Opens a model with packed weights for the native step, or with transformers."""

import contextlib
import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import transformers

from h2o_chat.base.config import Settings
from h2o_chat.base.devices import free_bytes
from h2o_chat.base.errors import UsageError
from h2o_chat.base.progress import Progress
from h2o_chat.cache.rope import Positions, Rope
from h2o_chat.models import ollama
from h2o_chat.models.choices import choose_device, default_threads, stored_quantization
from h2o_chat.models.file_identity import fingerprint
from h2o_chat.models.fits import Need, Sizes, require, slot_bytes
from h2o_chat.models.load import Loaded, check_family, load, read_by_transformers
from h2o_chat.models.load_tokenizer import load_tokenizer
from h2o_chat.models.loading_messages import quiet
from h2o_chat.models.model_files import StoredWeights, check_weights, read_config
from h2o_chat.models.resolve import LocalModel, find
from h2o_chat.models.tokenizer_calls import blamed_on_the_model
from h2o_chat.native import library
from h2o_chat.native.gguf_frame import plain_frame
from h2o_chat.native.gguf_weights import GgufWeights
from h2o_chat.native.layout import parts
from h2o_chat.native.model_frame import Frame, frame_sizes
from h2o_chat.native.packed import Packed
from h2o_chat.native.packed_file import PackedError, packed_files_of, place_of, read_whole_header, remove
from h2o_chat.native.packing import packed_for, usual_bits
from h2o_chat.native.probing import frame_of
from h2o_chat.native.threads import asks_for_transformers


@dataclass(frozen=True)
class LoadedNative(Loaded):
    """A model whose weights lie in tiles; its `model` is None."""

    packed: Packed | GgufWeights = field(kw_only=True)

    @property
    def sizes(self) -> Sizes:
        return frame_sizes(self.packed.frame)

    @property
    def precision(self) -> torch.dtype:
        return torch.float32

    @property
    def parameters(self) -> int:
        return sum(part.numbers for part in parts(self.packed.frame))


def open_model(settings: Settings, progress: Progress, ahead: GgufWeights | None = None) -> Loaded:
    """Finds and opens the model of the settings, with the engine that they name or that suits it.

    Args:
        ahead: the model's weights, which are being laid out.

    Raises:
        UsageError: the native step was wanted, and cannot compute this model.
        PackedError: weights cannot be packed.
        H2OChatError: see `models.load`.
    """
    progress("resolve", None)
    found = find(settings.model)
    ollama.check(found.folder, progress)
    with quiet():
        known = plain_frame(found.folder) if found.folder.is_file() else _packed_before(found.folder)
        config = None if known else check_family(found.folder)
        frame = frame_or_why_not(settings, known or config)
        weights = check_weights(found.folder)
        if isinstance(frame, str):
            config = config or check_family(found.folder)
            require_not_asked(found, settings, frame)
            return replace(load(settings, progress, config), why_not_native=frame)
        torch.set_num_threads(settings.threads or default_threads())
        if ahead is None:  # else it was checked before that took its memory
            checked_need(found.name, settings, frame_sizes(frame), weights)
        quantization = quantization_of(settings, weights)
        ends = _ends(found.folder)
        if found.folder.is_dir():
            tokenizer = load_tokenizer(found.folder, frame.vocabulary)
            bits = int(quantization.removeprefix("int"))
            packed: Packed | GgufWeights = packed_for(found.folder, bits, progress)
        else:
            with ThreadPoolExecutor(1) as beside:  # the tokenizer takes as long as the weights
                reading = beside.submit(load_tokenizer, found.folder, frame.vocabulary)
                packed = _in_memory(found.folder, frame, ahead, settings, progress)
                tokenizer = reading.result()
        return LoadedNative(
            model=None,
            tokenizer=tokenizer,
            name=found.name,
            revision=found.revision or packed.fingerprint,
            quantization=quantization,
            dtype="float32",
            device="cpu",
            ends=ends,
            packed=packed,
        )


def _in_memory(
    file: Path, frame: Frame, ahead: GgufWeights | None, settings: Settings, progress: Progress
) -> GgufWeights:
    """The weights of a GGUF file; packed files that earlier versions made of it are removed."""
    weights = ahead or GgufWeights(file, frame)
    try:
        if ahead is None:
            weights.begin()
        weights.finish(frame, progress)
    except BaseException:
        weights.give_up()
        raise
    if settings.quantize in ("int4", "int8"):
        weights.note = f"--quantize {settings.quantize} is left out: a GGUF file keeps its own bits"
    for old in itertools.chain(*packed_files_of(file)):
        with contextlib.suppress(PackedError):  # where another program has it open, the next start removes it
            remove(old.path)
    return weights


def _packed_before(folder: Path) -> Frame | None:
    """The frame of a model whose weights are packed already; None: they are not.

    It spares loading the configuration, which imports the base classes of transformers' models.
    """
    print_ = fingerprint(folder)
    for path in (place_of(print_, bits) for bits in (4, 8)):
        if path.is_file() and not path.is_symlink():
            with contextlib.suppress(OSError, PackedError):  # a damaged file is packed again
                if (header := read_whole_header(path)).fingerprint == print_:
                    return header.frame
    return None


def _ends(folder: Path) -> Any:
    """The `generation_config.eos_token_id` that transformers would load."""
    if (folder / "generation_config.json").is_file():
        with blamed_on_the_model("The model's generation_config.json cannot be read", "Fetch it again."):
            return transformers.GenerationConfig.from_pretrained(folder, local_files_only=True).eos_token_id
    config = read_config(folder)
    if "eos_token_id" in config:
        return config["eos_token_id"]
    return check_family(folder).eos_token_id  # the family's default


def frame_or_why_not(settings: Settings, known: "Frame | transformers.PreTrainedConfig") -> Frame | str:
    """The frame of a model that the native step computes, or in words why the transformers step does.

    `known` is the frame, where it is known, so that the native step can compute it; else the configuration.
    """
    if why := asks_for_transformers(settings):
        return why
    if settings.engine == "auto" and choose_device(settings.device).type != "cpu":
        return "it computes on a CPU, and there is a GPU"
    if settings.device not in ("auto", "cpu"):
        return f"it computes on a CPU, and --device {settings.device} was given"
    if not isinstance(known, Frame) and stored_quantization(known):
        return "the weights are stored quantised already"
    if missing := library.why_not():
        return missing
    if isinstance(known, Frame):
        return known
    with blamed_on_the_model("The configuration is not valid", "Fetch it again."):
        values = json.loads(known.to_json_string())  # where a number is none, this is not valid
        return frame_of(transformers.AutoConfig.for_model(**values))


def quantization_of(settings: Settings, weights: StoredWeights) -> str:
    """`int4` or `int8`; of a GGUF file, which keeps its own bits, the type of most bytes."""
    if weights.held_as:
        return weights.held_as.partition(",")[0]
    if settings.quantize in ("int4", "int8"):
        return settings.quantize
    return f"int{usual_bits(weights.parameters)}"


def positions_of(frame: Frame, chats: bool) -> Positions:
    """The rotations of the layers, like those that `probe.probe` finds in a loaded model."""
    ropes = [Rope(torch.tensor(one.inv_freq), False, frame.head_size) for one in frame.ropes]
    layers = tuple(None if number is None else ropes[number] for number in frame.rope_of)
    return Positions(frame.window_tokens, layers, learned=False, chats=chats)


def require_not_asked(model: LocalModel, settings: Settings, why: str) -> None:
    """Raises UsageError if the settings need the native step, which cannot compute the model (`why`)."""
    if settings.engine == "native":
        raise UsageError(
            f"The native step cannot compute {model.name}: {why}.",
            "Use --engine transformers; h2o-chat doctor says more.",
        )
    if settings.quantize == "int4" and not read_by_transformers(model.folder):  # `load` refuses that
        raise UsageError(
            f"--quantize int4 is of the native step, which cannot compute {model.name}: {why}.",
            "Leave --quantize out, or use nf4 if the model has no experts.",
        )


def checked_need(name: str, settings: Settings, sizes: Sizes, weights: StoredWeights) -> Need:
    """Returns the memory for packed weights and slots. Raises OutOfMemoryError if they do not fit."""
    slots = (settings.budget + 1) * slot_bytes(sizes, 4, settings.kv_dtype)
    how = quantization_of(settings, weights)
    tables = (1 if sizes.tied else 2) * sizes.vocabulary * sizes.hidden
    rest = max(0, weights.parameters - tables)
    needs = {f"int{bits}": Need(int(tables * 17 / 16 + rest * (2 * bits + 1) / 16), slots) for bits in (4, 8)}
    if weights.held_as:
        needs = {how: Need(weights.held_bytes, slots)}
    require(name, "the CPU", free_bytes(torch.device("cpu")), how, needs, settings.budget)
    return needs[how]
