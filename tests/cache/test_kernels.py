"""A step's own kernels: they are asked of slots and of a prompt's chunk, and what they say decides."""

import torch
from tiny_models import VOCAB, tiny
from torch import Tensor

from h2o_chat import H2OCache
from h2o_chat.cache.eviction import TORCH, Kernels
from h2o_chat.cache.forward_call import Step
from h2o_chat.policies.policies import Slots, output_change_of_heads
from h2o_chat.transformers_cache.probe import probe

BUDGET = 32


def kept_with(kernels: Kernels) -> list[Tensor]:
    """Positions that each layer keeps of a prompt longer than the budget and 40 tokens one by one."""
    model = tiny("llama", "h2o")
    cache = H2OCache(BUDGET, positions=probe(model))
    tokens = torch.randint(3, VOCAB, (1, 100), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        for piece in (tokens[:, :60], *tokens[:, 60:].split(1, 1)):
            cache.prepare(Step(piece.shape[1], kernels=kernels))
            model(piece, position_ids=cache.position_ids(), past_key_values=cache)
    return [cache.kept(layer) for layer in range(3)]


def test_kernels_are_asked_as_they_are_told_to_be() -> None:
    asked = list[int]()

    def output_change(slots: Slots) -> Tensor:
        asked.append(slots.positions.shape[3])
        assert slots.values.is_contiguous()
        assert slots.values.is_floating_point()
        assert slots.score.is_contiguous()
        found = output_change_of_heads(slots)
        assert found.shape == slots.positions.shape
        assert not bool(found[slots.positions < 0].any())
        return found

    for mine, plain in zip(kept_with(Kernels(output_change)), kept_with(TORCH), strict=True):
        assert torch.equal(mine, plain)
    assert max(asked) > BUDGET + 1, "slots and a chunk side by side"
    assert min(asked) == BUDGET + 1, "slots alone"


def test_what_a_kernel_says_decides_who_stays() -> None:
    def oldest_matter(slots: Slots) -> Tensor:
        return torch.exp(-slots.positions.to(slots.score.dtype)).masked_fill(slots.positions < 0, 0)

    plain = kept_with(TORCH)
    mine = kept_with(Kernels(output_change=oldest_matter))
    assert not all(torch.equal(one, other) for one, other in zip(mine, plain, strict=True))
