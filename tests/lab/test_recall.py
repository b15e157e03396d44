"""The recall task of the lab: made-up conversations, what counts as right, and a policy that cannot know."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from h2o_chat.base.config import Settings
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.cli.cli import app
from h2o_chat.engine.engine import Engine
from h2o_chat.lab.eval import answered_recall
from h2o_chat.lab.eval.answered_recall import BARE, KINDS, Answered, write
from h2o_chat.lab.eval.synthetic_talk import Question, holds, is_right
from h2o_chat.lab.shared.intervals import wilson
from h2o_chat.lab.shared.policy_variant import runs_of
from h2o_chat.models.load import Loaded


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
    assert is_right(Question("", 0, expected, stale), answer) is right


def test_wilson_is_the_textbook_interval() -> None:
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)  # Brown, Cai, DasGupta 2001
    assert wilson(0, 10)[0] == 0


class Silent:
    """A conversation in which nobody answers: a word is a token."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.pinned: list[str] = []
        self.asked: list[str] = []
        self.tokens = 0

    def say(self, text: str) -> int:
        self.said.append(text)
        self.tokens += len(text.split())
        return self.tokens

    def pin(self) -> None:
        self.pinned.append(self.said[-1])

    def ask(self, text: str, recall: bool = False) -> None:
        self.asked.append(text)


def test_what_is_asked_for_was_told() -> None:
    talk = Silent()
    questions = write(talk, 3000, "7")  # type: ignore[arg-type]
    assert 3000 <= talk.tokens < 3100
    assert [question.kind for question in questions] == list(KINDS.elements())
    assert talk.asked == [question.text for question in questions]
    text = " ".join(talk.said)
    for question in questions:
        told = [value for value in (question.stale, question.expected) if value is not None]
        assert all(holds(text, value) for value in told)
        assert len(told) == {"corrected": 2, "not told": 0}.get(question.kind, 1)
        if question.expected is not None:
            after = text.rindex(question.expected)
            assert question.stale is None or text.index(question.stale) < after, "the correction comes last"
            assert question.distance == pytest.approx(len(text[after:].split()), abs=25)
    assert all(holds(" ".join(talk.pinned), q.expected or "") for q in questions if q.kind == "pinned")
    assert not any(holds(" ".join(talk.pinned), q.expected or "") for q in questions if q.kind == "plain")


def test_the_same_facts_with_and_without_talk_in_between() -> None:
    drawn = []
    for tokens, seed in ((0, "1"), (900, "1"), (900, "1"), (900, "2")):
        talk = Silent()
        drawn.append((write(talk, tokens, seed), talk.said))  # type: ignore[arg-type]
    short, long, again, other = drawn
    asked = [[(q.text, q.expected, q.stale, q.kind) for q in questions] for questions, _ in (short, long)]
    assert asked[0] == asked[1]
    assert len(short[1]) < len(long[1])
    assert long == again
    assert long != other


def test_the_model_answers_itself(pocket: Loaded) -> None:
    """Every question is asked twice, once with recall, and the conversation knows of none."""
    report = answered_recall.measure(pocket, 300, 1, 3, runs_of(["window"], [64])[1:], recall=True)
    names = [BARE, "window", "window, recall"]
    assert list(dict.fromkeys(share.policy for share in report.shares)) == names
    assert {share.of for share in report.shares if share.group == "plain"} == {KINDS["plain"]}
    right = [sum(one.right for one in report.shares if one.policy == name) for name in names]
    assert right[0] > 0, "what nothing stands between is known"
    assert right[1] <= right[2], "what is recalled is known at least as well"
    (far,) = (s.right for s in report.shares if (s.policy, s.group) == ("window", "plain, far half"))
    assert far == 0, "all of it is long gone"
    settings = Settings(budget=64, recall="off", events_every=0)
    talk = Answered(Chat(Engine(pocket, settings), settings))
    questions = write(talk, 300, "3 0")
    assert len(talk.answers) == len(questions) == KINDS.total()
    assert not {q.text for q in questions} & {m.text for m in talk.chat.messages}
    assert talk.tokens >= 300


def test_the_command_prints_a_table(bundled: Path) -> None:
    command = ["lab", "eval", "recall", "-m", str(bundled), "--generate", "40", "--conversations", "1"]
    done = CliRunner().invoke(app, [*command, "-b", "128", "--policy", "h2o"])
    assert done.exit_code == 0, done.output
    assert "1 conversations of 40 tokens" in done.stdout
    assert BARE in done.stdout
