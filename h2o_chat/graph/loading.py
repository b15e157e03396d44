"""Opens a model for the graph step on a GPU; without one as `native/native_model.py` does."""

import os
import shutil
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import UsageError
from h2o_chat.base.progress import Progress
from h2o_chat.models.choices import choose, choose_device, choose_quantization
from h2o_chat.models.load import Loaded, check_family
from h2o_chat.models.loading_messages import quiet
from h2o_chat.models.model_files import check_weights
from h2o_chat.models.resolve import find
from h2o_chat.native import native_model as native
from h2o_chat.native.model_frame import Frame
from h2o_chat.native.probing import frame_of

if TYPE_CHECKING:
    from h2o_chat.graph.weights import Weights
    from h2o_chat.native.gguf_weights import GgufWeights


@dataclass(frozen=True)
class LoadedGraph(Loaded):
    """A model on a GPU whose decoded tokens the graph step computes; `model` reads prompts."""

    frame: Frame = field(kw_only=True)

    @cached_property
    def weights(self) -> "Weights":
        """Joined matrices, made once; the model's layers hold parts of them from then on."""
        from h2o_chat.graph.weights import weights_of  # imports Triton

        return weights_of(self.model, self.frame)


def open_model(settings: Settings, progress: Progress, ahead: "GgufWeights | None" = None) -> Loaded:
    """Finds and opens the model of the settings for the step that they ask for, or that suits it.

    Args:
        ahead: the model's weights for the native step, which are being laid out.

    Raises:
        UsageError: the graph step was asked for, and cannot compute this.
        H2OChatError: what `native_model.open_model` raises.
    """
    device, asked = choose_device(settings.device), settings.engine == "graph"
    if device.type != "cuda":
        if asked:
            raise UsageError("--engine graph computes on a GPU, and this runs on the CPU.", "Leave it out.")
        return native.open_model(settings, progress, ahead)
    if ahead is not None:
        ahead.give_up()
    found = find(settings.model)
    with quiet():
        config = check_family(found.folder)
        weights = check_weights(found.folder)
        why = why_not_graph(settings, config)
    how = choose_quantization(replace(settings, quantize="auto"), weights, None)
    in_4_bits = settings.quantize == "int4" or (settings.quantize == "auto" and how != "none")
    if not isinstance(why, str) and not in_4_bits:
        choice = choose(found.name, replace(settings, quantize="none"), config, weights)
        why = choice.offload or ("it takes several GPUs" if len(choice.devices) > 1 else why)
    if isinstance(why, str):
        if asked or settings.quantize == "int4":
            wanted = "--engine graph" if asked else "--quantize int4"
            raise UsageError(f"{wanted} cannot compute {found.name} here: {why}.", "Leave it out.")
        return replace(native.open_model(settings, progress), why_not_native=why)
    plain = replace(settings, engine="transformers", quantize="none")
    if in_4_bits:  # rounded on the GPU, which need not hold it in 16 bits
        dtype = "bfloat16" if settings.dtype == "auto" else settings.dtype
        plain = replace(plain, device="cpu", dtype=dtype)
    loaded = native.open_model(plain, progress)
    given = {one.name: getattr(loaded, one.name) for one in fields(Loaded)} | {"why_not_native": ""}
    if in_4_bits:
        from h2o_chat.graph.weights import to_int4  # imports Triton

        progress("quantise", None)
        to_int4(loaded.model, device)
        given |= {"quantization": "int4", "device": str(device)}
    return LoadedGraph(**given, frame=why)


FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "smollm3")
"""`config.model_type`s that the graph step can compute."""


def why_not_graph(settings: Settings, config: Any) -> Frame | str:
    """The model's frame, or in words why the graph step cannot compute it."""
    if settings.engine == "transformers":
        return "--engine transformers was given"
    if settings.kv_dtype not in ("auto", "int8"):
        return f"it holds keys and values as numbers, and --kv-dtype {settings.kv_dtype} was given"
    if settings.quantize not in ("auto", "none", "int4"):
        return f"it multiplies by 16 bits and 4 (int4), and --quantize {settings.quantize} was given"
    if settings.dtype == "float64":
        return "it adds in fp32, and --dtype float64 was given"
    if find_spec("triton") is None:
        return "Triton is not installed"
    if not any(map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang"))):
        return "Triton needs a C compiler (apt install gcc), and there is none"
    frame = frame_of(config)
    if isinstance(frame, Frame) and frame.family not in FAMILIES:
        return f"it knows the families {', '.join(FAMILIES)}, and this is {frame.family}"
    return frame
