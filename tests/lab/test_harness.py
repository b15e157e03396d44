"""lm_eval through the bounded cache: with room for all it is the stock model, and it never looks ahead."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from h2o_chat.base.config import Settings
from h2o_chat.cli.cli import app
from h2o_chat.models.load import Loaded, load

pytest.importorskip("lm_eval", reason="the extra `lm-eval` is not installed: pip install 'h2o-chat[lm-eval]'")

from h2o_chat.lab.eval.lm_eval_harness import BoundedLM

POCKET = Path(__file__).parents[2] / "assets" / "pocket"
PAIRS = [
    ("Question: How do I dry a shirt?\nAnswer:", " Hang it in the sun."),
    ("My name is Ada.", " Hello Ada"),
    ("", "The sun"),
    (
        "How do I ready a cage for a guinea pig, with straw, water, and a place where it can sleep?",
        " Slowly.",
    ),
]


@pytest.fixture(scope="module")
def pocket() -> Loaded:
    return load(Settings(model=str(POCKET), threads=1, dtype="float64"), lambda *_: None)


@pytest.fixture(scope="module")
def stock() -> Any:
    return AutoModelForCausalLM.from_pretrained(POCKET, dtype=torch.float64, attn_implementation="eager")


def asked(*arguments: Any) -> Any:
    return SimpleNamespace(args=arguments)


@torch.no_grad()
def likelihood(stock: Any, context: list[int], said: list[int]) -> tuple[float, bool]:
    """One token after another, from one pass of the stock model over everything."""
    ids = [*context, *said]
    logits = stock(torch.tensor([ids])).logits[0]
    total, greedy = 0.0, True
    for at in range(len(context), len(ids)):
        total += float(logits[at - 1].log_softmax(-1)[ids[at]])
        greedy &= int(logits[at - 1].argmax()) == ids[at]
    return total, greedy


@pytest.mark.parametrize(
    "settings",
    [
        Settings(policy="full", chunk=1),
        Settings(policy="full", chunk=7),
        Settings(policy="h2o", budget=128, chunk=1),
    ],
    ids=["full", "full in chunks", "h2o with room for all"],
)
def test_with_room_for_everything_it_is_the_stock_model(
    pocket: Loaded, stock: Any, settings: Settings
) -> None:
    lm = BoundedLM(pocket, settings)
    found = lm.loglikelihood([asked(*pair) for pair in PAIRS])
    for (context, said), (log, greedy) in zip(PAIRS, found, strict=True):
        start, whole = lm.tok_encode(context), lm.tok_encode(context + said)
        wanted = likelihood(stock, start, whole[len(start) :])
        # Llama's norms are float32 whatever the precision.
        assert (log, greedy) == (pytest.approx(wanted[0], abs=1e-4), wanted[1])
    text = "Once upon a time there was a little girl."
    words = lm.tok_encode(text, False)
    (rolled,) = lm.loglikelihood_rolling([asked(text)])
    assert rolled == pytest.approx(likelihood(stock, [lm.prefix_token_id], words)[0], abs=1e-4)


def test_what_greedy_decoding_says_is_greedy(pocket: Loaded) -> None:
    lm = BoundedLM(pocket, Settings(policy="full", chunk=1, events_every=0))
    prompt = "My name is Ada. What is my"
    (answer,) = lm.generate_until([asked(prompt, {"until": ["\n\n"], "max_gen_toks": 4})])
    assert answer
    whole = lm.tok_encode(prompt + answer)
    start = lm.tok_encode(prompt)
    assert whole[: len(start)] == start
    ((_, greedy),) = lm._loglikelihood_tokens([(None, start, whole[len(start) :])])
    assert greedy
    (cut,) = lm.generate_until([asked(prompt, {"until": answer[2], "max_gen_toks": 4})])
    assert cut == answer[: answer.index(answer[2])]


@pytest.mark.parametrize("chunk", [1, 5])
def test_nothing_that_comes_later_changes_what_was_said(pocket: Loaded, chunk: int) -> None:
    lm = BoundedLM(pocket, Settings(policy="h2o-paper", budget=12, chunk=chunk))
    ids = lm.tok_encode(PAIRS[3][0] * 2)
    length = 30  # a multiple of both chunks, and past the budget
    one, two = torch.tensor([ids[: length + 1]]), torch.tensor([ids])
    with torch.no_grad():
        alone = torch.cat([log for log, _ in lm._read(one, torch.tensor([[length + 1]]))], 1)
        longer = torch.cat([log for log, _ in lm._read(two, torch.tensor([[len(ids)]]))], 1)
    assert len(ids) > 2 * length / 1.5
    assert torch.allclose(alone, longer[:, :length], atol=1e-5)


def test_the_precision_of_the_memory_counts(pocket: Loaded) -> None:
    exact, coarse = (
        BoundedLM(pocket, Settings(policy="h2o", budget=16, chunk=1, kv_dtype=kv)).loglikelihood(
            [asked(*PAIRS[3])]
        )
        for kv in ("auto", "int4")
    )
    assert exact[0][0] != coarse[0][0]


def test_piqa_from_files_alone(shared_text: Path, stock: Any, pocket: Loaded) -> None:
    command = ["eval", "lm-eval", "-m", str(POCKET), "--tasks", "piqa_local", "--data", str(shared_text)]
    command += ["--limit", "6", "-b", "16", "--policy", "h2o", "--dtype", "float64", "--json"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout[done.stdout.index('{"model"') :])
    acc = {(r["policy"], r["budget"]): r for r in report["results"] if r["metric"] == "acc"}
    assert set(acc) == {("full", None), ("h2o", 16)}
    rows = [json.loads(line) for line in (shared_text / "piqa_valid.jsonl").read_text().splitlines()[:6]]
    labels = [int(label) for label in (shared_text / "piqa_valid-labels.lst").read_text().split()[:6]]
    lm, right = BoundedLM(pocket, Settings(policy="full")), 0
    for row, label in zip(rows, labels, strict=True):
        prompt = f"Question: {row['goal']}\nAnswer:"
        start = lm.tok_encode(prompt)
        first, second = (
            likelihood(stock, start, lm.tok_encode(f"{prompt} {row[name]}")[len(start) :])[0]
            for name in ("sol1", "sol2")
        )
        right += (second > first) == bool(label)
    assert acc["full", None]["value"] == pytest.approx(right / 6)
    assert acc["h2o", 16]["documents"] == 6


def test_an_unknown_task_is_named() -> None:
    done = CliRunner().invoke(app, ["eval", "lm-eval", "-m", str(POCKET), "--tasks", "no such task"])
    assert done.exit_code == 2
    assert "no such task" in done.output
