"""`H2OCache` in a script of transformers, without the rest of the program.

model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="h2o")
model.generate(**inputs, past_key_values=H2OCache(budget=512))
"""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from oracle import feed
from tiny_models import VOCAB, tiny
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from transformers.cache_utils import DynamicCache

from h2o_chat import H2OCache, Policy
from h2o_chat.base.config import POLICY_NAMES
from h2o_chat.base.errors import BudgetError, H2OChatError, ModelError, UsageError
from h2o_chat.cache.forward_call import Step
from h2o_chat.models import resolve
from h2o_chat.native.step import supports
from h2o_chat.policies.policies import Slots
from h2o_chat.transformers_cache.probe import probe

BUDGET = 24
POCKET = resolve.find(None).folder


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny("llama", "h2o")


def prompt(columns: int = 40, seed: int = 0, rows: int = 1) -> Tensor:
    return torch.randint(3, VOCAB, (rows, columns), generator=torch.Generator().manual_seed(seed))


def generate(model: Any, ids: Tensor, cache: Any, new_tokens: int = 30, **options: Any) -> Tensor:
    """The whole id history, as `generate()` returns it."""
    options = {"do_sample": False, "attention_mask": torch.ones_like(ids)} | options
    return model.generate(ids, past_key_values=cache, max_new_tokens=new_tokens, **options)


def held(cache: H2OCache) -> list[list[set[int]]]:
    """Positions of row 0: [layers][H]."""
    return [
        [{p for p in head if p >= 0} for head in cache.kept(layer)[0].tolist()]
        for layer in range(len(cache.layers))
    ]


# -- it generates ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_greedy_equals_a_loop_by_hand(model: Any, policy: str) -> None:
    ids = prompt()
    by_hand, cache = (H2OCache(budget=BUDGET, policy=policy, chunk=40) for _ in range(2))
    with torch.no_grad():
        answer = [int(model(ids, past_key_values=by_hand).logits[0, -1].argmax())]
    while len(answer) < 30:
        answer.append(int(feed(model, by_hand, answer[-1]).argmax()))
    assert generate(model, ids, cache)[0, 40:].tolist() == answer
    assert held(cache) == held(by_hand)
    assert cache.get_seq_length() == 69  # the last token is never fed


def test_sampling_repeats_with_a_seed(model: Any) -> None:
    answers = []
    for seed in (1, 1, 2):
        set_seed(seed)
        answers.append(generate(model, prompt(), H2OCache(BUDGET), do_sample=True, top_k=50))
    assert torch.equal(answers[0], answers[1])
    assert not torch.equal(answers[0], answers[2])


@pytest.mark.parametrize("policy", ["h2o", "caote", "streaming"])
def test_with_the_model_it_is_the_programs_cache(policy: str) -> None:
    """Given the model it compares keys before RoPE and clamps distances, as the engine's does; in fp64.

    Inside the window: beyond it the engine rebases, and plain transformers feeds growing positions.
    """
    model = tiny("llama", "h2o", max_position_embeddings=128)
    ids = prompt(60)
    plain = H2OCache(BUDGET, policy=policy, model=model)
    ours = H2OCache(BUDGET, policy=policy, positions=probe(model))
    answer: list[int] = []
    with torch.no_grad():
        part = ids
        while len(answer) < 60:
            ours.prepare(Step(part.shape[1]))
            logits = model(part, position_ids=ours.position_ids(), past_key_values=ours).logits
            answer.append(int(logits[0, -1].argmax()))
            part = torch.tensor([answer[-1:]])
    assert generate(model, ids, plain, 60)[0, 60:].tolist() == answer
    assert held(plain) == held(ours)
    assert plain.reach == ours.reach == (64 if policy == "h2o" else 128)
    if policy == "h2o":
        assert any(bool(arena.slots.clamped.any()) for arena in plain.absorbed_arenas())


def test_a_policy_of_ones_own(model: Any) -> None:
    """The example of docs/ARCHITECTURE.md: tokens with small values go first."""

    def large_values(slots: Slots) -> Tensor:
        return slots.values.norm(dim=-1)

    cache = H2OCache(BUDGET, policy=Policy(large_values, decay_factor=1.0, sinks=4, heavy=True), model=model)
    full = H2OCache(policy="full")
    with torch.no_grad():
        for token in prompt(80)[0]:
            feed(model, cache, int(token))
            feed(model, full, int(token))
    for layer in range(3):
        norms = full.layers[layer].slots.values[0].norm(dim=-1)  # [H, slots]: nothing was ever evicted
        if layer:  # deeper values depend on what was kept before
            continue
        for head, kept in enumerate(held(cache)[layer]):
            older = [at for at in kept if 4 <= at < 80 - BUDGET // 2]
            gone = [at for at in range(4, 80 - BUDGET // 2) if at not in kept]
            assert min(norms[head, older]) >= max(norms[head, gone])


def test_several_samples_of_one_prompt(model: Any) -> None:
    """`num_return_sequences` copies the prompt's row before anything is cached."""
    set_seed(1)
    cache = H2OCache(BUDGET)
    answers = generate(model, prompt(), cache, do_sample=True, num_return_sequences=3)
    assert answers.shape[0] == cache.kept(0).shape[0] == 3
    assert len({tuple(row) for row in answers.tolist()}) == 3


def test_beam_search_moves_rows(model: Any) -> None:
    ids, stock = prompt(), tiny("llama", "eager")
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
        said = prompt(12, seed=turn)
        history = generate(model, torch.cat((history, said), 1), cache, 20)
        expected = generate(stock, torch.cat((expected, said), 1), everything, 20)
        assert cache.get_seq_length() == history.shape[1] - 1 == 32 * (turn + 1) - 1
    for token in history[0, :-1].tolist():
        feed(model, by_hand, token)
    assert held(by_hand) == held(cache)
    assert torch.equal(history, expected) == (room == 400), "nothing is lost where there is room"


def test_a_padded_batch_equals_its_rows(model: Any) -> None:
    lengths = [40, 33, 5]
    ids, mask = torch.zeros(3, 40, dtype=torch.long), torch.zeros(3, 40, dtype=torch.long)
    rows = [prompt(n, seed=n) for n in lengths]
    for i, row in enumerate(rows):
        ids[i, 40 - row.shape[1] :] = row
        mask[i, 40 - row.shape[1] :] = 1
    cache = H2OCache(BUDGET)
    together = generate(model, ids, cache, attention_mask=mask)[:, 40:]
    for i, row in enumerate(rows):
        alone = H2OCache(BUDGET)
        assert torch.equal(generate(model, row, alone)[0, row.shape[1] :], together[i])
        for layer in range(3):
            assert torch.equal(cache.kept(layer)[i].sort(-1).values, alone.kept(layer)[0].sort(-1).values)


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


# -- it refuses --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", ["llama", "opt", "gpt2", "gpt_neox", "qwen3"])
def test_a_model_without_this_attention_is_told_so(family: str, attention: str) -> None:
    """It would attend to the new tokens alone, and answer nonsense."""
    stock = tiny(family, attention)
    with pytest.raises(ModelError, match='attn_implementation="h2o"'):
        generate(stock, prompt(), H2OCache(BUDGET))
    with pytest.raises(ModelError, match='attn_implementation="h2o"'):
        stock(prompt(1), past_key_values=H2OCache(BUDGET))


@pytest.mark.parametrize("cache", [None, DynamicCache()], ids=["none", "dynamic"])
def test_another_cache_is_refused(model: Any, cache: Any) -> None:
    """It would grow silently."""
    with pytest.raises(H2OChatError, match="H2OCache"):
        model(prompt(), past_key_values=cache)


def test_attention_can_be_switched_on_later() -> None:
    switched = tiny("llama", "eager")
    switched.set_attn_implementation("h2o")
    actual = generate(switched, prompt(), H2OCache(BUDGET))
    assert torch.equal(actual, generate(tiny("llama", "h2o"), prompt(), H2OCache(BUDGET)))


def test_an_unknown_attention_keyword_raises(model: Any) -> None:
    """None says nothing and passes; anything else might change what attention computes."""
    ids = prompt(4)
    plain = model(ids, past_key_values=H2OCache(BUDGET)).logits
    with_none = model(ids, past_key_values=H2OCache(BUDGET), position_bias=None).logits
    assert torch.equal(plain, with_none)
    with pytest.raises(ModelError, match=r"LlamaAttention.*position_bias"):
        model(ids, past_key_values=H2OCache(BUDGET), position_bias=torch.zeros(4))


def test_a_four_dimensional_mask_is_refused(model: Any) -> None:
    with pytest.raises(ModelError, match="padding mask"):
        model(prompt(4), attention_mask=torch.zeros(1, 1, 4, 4), past_key_values=H2OCache(BUDGET))


def test_the_number_of_rows_is_fixed(model: Any) -> None:
    cache = H2OCache(BUDGET)
    model(prompt(4, rows=2), past_key_values=cache)
    with pytest.raises(UsageError, match="2 rows"):
        model(prompt(4, rows=3), past_key_values=cache)
    cache.reset()
    model(prompt(4, rows=3), past_key_values=cache)
    assert cache.kept(0).shape[0] == 3


@pytest.mark.parametrize(
    ("plan", "numbers"),
    [
        ({"budget": 4, "policy": "caote"}, ("4 slots", "4 sinks", "2 recent")),
        ({"budget": 10, "recent": 10, "policy": "h2o-paper"}, ("10 slots", "0 sinks", "10 recent")),
        ({"budget": 64, "sinks": 40}, ("64 slots", "40 sinks", "28 recent")),
        ({"budget": 0, "policy": "window"}, ("0 slots",)),
        ({"budget": 4, "policy": "streaming"}, ("4 slots", "4 sinks")),
        ({"budget": 20, "sinks": 4, "recent": 30, "policy": "h2o-paper"}, ("20 slots", "30 recent")),
    ],
)
def test_an_impossible_budget_says_the_numbers_and_what_works(
    plan: dict[str, Any], numbers: tuple[str, ...]
) -> None:
    with pytest.raises(BudgetError) as caught:
        H2OCache(**plan)
    assert all(number in caught.value.message for number in numbers)
    smallest = int(caught.value.hint.rstrip(".").split()[-1])
    H2OCache(**plan | {"budget": smallest})
    with pytest.raises(BudgetError):
        H2OCache(**plan | {"budget": smallest - 1})


def test_the_smallest_budget_works_in_use(model: Any) -> None:
    for policy in ("h2o-paper", "window"):
        cache = H2OCache(1, policy=policy, chunk=3)
        assert generate(model, prompt(), cache).shape == (1, 70)
        assert all(len(head) == 1 for layer in held(cache) for head in layer)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"policy": "mru"}, "h2o-paper"),
        ({"chunk": 0}, "at least 1"),
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
    model(prompt(), past_key_values=cache)
    with pytest.raises(UsageError, match="snapshot"):
        cache.crop(-2)


def test_loading_needs_no_more_than_the_name(shared_models: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(shared_models / "stories260k", attn_implementation="h2o")
    ids = torch.tensor([[1, 5, 9]])
    assert generate(model, ids, H2OCache(BUDGET), 40, eos_token_id=None).shape == (1, 43)


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


# -- what it does not take ---------------------------------------------------------------------------------


def test_a_budget_that_no_memory_holds(model: Any) -> None:
    """It is refused before the system is asked: that may say yes, and kill the process later."""
    ids = prompt(4)
    with pytest.raises(
        BudgetError, match=r"A budget of 1,000,000,000 slots needs .* GB for one layer"
    ) as caught:
        generate(model, ids, H2OCache(budget=10**9, chunk=4))
    assert "bytes in every layer" in caught.value.hint


@pytest.mark.parametrize("kv", ["auto", "int8"])
@pytest.mark.parametrize("other", ["heads", "precision", "device"])
def test_a_cache_that_is_moved_to_another_model(model: Any, kv: str, other: str) -> None:
    cache = H2OCache(budget=BUDGET, kv=kv)
    generate(model, prompt(), cache, 4)
    with torch.device("meta" if other == "device" else "cpu"):
        dtype = torch.bfloat16 if other == "precision" else torch.float64
        keys = torch.zeros(
            1,
            8 if other == "heads" else cache.absorbed_arenas()[0].layer_shape.heads,
            1,
            cache.absorbed_arenas()[0].layer_shape.key,
            dtype=dtype,
        )
    with pytest.raises(UsageError, match=r"This H2OCache holds .* and is fed ") as caught:
        cache.update(keys, keys, 0)
    assert "cache.reset()" in caught.value.hint
    cache.reset()
    if other != "device":
        cache.update(keys, keys, 0)


def test_a_cache_that_is_moved_to_a_model_of_another_precision(model: Any) -> None:
    cache = H2OCache(budget=BUDGET)
    generate(model, prompt(), cache, 4)
    other = tiny("llama", "h2o").to(torch.bfloat16)
    with pytest.raises(UsageError, match=r"torch\.float64 on cpu, and is fed .* torch\.bfloat16 on cpu"):
        generate(other, prompt(), cache, 4)


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
