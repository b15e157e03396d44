"""Chooses precision, quantisation and devices of a model before any weight is read, and places it there."""

import copy
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from h2o_chat.base.config import Settings
from h2o_chat.base.devices import free_bytes, upload_bytes_per_s
from h2o_chat.base.errors import ModelError, UsageError
from h2o_chat.base.system import RANKS
from h2o_chat.models.fits import Need, estimate, require, sizes_of
from h2o_chat.models.model_files import StoredWeights, check_weights

QUANTISE_ABOVE_BYTES = 2 * 2**30
"""`--quantize auto`: 16-bit weights larger than this are loaded in nf4."""

UNPACKED = ("fp8", "mxfp4", "compressed-tensors")
"""Quantisations of published weights that transformers unpacks to 16 bits while loading."""

_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_PACKED = {"U8", "I8"}  # types in which bitsandbytes stores quantised weights


@dataclass(frozen=True)
class Choice:
    quantization: str  # none | int8 | nf4 | fp4
    quantises: bool  # Whether weights are quantised while loading; False if they are stored quantised
    dtype: str
    devices: tuple[torch.device, ...]
    need: Need
    room: tuple[int, ...] = ()  # Bytes of weights for each device, where others stay in main memory
    offload: str = ""  # How much stays in main memory and what that costs, in words; empty: nothing does

    @property
    def where(self) -> str:
        return ", ".join(map(str, self.devices))


def choose(name: str, settings: Settings, config: Any, weights: StoredWeights) -> Choice:
    """Chooses what the settings leave open, by the stored weights and this machine.

    The layers are on one device, or on all GPUs if one is too small and none was named. Weights that are not
    quantised and do not fit into these may stay in main memory.

    Raises:
        UsageError: a device that this machine lacks, or precisions that exclude each other.
        ModelError: the weights are stored in a type that cannot be loaded.
        OutOfMemoryError: the model does not fit; says what would.
    """
    from h2o_chat.transformers_cache.layout import kinds_of  # slow: it imports transformers' caches

    device = choose_device(settings.device)
    stored = stored_quantization(config)
    quantization = choose_quantization(settings, weights, stored)
    dtype = choose_dtype(settings, weights, device, quantization)
    sizes = replace(sizes_of(config), layers=sum(kind.attends for kind in kinds_of(config)))
    itemsize, budget, kv = getattr(torch, dtype).itemsize, settings.budget, settings.kv_dtype
    needs = {
        way: estimate(sizes, weights, way, itemsize, budget, as_stored=stored is not None, kv=kv)
        for way in ([quantization] if stored else ["none", "int8", "nf4"])
    }
    need, devices = needs[quantization], [device]
    by_itself = device.type == "cuda" and settings.device == "auto"
    if by_itself and need.total > free_bytes(device):
        devices = [torch.device("cuda", number) for number in range(torch.cuda.device_count())]
    where, each = ", ".join(map(str, devices)), [free_bytes(one) for one in devices]
    free, room, offload = sum(each), list[int](), ""
    if by_itself and quantization == "none" and need.slots + need.headroom < free < need.total:
        room = [one - (need.total - need.weights) // len(each) for one in each]
        stays = need.weights - sum(room)
        ms = stays / upload_bytes_per_s(device) * 1e3
        offload = (
            f"{stays / 1e9:.1f} of {need.weights / 1e9:.1f} GB of weights stay in main memory; to copy them"
            f" takes at least {ms:,.0f} ms a token"
        )
        where, free = f"{where} with main memory", free + free_bytes(torch.device("cpu"))
    require(name, where, free, quantization, needs, settings.budget)
    quantises = quantization != "none" and not stored
    return Choice(quantization, quantises, dtype, tuple(devices), need, tuple(room), offload)


def default_threads() -> int:
    """All cores but one, which is left to the screen: with all of them, decoding is ten times slower."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2
    return max(1, cores - 1)


def packing(config: Any) -> str | None:
    """How the published weights are quantised."""
    stored = getattr(config, "quantization_config", None)
    return str(dict(stored).get("quant_method", "unknown method")) if stored else None


def has_experts(config: Any) -> bool:
    """Whether most weights are of experts, which stand in tensors that bitsandbytes leaves as they are."""
    text = config.get_text_config()
    return any(getattr(text, name, None) for name in ("num_experts", "num_local_experts", "n_routed_experts"))


def held_weights(folder: Path, config: Any) -> StoredWeights:
    """The weights that are held: those of the text part alone, unpacked to 16 bits if they are packed."""
    weights, unpacked = check_weights(folder), packing(config) in UNPACKED
    if not unpacked and config.get_text_config() is config:
        return weights
    from h2o_chat.models.model_class import class_of  # slow: it imports transformers

    config = copy.deepcopy(config)
    with torch.device("meta"):
        parameters = sum(one.numel() for one in class_of(config)(config).parameters())
    if unpacked:
        return replace(weights, parameters=parameters, bytes=2 * parameters, dtype="BF16")
    share = min(1.0, parameters / weights.parameters)
    return replace(weights, parameters=parameters, bytes=int(weights.bytes * share))


def stored_quantization(config: Any) -> str | None:
    """The quantisation of the published weights: int8, nf4, fp4, or None."""
    stored = dict(getattr(config, "quantization_config", None) or {})
    if stored.get("load_in_4bit"):
        return str(stored.get("bnb_4bit_quant_type", "fp4"))
    return "int8" if stored.get("load_in_8bit") else None


def choose_device(wanted: str) -> torch.device:
    """The device; `auto` is a GPU if there is one. Raises UsageError if this machine has no such device."""
    gpus = torch.cuda.device_count()
    if wanted == "auto":
        return torch.device("cuda:0" if gpus else "cpu")
    known = ["cpu", *(["cuda"] if gpus else []), *(f"cuda:{n}" for n in range(gpus))]
    if wanted not in known:
        raise UsageError(f"--device {wanted!r} is not here.", f"One of: auto, {', '.join(known)}.")
    return torch.device("cuda:0" if wanted == "cuda" else wanted)


def choose_quantization(settings: Settings, weights: StoredWeights, stored: str | None) -> str:
    """The quantisation; `auto` is nf4 if 16-bit weights would be large. Stored quantisation is kept.

    Raises UsageError if the precision cannot be quantised, or the weights are stored in another quantisation.
    """
    wanted = settings.quantize
    if stored:
        if wanted not in ("auto", stored):
            raise UsageError(
                f"--quantize {wanted}: the weights are stored in {stored} already.", "Leave --quantize out."
            )
        return stored
    if wanted == "int4":
        raise UsageError("--quantize int4 is of the native step, and transformers computes.", "Use nf4.")
    if wanted == "auto":
        exact = settings.dtype in ("float32", "float64")
        large = 2 * weights.parameters > QUANTISE_ABOVE_BYTES
        return "nf4" if large and not exact else "none"
    if wanted != "none" and settings.dtype == "float64":
        raise UsageError("--dtype float64 cannot be quantised.", "Use --quantize none.")
    return wanted


def choose_dtype(settings: Settings, weights: StoredWeights, device: torch.device, quantization: str) -> str:
    """The precision; `auto` is the checkpoint's own on a GPU, and float32 for small models on a CPU.

    A CPU multiplies bf16 at a third of the rate at which it reads memory, and fp16 can overflow there. Large
    models do without fp32, which would cost gigabytes.
    """
    if settings.dtype != "auto":
        return settings.dtype
    own = _DTYPES.get(weights.dtype, "float16" if weights.held_as else None)
    if own is None and weights.dtype in _PACKED and quantization != "none":
        return "bfloat16"
    if own is None:
        raise ModelError(
            f"The weights are stored as {weights.dtype}, which cannot be loaded.",
            f"Known: {', '.join(_DTYPES)}.",
        )
    if quantization != "none" and own not in ("float16", "bfloat16"):
        return "bfloat16"
    if device.type == "cuda":
        return own
    if quantization == "none" and 2 * weights.parameters <= QUANTISE_ABOVE_BYTES:
        return "float32"
    return "bfloat16" if own == "float16" else own


def placing(choice: Choice) -> dict[str, Any]:
    """Keywords that say on which devices the layers are."""
    if RANKS > 1:  # see `engine/ranks.py`
        return {"distributed_config": {"tp_plan": "auto"}}
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
