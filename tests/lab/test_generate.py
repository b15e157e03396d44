"""The generating task of the lab: scores by hand, a real model that loses what it needs, and bad files."""

import json
from pathlib import Path

import opened_models
import pytest

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import BudgetError, UsageError
from h2o_chat.engine.engine import Engine
from h2o_chat.lab.eval.generate import Item, exact, f1, measure, normalised
from h2o_chat.lab.shared.lab_texts import read_items
from h2o_chat.lab.shared.policy_runs import runs_of
from h2o_chat.transformers_cache.probe import probe

POCKET = Path(__file__).parents[2] / "assets" / "pocket"


def test_answers_are_compared_as_squad_does() -> None:
    assert normalised("  The  Eiffel-Tower, a tower!") == "eiffeltower tower"
    assert exact("The Nile.", "nile") == 1
    assert exact("The Nile river", "nile") == 0
    assert f1("a red big dog", "the big dog") == pytest.approx(0.8)  # 2 of 3 said, 2 of 2 wanted
    assert f1("cat", "dog") == 0
    assert f1("", "the") == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [("", "no items"), ("{}", "Line 1"), ('{"prompt": "a", "reference": 1}', "Line 1"), ("[", "Line 1")],
)
def test_a_file_that_holds_no_items(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "items.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError, match=says):
        read_items(path, Item)


def test_lines_come_back(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    path.write_text(json.dumps({"prompt": "p", "reference": "r", "more": 1}) + "\n\n")
    assert read_items(path, Item) == [Item("p", "r")]


def test_the_full_cache_comes_first_and_a_policy_must_fit() -> None:
    runs = runs_of(["h2o", "window:recent=4"], [16])
    assert [(run.name, run.budget) for run in runs] == [("full", None), ("h2o", 16), ("window:recent=4", 16)]
    assert runs[0].settings().policy == "full"
    assert (runs[2].settings(chunk=3).recent, runs[2].settings(chunk=3).chunk) == (4, 3)
    with pytest.raises(BudgetError):
        runs_of(["caote"], [2])


def test_a_variant_keeps_its_own_numbers() -> None:
    loaded = opened_models.loaded(Settings(model=str(POCKET), engine="transformers", threads=1))
    own, bare = runs_of(["h2o:chunk=8,sinks=2,kv=int8", "h2o"], [64])[1:]
    plan = own.cache(probe(loaded.model)).plan
    assert plan.shares is not None
    assert (plan.chunk, plan.shares.sinks, plan.bits) == (8, 2, 8)
    session = Engine(loaded, own.settings(chunk=3)).session
    assert (session.chunk, session.sinks, session.kv_dtype) == (8, 2, "int8")
    assert Engine(loaded, bare.settings(chunk=3)).session.chunk == 3, "what nobody said is the command's"


def test_a_window_forgets_what_the_full_cache_answers() -> None:
    pytest.importorskip("rouge_score", reason="the extra `scores` is not installed")
    loaded = opened_models.loaded(Settings(model=str(POCKET), threads=1))
    words = " I went for a walk, it rained a little, and then the sun came out again." * 6
    items = [
        Item(f"My name is {name}.{words} What is my name?", f"Your name is {name}.")
        for name in ("Ada", "Mila", "Tom")
    ]
    runs = runs_of(["window"], [32, 512])
    report = measure(loaded, items, runs, tokens=16)
    of = {(s.policy, s.budget, s.metric): s for s in report.scores}
    assert report.most_prompt_tokens > 100
    full, narrow, wide = (
        of[name, budget, "rouge1"]
        for name, budget, _ in [("full", None, 0), ("window", 32, 0), ("window", 512, 0)]
    )
    assert full.value > 0.5
    assert narrow.value < full.value
    assert narrow.change == pytest.approx(narrow.value - full.value)
    assert wide.value == full.value, "nothing is given up before 512 tokens"
    assert wide.change_interval == (0.0, 0.0)
    assert report.answers["full"] == report.answers["window 512"]
