"""Questions find what was said elsewhere, and remembered facts: a real engine, a real store."""

from types import SimpleNamespace
from typing import Any

import pytest
from storing import created
from talk import GREEDY, TALK, chat_of

from h2o_chat.base.config import Settings
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.message import Message, from_stored
from h2o_chat.chat.recall.elsewhere import Elsewhere
from h2o_chat.chat.recall.recall import Recall
from h2o_chat.events.events import Note
from h2o_chat.store import Conversation, Store, StoredMessage

TRIP = "We stay at the Hotel Mundial in Lisbon."
ASKED = "At which hotel do we stay in Lisbon?"


@pytest.fixture
def store(store: Store) -> Store:
    """One in which a trip was talked about."""
    with store.claim(created(store, "pocket", {}, title="Trip to Lisbon")) as writer:
        for text in (TRIP, *TALK):
            writer.said("user", text)
            writer.said("assistant", "I see.")
    return store


def asked(chat: Chat, text: str) -> list[str]:
    """Says a message; returns what is recalled for it. The notes say the same."""
    events = list(chat.send(text, GREEDY))
    said: Message = chat.messages[-2]
    told = " ".join(one.message for one in events if isinstance(one, Note) and one.code == "recalled")
    assert all(one.words in told for one in said.recalled)
    return [one.words for one in said.recalled]


def test_other_conversations_are_searched_only_when_that_was_asked_for(loaded: Any, store: Store) -> None:
    assert asked(chat_of(loaded, store, budget=192), ASKED) == []
    chat = chat_of(loaded, store, budget=192, recall="all")
    (words,) = asked(chat, ASKED)
    assert words.startswith("(from “Trip to Lisbon”, ")
    assert words.endswith(f") {TRIP}")
    assert asked(chat, "And now, which Lisbon hotel was it?") == [], "it is held: it was just read"
    chat.keeper.catch_up()  # type: ignore[union-attr]
    stored = store.path(chat.keeper.conversation)[0]  # type: ignore[union-attr, arg-type]
    assert stored.recalled == ((None, words),), "what crossed stays visible"
    assert asked(chat_of(loaded, store, budget=192, recall="off"), ASKED) == []


def test_what_a_page_brought_back_of_itself_is_still_its_own_when_reopened(loaded: Any, store: Store) -> None:
    chat = chat_of(loaded, store, budget=192)
    asked(chat, "Hello there.")
    page = f"{TRIP} {' '.join(TALK * 12)}\n\n{ASKED}"
    assert TRIP in asked(chat, page)[0]
    assert chat.messages[2].recalled[0].index == 2
    chat.keeper.catch_up()  # type: ignore[union-attr]
    path = store.path(chat.keeper.conversation)  # type: ignore[union-attr, arg-type]
    assert from_stored(path)[2].recalled[0].index == 2


def test_what_was_said_here_comes_first(loaded: Any, store: Store) -> None:
    chat = chat_of(loaded, store, budget=192, recall="all")
    asked(chat, "We stay at the Hotel Central in Lisbon.")
    assert asked(chat, ASKED) == []


def test_an_imported_conversation_may_have_any_time(loaded: Any, store: Store) -> None:
    said = StoredMessage(0, None, "user", "The ferry to Kos leaves at nine.", None, -1, -1, (), 1e300)
    store.put([Conversation("", "Kos", "pocket", {}, 1e300, 1e300, 0, [said])])
    (words,) = asked(chat_of(loaded, store, budget=192, recall="all"), "When does the ferry to Kos leave?")
    assert words == "(from “Kos”, ?) The ferry to Kos leaves at nine."


def test_a_removed_conversation_tells_nothing(loaded: Any, store: Store) -> None:
    chat = chat_of(loaded, store, budget=192, recall="all")
    assert chat.recall.elsewhere is not None
    assert chat.recall.elsewhere.find(ASKED, True)
    store.remove(store.list()[0].id)
    assert asked(chat, ASKED) == []


def test_a_fact_is_found_in_every_conversation_until_it_is_forgotten(loaded: Any, store: Store) -> None:
    fact = store.facts.add("My cat is called Miso.")
    for _ in range(2):
        (words,) = asked(chat_of(loaded, store, budget=192), "What is my cat called?")
        assert words.startswith("(remembered ")
        assert words.endswith(") My cat is called Miso.")
    store.facts.change(fact.number, "My cat is called Ada.")
    assert asked(chat_of(loaded, store, budget=192), "What is my cat called?")[0].endswith("Ada.")
    store.facts.remove(fact.number)
    assert asked(chat_of(loaded, store, budget=192), "What is my cat called?") == []


def test_the_first_message_has_all_facts_that_fit(loaded: Any, store: Store) -> None:
    """Later questions have those whose words they share: "muesli" is no word of an allergy."""
    store.facts.add("words " * 160)
    for fact in ("I am allergic to walnuts.", "My dentist is Doctor Okafor."):
        store.facts.add(fact)
    chat = chat_of(loaded, store, budget=384)
    assert asked(chat, "Hello there.") == [], "a greeting"
    first = asked(chat, "Suggest me a snack for a long hike.")
    told = [one.partition(") ")[2] for one in first]
    assert told == ["I am allergic to walnuts.", "My dentist is Doctor Okafor."]
    assert asked(chat, "Can I have a muesli with raisins?") == []
    assert asked(chat_of(loaded, store, budget=384, recall="off"), "Can I have a muesli with nuts?") == []


def test_facts_are_read_in_the_order_in_which_they_were_said(loaded: Any, store: Store) -> None:
    for fact in ("My dog is called Rexo.", "Sorry, I was wrong: my dog is called Bello."):
        store.facts.add(fact)
    for before in ([], ["Suggest me a snack for a long hike."]):  # all of them; those with the words
        recalled = facts_for(
            "What is my dog called?", store, [Message("user", text, 0, 9) for text in before]
        )
        assert [one.partition("called ")[2] for one in recalled] == ["Rexo.", "Bello."]


def test_a_long_fact_is_read_once(store: Store) -> None:
    store.facts.add("My locker has the code 4821, and it stands behind the stairs. " * 4)
    assert len(facts_for("Which code has my locker?", store, [])) == 1


def test_a_message_that_was_not_read_leaves_the_facts_to_the_next(store: Store) -> None:
    store.facts.add("I am allergic to walnuts.")
    failed = Message("user", "Suggest me a snack for a long hike.")
    assert facts_for("Suggest me something to eat on a hike.", store, [failed])


def test_what_was_said_in_the_conversation_before_is_found(loaded: Any, store: Store) -> None:
    chat = chat_of(loaded, store, budget=192, recall="all")
    asked(chat, "Which ferry goes to Kos?")
    asked(chat, "The ferry to Kos leaves at nine.")
    chat.clear()
    (words,) = asked(chat, "When does the ferry to Kos leave?")
    assert words.endswith("The ferry to Kos leaves at nine.")


def facts_for(text: str, store: Store, messages: list[Message]) -> list[str]:
    """The facts of the store that are recalled for a message, where nothing is held."""
    recall = Recall()
    here = SimpleNamespace(store=store, conversation=None)
    recall.elsewhere = Elsewhere(here, len)  # type: ignore[arg-type]
    nothing = SimpleNamespace(held=lambda _: 0.0)
    recalled, *_ = recall.for_message(text, messages, nothing, Settings(), 2000)
    return [one.words for one in recalled]
