"""The recall task of the lab: what counts as right, what a file may hold, and a policy that cannot know."""

import json
from pathlib import Path

import pytest

from h2o_chat.config import Settings
from h2o_chat.errors import UsageError
from h2o_chat.lab.perplexity import Contestant
from h2o_chat.lab.recall import Question, answers, is_right, measure, read_questions, wilson
from h2o_chat.models import load

FILLER = [
    {"role": "user", "content": "I want to book a table for two tonight."},
    {"role": "assistant", "content": "Which restaurant would you like, and at what time?"},
]


def question(turns: int, expected: str | None = "Mila", stale: str | None = None) -> Question:
    told = [
        {"role": "user", "content": "My name is Mila."},
        {"role": "assistant", "content": "Nice to meet you, Mila."},
    ]
    asked = {"role": "user", "content": "What is my name?"}
    return Question([*told, *FILLER * turns, asked], 26 * turns, expected, stale, "name")


@pytest.mark.parametrize(
    ("expected", "stale", "answer", "right"),
    [
        ("14", None, "It is 14.", True),
        ("14", None, "It is 149.", False),
        ("Port Lanora", None, "you live in port lanora", True),
        ("Tuesday", "Monday", "It was Monday, now it is Tuesday.", False),
        ("Tuesday", "Monday", "On Tuesday.", True),
        (None, None, "Sorry, you have not told me that.", True),
        (None, None, "You never told me.", True),
        (None, None, "I don't know that.", True),
        (None, None, "You asked me to never mention tea.", False),
        (None, None, "Your dog is called Rex.", False),
    ],
)
def test_right_answers(expected: str | None, stale: str | None, answer: str, right: bool) -> None:
    assert is_right(question(0, expected, stale), answer) is right


def test_wilson_is_the_textbook_interval() -> None:
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)  # Brown, Cai, DasGupta 2001
    assert wilson(0, 10)[0] == 0


@pytest.mark.parametrize(
    ("text", "says"), [("", "no questions"), ("[1]", "Line 1"), ('{"a": 1}', "Line 1"), ("{", "Line 1")]
)
def test_a_file_that_holds_no_questions(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError, match=says):
        read_questions(path)


def test_lines_come_back(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text(json.dumps(vars(question(1))) + "\n\n" + json.dumps(vars(question(2, None))))
    assert read_questions(path) == [question(1), question(2, None)]


def test_what_was_dropped_is_not_recalled(shared_models: Path) -> None:
    loaded = load(Settings(model=str(shared_models / "pilot-chat"), threads=1), lambda *_: None)
    questions = [question(turns) for turns in (1, 4, 6, 5)]
    report = measure(loaded, questions, [Contestant("window")], [64])
    share = {(s.contestant, s.group): s for s in report.shares}
    full, window = share["full", "all facts"], share["window", "all facts"]
    assert full.right >= 3
    assert full.kept == 1
    assert window.right == 1, "only the first is near enough"
    assert (full.of, window.of) == (4, 4)


def test_questions_do_not_know_of_each_other(shared_models: Path) -> None:
    loaded = load(Settings(model=str(shared_models / "pilot-chat"), threads=1), lambda *_: None)
    questions = [question(turns) for turns in (5, 0, 3)]
    settings = Settings(budget=64)
    alone = [answers(loaded, [one], settings)[0] for one in questions]
    assert answers(loaded, questions, settings) == alone
