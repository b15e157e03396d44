"""Threads of torch beside those of the library. Imported before torch is."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from h2o_chat.base.config import Settings
from h2o_chat.native import library


def asks_for_transformers(settings: Settings) -> str:
    """Which setting asks for the transformers step, in words; empty if none does."""
    if settings.engine == "transformers":
        return "--engine transformers was given"
    if settings.quantize in ("none", "nf4"):
        return f"--quantize {settings.quantize} was given, and it computes with int8 and int4"
    if settings.dtype != "auto":
        return f"--dtype {settings.dtype} was given, and it chooses its own"
    return ""


def let_torch_sleep(settings: Settings) -> None:
    """Makes idle threads of torch sleep at once, if the native step may run.

    In a prompt they alternate with the library's threads. By default they spin for milliseconds on the cores
    that the library needs: a prompt of 640 tokens took .63 s instead of .47 (two cores, 135M). The
    transformers step needs them awake: a token took 90 ms instead of 43 (nf4, two cores, 135M).
    GOMP_SPINCOUNT and OMP_WAIT_POLICY of the user have precedence.
    """
    if asks_for_transformers(settings) or library.why_not() or "OMP_WAIT_POLICY" in os.environ:
        return
    os.environ.setdefault("GOMP_SPINCOUNT", "0")


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Restricts torch to one thread inside.

    With more threads, every torch operation on more than 32,768 numbers waits for the slowest of them: beside
    other programs that takes longer than the rest of a token (dev/LOG.md, 2026-11-22).
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
