"""Loads a model by name: finds it, checks it before any weight is read, and quantises it. Uses no network.

Families of `families.json` are accepted. All others are refused, because their attention might bypass the
cache, which would grow silently. Of a model that also reads pictures or sound only the text part is loaded.
"""

import contextlib
import copy
import io
import sys
from dataclasses import dataclass, replace
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from transformers.integrations.ggml import GGUF_CONFIG_MAPPING
from transformers.integrations.gguf import GGUF_CONFIG_ARCHS

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import ModelError, OutOfMemoryError, UsageError
from h2o_chat.base.progress import Progress
from h2o_chat.models import choices, ollama
from h2o_chat.models.choices import UNPACKED, Choice, choose, has_experts, packing
from h2o_chat.models.families import refusal
from h2o_chat.models.file_identity import fingerprint
from h2o_chat.models.fits import Sizes, sizes_of
from h2o_chat.models.gguf import damaged, header_of
from h2o_chat.models.gguf_config import READ
from h2o_chat.models.gguf_state_dict import state_dict_of
from h2o_chat.models.load_tokenizer import load_tokenizer
from h2o_chat.models.loading_messages import quiet, reporting
from h2o_chat.models.model_class import class_of, classes_of
from h2o_chat.models.model_files import read_config
from h2o_chat.models.resolve import LocalModel, find
from h2o_chat.models.tokenizer_calls import blamed_on_the_model, one_line

_NF4_BLOCK, _GGUF = 32, {*READ, *GGUF_CONFIG_MAPPING, *GGUF_CONFIG_ARCHS}


@dataclass(frozen=True)
class Loaded:
    """A model ready to generate, with its properties."""

    model: Any  # A transformers model in eval mode with attn_implementation="h2o"
    tokenizer: Any
    name: str  # Name for people: folder name or org/name
    revision: str | None
    quantization: str  # none | int8 | nf4
    dtype: str
    device: str
    why_not_native: str = ""  # In words; empty if the native step is used or was not wanted
    ends: Any = None  # Token, or list of tokens, that end an answer by generation_config.json or config.json

    @property
    def sizes(self) -> Sizes:
        return sizes_of(self.model.config)

    @property
    def precision(self) -> torch.dtype:
        """Precision of logits, keys and values."""
        return cast(torch.dtype, self.model.dtype)

    @property
    def parameters(self) -> int:
        return int(self.model.num_parameters())

    @property
    def chats(self) -> bool:
        """Whether it has a chat template."""
        return bool(self.tokenizer.chat_template)


def load(settings: Settings, progress: Progress, config: Any = None) -> Loaded:
    """Finds and loads the model of the settings; `progress` gets "resolve", then "load" or "quantise".

    `config` is the result of `check_family`, if it was called before.

    Raises:
        ModelError: not found, not supported or damaged.
        UsageError: a device that this machine lacks, or a quantisation that the model cannot have.
        OutOfMemoryError: the weights do not fit.
    """
    progress("resolve", None)
    found = find(settings.model)
    folder = found.folder
    torch.set_num_threads(settings.threads or choices.default_threads())
    ollama.check(folder, progress)
    with quiet():
        config = config or check_family(folder)
        settings = quantized_if_it_can_be(found, settings, config)
        weights = choices.held_weights(folder, config)
        tokenizer = load_tokenizer(folder, config.get_text_config().vocab_size)
        choice = choose(found.name, settings, config, weights)
        stage = "quantise" if choice.quantises else "load"
        if choice.offload:
            progress(f"{stage}: {choice.offload}", None)
        progress(stage, 0.0)
        if choice.quantises or getattr(config, "quantization_config", None):
            _import_bitsandbytes()
        with (
            contextlib.redirect_stderr(io.StringIO() if folder.is_file() else sys.stderr),  # a bar of its own
            reporting(lambda share: progress(stage, share)),
            blamed_on_the_model(
                f"The model in {folder} cannot be loaded",
                "Its files may be damaged or not belong together: fetch them again.",
            ),
        ):
            model = _load_model(folder, config, choice)
    return Loaded(
        model=model,
        tokenizer=tokenizer,
        name=found.name,
        revision=found.revision or fingerprint(folder),
        quantization=choice.quantization,
        dtype=choice.dtype,
        device=choice.where,
        ends=model.generation_config.eos_token_id,
    )


def check_family(folder: Path) -> Any:
    """The configuration, if the model's class can run with a bounded cache. Reads no weight.

    Raises ModelError, which names the class and the reason, if it cannot.
    """
    raw = read_config(folder)
    kind = raw["model_type"]
    named = (raw.get("architectures") or [None])[0]
    if "auto_map" in raw and kind not in transformers.CONFIG_MAPPING:
        raise ModelError(
            f"{named or kind} needs code that comes with the model, which is not run.",
            "Choose a model whose class is part of transformers.",
        )
    if (made := header_of(folder).architecture if folder.is_file() else "llama") not in _GGUF:
        raise ModelError(
            f"{folder} is of the architecture {made[:60]!r}, of which GGUF files are not read.",
            f"Take its folder of safetensors, or a GGUF file of {', '.join(READ)}.",
        )
    if kind not in transformers.CONFIG_MAPPING:
        raise ModelError(
            f"{named or kind} is not supported: transformers {transformers.__version__} does not know the"
            f" model type {kind!r}.",
            "A newer transformers may know it.",
        )
    # A damaged config.json raises exceptions of any type.
    file = folder if folder.is_file() else folder / "config.json"
    with blamed_on_the_model(f"{file} is not a valid {kind} configuration", "Fetch it again."):
        if folder.is_file() and header_of(folder).architecture in READ:
            config = transformers.AutoConfig.for_model(**raw)
        else:
            where = {"gguf_file": folder.name} if folder.is_file() else {}
            config = transformers.AutoConfig.from_pretrained(
                file.parent, local_files_only=True, trust_remote_code=False, **where
            )
        reason = refusal(kind) or _why_not(config, named)
    if reason:
        raise ModelError(
            f"{named or kind} is not supported: {reason[0]}.",
            f"{reason[1]}. All that open: h2o-chat models families",
        )
    return config


def _why_not(config: Any, named: str | None) -> tuple[str, str] | None:
    """Why this model of a family that opens cannot run, and what to take instead; None if it can."""
    names = {cls.__name__ for cls in classes_of(config)}
    if named and named not in names:
        return (
            f"config.json names {named}, whose weights are not those of {' or '.join(sorted(names))}",
            "Take the model that this one was made from, or one that answers",
        )
    from h2o_chat.transformers_cache.layout import kinds_of  # slow, see `_load_model`

    try:
        kinds_of(config)
    except ModelError as error:
        return error.message.rstrip("."), error.hint.rstrip(".")
    method = packing(config)
    if method == "compressed-tensors" and not find_spec("compressed_tensors"):
        what = "its weights are packed by compressed-tensors, which is not installed"
        return what, "pip install 'h2o-chat[packed]'; or take the model unquantised, or as a GGUF file"
    if method not in (None, "bitsandbytes", *UNPACKED):
        what = f"its weights are quantised already ({method}), which is not read here"
        return what, "Take the same model unquantised (--quantize packs it), or as a GGUF file"
    return None


def quantized_if_it_can_be(model: LocalModel, settings: Settings, config: Any) -> Settings:
    """The settings, with `--quantize none` for `auto` if nothing here quantises the weights.

    Raises UsageError if they ask for it all the same.
    """
    if read_by_transformers(model.folder):
        kind = header_of(model.folder).architecture
        why = f"is a GGUF file of the architecture {kind}, which transformers reads, and quantises no further"
        hint = "Leave --quantize out, or take the same model as a folder of safetensors."
    elif packing(config) in UNPACKED or has_experts(config):
        why = "has experts, or weights that are packed, which bitsandbytes does not quantise"
        hint = "Leave --quantize out."
    else:
        return settings
    if settings.quantize not in ("auto", "none"):
        raise UsageError(f"--quantize {settings.quantize}: {model.name} {why}.", hint)
    return replace(settings, quantize="none")


def _load_model(folder: Path, config: Any, choice: Choice) -> Any:
    from h2o_chat.transformers_cache import registered  # a second, which the native step does not need

    cls = class_of(config, (config.architectures or [None])[0])
    try:
        model, report = cls.from_pretrained(
            dtype=getattr(torch, choice.dtype),
            attn_implementation=registered.NAME,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
            **choices.placing(choice),
            **_weights_of(folder, config, getattr(torch, choice.dtype)),
            **_quantising(choice),
        )
        if choice.room:
            choices.pin_offloaded(model)
    except (MemoryError, RuntimeError) as error:
        if out_of_memory(error):
            raise OutOfMemoryError(
                f"The model does not fit into the memory of {choice.where}: {one_line(error)}",
                "Try --quantize nf4 or a smaller model.",
            ) from error
        raise
    if missing := sorted(report["missing_keys"]):
        raise ModelError(
            f"{folder} lacks {len(missing)} weights of {type(model).__name__}: {', '.join(missing[:3])}.",
            "They would be random: fetch a complete model.",
        )
    if folder.is_file() and (unknown := sorted(report["unexpected_keys"])):
        raise ModelError(
            f"{folder} holds {len(unknown)} tensors that this model has not: {', '.join(unknown[:3])}.",
            "What they do is not known here: use the model's safetensors.",
        )
    _check_packing(model, choice)
    return model.eval()


def _weights_of(folder: Path, config: Any, dtype: torch.dtype) -> dict[str, Any]:
    """Keywords that name the weights. A GGUF file is given as tensors, since transformers quantises none."""
    where = "pretrained_model_name_or_path"
    if folder.is_dir():
        if packing(config) in UNPACKED:
            config.quantization_config = dict(config.quantization_config) | {"dequantize": True}
        return {where: folder, "config": config, "use_safetensors": True}
    if read_by_transformers(folder):
        with torch.device("meta"):
            wanted = sum(one.numel() for one in class_of(config)(copy.deepcopy(config)).parameters())
        held = sum(prod(one.shape) for one in header_of(folder).tensors.values())
        if wanted > held:  # transformers would make those of another shape, of any size
            raise damaged(folder, f"it holds {held:,} weights, and its values say {wanted:,}")
        # Left to itself it would ask the hub for kernels that compute with packed weights.
        how = transformers.GgufConfig(dequantize=True)
        return {where: folder.parent, "gguf_file": folder.name, "quantization_config": how}
    return {where: None, "config": config, "state_dict": state_dict_of(folder, config, dtype)}


def read_by_transformers(model: Path) -> bool:
    """Whether it is a GGUF file of an architecture outside `READ`, or read for the native step alone."""
    return model.is_file() and header_of(model).architecture not in READ.keys() - {"gpt-oss"}


def _import_bitsandbytes() -> None:
    """Imports bitsandbytes with `kernels` hidden, by which it would ask the hub for a kernel that it has."""
    hidden = sys.modules.get("kernels")
    sys.modules["kernels"] = None  # type: ignore[assignment]  # makes `import kernels` fail
    try:
        import bitsandbytes  # noqa: F401
    finally:
        del sys.modules["kernels"]
        if hidden is not None:
            sys.modules["kernels"] = hidden


def _check_packing(model: Any, choice: Choice) -> None:
    """Checks that bitsandbytes can pack nf4 weights on a CPU, which it would only try at the first token."""
    if choice.quantization != "nf4" or choice.devices[0].type != "cpu":
        return
    from bitsandbytes.nn import Linear4bit  # loading in nf4 has imported it

    rows = {layer.out_features for layer in model.modules() if isinstance(layer, Linear4bit)}
    if odd := sorted(count for count in rows if count % _NF4_BLOCK):
        raise UsageError(
            f"--quantize nf4 takes layers of a multiple of {_NF4_BLOCK} rows on a CPU, and this model has"
            f" {odd[0]}.",
            "Use --quantize int8.",
        )


def _quantising(choice: Choice) -> dict[str, Any]:
    """Keywords for quantising; empty if not wanted: a None would override the file's own quantisation."""
    if not choice.quantises:
        return {}
    how = transformers.BitsAndBytesConfig(
        load_in_8bit=choice.quantization == "int8",
        load_in_4bit=choice.quantization == "nf4",
        bnb_4bit_quant_type="nf4",
        bnb_4bit_compute_dtype=getattr(torch, choice.dtype),
    )
    return {"quantization_config": how}


def out_of_memory(error: BaseException) -> bool:
    """Whether torch ran out of memory; on a CPU only the message shows it."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    words = ("can't allocate memory", "not enough memory", "out of memory")
    return isinstance(error, RuntimeError) and any(word in str(error) for word in words)
