"""While decoding, one value is read from the device per token, the token itself. Reading is waiting."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.engine.engine import Engine
from h2o_chat.models.load import load

POCKET = Path(__file__).parents[2] / "assets" / "pocket"
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
    mode = Reads()
    with monkeypatch.context() as patched, mode:
        for name in METHODS:
            usual = getattr(Tensor, name)

            def counted(self: Tensor, *args: Any, usual: Any = usual, name: str = name, **how: Any) -> Any:
                mode.found[name] += 1
                return usual(self, *args, **how)

            patched.setattr(Tensor, name, counted)
        yield mode.found


def test_what_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    one = torch.tensor([3])
    with reads(monkeypatch) as found:
        int(one), float(one), bool(one), one.item()
        assert found.total() == 4
        one.tolist(), one.numpy(), one.nonzero(), one[one > 2]
        assert found.total() >= 8


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.8, top_p=0.9, top_k=20)])
def test_a_decoded_token_reads_one_value(
    sampling: Sampling, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past the window, where keys are clamped and the base has moved, with a system prompt and pins."""
    settings = Settings(model=str(POCKET), budget=64, threads=1, seed=1, events_every=0, device=device)
    engine = Engine(load(settings, lambda *_: None), settings)
    engine.protect(8)
    ids = torch.randint(3, 4000, (2080,), generator=torch.Generator().manual_seed(0)).tolist()
    engine.feed(ids)
    engine.pin(range(2078, 2080))
    assert engine.cache.clocks[0].base > 0
    assert engine.cache.arenas[0].clamps
    settles, logits, sampler = 0, engine.forward([5]), engine.sampler
    with reads(monkeypatch) as found:
        for _ in range(100):
            logits = engine.forward([sampler.choose(logits, sampling)])
            settles += engine.cache.clocks[0].held == 64 + 1 - engine.cache.plan.stride
    assert settles > 30, "slots were given up on the way"
    assert found == {"_local_scalar_dense": 100}
