"""Threads of torch beside those of the library."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """What follows is too little to divide.

    With more threads every torch operation on more than 32,768 numbers waits for the last of them: beside
    other programs that takes longer than all the rest of a token (dev/LOG.md, 2026-11-22).
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
