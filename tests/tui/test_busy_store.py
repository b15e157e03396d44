"""The screen while another process writes to the store."""

import sqlite3
from pathlib import Path

import pytest
from screens import Drive

from h2o_chat.base.errors import StoreError
from h2o_chat.chat.conversation.release import release_chat
from h2o_chat.chat.files.importer import read
from h2o_chat.store import DATABASE, Store


async def test_what_stands_only_in_memory_is_said(stored: Drive, tmp_path: Path) -> None:
    """Once; and once that it is written, which needs nobody to press a key."""
    data = tmp_path / "data"
    async with stored() as screen:
        await screen.say("Hi, my name is Flora.")
        foreign = sqlite3.connect(data / DATABASE, timeout=60, isolation_level=None)
        foreign.execute("BEGIN IMMEDIATE")
        await screen.say("Do you like films?", "What is my name?")
        await screen.until(lambda: screen.said("stands only in memory"), "it is said")
        assert sum("stands only in memory" in body for body in screen.bodies()) == 1
        await screen.ask("/regenerate 0")  # there is no going back to what is not on disk
        await screen.until(lambda: screen.said("Not all that was said is on disk yet"), "refused")
        await screen.answered()
        foreign.execute("ROLLBACK")
        await screen.until(lambda: screen.said("is stored again"), "it is said")
        messages, conversation = screen.chat.messages, screen.chat.keeper.conversation
    store = Store(data)
    assert [(m.role, m.text) for m in store.path(conversation)] == [(m.role, m.text) for m in messages]
    store.close()


async def test_a_store_that_vanishes_is_said_at_once(stored: Drive, tmp_path: Path) -> None:
    """The conversation is saved beside it; leaving fails, and says where it is."""
    data = tmp_path / "data"
    async with stored() as screen:
        await screen.say("Hi, my name is Flora.")
        data.rename(tmp_path / "moved")
        await screen.say("What is my name?")
        assert sum("was removed or moved away" in body for body in screen.bodies()) == 1
        [file] = data.glob("rescued-*.json")
        assert screen.said(file.name)
        chat = screen.chat
        await screen.ask("/export json")  # of what is on the screen nothing is lost
        await screen.ask("/new")
        await screen.until(lambda: not screen.app.busy and not chat.messages, "another one begins")
        await screen.say("Another.")
    said = [one.text for one in read(file)[0].messages]
    assert said[::2] == ["Hi, my name is Flora.", "What is my name?"]
    assert all(said)
    with pytest.raises(StoreError, match=r"removed or moved away.*rescued-"):
        release_chat(chat)
    assert len(list(data.glob("rescued-*.json"))) == 2
