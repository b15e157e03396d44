"""Limits torch's threads beside those of the library."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Restricts torch to one thread inside.

    With more threads, every torch operation on more than 32,768 numbers waits for the slowest of them: beside
    other programs that takes longer than the rest of a token (dev/LOG.md, 2026-11-22).
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
