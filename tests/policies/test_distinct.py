"""How a key stands among the others held: against loops in plain sight, and against a model's own keys."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import VOCAB, tiny
from torch import Tensor

from h2o_chat import H2OCache
from h2o_chat.policies import novelty
from h2o_chat.policies.policies import POLICIES, Slots, whole_words
from h2o_chat.transformers_cache.probe import probe

POSITIONS = st.sets(st.integers(0, 30), max_size=12).map(lambda gaps: [p for p in range(31) if p not in gaps])
"""With runs in them."""


def slots_at(positions: list[int], **known: list[float]) -> Slots:
    """One row and head of slots; all told, none ever attended to, unless `known` says otherwise."""
    one = torch.zeros(1, 1, len(positions))

    def numbers(name: str) -> Tensor:
        return torch.tensor([[known[name]]]) if name in known else one

    return Slots(
        512,
        positions=torch.tensor([[positions]], dtype=torch.int32),
        values=torch.eye(len(positions))[None, None],
        distinctness=numbers("unlike"),
        novelty=numbers("alone"),
        prompt=numbers("given") > 0,
        score=numbers("attended").unsqueeze(-1),
    )


@given(POSITIONS, st.integers(0, 5), st.randoms(use_true_random=False))
def test_a_word_is_worth_what_its_first_token_is(positions: list[int], empty: int, rng: object) -> None:
    numbers = {position: 40.0 if position % 6 == 0 else 1.0 for position in positions}
    held = positions + [-1] * empty
    rng.shuffle(held)  # type: ignore[attr-defined]
    given_up = 99.0  # an empty slot may hold anything
    found = whole_words(
        torch.tensor([[[numbers.get(position, given_up) for position in held]]], dtype=torch.float64),
        torch.tensor([[held]], dtype=torch.int32),
    )

    def worth(position: int) -> float:
        behind = [0.4**back * numbers[position - back] for back in range(4) if unbroken(position, back)]
        return max(behind)

    def unbroken(position: int, back: int) -> bool:
        return all(position - step in numbers for step in range(back + 1))

    for position, number in zip(held, found.flatten().tolist(), strict=True):
        if position >= 0:
            assert number == pytest.approx(worth(position))


@pytest.mark.parametrize("block", [1, 4, 256])
def test_nearest_is_the_largest_cosine_to_another_key(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(novelty, "BLOCK", block)
    torch.manual_seed(0)
    unit = torch.nn.functional.normalize(torch.randn(2, 3, 9, 4, dtype=torch.float64), dim=-1)
    positions = torch.arange(9).repeat(2, 3, 1).to(torch.int32)
    positions[0, :, 5:] = -1
    positions[1, :, 1:] = -1  # one key alone has no other
    found = -novelty.novelty(unit.masked_fill((positions < 0).unsqueeze(-1), 0))
    for row, held in ((0, 5), (1, 1)):
        for head in range(3):
            for i in range(held):
                others = [float(unit[row, head, i] @ unit[row, head, j]) for j in range(held) if j != i]
                assert float(found[row, head, i]) == pytest.approx(max([0.0, *others]))


@pytest.mark.parametrize("one_by_one", [False, True], ids=["prompt", "steps"])
def test_keys_are_compared_as_they_were_before_rope(one_by_one: bool) -> None:
    """In layer 0 a key before RoPE depends on its token alone. The 32nd token settles: all are compared."""
    model = tiny("llama", "h2o")
    ids = torch.randint(3, VOCAB, (1, 32), generator=torch.Generator().manual_seed(1))
    cache = H2OCache(31, positions=probe(model))
    with torch.no_grad():
        for piece in ids.split(1, dim=1) if one_by_one else [ids]:
            model(piece, past_key_values=cache)
        layer = model.model.layers[0]
        keys = layer.self_attn.k_proj(layer.input_layernorm(model.model.embed_tokens(ids[0])))
    unit = torch.nn.functional.normalize(keys.view(32, 2, -1), dim=-1)
    held = cache.layers[0].slots
    for head in range(2):
        mean = unit[:, head].mean(0)
        for slot, position in enumerate(held.positions[0, head].tolist()):
            if position < 0:
                continue
            cosines = unit[:, head] @ unit[position, head]
            cosines[position] = 0
            # Angles are taken in fp32.
            assert float(held.novelty[0, head, slot]) == pytest.approx(-max(0.0, cosines.amax()), abs=1e-6)
            to_mean = float(unit[position, head] @ mean / mean.norm())
            assert float(held.distinctness[0, head, slot]) == pytest.approx(-to_mean, abs=1e-6)


def test_between_two_looks_at_pairs_lies_a_sixteenth_of_the_budget() -> None:
    model = tiny("llama", "h2o")
    ids = torch.randint(3, VOCAB, (1, 700), generator=torch.Generator().manual_seed(1))
    cache, looked = H2OCache(512, positions=probe(model)), []
    with torch.no_grad():
        model(ids[:, :600], past_key_values=cache)
        before = cache.layers[0].slots.novelty.clone()
        for position in range(600, 700):
            model(ids[:, position : position + 1], past_key_values=cache)
            now = cache.layers[0].slots.novelty
            if bool(((now != before) & (now != 0)).any()):
                looked.append(position + 1)
            before = now.clone()
    assert looked == [633, 665, 697], "at every second settle: one is due every 16 tokens"


def test_of_two_told_tokens_alike_neither_pushes_out_one_without_a_double() -> None:
    at, unlike, alone = [4, 5, 6, 7, 8], [-0.2, -0.2, -0.4, -0.9, -0.9], [-1.0, -1.0, -0.1, -0.9, -0.9]

    def best(told: list[float]) -> int:
        priority = POLICIES["h2o"].priority(slots_at(at, unlike=unlike, alone=alone, given=told)).flatten()
        return int(priority.argmax())

    assert best([1.0] * 4 + [0.0]) == 2
    assert best([0.0] * 5) != 2, "the model's own words are not compared in pairs"
    assert best([1.0] * 5) == best([0.0] * 5), "where all that is held was told, nothing is favoured"


def test_the_second_half_of_a_word_stays_with_the_first() -> None:
    slots = slots_at([4, 5, 8, 9], attended=[1.0, 0.0, 0.0, 1.0])
    _, second, other, _ = POLICIES["h2o"].priority(slots).flatten().tolist()
    assert second > other + 1, "far more than three tokens of age make up"
