"""Every family that the table opens, as a tiny random model: stock transformers, literal H2O, saved files.

A few run always, one of each kind; all of them with `make test-all`. What opens is tried, not looked up.
"""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from any_family import names, ours, prompt, stock, tiny, two_turns, verdict
from any_oracle import ATTENTION, LiteralCache
from feeding import kept
from forking import Forked
from oracle import feed
from sweep import sweep
from transformers import AutoTokenizer

from h2o_chat import H2OCache
from h2o_chat.base.config import Settings
from h2o_chat.base.errors import SavedCacheError, UsageError
from h2o_chat.engine.row import Row
from h2o_chat.engine.runner import Runner, cache_for
from h2o_chat.models.families import OPENS, REFUSED, families
from h2o_chat.models.load import Loaded
from h2o_chat.models.resolve import POCKET, find
from h2o_chat.transformers_cache import registered
from h2o_chat.transformers_cache.probe import probe

ALWAYS = [
    "deepseek_v3",  # latent attention, experts
    "falcon_h1",  # attention and state in one layer
    "gemma4_text",  # shared slots, layers of several shapes
    "gpt_oss",  # sinks in the softmax, experts
    "lfm2",  # convolutions
    "llama4_text",  # chunks
    "mistral3",  # the text part of a model that sees
    "qwen3_next",  # recurrent layers, experts
]
OPEN = [name for name, said in families().items() if said == OPENS]
CASES = [*ALWAYS, *sweep(*(name for name in OPEN if name not in ALWAYS))]
BUDGET = 24
SETTINGS = Settings(budget=BUDGET, policy="h2o", seed=1, sinks=2, recent=8)
SECOND = prompt(9, seed=6)[0].tolist()
NEAR = 1e-5
GENTLE = 0.12  # scale of the random weights at which stock fp32 itself stays well within 1e-5


def test_every_family_is_in_the_table() -> None:
    """One that transformers adds has to be tried: tools/make/make_families.py."""
    assert list(families()) == names()
    assert set(families().values()) <= {OPENS, *REFUSED}
    assert len(OPEN) >= 95


@pytest.mark.parametrize("family", sweep(*(name for name in families() if name not in OPEN)))
def test_what_is_refused_fails_when_it_is_tried(family: str) -> None:
    assert verdict(family) == families()[family]


@pytest.mark.parametrize("family", CASES)
def test_with_room_for_everything_it_is_stock(family: str) -> None:
    """Logits of two turns and of 40 generated tokens, of two rows, in fp32."""
    model, parts = tiny(family, torch.float32, GENTLE), two_turns()
    expected = stock(model, parts)
    assert expected.isfinite().all()
    cache = H2OCache(85, policy="h2o-paper", chunk=16, positions=probe(model))
    torch.testing.assert_close(ours(model, parts, cache), expected, atol=NEAR, rtol=0)
    held = {int((cache.kept(layer) >= 0).sum(-1).min()) for layer in range(len(cache.attention_layers))}
    assert held == {85}


@pytest.mark.parametrize("family", CASES)
def test_in_few_slots_it_keeps_what_the_literal_h2o_keeps(family: str) -> None:
    """One token at a time, in float64."""
    model, ids = tiny(family), prompt(48)[0].tolist()
    literal, cache = LiteralCache(model, BUDGET), H2OCache(BUDGET, policy="h2o-paper", model=model)
    for step, token in enumerate(ids):
        model.set_attn_implementation(ATTENTION)
        expected = feed(model, literal, token)
        model.set_attn_implementation(registered.NAME)
        actual = feed(model, cache, token)
        torch.testing.assert_close(actual, expected, atol=NEAR, rtol=0, msg=f"{family}, step {step}")
        assert kept(cache) == literal.kept(), f"{family}, step {step}"


KILLED = """
import sys
from pathlib import Path
sys.path += [sys.argv[1], str(Path(sys.argv[1]).parent)]
import test_every_family as here
here.killed(sys.argv[2], Path(sys.argv[3]))
"""


@pytest.mark.parametrize("family", CASES)
def test_a_killed_conversation_goes_on_token_for_token(family: str, tmp_path: Path) -> None:
    """A process saves, answers on and is killed; another reads the file. A row may wait meanwhile."""
    command = [sys.executable, "-c", KILLED, str(Path(__file__).parent), family, str(tmp_path / "memory")]
    with Forked(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        goes_on = json.loads(process.stdout.readline())
        process.kill()
    assert process.returncode == -signal.SIGKILL

    loaded = opened(family)
    runner = Runner(loaded, cache_for(loaded, SETTINGS))
    other = Row(runner, SETTINGS)
    other.load(tmp_path / "memory")
    before = other.snapshot()
    assert answer(other, SECOND, 10) == goes_on
    other.restore(before)
    assert answer(other, SECOND, 10) == goes_on

    runner = Runner(loaded, cache_for(loaded, SETTINGS), rows=2)
    runner.put(0, before.cache)
    runner.put(1, before.cache)
    for token in SECOND:  # row 1 waits
        runner.feed([[token], []], prompt=True)
    late = Row(runner, SETTINGS, 1)
    late.pending = before.pending
    assert answer(late, SECOND, 10) == goes_on


def killed(family: str, memory: Path) -> None:
    """Saves a conversation, tells the tokens that come next, and goes on until somebody kills it."""
    loaded = opened(family)
    row = Row(Runner(loaded, cache_for(loaded, SETTINGS)), SETTINGS)
    answer(row, prompt(40)[0].tolist(), 10)
    row.save(memory)
    print(json.dumps(answer(row, SECOND, 10)), flush=True)
    while True:
        answer(row, SECOND, 10)


def opened(family: str) -> Loaded:
    tokenizer = AutoTokenizer.from_pretrained(find(POCKET).folder)
    model = tiny(family, torch.float32)
    model.set_attn_implementation(registered.NAME)
    return Loaded(model, tokenizer, family, None, "none", "float32", "cpu")


def answer(row: Row, ids: list[int], tokens: int) -> list[int]:
    """Greedy tokens after a prompt; the last one waits."""
    logits = row.feed(ids)
    found: list[int] = []
    while logits is not None and len(found) < tokens:
        found.append(int(logits.argmax()))
        row.pending = (found[-1],)
        logits = row.feed([]) if len(found) < tokens else None
    return found


@pytest.mark.parametrize("family", ["falcon_h1", "qwen3_next", "lfm2", "gemma4_text", "deepseek_v3"])
@pytest.mark.parametrize("prompt_tokens", [1, 20])
def test_a_step_that_raises_changes_nothing(family: str, prompt_tokens: int) -> None:
    """The last layer raises, in a step of two rows beside one that waits; then the step is made again."""
    loaded, settings = opened(family), Settings(budget=64, seed=1)
    ids = prompt(60)[0].tolist()
    runners = [Runner(loaded, cache_for(loaded, settings), rows=3) for _ in range(2)]
    for runner in runners:
        runner.feed([ids[:30], ids[10:40], ids[5:35]], prompt=True)
    pieces = [ids[30 : 30 + prompt_tokens], ids[:prompt_tokens], []]

    def fails(*_: Any) -> None:
        raise MemoryError("there is no more")

    hook = loaded.model.model.layers[-1].register_forward_hook(fails)
    with pytest.raises(MemoryError):
        runners[0].feed(pieces, prompt=True)
    hook.remove()
    waits = [[], [], ids[40:41]]
    found, expected = (runner.feed(waits, prompt=False)[2] for runner in runners)
    torch.testing.assert_close(found, expected, atol=NEAR, rtol=0)
    if not runners[0].torn:
        found, expected = (runner.feed(pieces, prompt=True) for runner in runners)
        torch.testing.assert_close(found[:2], expected[:2], atol=NEAR, rtol=0)


@pytest.mark.parametrize("family", ["falcon_h1", "lfm2", "llama4_text", "gemma4_text"])
def test_a_cache_that_has_to_know_its_model_says_so(family: str) -> None:
    model = tiny(family)
    model.set_attn_implementation(registered.NAME)
    with pytest.raises(UsageError, match="model=model"):
        model(prompt(4), past_key_values=H2OCache(BUDGET))


def test_a_saved_state_that_holds_no_numbers_is_refused(tmp_path: Path) -> None:
    loaded = opened("falcon_h1")
    settings = Settings(budget=BUDGET, seed=1)
    row = Row(Runner(loaded, cache_for(loaded, settings)), settings)
    answer(row, prompt(30)[0].tolist(), 4)
    row.runner.cache.state_layers[0].held["conv0"].fill_(torch.inf)
    row.save(tmp_path / "memory")
    with pytest.raises(SavedCacheError, match="no number"):
        row.load(tmp_path / "memory")
