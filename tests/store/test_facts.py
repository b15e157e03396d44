"""Facts for all conversations: kept, changed, removed, and lost with the conversation that they come from."""

from pathlib import Path

import pytest
from storing import created

from h2o_chat.base.errors import UsageError
from h2o_chat.store import Store


def test_facts_come_back_until_they_or_their_conversation_are_removed(folder: Path) -> None:
    store = Store(folder)
    one, other = (created(store, "pocket", {}) for _ in range(2))
    typed = store.facts.add("  My cat is\ncalled \x00Miso. ")
    said = store.facts.add("I live in Bern.", one)
    kept = store.facts.add("I have a boat.", other)
    assert store.facts.add("I live in Bern.").number == said.number, "it is there already"
    store.close()

    store = Store(folder)
    store.facts.change(kept.number, "I have a red boat.")
    assert [(fact.text, fact.conversation) for fact in store.facts.all()] == [
        (typed.text, None),
        ("I live in Bern.", one),
        ("I have a red boat.", other),
    ]
    assert typed.text.startswith("My cat is called")
    store.remove(one)
    store.facts.remove(typed.number)
    assert [fact.number for fact in store.facts.all()] == [kept.number]
    assert store.facts.add("A third one.").number > kept.number, "a number never comes again"


@pytest.mark.parametrize("text", ["", " \n ", "x" * 1001])
def test_no_fact(store: Store, text: str) -> None:
    with pytest.raises(UsageError):
        store.facts.add(text)
    with pytest.raises(UsageError, match="no fact 7"):
        store.facts.remove(7)
    with pytest.raises(UsageError, match="no fact 7"):
        store.facts.change(7, "x")


def test_what_was_said_elsewhere(store: Store) -> None:
    here, other = (created(store, "pocket", {}, title=title) for title in ("here", "other"))
    for id_ in (here, other):
        with store.claim(id_) as writer:
            for number in range(3):
                writer.said("user", f"{number} in {id_}")
                writer.said("assistant", "Yes.")
    found = store.facts.said_elsewhere(here, 2)
    assert [(one.title, one.text) for one in found] == [("other", f"{at} in {other}") for at in (1, 2)]
    assert len(store.facts.said_elsewhere(None, 99)) == 6
    store.remove(other)
    assert store.facts.said_elsewhere(here, 99) == []
