"""A decoded token's logits, slots and scores equal the formula bit for bit."""

from pathlib import Path

import pytest
import torch
from families import MODELS, Pack
from formula import Formula, slots_of
from making import Make, silent
from sweep import sweep
from test_packing import assert_holds, weights_of
from test_step import by, cache_of, said, talk

from h2o_chat.cache.forward_call import Step
from h2o_chat.models.file_identity import fingerprint
from h2o_chat.native.gguf_weights import GgufWeights
from h2o_chat.native.packed import Packed, open_packed
from h2o_chat.native.packing import pack as pack_into
from h2o_chat.native.packing import packed_for
from h2o_chat.native.step import NativeStep
from h2o_chat.policies.scores import LATELY_DECAY

POCKET = Path(__file__).parents[2] / "assets" / "pocket"
pytestmark = pytest.mark.usefixtures("compiled")


@torch.inference_mode()
def compare(packed: Packed | GgufWeights, budget: int, before: int, count: int) -> int:
    """Feeds random tokens, compares the last `count` steps; how many slots with clamped keys there were."""
    step, formula, cache = NativeStep(packed, 2), Formula(packed), cache_of(packed, budget)
    tokens = said(before + count, packed.frame.vocabulary)
    talk(by(step), cache, tokens[:before])
    decay_factor, reach, far = cache.plan.decay_factor, cache.reach, 0
    for token in tokens[before:]:
        cache.prepare(Step(1))
        assert cache.step is not None
        this_pass, clock = cache.step.passes[0], cache.clocks[0]
        places = [(layer.arena, layer.at) for layer in cache.layers]
        held = [slots_of(arena, at, this_pass.in_use[0]) for arena, at in places if arena is not None]
        far += sum(int(slots.clamped.sum()) for slots in held)
        index = this_pass.first[0] - clock.rope_origin
        ours = step.feed(cache, torch.tensor([[token]]), all_columns=False)[0, 0]
        logits, after = formula.step(
            token, this_pass.first[0], index, reach - 1 - index, held, decay_factor, LATELY_DECAY
        )
        assert torch.equal(ours, logits)
        for (arena, at), slots in zip(places, after, strict=True):
            assert arena is not None
            names = (
                ("keys", "values") if this_pass.evicts else ("keys", "values", "positions", "score", "lately")
            )
            for name in names:
                assert torch.equal(arena.slots.states[name][at, 0], getattr(slots, name)), name
    return far


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        *((name, 4) for name in MODELS),
        ("llama", 8),
        *sweep(*((name, 8) for name in MODELS if name != "llama")),
    ],
)
def test_a_token_is_the_formula_of_every_family(name: str, bits: int, pack: Pack) -> None:
    assert compare(pack(name, bits), budget=40, before=12, count=50) == 0


@pytest.mark.parametrize(("bits", "tied"), [(4, True), *sweep((8, False))])
def test_a_head_in_four_bits_is_computed_as_the_formula_has_it(
    bits: int, tied: bool, saved: Make, tmp_path: Path
) -> None:
    """Packed to be measured alone."""
    folder, path = saved(tie_word_embeddings=tied), tmp_path / "head.h2o"
    pack_into(folder, bits, fingerprint(folder), path, silent, head_bits=4)
    packed = open_packed(path)
    assert (packed.frame.bits, packed.frame.head_bits) == (bits, 4)
    assert_holds(packed, weights_of(folder))
    compare(packed, budget=40, before=12, count=20)


@pytest.mark.parametrize("name", ["llama", *sweep("qwen3", "smollm3", "llama, scaled RoPE")])
def test_keys_that_are_clamped_are_met_as_the_formula_has_it(name: str, pack: Pack) -> None:
    assert compare(pack(name, 4), budget=40, before=900, count=20) > 0


@pytest.mark.parametrize(
    ("model", "bits", "count"),
    [("pocket", 8, 20), *sweep(("pocket", 4, 100), ("stories3m", 8, 250), ("stories3m", 4, 1000))],
)
def test_a_trained_model_is_computed_as_the_formula_has_it(
    model: str, bits: int, count: int, request: pytest.FixtureRequest
) -> None:
    folder = POCKET if model == "pocket" else request.getfixturevalue("shared_models") / model
    compare(packed_for(folder, bits, silent), budget=64, before=100, count=count)
