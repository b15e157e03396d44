"""While decoding, one value is read from the device per token, the token itself. Reading is waiting."""

from pathlib import Path

import opened_models
import pytest
import torch
from reads import reads

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.engine.engine import Engine
from h2o_chat.models.load import load

POCKET = Path(__file__).parents[2] / "assets" / "pocket"


def test_what_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    one = torch.tensor([3])
    with reads(monkeypatch) as found:
        int(one), float(one), bool(one), one.item()
        assert found.total() == 4
        one.tolist(), one.numpy(), one.nonzero(), one[one > 2]
        assert found.total() >= 8


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with a window of 256 tokens, which are soon past."""
    return opened_models.little(POCKET, tmp_path_factory.mktemp("short"), window=256)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.8, top_p=0.9, top_k=20)])
def test_a_decoded_token_reads_one_value(
    sampling: Sampling, short: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past the window, where keys are clamped and rebased, with a system prompt and pins."""
    settings = Settings(model=str(short), budget=64, threads=1, seed=1, events_every=0, device=device)
    engine = Engine(load(settings, lambda *_: None), settings)
    engine.protect(8)
    ids = torch.randint(3, 4000, (288,), generator=torch.Generator().manual_seed(0)).tolist()
    engine.feed(ids)
    engine.pin(range(286, 288))
    assert engine.cache.clocks[0].rope_origin > 0
    assert engine.cache.current_arenas()[0].clamps
    engine.sampler.on_cpu = False  # as on a GPU, where a read waits for all that was asked before
    evictions, logits, sampler = 0, engine.forward([5]), engine.sampler
    with reads(monkeypatch) as found:
        for _ in range(100):
            logits = engine.forward([sampler.choose(logits, sampling)])
            evictions += engine.cache.clocks[0].in_use == 64 + 1 - engine.cache.plan.stride
    assert evictions > 30, "slots were given up on the way"
    assert found == {"_local_scalar_dense": 100}
