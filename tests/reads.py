"""Counts what is read from the device: whoever reads waits for it."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

METHODS = ("tolist", "cpu", "numpy", "__array__", "__index__", "__iter__", "__contains__")
"""Ways to read a tensor that no operation of torch tells of, or not on a CPU."""


class Reads(TorchDispatchMode):
    """Counts operations whose result Python cannot have without waiting for the device."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = operation.overloadpacket.__name__
        # item(), int(), float(), bool() and `if tensor` all end in the first; the others have as many results
        # as the tensor has true elements.
        if name in ("_local_scalar_dense", "nonzero", "masked_select", "unique2", "equal"):
            self.found[name] += 1
        if name in ("index", "index_put", "index_put_") and any(
            index is not None and index.dtype == torch.bool for index in args[1]
        ):
            self.found[f"{name} by a mask"] += 1
        return operation(*args, **(kwargs or {}))


@contextmanager
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Counts what would be read on a GPU: what is done otherwise on a CPU, where reading is free, is not."""
    mode = Reads()
    with monkeypatch.context() as patched, mode:
        patched.setattr("h2o_chat.base.devices.reads_free", lambda device: False)
        for name in METHODS:
            usual = getattr(Tensor, name)

            def counted(self: Tensor, *args: Any, usual: Any = usual, name: str = name, **how: Any) -> Any:
                mode.found[name] += 1
                return usual(self, *args, **how)

            patched.setattr(Tensor, name, counted)
        yield mode.found
