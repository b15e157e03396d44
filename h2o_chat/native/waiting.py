"""How torch's threads wait beside those of the library. No torch: it is said before torch is imported."""

import os

from h2o_chat.base.config import Settings
from h2o_chat.native import library


def asks_for_transformers(settings: Settings) -> str:
    """Why the transformers step computes whatever the model is, in words; empty: nobody asked for that."""
    if settings.engine == "transformers":
        return "--engine transformers was given"
    if settings.quantize in ("none", "nf4"):
        return f"--quantize {settings.quantize} was given, and it computes with int8 and int4"
    if settings.dtype != "auto":
        return f"--dtype {settings.dtype} was given, and it chooses its own"
    return ""


def let_torch_sleep(settings: Settings) -> None:
    """Has torch's threads sleep as soon as they have nothing to do, where the native step may compute.

    In a prompt they take turns with the library's. As they are they go on spinning for milliseconds, on the
    processors that the library needs: a prompt of 640 tokens took .63 s instead of .47 (two cores, 135M).
    The transformers step needs them awake: a token took 90 ms instead of 43 (nf4, two cores, 135M).
    Whoever has set GOMP_SPINCOUNT or OMP_WAIT_POLICY is obeyed.
    """
    if asks_for_transformers(settings) or library.why_not() or "OMP_WAIT_POLICY" in os.environ:
        return
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
