"""`H2OCache` in a script of transformers, without the rest of the program.

model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="h2o")
model.generate(**inputs, past_key_values=H2OCache(budget=512))
"""

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
from feeding import ask_in_place, kept_by, tokens
from oracle import feed
from sweep import sweep
from tiny_models import tiny
from torch import Tensor
from transformers import AutoTokenizer
from transformers.cache_utils import DynamicCache

from h2o_chat import H2OCache, Policy
from h2o_chat.base.config import POLICY_NAMES
from h2o_chat.base.errors import BudgetError, H2OChatError, ModelError, UsageError
from h2o_chat.models import resolve
from h2o_chat.native.step import supports
from h2o_chat.policies.policies import Slots
from h2o_chat.transformers_cache.probe import probe

BUDGET = 24
POCKET = resolve.find(None).folder


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny("llama", "h2o")


def generate(model: Any, ids: Tensor, cache: Any, new_tokens: int = 30, **options: Any) -> Tensor:
    """The whole id history, as `generate()` returns it."""
    options = {"do_sample": False, "attention_mask": torch.ones_like(ids)} | options
    return model.generate(ids, past_key_values=cache, max_new_tokens=new_tokens, **options)


@pytest.mark.parametrize("policy", ["h2o", "full", *sweep(*sorted({*POLICY_NAMES} - {"h2o", "full"}))])
def test_greedy_equals_a_loop_by_hand(model: Any, policy: str) -> None:
    ids = tokens(40)
    by_hand, cache = (H2OCache(budget=BUDGET, policy=policy, chunk=40) for _ in range(2))
    with torch.no_grad():
        answer = [int(model(ids, past_key_values=by_hand).logits[0, -1].argmax())]
    while len(answer) < 30:
        answer.append(int(feed(model, by_hand, answer[-1]).argmax()))
    assert generate(model, ids, cache)[0, 40:].tolist() == answer
    assert kept_by(cache) == kept_by(by_hand)
    assert cache.get_seq_length() == 69  # the last token is never fed


@pytest.mark.parametrize("policy", ["h2o", "caote", "streaming"])
def test_with_the_model_it_is_the_programs_cache(policy: str) -> None:
    """Given the model it compares keys before RoPE and clamps distances, as the engine's does; in fp64.

    Inside the window: beyond it the engine rebases, and plain transformers feeds growing positions.
    """
    model = tiny("llama", "h2o", max_position_embeddings=128)
    ids = part = tokens(60)
    plain = H2OCache(BUDGET, policy=policy, model=model)
    ours = H2OCache(BUDGET, policy=policy, positions=probe(model))
    answer: list[int] = []
    while len(answer) < 60:
        answer.append(int(ask_in_place(model, ours, part)[0, -1].argmax()))
        part = torch.tensor([answer[-1:]])
    assert generate(model, ids, plain, 60)[0, 60:].tolist() == answer
    assert kept_by(plain) == kept_by(ours)
    assert plain.reach == ours.reach == (64 if policy == "h2o" else 128)
    if policy == "h2o":
        assert any(bool(arena.slots.clamped.any()) for arena in plain.current_arenas())


def test_a_policy_of_ones_own(model: Any) -> None:
    """The example of docs/ARCHITECTURE.md: tokens with small values go first."""

    def large_values(slots: Slots) -> Tensor:
        return slots.values.norm(dim=-1)

    cache = H2OCache(BUDGET, policy=Policy(large_values, decay_factor=1.0, sinks=4, heavy=True), model=model)
    full = H2OCache(policy="full")
    for token in tokens(80)[0].tolist():
        feed(model, cache, token)
        feed(model, full, token)
    norms = full.layers[0].slots.values[0].norm(dim=-1)  # [H, slots]: nothing was ever evicted
    for head, kept in enumerate(kept_by(cache)[0]):  # deeper values depend on what was kept before
        older = [at for at in kept if 4 <= at < 80 - BUDGET // 2]
        gone = [at for at in range(4, 80 - BUDGET // 2) if at not in kept]
        assert min(norms[head, older]) >= max(norms[head, gone])


def test_beam_search_moves_rows(model: Any) -> None:
    ids, stock = tokens(40), tiny("llama", "eager")
    beams = {"num_beams": 3}
    expected = generate(stock, ids, DynamicCache(), **beams)
    assert torch.equal(generate(model, ids, H2OCache(400), **beams), expected)
    assert generate(model, ids, H2OCache(BUDGET), **beams).shape == expected.shape


@pytest.mark.parametrize("room", [BUDGET, 400], ids=["evicting", "roomy"])
def test_several_turns_on_one_cache(model: Any, room: int) -> None:
    """Each turn passes the whole id history, as transformers users do; only what is new is fed."""
    # By hand nobody says what was said to the model, which the default policy would ask for.
    cache, by_hand = (H2OCache(room, policy="caote", chunk=1) for _ in range(2))
    stock, everything = tiny("llama", "eager"), DynamicCache()
    history = expected = torch.zeros(1, 0, dtype=torch.long)
    for turn in range(3):
        said = tokens(12, seed=turn)
        history = generate(model, torch.cat((history, said), 1), cache, 20)
        expected = generate(stock, torch.cat((expected, said), 1), everything, 20)
        assert cache.get_seq_length() == history.shape[1] - 1 == 32 * (turn + 1) - 1
    for token in history[0, :-1].tolist():
        feed(model, by_hand, token)
    assert kept_by(by_hand) == kept_by(cache)
    assert torch.equal(history, expected) == (room == 400), "nothing is lost where there is room"


def test_a_trained_model_in_a_script_of_its_own() -> None:
    """The five lines of the documentation, in a process that has imported nothing else of ours."""
    script = f"""
from h2o_chat import H2OCache, Policy
from transformers import AutoModelForCausalLM, AutoTokenizer
name = {str(POCKET)!r}
model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="h2o")
inputs = AutoTokenizer.from_pretrained(name)("Once upon a time", return_tensors="pt")
cache = H2OCache(budget=64)
out = model.generate(inputs.input_ids, past_key_values=cache, max_new_tokens=70, eos_token_id=None)
print(out.shape[1], int((cache.kept(0) >= 0).sum(-1).max()))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    tokens, most = map(int, done.stdout.split())
    prompt_tokens = len(AutoTokenizer.from_pretrained(POCKET)("Once upon a time").input_ids)
    assert (tokens, most) == (prompt_tokens + 70, 64)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", ["llama", "opt", "gpt2", "gpt_neox", "qwen3"])
def test_a_model_without_this_attention_is_told_so(family: str, attention: str) -> None:
    """It would attend to the new tokens alone, and answer nonsense."""
    stock = tiny(family, attention)
    with pytest.raises(ModelError, match='attn_implementation="h2o"'):
        generate(stock, tokens(40), H2OCache(BUDGET))
    with pytest.raises(ModelError, match='attn_implementation="h2o"'):
        stock(tokens(1), past_key_values=H2OCache(BUDGET))


@pytest.mark.parametrize("cache", [None, DynamicCache()], ids=["none", "dynamic"])
def test_another_cache_is_refused(model: Any, cache: Any) -> None:
    """It would grow silently."""
    with pytest.raises(H2OChatError, match="H2OCache"):
        model(tokens(40), past_key_values=cache)


def test_an_unknown_attention_keyword_raises(model: Any) -> None:
    """None says nothing and passes; anything else might change what attention computes."""
    ids = tokens(4)
    plain = model(ids, past_key_values=H2OCache(BUDGET)).logits
    with_none = model(ids, past_key_values=H2OCache(BUDGET), position_bias=None).logits
    assert torch.equal(plain, with_none)
    with pytest.raises(ModelError, match=r"LlamaAttention.*position_bias"):
        model(ids, past_key_values=H2OCache(BUDGET), position_bias=torch.zeros(4))


def test_a_four_dimensional_mask_is_refused(model: Any) -> None:
    with pytest.raises(ModelError, match="padding mask"):
        model(tokens(4), attention_mask=torch.zeros(1, 1, 4, 4), past_key_values=H2OCache(BUDGET))


def test_the_number_of_rows_is_fixed(model: Any) -> None:
    cache = H2OCache(BUDGET)
    model(tokens(4, rows=2), past_key_values=cache)
    with pytest.raises(UsageError, match="2 rows"):
        model(tokens(4, rows=3), past_key_values=cache)
    cache.reset()
    model(tokens(4, rows=3), past_key_values=cache)
    assert cache.kept(0).shape[0] == 3


def test_the_smallest_budget_works_in_use(model: Any) -> None:
    for policy in ("h2o-paper", "window"):
        cache = H2OCache(1, policy=policy, chunk=3)
        assert generate(model, tokens(40), cache).shape == (1, 70)
        assert all(len(head) == 1 for layer in kept_by(cache) for head in layer)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"policy": "mru"}, "h2o-paper"),
        ({"chunk": 0}, "at least 1"),
        ({"prefill": "whole"}, "whole"),
        ({"sinks": -1}, "sinks"),
        ({"recent": -1}, "recent"),
    ],
)
def test_a_plan_that_means_nothing_is_refused(plan: dict[str, Any], words: str) -> None:
    with pytest.raises(H2OChatError, match=words):
        H2OCache(BUDGET, **plan)


def test_what_cannot_be_taken_back_is_refused(model: Any) -> None:
    """Assisted generation and beam search by cropping would need evicted tokens again."""
    cache = H2OCache(BUDGET)
    model(tokens(40), past_key_values=cache)
    with pytest.raises(UsageError, match="snapshot"):
        cache.crop(-2)


def test_half_precision_does_not_overflow_where_the_scaled_logits_fit() -> None:
    """Keys with large biases (Qwen2): 128 x 25 x 25 is beyond fp16, a twelfth of it is not."""
    model = tiny("llama", "h2o", torch.float16, num_hidden_layers=1, head_dim=128)
    attention = model.model.layers[0].self_attn
    for projection in (attention.q_proj, attention.k_proj):
        projection.register_forward_hook(lambda _, __, output: torch.full_like(output, 25.0))
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        logits = model(ids, position_ids=torch.zeros_like(ids), past_key_values=H2OCache(24)).logits
    assert bool(logits.isfinite().all())


def test_a_budget_that_no_memory_holds(model: Any) -> None:
    """It is refused before the system is asked: that may say yes, and kill the process later."""
    ids = tokens(4)
    with pytest.raises(
        BudgetError, match=r"A budget of 1,000,000,000 slots needs .* GB for one layer"
    ) as caught:
        generate(model, ids, H2OCache(budget=10**9, chunk=4))
    assert "bytes in every layer" in caught.value.hint


@pytest.mark.parametrize("kv", ["auto", "int8"])
@pytest.mark.parametrize(
    ("heads", "dtype", "device"),
    [(8, torch.float64, "cpu"), (2, torch.bfloat16, "cpu"), (2, torch.float64, "meta")],
)
def test_a_cache_that_is_moved_to_another_model(
    model: Any, kv: str, heads: int, dtype: torch.dtype, device: str
) -> None:
    cache = H2OCache(budget=BUDGET, kv=kv)
    generate(model, tokens(40), cache, 4)
    keys = torch.zeros(1, heads, 1, 8, dtype=dtype, device=device)
    with pytest.raises(UsageError, match=r"This H2OCache holds .* and is fed ") as caught:
        cache.update(keys, keys, 0)
    assert "cache.reset()" in caught.value.hint
    cache.reset()
    if device == "cpu":
        cache.update(keys, keys, 0)


@pytest.mark.parametrize("what", ["budget", "sinks", "recent", "chunk"])
@pytest.mark.parametrize("value", [1.5, "8", True])
def test_a_number_that_is_none(what: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"{what}=.* is no number of tokens"):
        H2OCache(**({"budget": BUDGET} | {what: value}))


def test_a_policy_reads_the_states_that_it_names() -> None:
    """States that are not kept would silently be zeros; the native step leaves such a policy to torch."""
    plain = Policy(lambda slots: slots.lately, decay_factor=1.0, sinks=4, heavy=True)
    cache = H2OCache(16, policy=plain, observe=True)
    model, ids = tiny("llama", "h2o"), torch.arange(3, 43)[None]
    with torch.inference_mode(), pytest.raises(AttributeError, match=r"no state 'lately' here.*looks_at"):
        model(ids, past_key_values=cache)
    named = replace(plain, looks_at=("lately",))
    with torch.inference_mode():
        model(ids, past_key_values=H2OCache(16, policy=named, observe=True))
    assert [supports(one) for one in (Policy(plain.priority, 1.0, 4, True), named)] == [True, False]
    flat = replace(plain, priority=lambda slots: slots.score)
    with torch.inference_mode(), pytest.raises(UsageError, match="ranks by numbers of the shape"):
        model(ids, past_key_values=H2OCache(16, policy=flat))
