"""Conversations: what each turn feeds, and what messages hold."""

import itertools
from collections.abc import Iterator
from typing import Any, cast

import pytest
from found_templates import FAMILIES, whole
from scripted import ScriptedEngine

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import GenerationError
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.events.events import Event, Turn


def chat_with(engine: ScriptedEngine, **settings: Any) -> Chat:
    return Chat(cast(Any, engine), Settings(**settings))  # it has what these conversations need of one


@pytest.fixture
def engine() -> ScriptedEngine:
    """It speaks ChatML, and its answers are cut short."""
    return ScriptedEngine(FAMILIES["chatml"](), "fine")


def turn_of(events: Iterator[Event]) -> Turn:
    last = list(events)[-1]
    assert isinstance(last, Turn)
    return last


def test_a_turn_closed_by_the_model_is_not_closed_twice(tokenizer: Any) -> None:
    """All that was fed equals what transformers makes of the whole conversation."""
    engine = ScriptedEngine(tokenizer, "fine", end=tokenizer.eos_token_id)
    chat = chat_with(engine)
    list(chat.send("one", Sampling()))
    answer_end = engine.pending
    list(chat.send("two", Sampling()))
    fed = [*engine.fed[0], *engine.answer[:-1], *answer_end, *engine.fed[1]]
    said = tokenizer.decode(fed).replace(" ", "")
    ends = tokenizer.decode([tokenizer.eos_token_id])
    if tokenizer.decode(whole(tokenizer, "one", "fine", "two")).count(ends):
        assert said == tokenizer.decode(whole(tokenizer, "one", "fine", "two")).replace(" ", "")
    else:  # the end token is none of the template's
        assert fed.count(tokenizer.eos_token_id) == 1


def test_an_answer_cut_short_is_closed_by_the_template(engine: ScriptedEngine) -> None:
    chat = chat_with(engine)
    list(chat.send("one", Sampling()))
    list(chat.send("two", Sampling()))
    assert engine.tokenizer.decode(engine.fed[1]).startswith("<|im_end|>\n<|im_start|>user\ntwo")


def test_messages_know_where_they_lie() -> None:
    tokenizer = FAMILIES["chatml"]()
    engine = ScriptedEngine(tokenizer, "fine", end=tokenizer.eos_token_id)
    chat = chat_with(engine, system="Be kind.")
    list(chat.send("one", Sampling()))
    list(chat.send("two", Sampling()))
    assert [m.role for m in chat.messages] == ["system", "user", "assistant", "user", "assistant"]
    assert [m.text for m in chat.messages] == ["Be kind.", "one", "fine", "two", "fine"]
    assert engine.protected == chat.messages[0].last + 1
    edges = [(m.first, m.last) for m in chat.messages]
    assert edges[0][0] == 0
    assert all(one[1] + 1 == two[0] for one, two in itertools.pairwise(edges)), edges
    assert edges[-1][1] == engine.seen, "the last token waits"
    assert chat.messages[-1].finish == "eos"


def test_hold_of_messages_is_the_mean_over_their_tokens(engine: ScriptedEngine) -> None:
    chat = chat_with(engine)
    first = engine.changed = [(0, 1.0, 0.0), (1, 0.5, 0.0)]
    turn = turn_of(chat.send("one", Sampling()))
    user = chat.messages[0]
    assert turn.hold == [(0, pytest.approx(1.5 / (user.last + 1)))]
    assert user.hold == turn.hold[0][1]
    assert chat.messages[1].hold == 0.0

    answer = chat.messages[1]
    engine.changed = [(p, 0.0, 0.0) for p, *_ in first] + [(answer.first, 0.25, 0.0)]
    turn = turn_of(chat.send("two", Sampling()))
    assert turn.hold == [(1, pytest.approx(0.25 / (answer.last + 1 - answer.first)))]
    assert chat.messages[0].hold == 0.0
    assert len(chat.holds) == 1, "what is gone takes no memory"


def test_a_failed_turn_leaves_no_positions_and_the_next_one_works(engine: ScriptedEngine) -> None:
    chat = chat_with(engine)
    engine.fails = True
    with pytest.raises(GenerationError):
        list(chat.send("one", Sampling()))
    assert [(m.first, m.finish) for m in chat.messages] == [(-1, None), (-1, "error")]
    engine.fails = False
    list(chat.send("two", Sampling()))
    assert engine.fed[1] == whole(engine.tokenizer, "two"), "still the first turn"
    assert chat.messages[2].first == 0


def test_session_names_the_template() -> None:
    assert chat_with(ScriptedEngine(FAMILIES["llama3"]())).session.template == "model"
    plain = chat_with(ScriptedEngine(FAMILIES["llama3"]()), template="plain")
    assert (plain.session.template, plain.template.name) == ("plain", "plain")
