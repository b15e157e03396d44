"""The compiled library through ctypes: `src/h2o.h` in Python, where `h2o_matrix` is `Matrix`. No torch."""

import ctypes
import sys
from collections.abc import Sequence
from ctypes import POINTER, Structure, c_double, c_float, c_int32, c_int64, c_uint8, c_void_p
from functools import cache
from typing import Any

from h2o_chat.native import build

FORMS = {1: "plain", 2: "AVX2", 4: "AVX-512", 8: "NEON", 16: "AMX"}
"""Name of each form (instruction set) of the kernels, by its bit."""


def _fields(*groups: tuple[Any, str]) -> list[tuple[str, Any]]:
    """Fields of a structure, from (type, names) of those that follow each other."""
    return [(name, kind) for kind, names in groups for name in names.split()]


class Matrix(Structure):
    _fields_ = _fields((c_void_p, "weights scales"), (c_int32, "rows columns kind"))


class Rope(Structure):
    _fields_ = _fields((POINTER(c_float), "inv_freq"), (c_int32, "pairs"), (c_float, "scale"))


class Mlp(Structure):
    _fields_ = _fields((Matrix, "gate_up up down"), (c_void_p, "bias_gate bias_up bias_down"))


class Layer(Structure):
    _fields_ = _fields(
        (Matrix * 3, "qkv"),
        (Matrix, "out"),
        (POINTER(Mlp), "mlp"),
        (c_void_p, "router bias_router norm_attention norm_mlp norm_attended norm_fed"),
        (c_void_p, "bias_qkv bias_out sinks"),
        (c_void_p, "norm_query norm_key norm_queries norm_keys"),
        (c_int32, "rope sees"),
    )


class Frame(Structure):
    _fields_ = _fields(
        (c_int32, "layer_count rope_count hidden heads kv_heads head_size vocabulary"),
        (c_int32, "experts chosen shares_add_up gelu"),
        (c_float, "alpha limit epsilon embedding_scale residual_scale"),
        (c_float, "attention_scale attention_cap logits_cap"),
        (POINTER(Layer), "layers"),
        (POINTER(Rope), "ropes"),
        (c_void_p, "norm"),
        (Matrix, "embedding head"),
    )


class Slots(Structure):
    _fields_ = _fields(
        (c_void_p, "keys values positions score lately prompt protect clamped order"),
        (c_int32, "slots used"),
    )


class Step(Structure):
    _fields_ = _fields(
        (c_int32, "rows of_prompt clamps kv_bits farthest nearer nearer_from"),
        (c_float, "decay_factor lately_decay"),
        (POINTER(c_int64), "ids"),
        (POINTER(c_int32), "positions index edge in_use"),
        (POINTER(c_uint8), "protect"),
        (POINTER(Slots), "slots"),
    )


class Pass(Structure):
    _fields_ = _fields(
        (c_int32, "layer rows tokens slots most_used clamps edge"),
        (c_float, "decay_factor lately_decay"),
        (POINTER(c_int32), "used first count index"),
        (c_void_p, "queries keys values"),
        (c_int64, "query_row query_head query_token key_row key_head key_token"),
        (c_void_p, "held_keys held_values positions clamped attended gain lately"),
    )


class Lender(Structure):
    _fields_ = _fields((c_void_p, "run number count"))


_FUNCTIONS = {
    "h2o_forms": (c_int32, ()),
    "h2o_open": (c_void_p, (POINTER(Frame), c_int32, c_int32)),
    "h2o_close": (None, (c_void_p,)),
    "h2o_borrow": (c_int32, (c_void_p, POINTER(Lender), c_int32)),
    "h2o_form": (c_int32, (c_void_p,)),
    "h2o_decode": (c_int32, (c_void_p, POINTER(Step), c_void_p)),
    "h2o_embed": (c_int32, (c_void_p, c_int32, c_void_p, c_void_p)),
    "h2o_turns": (c_int32, (c_void_p, c_int32, c_void_p)),
    "h2o_before": (c_int32, (c_void_p, c_int32, c_int32, c_void_p, c_void_p, c_void_p, c_void_p)),
    "h2o_attend": (c_int32, (c_void_p, POINTER(Pass))),
    "h2o_after": (c_int32, (c_void_p, c_int32, c_int32, c_void_p, c_void_p)),
    "h2o_head": (c_int32, (c_void_p, c_int32, c_void_p, c_void_p)),
    "h2o_change": (c_int32, (c_void_p, *[c_int32] * 5, *[c_void_p] * 3)),
    "h2o_lay_out": (c_int32, (*[c_int32] * 4, c_void_p, POINTER(c_int32), c_void_p, c_void_p)),
    "h2o_waited_ms": (c_double, (c_void_p,)),
}


def int32s(numbers: Sequence[int]) -> Any:
    return (c_int32 * len(numbers))(*numbers)


def lender() -> Lender | None:
    """The OpenMP threads of torch; None if torch uses another library than GNU's."""
    if sys.platform == "win32":
        return None
    names = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
    loaded = ctypes.CDLL(None)  # this process, with globally visible libraries
    if not all(hasattr(loaded, name) for name in names):
        return None
    return Lender(*(ctypes.cast(getattr(loaded, name), c_void_p).value for name in names))


@cache
def library() -> ctypes.CDLL | None:
    """The library with its functions declared; None if it cannot be used (`why_not`)."""
    if why_not():
        return None
    loaded = ctypes.CDLL(str(build.LIBRARY))
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


class Model:
    """An open model, closed when the last reference to it is gone.

    `form` is a key of `FORMS`, 0 for the fastest; the frame points to the objects in `keep`. `at` is its
    address; None if this processor lacks the form, or there was no memory.
    """

    def __init__(self, frame: Frame, form: int, threads: int, keep: Sequence[Any]) -> None:
        self._keep = frame, keep
        loaded = library()
        assert loaded is not None
        self.library = loaded
        self.at: int | None = loaded.h2o_open(ctypes.byref(frame), form, threads)

    def __del__(self) -> None:
        if getattr(self, "at", None):
            self.library.h2o_close(self.at)


@cache
def why_not() -> str:
    """Why there is no library, in words; empty if there is one."""
    if build.made() is None:
        return "its library was not compiled"
    if not build.is_current():
        return f"{build.LIBRARY} was compiled from other sources"
    try:
        ctypes.CDLL(str(build.LIBRARY))
    except OSError as error:
        return f"{build.LIBRARY} cannot be loaded: {error}"
    return ""


def forms() -> list[str]:
    """The forms of the kernels that this processor can run, the fastest last."""
    loaded = library()
    runs = loaded.h2o_forms() if loaded else 0
    return [name for bit, name in FORMS.items() if runs & bit]
