"""Questions on long texts: answers scored by hand, files that hold no items, and the runs of a comparison."""

import json
from pathlib import Path

import opened_models
import pytest

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import BudgetError, UsageError
from h2o_chat.engine.engine import Engine
from h2o_chat.lab.eval.qa import Item, f1, normalised
from h2o_chat.lab.shared.intervals import share_interval
from h2o_chat.lab.shared.lab_texts import read_items
from h2o_chat.lab.shared.policy_variant import runs_of


def test_answers_are_compared_as_squad_does() -> None:
    assert normalised("  The  Eiffel-Tower, a tower!") == "eiffeltower tower"
    assert f1("a red big dog", "the big dog") == pytest.approx(0.8)  # 2 of 3 said, 2 of 2 wanted
    assert f1("cat", "dog") == 0
    assert f1("", "the") == 1


def test_a_share_is_taken_item_by_item() -> None:
    """An item that both find hard is hard in both means of a sample."""
    whole = [0.0, 0.1, 0.9, 1.0, 0.5, 0.7]
    assert share_interval([one / 2 for one in whole], whole, 0) == pytest.approx((0.5, 0.5))
    low, high = share_interval([1.0, 0.0, 0.9, 1.0, 0.5, 0.7], whole, 0)
    assert low < sum([1.0, 0.0, 0.9, 1.0, 0.5, 0.7]) / sum(whole) < high


@pytest.mark.parametrize(
    ("text", "says"),
    [
        *(("", "no items"), ("{}", "Line 1"), ("[", "Line 1")),
        ('{"context": "a", "question": "b", "answer": 1}', "Line 1"),
    ],
)
def test_a_file_that_holds_no_items(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "items.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError, match=says):
        read_items(path, Item)


def test_lines_come_back(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    path.write_text(json.dumps({"context": "c", "question": "q", "answer": "a", "more": 1}) + "\n\n")
    assert read_items(path, Item) == [Item("c", "q", "a")]


def test_the_full_cache_comes_first_and_a_policy_must_fit() -> None:
    runs = runs_of(["h2o", "window:recent=4"], [16])
    assert [(run.name, run.budget) for run in runs] == [("full", None), ("h2o", 16), ("window:recent=4", 16)]
    assert runs[0].settings().policy == "full"
    assert runs[2].settings().recent == 4
    with pytest.raises(BudgetError):
        runs_of(["caote"], [2])


def test_a_variant_keeps_its_own_numbers(bundled: Path) -> None:
    loaded = opened_models.loaded(Settings(model=str(bundled), engine="transformers", threads=1))
    own = runs_of(["h2o:chunk=8,sinks=2,kv=int8"], [64])[1]
    session = Engine(loaded, own.settings()).session
    assert (session.chunk, session.sinks, session.kv_dtype) == (8, 2, "int8")
