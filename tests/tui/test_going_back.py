"""Going back and elsewhere, on the real app with a real small model and a real store."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from screens import Drive, Screen, unfolded
from storing import created
from textual.widgets import Input, OptionList, Static

from h2o_chat.chat.commands import bodies
from h2o_chat.store import Store
from h2o_chat.tui.prompt.dialogs import Conversations
from h2o_chat.tui.transcript import drawing

SAID = ("Hi, my name is Flora.", "Do you like films?", "What is my name?")
INSTEAD = "My locker code is K7Q2."


def shown(screen: Screen) -> list[str]:
    """The messages on the screen, without the marks under them."""
    views = [
        view for view in screen.app.transcript.messages.views if view.kind in ("user", "assistant", "system")
    ]
    return [unfolded(view).split("\n■")[0] for view in views]


async def agrees(screen: Screen) -> None:
    """The screen shows what the conversation is, its gauges included."""
    await screen.until(lambda: len(shown(screen)) == len(screen.chat.messages), "the screen is drawn")
    for body, message in zip(shown(screen), screen.chat.messages, strict=True):
        assert body.split() == message.text.split()
    views = [view for view in screen.app.transcript.messages.views if view.kind in ("user", "assistant")]
    assert [view.hold for view in views] == [message.hold for message in screen.chat.messages]


async def test_the_last_answer_is_made_again(stored: Drive) -> None:
    async with stored() as screen:
        await screen.pilot.press("ctrl+r")
        assert "nothing was said yet" in screen.app.divider.remark
        await screen.say(*SAID[:2])
        before, leaf = shown(screen), screen.chat.keeper.leaf
        await screen.pilot.press("ctrl+r")
        await screen.until(lambda: screen.chat.keeper.leaf != leaf, "it is being made again")
        await screen.answered()
        await agrees(screen)
        assert shown(screen)[:-1] == before[:-1]
        first, again = (body.split() for body in (before[-1], shown(screen)[-1]))
        assert first[0] != again[0], "greedy, it begins with another word, on another branch"
        children = screen.chat.keeper.store.children(
            screen.chat.keeper.conversation, screen.chat.messages[1].id
        )
        assert len(children) == 2
        assert screen.app.prompt.text == ""


async def test_an_earlier_message_is_said_anew(stored: Drive) -> None:
    async with stored() as screen:
        await screen.say(*SAID)
        screen.app.prompt.text = "half a"
        await screen.pilot.press("tab", *["up"] * 8, "down", "down")
        assert screen.app.transcript.selected == 2
        [marked] = [view for view in screen.app.transcript.messages.views if view.marked]
        assert drawing.title(marked, 60, 12).plain.startswith("▸ #3 you")
        await screen.pilot.press("e")
        assert screen.app.prompt.text == SAID[1]
        assert screen.app.prompt.has_focus
        assert "esc gives up" in screen.app.divider.remark
        await screen.pilot.press("escape")
        assert screen.app.prompt.text == "half a"
        assert not any(view.marked for view in screen.app.transcript.messages.views)
        await screen.pilot.press("tab", "up", "up", "up", "up", "e")
        await screen.say(INSTEAD)
        await agrees(screen)
        assert shown(screen)[0::2] == [SAID[0], INSTEAD]
        assert not any(view.marked for view in screen.app.transcript.messages.views)
        kept = screen.chat.keeper.store.messages(screen.chat.keeper.conversation)
        assert [m.text for m in kept if m.role == "user"] == [*SAID, INSTEAD]
        assert screen.app.prompt.text == "half a"
        await screen.say(SAID[2])  # and it goes on from there
        await agrees(screen)


async def test_what_is_rewritten_is_not_lost_by_editing_again(stored: Drive) -> None:
    async with stored() as screen:
        await screen.say(*SAID[:2])
        app, press = screen.app, screen.pilot.press
        await press("ctrl+e", *" rewritten", "ctrl+e", *"!")
        assert app.prompt.text == f"{SAID[1]} rewritten!"
        app.pane.act("edit", "1")
        assert app.prompt.text == SAID[0]
        await press("up")
        assert app.prompt.text == f"{SAID[1]} rewritten!", "another one is edited"


async def test_a_draft_is_in_the_history_when_somebody_leaves_while_editing(stored: Drive) -> None:
    async with stored() as screen:
        await screen.say(*SAID[:2])
        await screen.pilot.press(*"a draft", "ctrl+e", *" again", "ctrl+q")
        await screen.until(lambda: not screen.app.is_running, "it leaves")
        history = screen.app.prompt._history
        assert history.older("") == f"{SAID[1]} again"
        assert history.older("") == "a draft"


async def test_going_back_is_cancelled(stored: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no memory is saved everything is read again: escape stops that, and nothing has changed."""
    async with stored() as screen:
        await screen.say(*SAID)
        before, messages = screen.bodies(), list(screen.chat.messages)
        for file in screen.chat.keeper.store.caches(screen.chat.keeper.conversation).iterdir():
            file.unlink()
        slowly(screen, monkeypatch)
        await screen.pilot.press("ctrl+e")
        await screen.ask(INSTEAD)
        await screen.until(lambda: "reading again" in screen.app.divider.remark, "progress is shown")
        assert "esc stops" in screen.app.divider.remark
        await screen.pilot.press("escape")
        await screen.answered()
        assert screen.chat.messages == messages
        assert screen.bodies() == before
        assert screen.app.prompt.text == INSTEAD
        assert re.search("your text is back|editing", screen.app.divider.remark)  # the former for 4 s
        monkeypatch.undo()
        await screen.pilot.press("enter")  # still in the place of the message
        await screen.answered()
        assert [m.text for m in screen.chat.messages if m.role == "user"] == [*SAID[:2], INSTEAD]
        assert "rebuilt from the transcript" in " ".join(screen.bodies())


def slowly(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its first message, reading again lasts until it is stopped."""
    engine, real = screen.chat.engine, screen.chat.engine.feed_again
    read: list[object] = []

    def feed_again(*args: Any, cancel: Callable[[], bool], **kwargs: Any) -> bool:
        give_up = time.monotonic() + 60
        while read and not cancel():
            assert time.monotonic() < give_up, "nobody stopped it"
            time.sleep(0.01)
        read.append(args)
        return bool(real(*args, cancel=cancel, **kwargs))

    monkeypatch.setattr(engine, "feed_again", feed_again)


async def test_a_new_prompt_stopped_while_it_is_read_leaves_what_was_said(stored: Drive) -> None:
    """The old answer comes back: nothing was said instead of it."""
    long = "Once upon a time there was a red key in the garden and a bird. " * 1500
    async with stored() as screen:
        await screen.say(*SAID[:2])
        before = shown(screen)
        await screen.pilot.press("ctrl+e")
        await screen.ask(long)
        await screen.until(lambda: shown(screen)[2] == long, "it is being read")
        await screen.pilot.press("escape")
        await screen.answered()
        await agrees(screen)
        assert shown(screen) == before
        assert screen.app.prompt.text == long
        await screen.pilot.press("escape")
        await screen.say(SAID[2])
        await agrees(screen)


async def test_nothing_to_go_back_to_where_nothing_is_stored(drive: Drive) -> None:
    async with drive("pilot-chat") as screen:
        await screen.say(SAID[0])
        for key in ("ctrl+r", "ctrl+e"):
            await screen.pilot.press(key)
            assert "not stored" in screen.app.divider.remark
        await screen.pilot.press("ctrl+o")
        assert "not stored here" in screen.app.divider.remark
        await screen.ask("/new")
        await screen.until(lambda: not screen.chat.messages, "it is forgotten")
        await screen.answered()
        await agrees(screen)


async def test_another_conversation_is_begun_found_and_opened(stored: Drive) -> None:
    async with stored() as screen:
        await screen.say(*SAID[:2])
        first, panel = shown(screen), screen.app._memory.cache
        await screen.another()
        assert not shown(screen)
        assert "nothing read yet" in screen.lines()[0]
        await screen.say(INSTEAD)
        await agrees(screen)
        await screen.pilot.press("ctrl+o")
        listed = await conversations(screen, 2)
        assert "on the screen now" in listed[0]
        assert listed[1].strip().startswith(SAID[0])
        await screen.pilot.press(*"films")  # a word of a message, not of a title
        [only] = await conversations(screen, 1)
        assert "«films»" in only
        await screen.pilot.press("enter")
        await screen.until(lambda: shown(screen) == first, "the first one is back")
        await screen.answered()
        await agrees(screen)
        assert screen.app._memory.cache.seen == panel.seen
        await screen.say(SAID[2])
        assert "Flora" in screen.chat.messages[-1].text


async def test_the_conversation_that_was_chosen_is_opened_though_the_list_has_changed(stored: Drive) -> None:
    async with stored() as screen:
        await screen.say(SAID[0])
        first = screen.chat.keeper.conversation
        await screen.another()
        await screen.say(INSTEAD)
        await screen.pilot.press("ctrl+o")
        await conversations(screen, 2)
        options = screen.app.screen.query_one(OptionList)
        options.highlighted = 1
        options.action_select()
        options.highlighted = 0  # as a list that was found meanwhile does
        await screen.until(lambda: screen.chat.keeper.conversation == first, "it is open")


async def test_the_conversation_on_the_screen_is_open_already(stored: Drive) -> None:
    """It was refused, as being open in another process: this one."""
    async with stored() as screen:
        await screen.say(SAID[0])
        before = screen.bodies()
        for words in ("last", screen.chat.keeper.conversation[:6]):
            await screen.ask(f"/open {words}")
            assert "open already" in screen.app.divider.remark
            screen.app.divider.say("")
        assert screen.bodies() == before


async def conversations(screen: Screen, count: int) -> list[str]:
    """The lines of the list, once there are so many."""
    await screen.until(lambda: isinstance(screen.app.screen, Conversations), "the list is open")
    options = screen.app.screen.query_one(OptionList)
    await screen.until(lambda: options.option_count == count, f"{count} are listed")
    return [str(option.prompt) for option in options.options]


def remark(screen: Screen) -> str:
    return str(screen.app.screen.query_one("#remark", Static).content)


async def test_conversations_are_renamed_and_removed(stored: Drive, tmp_path: Path) -> None:
    async with stored() as screen:
        store = screen.chat.keeper.store
        gone = created(store, "other-model", {}, title="old [b]one[/b]\x1b[31m")
        await screen.say(SAID[0])
        current = screen.chat.keeper.conversation
        await screen.pilot.press("ctrl+o")
        _, other = await conversations(screen, 2)
        assert "old [b]one[/b]␛[31m" in other
        assert "held with other-model" in other
        await screen.pilot.press("ctrl+d")  # the one on the screen
        assert "on the screen" in remark(screen)
        await screen.pilot.press("down", "ctrl+r")
        field = screen.app.screen.query_one(Input)
        field.value = "new name"
        await screen.pilot.press("escape")
        assert store.summary(gone).title == "old [b]one[/b]\x1b[31m"
        await screen.pilot.press("ctrl+r", *"new name", "enter")  # what is typed replaces it
        await screen.until(lambda: store.summary(gone).title == "new name", "it is renamed")
        await screen.until(lambda: "new name" in _second(screen), "and shown")
        await screen.pilot.press("ctrl+d", "n", "enter")
        assert "for ever" in remark(screen)
        await screen.pilot.press("escape")
        assert len(store.list()) == 2
        await conversations(screen, 2)
        await screen.pilot.press("ctrl+d", "y")
        await conversations(screen, 1)
        assert [about.id for about in store.list()] == [current]
        await screen.pilot.press("escape")
        assert screen.app.prompt.has_focus
        assert "The title is empty" in await screen.say("/rename")
        await screen.ask("/rename The third name")
        assert store.summary(current).title == "The third name"


def _second(screen: Screen) -> str:
    return str(screen.app.screen.query_one(OptionList).options[1].prompt)


async def test_what_cannot_be_opened_is_said_and_nothing_changes(stored: Drive, tmp_path: Path) -> None:
    async with stored() as screen:
        await screen.say(SAID[0])
        store, before = screen.chat.keeper.store, shown(screen)
        foreign = created(store, "other-model", {}, title="foreign")
        with store.claim(foreign) as writer:
            writer.run({"model": "other-model"})
        held = created(store, screen.chat.session.model, {}, title="held")
        with Store(tmp_path / "data").claim(held):
            for title, says in (("foreign", "No model 'other-model'"), ("held", "is open in")):
                await screen.pilot.press("ctrl+o")
                await conversations(screen, 3)
                await screen.pilot.press(*title)
                await conversations(screen, 1)
                await screen.pilot.press("enter")
                await screen.until(lambda says=says: says in screen.bodies()[-1], "the error is shown")
                await screen.answered()
                assert shown(screen) == before
        await screen.say(SAID[2])
        await agrees(screen)


async def test_what_was_said_before_is_gone_back_to(stored: Drive) -> None:
    async with stored() as screen:
        await screen.ask("/branch")
        assert "nothing was said yet" in screen.app.divider.remark
        await screen.say(*SAID)
        await screen.ask("/branch")
        assert "nothing else was said" in screen.app.divider.remark
        first, kept = shown(screen), screen.app._memory.hold.copy()
        bodies.edit(screen.app.pane, "3")  # type: ignore[arg-type]
        await screen.say(INSTEAD)
        assert "/branch" in screen.app.divider.remark
        other, after = shown(screen), screen.app._memory.hold.copy()
        assert other != first

        await screen.ask("/branch")
        await screen.until(lambda: shown(screen) == first, "the first branch is back")
        await screen.answered()
        assert "Branch 1 of 2 from #3 on." in screen.bodies()
        assert screen.app._memory.hold == kept
        assert screen.app.transcript.selected == 2
        await agrees(screen)
        screen.app.transcript.focus()
        await screen.pilot.press("up", "down", "b")
        await screen.until(lambda: shown(screen) == other, "and the second")
        await screen.answered()
        assert screen.app._memory.hold == after
        await screen.pilot.press("b")
        await screen.until(lambda: shown(screen) == first, "and the first again")
        await screen.answered()
        await screen.say(SAID[2])
        assert "Flora" in screen.chat.messages[-1].text
        await agrees(screen)
        keeper = screen.chat.keeper
        texts = {message.text for message in keeper.store.messages(keeper.conversation)}
        assert texts >= {INSTEAD, *SAID}, "nothing is lost"


async def test_a_branch_that_is_stopped_half_way_changes_nothing(
    stored: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stored() as screen:
        await screen.say(*SAID[:2])
        await screen.say("/regenerate 0")
        before, leaf = shown(screen), screen.chat.keeper.leaf
        monkeypatch.setattr(type(screen.chat), "resume", lambda *_: False)
        await screen.ask("/branch")
        await screen.until(lambda: "nothing has changed" in screen.app.divider.remark, "it is said")
        assert (shown(screen), screen.chat.keeper.leaf) == (before, leaf)
        await agrees(screen)
