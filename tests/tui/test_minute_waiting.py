"""A text that is sent meanwhile waits its turn; rows 1, 3 and 9 of what a new user met."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from screens import Drive
from typed import ONE_SIZE, Held

from h2o_chat.base.errors import H2OChatError

# Waiting


async def test_what_waits_is_cut_behind_a_word(talk: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    async with talk((80, 24)) as screen:
        held = Held(screen, monkeypatch, tokens=1)
        await screen.start("one")
        for begins in ("a ", "aa "):  # one of them is cut where a blank stands
            await screen.ask(begins + "a " * 60)
        lines = str(screen.app.pane.outbox.render()).splitlines()
        assert ["a a…”" in line for line in lines] == [True, True]
        held.go_on.set()
        await screen.answered()


@pytest.mark.parametrize("size", ONE_SIZE)
async def test_what_is_sent_meanwhile_waits_its_turn(
    talk: Drive, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with talk(size) as screen:
        app, press = screen.app, screen.pilot.press
        held = Held(screen, monkeypatch, tokens=1)
        await screen.start("one")
        await press(*"two", "enter", *"three", "enter", *"four", "enter")
        assert app.prompt.text == ""
        lines = [line for line in screen.lines() if "waits" in line]
        assert [line.split("“")[1].split("”")[0] for line in lines] == ["two", "three", "four"]
        assert "up takes it back" in lines[-1]
        await press("up")
        assert app.prompt.text == "four"
        await press("!", "enter")
        await screen.pilot.click(offset=screen.where("“four!”"))
        assert app.prompt.text == "four!", "or with a click"
        await press("enter")
        held.go_on.set()
        await screen.until(lambda: len(screen.own()) == 6 and not app.busy, "all are answered")
        assert screen.own()[2:] == ["one", "two", "three", "four!"]
        assert "waits" not in screen.page()


async def test_of_many_that_wait_the_others_are_counted(talk: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    async with talk((80, 24)) as screen:
        held = Held(screen, monkeypatch, tokens=1)
        await screen.start("one")
        for count in range(8):
            await screen.ask(f"waiting {count}")
        assert len([line for line in screen.lines() if "“waiting" in line]) == 3
        assert "5 more" in screen.page()
        for _ in range(5):
            await screen.pilot.press("up")
            screen.app.prompt.clear()
        assert " more" not in str(screen.app.pane.outbox.render())
        await screen.pilot.press("escape")
        held.go_on.set()
        await screen.answered()


@pytest.mark.parametrize(("tokens", "doing"), [(0, "reading"), (1, "answering")])
async def test_a_key_says_why_not_now_and_a_command_waits(
    talk: Drive, tokens: int, doing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with talk((80, 24)) as screen:
        app, held = screen.app, Held(screen, monkeypatch, tokens=tokens)
        await screen.ask("one")
        await screen.until(lambda: doing in app.divider.remark, "it goes on")
        for key in ("ctrl+o", "ctrl+n", "ctrl+r", "ctrl+e", "f2"):
            app.divider.say("")
            await screen.pilot.press(key)
            assert f"not now: it is {doing}" in app.divider.remark
            assert len(app.screen_stack) == 1
        await screen.ask("/budget more")
        assert "waits: “/budget more”" in screen.page()
        await screen.pilot.press("f3", "f3")
        assert "waits: “/budget more”" in screen.page(), "a note offers it while a prompt is read; once"
        held.go_on.set()
        await screen.answered()
        await screen.until(lambda: "there is room" in screen.bodies()[-1], "and it is done")


@pytest.mark.parametrize("size", ONE_SIZE)
async def test_what_waits_comes_back_when_the_answer_is_stopped_or_fails(
    talk: Drive, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with talk(size) as screen:
        app = screen.app
        held = Held(screen, monkeypatch, tokens=1)
        for how in ("stopped", "failed"):
            await screen.start("one")
            await screen.pilot.press(*"two", "enter", "f3", *"three", "enter", *"fo")
            if how == "stopped":
                await screen.pilot.press("escape")
            else:
                held.fails = H2OChatError("The machine is tired.")
                held.go_on.set()
            await screen.answered()
            await screen.until(lambda: app.prompt.text == "two\nthree\nfo", f"what waited is back: {how}")
            assert not app.pane.outbox, "a command is not glued to it"
            assert "not done: /budget more" in app.divider.remark
            assert "waits" not in screen.page()
            await screen.pilot.press("u", "r")
            assert app.prompt.text == "two\nthree\nfour", "what was being typed goes on"
            app.prompt.clear()


async def test_a_message_that_is_not_sent_comes_back_without_the_command_behind_it(
    talk: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with talk((80, 24)) as screen:
        held = Held(screen, monkeypatch, tokens=0)
        await screen.ask("one")
        await screen.until(lambda: "reading" in screen.app.divider.remark, "it is read")
        await screen.pilot.press("f3", "escape")
        held.go_on.set()
        await screen.answered()
        await screen.until(lambda: screen.app.prompt.text == "one", "it alone is back")


@asynccontextmanager
async def opening_late(talk: Drive, size: tuple[int, int] = (80, 36)) -> AsyncIterator[Any]:
    """The app, and an event until which neither the first model nor another one is open."""
    opens = threading.Event()
    async with talk(size, (), first=lambda: opens.wait(100)) as screen:
        yield screen, opens


@pytest.mark.parametrize("size", ONE_SIZE)
async def test_what_is_sent_while_a_model_loads_waits(talk: Drive, size: tuple[int, int]) -> None:
    async with opening_late(talk, size) as (screen, opens):
        app, press = screen.app, screen.pilot.press
        for count in (1, 2):
            await press(*"//quit", "enter", *"two", "enter")
            assert "sent as soon as" in app.divider.remark
            assert screen.page().count("waits") == 2
            await press("ctrl+o")
            assert "not now: it is opening" in app.divider.remark
            opens.set()
            await screen.opened()
            await screen.until(lambda: screen.own() == ["/quit", "two"] and not app.busy, "both are answered")
            if count == 1:
                opens.clear()
                await screen.start("/model another")


async def test_commands_typed_while_a_model_loads_wait_in_order(talk: Drive) -> None:
    async with opening_late(talk) as (screen, opens):
        app = screen.app
        for count in (1, 2):
            for text in ("/system Be brief.", "one", "/budget 48", "two", "/pin 2"):
                await screen.ask(text)
                assert app.prompt.text == "", "nothing is refused"
            assert "waits 3: “/budget 48”" in screen.page()
            await screen.ask("/quiet")
            assert screen.page().count("waits") == 3, "what needs no model is done at once"
            await screen.ask("/budgte 48")
            assert app.prompt.selected_text == "/budgte 48", "no command: refused at once"
            app.prompt.clear()
            opens.set()
            await screen.opened()
            await screen.until(
                lambda: len(screen.own()) == 2 and not app.busy and not app.pane.outbox,
                "all is said and done",
            )
            bodies = screen.bodies()
            assert bodies.index("one") < bodies.index("budget = 48; the conversation was read again")
            assert bodies.index("budget = 48; the conversation was read again") < bodies.index("two")
            assert screen.chat.session.budget == 48
            assert screen.chat.system == "Be brief."
            assert [n for n, one in enumerate(screen.chat.messages) if one.pinned] == [1]
            opens.clear()
            if count == 1:
                await screen.start("/model another")


async def test_what_waits_behind_a_command_that_fails_comes_back(talk: Drive) -> None:
    async with opening_late(talk, (80, 24)) as (screen, opens):
        for text in ("/budget none", "one"):
            await screen.ask(text)
        opens.set()
        await screen.until(lambda: screen.app.prompt.text == "one", "it is back")
        assert "not sent" in screen.app.divider.remark
        assert "budget" in screen.bodies()[-1]
        await screen.ask("/set")  # it asks something
        opens.clear()
        await screen.pilot.press("escape")
        await screen.ask("/model another")
        for text in ("/set", "two"):
            await screen.ask(text)
        opens.set()
        await screen.until(lambda: len(screen.app.screen_stack) == 2, "it asks")
        assert "waits: “two”" in str(screen.app.pane.outbox.render())
        await screen.pilot.press("escape")
        await screen.until(lambda: screen.own() == ["two"], "then it is sent")


async def test_what_is_sent_while_files_are_read_or_it_goes_back_waits(
    talk: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.md").write_text("Trains run.")
    async with talk((80, 24)) as screen:
        app, answers = screen.app, threading.Event()
        read = Path.open

        def late(path: Path, *args: Any, **kwargs: Any) -> Any:
            if path.name == "notes.md":
                answers.wait(100)
            return read(path, *args, **kwargs)

        monkeypatch.setattr(Path, "open", late)
        await screen.ask("read @notes.md ")
        await screen.until(lambda: "reading files" in app.divider.remark, "files are read")
        await screen.pilot.press(*"two", "enter")
        assert "“two”" in screen.page()
        answers.set()
        await screen.until(lambda: len(screen.own()) == 4 and not app.busy, "both are answered")
        assert screen.own()[3] == "two"
        answers.clear()
        await screen.ask("read @notes.md ")
        await screen.pilot.press(*"two", "enter", "escape")
        assert app.prompt.text == "read @notes.md \ntwo"
        answers.set()
        app.prompt.clear()

        held = Held(screen, monkeypatch, tokens=0)
        await screen.pilot.press("ctrl+e", *" now", "enter")
        await screen.until(lambda: app.busy, "it goes back")
        await screen.pilot.press(*"three", "enter")
        held.go_on.set()
        await screen.until(lambda: len(screen.own()) == 5 and not app.busy, "both are answered")
        assert screen.own()[3:] == ["two now", "three"]
