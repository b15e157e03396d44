"""What an answer rested on: the bundled model with its own weights, and the words by hand-made numbers."""

import json
from dataclasses import asdict, replace
from typing import Any

import opened_models
import pytest
from talk import FACT, GREEDY, POCKET, TALK

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.chat.chat import Chat
from h2o_chat.chat.export import to_json
from h2o_chat.chat.holds import Holds
from h2o_chat.chat.keeping import Keeper
from h2o_chat.chat.message import Message, Recalled, as_event, of_event
from h2o_chat.chat.sources import LONGEST_CHARACTERS, NOTHING, source_of, told_again
from h2o_chat.engine.engine import Engine
from h2o_chat.engine.source import Rested, read_weights
from h2o_chat.events import events
from h2o_chat.events.events import Event, Said, Source, Turn
from h2o_chat.store import Store

CODE = "My door code is 4F7K2."


@pytest.fixture(scope="module")
def loaded() -> Any:
    return opened_models.loaded(Settings(model=str(POCKET), threads=1))


def chat_of(
    loaded: Any, store: Store | None = None, conversation: str | None = None, budget: int = 256
) -> Chat:
    settings = Settings(model=str(POCKET), budget=budget, seed=0)
    engine = Engine(loaded, settings, read_weights(POCKET))
    keeper = Keeper(store, conversation, engine.session, asdict(settings)) if store else None
    return Chat(engine, settings, keeper)


def said(chat: Chat, *texts: str) -> Turn:
    """How the last of these turns ended."""
    heard: list[Event] = []
    for text in texts:
        heard = list(chat.send(text, GREEDY))
    [turn] = [event for event in heard if isinstance(event, Turn)]
    return turn


def test_the_message_and_its_words_are_named(loaded: Any) -> None:
    chat = chat_of(loaded)
    turn = said(chat, FACT, CODE, "What is my dog called?")
    assert "Rexo" in turn.text
    assert turn.source is not None
    assert (turn.source.index, "Rexo" in turn.source.words) == (0, True)
    turn = said(chat, "What is my door code?")
    assert turn.source is not None
    assert (turn.source.index, "4F7K2" in turn.source.words) == (2, True)
    assert chat.messages[-1].source == turn.source
    assert said(chat, "How are you today?").source == NOTHING
    assert said(chat, "What is my parrot called?").source == NOTHING


def test_words_told_again_count_for_the_message_that_told_them(loaded: Any) -> None:
    chat = chat_of(loaded, budget=48)
    turn = said(chat, FACT, *TALK, "What is my dog called?")
    assert chat.messages[-2].recalled == Recalled(0, FACT)
    assert turn.source is not None
    assert (turn.source.index, "Rexo" in turn.source.words) == (0, True)


def test_nothing_is_said_without_weights_of_one_token_and_of_what_was_not_read(loaded: Any) -> None:
    settings = Settings(model=str(POCKET), budget=256, seed=0)
    assert said(Chat(Engine(loaded, settings), settings), FACT, "What is my dog called?").source is None
    chat = chat_of(loaded)
    said(chat, FACT, "What is my dog called?")
    one = [*chat.send("And now?", Sampling(temperature=0.0, max_tokens=1))][-1]
    assert isinstance(one, Turn)
    assert one.source is None
    stopped = [*chat.send("And now?", GREEDY, lambda: True)][-1]
    assert isinstance(stopped, Turn)
    assert (stopped.prompt_tokens, stopped.source) == (0, None)


def test_it_is_stored_exported_and_there_when_it_is_opened_again(loaded: Any, store: Store) -> None:
    chat = chat_of(loaded, store)
    told = said(chat, FACT, "What is my dog called?").source
    none = said(chat, "How are you today?").source
    assert told is not None
    assert chat.keeper is not None
    assert chat.keeper.conversation is not None
    conversation = store.whole(chat.keeper.conversation)
    chat.close()
    exported = json.loads(to_json(conversation))
    assert exported["schema"] == 1
    answers = [one for one in exported["messages"] if one["role"] == "assistant"]
    fact = exported["messages"][0]
    assert (answers[1]["source"], answers[1]["source_from"]) == (told.words, fact["id"])
    assert (answers[2]["source"], answers[2]["source_from"]) == ("", None)
    assert "source" not in fact
    again = chat_of(loaded, store, conversation.id)
    assert again.resume(lambda _: None)
    assert [one.source for one in again.messages[3::2]] == [told, none] == [told, NOTHING]
    opening = [event for event in again.opening() if isinstance(event, Said)]
    assert opening[3].source == told
    assert of_event(opening[3]).source == told
    again.close()


def test_events_carry_it_and_older_ones_have_none() -> None:
    turn = Turn("a", "eos", 1, 1, 0.0, 0.0, 2, 2, 0, 0.0, source=Source(3, "words"))
    assert events.from_json(events.to_json(turn)) == turn
    line = json.loads(events.to_json(turn))
    del line["source"]
    assert events.event_of(line) == replace(turn, source=None)
    said = as_event(1, Message("assistant", "a", source=NOTHING))
    assert events.from_json(events.to_json(said)) == said


def rested(*tokens: tuple[float, str]) -> Rested:
    """Tokens from position 1 on: what each gave, and its text."""
    places = list(range(1, len(tokens) + 1))
    texts = {place: text for place, (_, text) in zip(places, tokens, strict=True)}
    return Rested(places, [weight for weight, _ in tokens], texts)


def placed(*messages: Message) -> tuple[list[Message], Holds]:
    """Messages of which the last two are the question and the answer, and where they lie."""
    holds = Holds()
    holds.share_out(messages, messages[-1].last + 1)
    return list(messages), holds


def test_words_are_whole_and_those_of_the_template_are_none() -> None:
    messages, holds = placed(
        Message("user", "My dog is called Rexo, I say.", 0, 6),
        Message("user", "?", 7, 7),
        Message("assistant", "!", 8, 8),
    )
    tokens = ((0.9, "<|user|>"), (0.1, "My"), (0.0, " dog"), (0.4, " is called R"), (0.8, "ex"), (0.0, "o"))
    assert source_of(rested(*tokens), messages, holds, range(0)) == Source(0, "is called Rexo")
    little = [(weight / 3, text) for weight, text in tokens]
    assert source_of(rested(*little), messages, holds, range(0)) == NOTHING
    alone = ((2.0, "<|user|>"), *((0.0, text) for _, text in tokens[1:]))
    assert source_of(rested(*alone), messages, holds, range(0)) == NOTHING
    part = ((2.0, "\N{REPLACEMENT CHARACTER}"), *alone[1:])
    assert source_of(rested(*part), messages, holds, range(0)) == Source(0, "")
    gone = [(weight, "") for weight, _ in tokens]
    assert source_of(rested(*gone), messages, holds, range(0)) == Source(0, "")


def test_long_words_are_cut_and_the_first_token_never_counts() -> None:
    text = "word " * 40 + "end"
    messages, holds = placed(
        Message("user", text, 0, 3), Message("user", "?", 4, 4), Message("assistant", "!", 5, 5)
    )
    found = source_of(rested((2.0, "word"), (0.0, ""), (2.0, "end")), messages, holds, range(0))
    assert len(found.words) <= LONGEST_CHARACTERS
    assert found.words.endswith("…")
    assert source_of(Rested([0], [9.0], {0: "word"}), messages, holds, range(0)) == NOTHING


def test_of_the_question_only_what_is_told_again_counts() -> None:
    again = Recalled(0, "It is Rexo.")
    question = Message("user", "Which dog?", 3, 6, recalled=again)
    messages, holds = placed(Message("user", "It is Rexo.", 0, 2), question, Message("assistant", "!", 7, 7))
    told = told_again(again, 3, ["I said before: It", " is", " Rexo.", " Which dog?"])
    assert list(told) == [3, 4, 5]
    tokens = rested(
        (0.0, " is"), (0.0, " Rexo."), (0.1, "It"), (0.2, " is"), (2.0, " Rexo."), (9.0, " Which")
    )
    assert source_of(tokens, messages, holds, told) == Source(0, "Rexo")
    assert source_of(tokens, messages, holds, range(0)) == NOTHING
    assert list(told_again(None, 3, ["a"])) == list(told_again(again, 3, [])) == []


def test_an_earlier_question_that_was_told_again_names_where_the_words_come_from() -> None:
    again = Recalled(0, "It is Rexo.")
    messages, holds = placed(
        Message("user", "It is Rexo.", 0, 0),
        Message("user", "Which dog?", 1, 4, recalled=again),
        Message("user", "?", 5, 5),
        Message("assistant", "!", 6, 6),
    )
    of_reminder = rested((0.0, "It"), (2.0, " Rexo."), (0.1, " Which"), (0.2, " dog?"))
    assert source_of(of_reminder, messages, holds, range(0)) == Source(0, "Rexo")
    of_question = rested((0.0, "It"), (0.1, " Rexo."), (0.1, " Which"), (2.0, " dog?"))
    assert source_of(of_question, messages, holds, range(0)) == Source(1, "dog")
    both, holds = placed(
        Message("user", "My dog is Rexo.", 0, 0),
        Message("user", "Which dog?", 1, 4, recalled=Recalled(0, "My dog is Rexo.")),
        Message("user", "?", 5, 5),
        Message("assistant", "!", 6, 6),
    )
    of_both = rested((2.0, " dog"), (0.6, " is"), (0.9, " Rexo."), (0.1, " Which"))
    assert source_of(of_both, both, holds, range(0)) == Source(0, "dog is Rexo")


def test_many_tokens_that_give_a_little_each_are_no_source() -> None:
    messages, holds = placed(
        Message("user", "word " * 40, 0, 40), Message("user", "?", 41, 41), Message("assistant", "!", 42, 42)
    )
    little = [(0.05, " word")] * 39
    assert source_of(rested((0.3, " word"), *little), messages, holds, range(0)) == NOTHING
    assert source_of(rested((1.1, " word"), *little), messages, holds, range(0)) == Source(0, "word")
