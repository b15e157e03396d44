"""Thoughts: how a template has them, its switches, and what becomes of their tokens."""

import random
import re
import sys
from io import BytesIO, StringIO, TextIOWrapper
from typing import Any

import pytest
import torch
from found_templates import CHANNELS, KEEPS, OPENS, QWEN3, THINKS, byte_tokenizer
from sweep import sweep
from tiny_models import tiny

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import UsageError
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.keeper import Keeper
from h2o_chat.chat.conversation.loops import loop_in
from h2o_chat.chat.templates.chat_template import choose
from h2o_chat.chat.templates.tool_form import ToolForm
from h2o_chat.cli.plain import PlainChat
from h2o_chat.cli.plain_lines import Lines, Signals
from h2o_chat.cli.run import PlainText
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import Event, Session, from_json, to_json
from h2o_chat.models.load import Loaded
from h2o_chat.store import Store

TURNS = ("<|im_start|>", "<|im_end|>")
HARMONY = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|return|>")
ANALYSIS = "<|channel|>analysis<|message|>"
FINAL = "<|end|><|start|>assistant<|channel|>final<|message|>"
MARKS = {  # the first mark of a thought, the last one
    "thinks": (THINKS, "<think>\n", "\n</think>\n\n"),
    "opens": (OPENS, "", "\n</think>\n\n"),
    "channels": (CHANNELS, ANALYSIS, FINAL),
    "keeps": (KEEPS, "<think>\n", "\n</think>\n\n"),
}


def tokenizer_of(jinja: str) -> Any:
    marks = HARMONY if jinja is CHANNELS else TURNS
    turns = () if jinja is CHANNELS else ("<think>", "</think>")
    return byte_tokenizer(jinja, None, marks[-1], marks[:-1], turns)


@pytest.mark.parametrize(
    ("jinja", "marks", "opened", "drops", "choices"),
    [
        (THINKS, ("<think>", "</think>"), False, True, "on off"),
        (OPENS, ("<think>", "</think>"), True, True, "on off"),
        (KEEPS, ("<think>", "</think>"), False, False, "on off"),
        (QWEN3, ("<think>", "</think>"), False, True, ""),
        (CHANNELS, (ANALYSIS, FINAL), False, True, "low medium high"),
    ],
    ids=["thinks", "opens", "keeps", "inline", "channels"],
)
def test_a_template_tells_how_its_model_thinks(
    jinja: str, marks: tuple[str, str], opened: bool, drops: bool, choices: str
) -> None:
    found = choose(tokenizer_of(jinja), "auto").thinking
    assert (found.marks, found.opened_tokens > 0, found.drops) == (marks, opened, drops)
    assert found.choices == tuple(choices.split())


def test_a_session_tells_where_a_thought_begins() -> None:
    for jinja in (OPENS, THINKS):
        chat = Talk(jinja, 64).chat
        session = from_json(to_json(chat.session))
        assert isinstance(session, Session)
        assert session.opened_tokens == chat.template.thinking.opened_tokens
        assert bool(session.opened_tokens) == (jinja is OPENS)


def test_a_switch_that_the_template_does_not_know_is_refused() -> None:
    for jinja, wrong in ((THINKS, "low"), (CHANNELS, "off"), (QWEN3, "on")):
        with pytest.raises(UsageError, match="does not know it"):
            choose(tokenizer_of(jinja), "auto", wrong)
    off = choose(tokenizer_of(THINKS), "auto", "off")
    assert tokenizer_of(THINKS).decode(off.first(None, "Hello").ids).endswith("<think>\n\n</think>\n\n")


class Scripted:
    """Stands where the sampler of a row stands, and chooses what it is told."""

    def __init__(self, engine: Engine) -> None:
        self._own, self.tokens = engine.sampler, list[int]()
        engine.sampler = self  # type: ignore[assignment]

    def choose(self, *_: Any, **__: Any) -> int:
        return self.tokens.pop(0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


class Talk:
    """A conversation with a tiny random qwen3 of real slots, which answers with what it is told."""

    def __init__(self, jinja: str, budget: int, store: Store | None = None, keep: str | None = None) -> None:
        self.tokenizer = tokenizer_of(jinja)
        model = tiny("qwen3", "h2o", torch.float32, vocab_size=len(self.tokenizer))
        loaded = Loaded(model, self.tokenizer, "tiny", None, "none", "float32", "cpu")
        self.settings = Settings(budget=budget, seed=1, recall="off")
        self.engine = Engine(loaded, self.settings)
        self.script = Scripted(self.engine)
        keeper = Keeper(store, keep, self.engine.session, {}) if store else None
        self.chat = Chat(self.engine, self.settings, keeper)
        self.chat.breaks_loops = False

    def say(self, text: str, answer: str) -> list[Event]:
        end = [self.tokenizer.eos_token_id]
        self.script.tokens = self.tokenizer.encode(answer, add_special_tokens=False) + end
        return list(self.chat.send(text, Sampling(max_tokens=None)))

    def held_of(self, role: str) -> float:
        """Share of the tokens of all messages of a role that are held."""
        spans = [range(one.first, one.last + 1) for one in self.chat.messages if one.role == role]
        held = sum(self.engine.held(span) * len(span) for span in spans)
        return held / sum(map(len, spans))


WORDS = ("A dog runs.", "Blue, I think.", "Rain tomorrow!", "Seven of them.", "No idea.")


def thoughts(turn: int) -> str:
    """120 characters: words that no other turn has, as what repeats itself is given up, too."""
    drawn = random.Random(turn)
    return " ".join("".join(drawn.choices("abcdefghijklmnop", k=5)) for _ in range(20))


@pytest.mark.parametrize("kind", ["thinks", *sweep("opens", "channels")])
def test_forty_turns_with_long_thoughts_keep_as_much_of_the_user(kind: str) -> None:
    """Two conversations of equal words; the thoughts of one are as long as three turns of the other."""
    jinja, before, after = MARKS[kind]
    with_thoughts, without = Talk(jinja, 512), Talk(jinja, 512)
    bare = "<|channel|>final<|message|>" if kind == "channels" else after if kind == "opens" else ""
    for turn in range(40):
        asked, said = f"Number {turn} is {turn * 7919 % 1000}.", f"I noted number {turn}."
        with_thoughts.say(asked, f"{before}{thoughts(turn)}{after}{said}")
        without.say(asked, f"{bare}{said}")
    held, expected = (talk.held_of("user") for talk in (with_thoughts, without))
    print(f"{kind}: {held:.3f} of the user's tokens with thoughts, {expected:.3f} without")
    assert held >= 0.9 * expected
    answers = [one for one in with_thoughts.chat.messages if one.role == "assistant"]
    assert all(one.thought_tokens > 100 for one in answers)
    assert all(
        with_thoughts.engine.held(range(one.first, one.first + one.thought_tokens)) == 0 for one in answers
    )
    assert f"{said}" in answers[-1].text


def test_where_a_template_keeps_them_they_are_the_first_to_go() -> None:
    talk = Talk(KEEPS, 256)
    _, before, after = MARKS["keeps"]
    talk.say("A dog?", f"{before}{'hm ' * 30}{after}{'a dog is a dog ' * 4}")
    answer = talk.chat.messages[-1]
    thought = range(answer.first, answer.first + answer.thought_tokens)
    assert talk.engine.held(thought) == 1
    talk.say("Now listen: " + "one two three " * 12, "I do.")
    said = range(thought.stop, answer.last + 1)
    assert talk.engine.held(thought) < 0.2 < 0.6 < talk.engine.held(said)


def test_a_thought_is_kept_until_the_tools_have_answered() -> None:
    talk = Talk(THINKS, 1024)

    class Tools:
        def calls_in(self, text: str) -> tuple[str, ...]:
            return ("call",) if "CALL" in text else ()

        def results(self, text: str, turn_marker_fed: bool) -> Any:
            return talk.chat.template.later(text, turn_marker_fed)

        def first(self, system: str | None, text: str) -> Any:
            return talk.chat.template.first(system, text)

    talk.chat.tools = Tools()  # type: ignore[assignment]
    talk.say("What is 2 + 2?", "<think>\nI had better ask.\n</think>\n\nCALL")
    first = talk.chat.messages[-1]
    span = range(first.first, first.first + first.thought_tokens)
    assert talk.engine.held(span) == 1
    talk.script.tokens = [
        *talk.tokenizer.encode("<think>\nso\n</think>\n\nFour."),
        talk.tokenizer.eos_token_id,
    ]
    list(talk.chat.send("4", Sampling(max_tokens=None), role="tool"))
    assert talk.engine.held(span) == 0


@pytest.mark.parametrize("kind", MARKS)
def test_answers_are_printed_without_their_thoughts(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    jinja, before, after = MARKS[kind]
    talk, out = Talk(jinja, 1024), StringIO()
    plain = PlainText(out)
    plain.form = ToolForm(thinking=talk.chat.template.thinking)
    for event in [*talk.say("A dog?", f"{before}Hm, < hm.{after}A dog."), *talk.say("No?", f"{before}Hm")]:
        plain.write(event)
    assert out.getvalue() == "A dog.\n---\n\n", "the second answer ended within its thought"
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO()))
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(shown := BytesIO()))
    lines = PlainChat(talk.chat, Sampling(), Lines(), Signals(), lambda *_: lambda _: talk.chat)
    lines.hear(iter(talk.say("A cat?", f"{before}Hm, < hm.{after}A cat.")))
    lines.show()
    told = shown.getvalue().decode()
    assert "thinks: Hm, < hm.\n#6 tiny: A cat.\n" in told
    assert "#2 tiny: A dog.\n" in told
    assert not re.search(r"</?think>|<\|", told)


def test_equal_thoughts_are_no_loop() -> None:
    talk = Talk(THINKS, 1024)
    said = ("The dog has run away again", "Rain comes from the west", "Seven is my guess", "I have no idea")
    thought = "The user asks me something, and I had better answer it well."
    for answer in said:
        talk.say(f"And {answer[:9]}?", f"<think>\n{thought}\n</think>\n\n{answer}.")
    assert loop_in(talk.chat.messages, "And now?", talk.chat.template.thinking) is None
    assert loop_in(talk.chat.messages, "And now?") is not None, "with their thoughts they would be one"


@pytest.mark.parametrize("kind", MARKS)
def test_a_conversation_read_again_has_the_same_slots(kind: str, store: Store) -> None:
    """From the saved memory after the first turn, token by token, past thoughts that were given up."""
    jinja, before, after = MARKS[kind]
    talk = Talk(jinja, 192, store)
    for turn in range(4):
        talk.say(f"Number {turn} is {turn * 7919 % 1000}.", f"{before}{thoughts(turn)}{after}{WORDS[turn]}")
    keeper = talk.chat.keeper
    assert keeper is not None
    path = keeper.path(keeper.leaf)
    for one in path[3:]:
        if one.role == "assistant":
            keeper.saved(one.id).unlink()  # type: ignore[union-attr]
    kept = [talk.engine.cache.kept(layer) for layer in range(3)]
    assert keeper.conversation is not None
    name = keeper.conversation
    talk.chat.close()
    again = Talk(jinja, 192, store, name)
    again.chat.resume(lambda *_: None)
    for layer in range(3):
        assert torch.equal(again.engine.cache.kept(layer).sort(-1).values, kept[layer].sort(-1).values)
