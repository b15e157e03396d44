"""Pinned messages: told, kept through resuming and going back, refused where they do not fit."""

from dataclasses import replace
from pathlib import Path

import pytest
from stored_chats import SAID, SETTINGS, SHORT, close, loaded, open_chat, resumed, say, talked

from h2o_chat.base.errors import BudgetError, UsageError
from h2o_chat.chat.conversation.chat import Chat, pin
from h2o_chat.chat.conversation.going_back import edit
from h2o_chat.events.events import CacheState, Note
from h2o_chat.models.load import Loaded
from h2o_chat.store import Store

__all__ = ["loaded"]

WIDER = replace(SETTINGS, budget=96, policy="caote")
NARROW = replace(SETTINGS, policy="caote")


def held(chat: Chat, index: int) -> float:
    """Share of its tokens that every cache holds."""
    message = chat.messages[index]
    places = range(message.first, message.last + 1)
    return sum(all(map(all, chat.engine.inspect(place))) for place in places) / len(places)


def test_a_message_is_pinned_as_it_is_said_and_stays(loaded: Loaded, store: Store) -> None:
    chat = talked(loaded, store, 1, WIDER)
    events = list(chat.send(SAID[1], SHORT, pin=True))
    note = next(event for event in events if isinstance(event, Note))
    tokens = chat.messages[2].last - chat.messages[2].first + 1
    assert note.message == (
        f"#3 is pinned: {tokens} tokens stay. {tokens + 4} slots protected,"
        f" {96 - 48 - 4 - tokens} are left for what is important."
    )
    for text in SAID[2:6]:
        last = list(chat.send(text, SHORT))
    state = next(event for event in reversed(last) if isinstance(event, CacheState))
    assert state.kinds["S"] == 4 + tokens
    assert (chat.messages[2].first, chat.messages[2].last) in state.protected
    assert held(chat, 2) == 1.0
    assert held(chat, 0) < 1.0
    conversation = close(chat)
    again = resumed(loaded, store, conversation, WIDER)
    assert [message.pinned for message in again.messages].index(True) == 2
    again.keeper.close()
    for file in store.caches(conversation).glob("*"):
        file.unlink()
    rebuilt = resumed(loaded, store, conversation, WIDER)
    list(rebuilt.send(SAID[6], SHORT))
    assert held(rebuilt, 2) == 1.0, "also where it was all read anew"
    events = list(pin(rebuilt, 2, on=False))
    assert [event.event for event in events] == ["cache", "note"]
    assert "no longer pinned. 4 slots protected" in events[1].message
    rebuilt.keeper.close()
    assert not any(message.pinned for message in resumed(loaded, store, conversation, WIDER).messages)


def test_what_is_left_is_pinned_and_going_back_keeps_the_pin(loaded: Loaded, store: Store) -> None:
    chat = talked(loaded, store, 4, WIDER)
    before = held(chat, 0)
    *_, note = pin(chat, 0)
    assert isinstance(note, Note)
    assert "tokens are left and stay" in note.message or before == 1.0
    list(edit(chat, 6, "And now?", SHORT))
    list(edit(chat, len(chat.messages) - 2, chat.messages[-2].text, SHORT))
    assert chat.messages[0].pinned
    assert held(chat, 0) >= before
    slots = chat.engine.protection()[0]
    assert slots > 4, "the memory of before the edit was saved without the pin: it is there all the same"


def test_what_does_not_fit_is_not_said(loaded: Loaded, store: Store) -> None:
    chat = talked(loaded, store, 1, NARROW)
    with pytest.raises(BudgetError, match=r"at most 12 may be"):
        list(chat.send("word " * 40, SHORT, pin=True))
    assert [message.text for message in chat.messages][::2] == [SAID[0]]
    assert chat.engine.protection()[0] == 4
    with pytest.raises(UsageError, match="There is no message #10"):
        list(pin(chat, 9))


def test_an_edit_that_does_not_fit_leaves_the_conversation(loaded: Loaded, store: Store) -> None:
    chat, twin = talked(loaded, store, 3, NARROW), talked(loaded, store, 3, NARROW)
    for each in (chat, twin):
        list(pin(each, 0))
    before, leaf, protected = list(chat.messages), chat.keeper.leaf, chat.engine.protection()
    with pytest.raises(BudgetError, match=r"at most 12 may be"):
        list(edit(chat, 0, "word " * 40, SHORT))
    assert [one.text for one in chat.messages] == [one.text for one in before]
    assert (chat.keeper.leaf, chat.messages[0].pinned) == (leaf, True)
    assert chat.engine.protection() == protected
    assert say(chat, SAID[4]) == say(twin, SAID[4])


def test_a_prompt_that_is_stopped_leaves_no_pin(loaded: Loaded, store: Store) -> None:
    chat = open_chat(loaded, store, settings=WIDER)
    list(chat.send(SAID[1], SHORT, lambda: True, pin=True))
    assert (chat.messages, chat.engine.protection()[0]) == ([], 4)


def test_pins_that_fit_no_longer_are_told(loaded: Loaded, store: Store, tmp_path: Path) -> None:
    chat = open_chat(loaded, store, settings=WIDER)
    list(chat.send(SAID[1], SHORT, pin=True))
    smaller = resumed(loaded, store, close(chat), replace(WIDER, budget=24))
    (note,) = [note for note in smaller.keeper.notes if note.code == "budget"]
    assert note.message.startswith("#1 stays pinned, but is not protected now. That would protect ")
    assert smaller.messages[0].pinned
