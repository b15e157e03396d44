"""The compiled library through ctypes: `src/h2o.h` in Python. No torch."""

import ctypes
import sys
from collections.abc import Sequence
from ctypes import POINTER, Structure, c_double, c_float, c_int32, c_int64, c_uint8, c_uint16, c_void_p
from functools import cache
from typing import Any

from h2o_chat.native import build

FORMS = {1: "plain", 2: "AVX2", 4: "AVX-512", 8: "NEON", 16: "AMX"}
"""Name of each form (instruction set) of the kernels, by its bit."""


class Matrix(Structure):
    """`h2o_matrix`"""

    _fields_ = (
        ("weights", POINTER(c_uint8)),
        ("scales", POINTER(c_uint16)),
        ("rows", c_int32),
        ("columns", c_int32),
        ("bits", c_int32),
    )


class Rope(Structure):
    """`h2o_rope`"""

    _fields_ = (("inv_freq", POINTER(c_float)), ("pairs", c_int32), ("scale", c_float))


class Layer(Structure):
    """`h2o_layer`"""

    _fields_ = (
        ("qkv", Matrix),
        ("out", Matrix),
        ("gate_up", Matrix),
        ("down", Matrix),
        ("norm_attention", c_void_p),
        ("norm_mlp", c_void_p),
        ("bias_qkv", c_void_p),
        ("norm_query", c_void_p),
        ("norm_key", c_void_p),
        ("rope", c_int32),
        ("sees", c_int32),
    )


class Frame(Structure):
    """`h2o_frame`"""

    _fields_ = (
        ("layer_count", c_int32),
        ("rope_count", c_int32),
        ("hidden", c_int32),
        ("heads", c_int32),
        ("kv_heads", c_int32),
        ("head_size", c_int32),
        ("vocabulary", c_int32),
        ("epsilon", c_float),
        ("layers", POINTER(Layer)),
        ("ropes", POINTER(Rope)),
        ("norm", c_void_p),
        ("embedding", Matrix),
        ("head", Matrix),
    )


class Slots(Structure):
    """`h2o_slots`"""

    _fields_ = (
        ("keys", c_void_p),
        ("values", c_void_p),
        ("positions", c_void_p),
        ("score", c_void_p),
        ("lately", c_void_p),
        ("prompt", c_void_p),
        ("protect", c_void_p),
        ("clamped", c_void_p),
        ("order", c_void_p),
        ("slots", c_int32),
        ("used", c_int32),
    )


class Step(Structure):
    """`h2o_step`"""

    _fields_ = (
        ("rows", c_int32),
        ("of_prompt", c_int32),
        ("clamps", c_int32),
        ("kv_bits", c_int32),
        ("farthest", c_int32),
        ("nearer", c_int32),
        ("nearer_from", c_int32),
        ("forget", c_float),
        ("remember", c_float),
        ("ids", POINTER(c_int64)),
        ("positions", POINTER(c_int32)),
        ("index", POINTER(c_int32)),
        ("edge", POINTER(c_int32)),
        ("in_use", POINTER(c_int32)),
        ("protect", POINTER(c_uint8)),
        ("slots", POINTER(Slots)),
    )


class Pass(Structure):
    """`h2o_pass`"""

    _fields_ = (
        ("layer", c_int32),
        ("rows", c_int32),
        ("tokens", c_int32),
        ("slots", c_int32),
        ("most_used", c_int32),
        ("clamps", c_int32),
        ("edge", c_int32),
        ("forget", c_float),
        ("remember", c_float),
        ("used", POINTER(c_int32)),
        ("first", POINTER(c_int32)),
        ("count", POINTER(c_int32)),
        ("index", POINTER(c_int32)),
        ("queries", c_void_p),
        ("keys", c_void_p),
        ("values", c_void_p),
        ("query_row", c_int64),
        ("query_head", c_int64),
        ("query_token", c_int64),
        ("key_row", c_int64),
        ("key_head", c_int64),
        ("key_token", c_int64),
        ("held_keys", c_void_p),
        ("held_values", c_void_p),
        ("positions", c_void_p),
        ("clamped", c_void_p),
        ("attended", c_void_p),
        ("gain", c_void_p),
        ("lately", c_void_p),
    )


class Lender(Structure):
    """`h2o_lender`"""

    _fields_ = (("run", c_void_p), ("number", c_void_p), ("count", c_void_p))


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
    "h2o_compare": (c_int32, (c_void_p, c_int32, c_void_p, *[c_int32] * 4, *[c_void_p] * 6)),
    "h2o_change": (c_int32, (c_void_p, *[c_int32] * 5, *[c_void_p] * 3)),
    "h2o_waited_ms": (c_double, (c_void_p,)),
}


def int32s(numbers: Sequence[int]) -> Any:
    """A C array of 32-bit integers."""
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

    Args:
        form: a key of `FORMS`; 0 is the fastest.
        keep: objects that the frame points to.

    Attributes:
        at: address of the model; None if this processor lacks the form, or there was no memory.
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
