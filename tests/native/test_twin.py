"""The twin is the model: with rounded weights, and with the native step's activations."""

import pytest
import torch
import transformers
from making import Make, silent
from torch import Tensor
from twin import twin

from h2o_chat.native.model_frame import FAMILIES
from h2o_chat.native.packing import packed_for


@pytest.mark.parametrize(("family", "tied"), [("llama", True), *((family, False) for family in FAMILIES)])
def test_int8_is_nearly_the_model(saved: Make, family: str, tied: bool) -> None:
    folder = saved(family, tie_word_embeddings=tied, scale=0.1)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    packed = packed_for(folder, 8, silent)
    if packed.frame.experts:
        model.set_experts_implementation("eager")  # the others know no float64
    ids = torch.randint(0, 128, (2, 24), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        exact = model(ids).logits
        far = {
            name: apart(twin(folder, packed, dtype=dtype, activations=act)(ids).logits, exact, family)
            for name, dtype, act in [
                ("weights", torch.float64, False),
                ("both", torch.float64, True),
                ("fp32", torch.float32, True),
            ]
        }
    assert 1e-4 < far["weights"] < 0.03
    assert far["weights"] * 0.5 < far["both"] < 0.04
    assert far["fp32"] == pytest.approx(far["both"], rel=0.2)


def apart(found: Tensor, exact: Tensor, family: str) -> float:
    """How far logits are off, by their size; of experts the median token's, since another may take others."""
    if family in ("qwen3_moe", "olmoe"):
        return float(((found - exact).norm(dim=-1) / exact.norm(dim=-1)).median())
    return float((found - exact).norm() / exact.norm())
