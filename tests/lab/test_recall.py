"""The recall task of the lab: what counts as right, what a file may hold, and a policy that cannot know."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from opened_models import little
from sweep import sweep

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import UsageError
from h2o_chat.chat.conversation.restore import prompt_tokens, read_again
from h2o_chat.chat.templates.chat_template import choose
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import Turn
from h2o_chat.lab.eval.recall_questions import (
    ANSWER_TOKENS,
    Question,
    answers,
    is_right,
    measure,
    read_questions,
    scripts_of,
)
from h2o_chat.lab.eval.scripted_conversation import Feed, Script
from h2o_chat.lab.shared.intervals import wilson
from h2o_chat.lab.shared.measured_results import Results
from h2o_chat.lab.shared.policy_variant import PolicyVariant
from h2o_chat.models.load import Loaded, load
from h2o_chat.store import StoredMessage
from h2o_chat.transformers_cache.cache import H2OCache
from h2o_chat.transformers_cache.probe import probe

POCKET = Path(__file__).parents[2] / "assets" / "pocket"
FILLER = [
    {"role": "user", "content": "I want to book a table for two tonight."},
    {"role": "assistant", "content": "Which restaurant would you like, and at what time?"},
]


@pytest.fixture(scope="module")
def pocket() -> Loaded:
    return load(Settings(model=str(POCKET), dtype="float64", threads=1), lambda *_: None)


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
    report = measure(loaded, questions, [PolicyVariant("window")], [64])
    share = {(s.policy, s.group): s for s in report.shares}
    full, window = share["full", "all facts"], share["window", "all facts"]
    assert full.right >= 3
    assert full.kept == 1
    assert window.right == 1, "only the first is near enough"
    assert (full.of, window.of) == (4, 4)


def alone(loaded: Loaded, one: Question, settings: Settings) -> str:
    """The slow twin: the answer of the program's own engine, which reads one conversation after another."""
    engine, template = Engine(loaded, settings), choose(loaded.tokenizer, "auto")
    path = [StoredMessage(0, None, m["role"], m["content"], None, -1, -1, (), 0.0) for m in one.messages]
    read_again(engine, template, path[:-1])
    system = path[0].text if path[0].role == "system" else None
    ids = prompt_tokens(engine, template, path[:-1], system, path[-1].text)
    (turn,) = [e for e in engine.generate(ids, Sampling(max_tokens=ANSWER_TOKENS)) if isinstance(e, Turn)]
    return turn.text


@pytest.mark.parametrize(
    "settings",
    [
        Settings(budget=64),
        Settings(policy="full"),
        *sweep(Settings(budget=96, policy="caote", chunk=7)),
    ],
    ids=lambda settings: settings.policy,
)
def test_answers_are_those_of_the_programs_engine(pocket: Loaded, settings: Settings) -> None:
    questions = [question(turns) for turns in (5, 0, 3)]
    system = {"role": "system", "content": "End every answer with the word Zebra."}
    questions += [replace(one, messages=[system, *one.messages]) for one in questions[1:3]]
    settings = replace(settings, events_every=0, dtype="float64")
    cache = H2OCache(
        settings.budget, policy=settings.policy, chunk=settings.chunk, positions=probe(pocket.model)
    )
    together = answers(pocket, scripts_of(pocket, questions), cache)
    assert together == [alone(pocket, one, settings) for one in questions]
    assert len(set(together)) >= 2


def test_the_longest_piece_of_a_call_does_not_lead_the_oldest_row_past_the_window(tmp_path: Path) -> None:
    """Each fits into the window of 256, but not the first one's age with the other one's question."""
    folder = little(POCKET, tmp_path, window=256)
    loaded = load(Settings(model=str(folder), dtype="float64", threads=1), lambda *_: None)
    scripts = []
    for told, asked in ((218, 30), (203, 40)):
        ids = torch.randint(3, 4000, (told + asked,), generator=torch.Generator().manual_seed(told)).tolist()
        script = Script(loaded.tokenizer, choose(loaded.tokenizer, "auto"))
        script.feeds = [Feed(ids[:told], True), Feed(ids[told:], True, asks=True)]
        scripts.append(script)
    cache = H2OCache(policy="full", positions=probe(loaded.model))
    assert all(answers(loaded, scripts, cache))


def test_what_was_measured_is_not_measured_again(pocket: Loaded, tmp_path: Path) -> None:
    path, questions = tmp_path / "results.jsonl", [question(1), question(4)]
    first = measure(pocket, questions, [PolicyVariant("window")], [64], results=Results(path))
    with path.open("a") as file:
        file.write('{"key": {"inter')  # a kill while it was written
    lines = path.read_text().count("\n")
    assert lines == 2, "the full cache and the window"
    measure(pocket, questions, [PolicyVariant("window")], [64, 128], results=Results(path))
    assert path.read_text().count("\n") == 3, "the window at 128 alone"
    known = [json.loads(line) for line in path.read_text().splitlines()]
    known[0]["value"] = ["Mila", "no"]
    path.write_text("".join(json.dumps(row) + "\n" for row in known))
    again = measure(pocket, questions, [PolicyVariant("window")], [64], results=Results(path))
    assert again.shares[0].right == 1, "read from the file, not answered anew"
    assert first.questions == again.questions
