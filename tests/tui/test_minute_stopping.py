"""A text that is stopped, cleared or fails comes back as it was typed: rows 1, 3 and 9 of what users met."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from screens import Drive
from textual.events import Paste
from typed import ONE_SIZE, SAID, Held

from h2o_chat.base.deadline import Deadline
from h2o_chat.base.errors import ExitCode
from h2o_chat.chat.commands.surface import Opened
from h2o_chat.tui.pane import pane

# Stopping and clearing


@pytest.mark.parametrize("size", ONE_SIZE)
async def test_what_is_stopped_comes_back_as_it_was_typed(
    talk: Drive, size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("book.md").write_text("Trains run. " * 50)
    async with talk(size) as screen:
        app = screen.app
        Held(screen, monkeypatch, tokens=0)
        for key in ("escape", "ctrl+c"):
            for typed in ("read @book.md ", "//etc is a folder"):
                await screen.start(typed)
                await screen.pilot.press(*"more")
                await screen.pilot.press(key)
                await screen.answered()
                assert app.prompt.text == f"{typed}\nmore"
                assert screen.own() == list(SAID)
                app.prompt.clear()
                app._leaves_until = float("-inf")


async def test_escape_stops_a_long_reading_only_when_pressed_twice(
    talk: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with talk((80, 24)) as screen:
        app, held = screen.app, Held(screen, monkeypatch, tokens=0)
        for seconds, presses in ((60.0, 1), (0.0, 2)):
            monkeypatch.setattr(pane, "LONG_SECONDS", seconds)
            await screen.start("a long page")
            await screen.until(lambda: screen.own()[-1] == "a long page", "it is shown")
            await screen.pilot.pause(0.3)
            app.pane.is_reading = True  # as reports of a long prompt say
            for press in range(presses):
                assert not app.jobs.cancelled
                await screen.pilot.press("escape")
                assert ("esc again stops" in app.divider.remark) == (press < presses - 1)
            await screen.answered()
            assert app.prompt.text == "a long page"
            app.prompt.clear()
        held.go_on.set()


async def test_a_chosen_message_that_is_stopped_while_it_is_read_is_chosen_no_more(
    talk: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with talk((80, 24)) as screen:
        Held(screen, monkeypatch, tokens=0)
        await screen.start("a long page")
        await screen.pilot.press("tab", "up")
        assert "#5 chosen" in screen.page()
        await screen.pilot.press("ctrl+c")
        await screen.answered()
        assert screen.app.prompt.text == "a long page"
        screen.app.divider.say("")
        assert "chosen" not in screen.page()
        await screen.pilot.press("up")
        assert "#4 chosen" in screen.page()


@pytest.mark.parametrize("size", ONE_SIZE)
async def test_text_typed_into_the_help_goes_to_the_prompt(talk: Drive, size: tuple[int, int]) -> None:
    async with talk(size) as screen:
        app = screen.app
        for typed in ("q", "/", "hello"):
            await screen.pilot.press("f1")
            assert len(app.screen_stack) == 2
            screen.at_once(*typed)
            await screen.until(lambda: len(app.screen_stack) == 1, "the help is closed")
        await screen.pilot.press("f1")
        app.post_message(Paste(" there"))
        await screen.until(lambda: len(app.screen_stack) == 1, "the help is closed")
        await screen.until(lambda: app.prompt.text == "q/hello there", "all has arrived")
        for key in ("escape", "enter", "f1"):
            await screen.pilot.press("f1", key)
            assert len(app.screen_stack) == 1
        assert screen.own() == list(SAID)


@pytest.mark.parametrize("size", ONE_SIZE)
async def test_ctrl_c_clears_the_prompt_before_it_leaves(talk: Drive, size: tuple[int, int]) -> None:
    async with talk(size) as screen:
        app, press = screen.app, screen.pilot.press
        await press(*"a long text", "ctrl+c")
        assert app.prompt.text == ""
        await press("ctrl+c")
        assert "ctrl+c again leaves" in app.divider.remark
        assert app.is_running
        app._leaves_until = float("-inf")
        await press("up")
        assert app.prompt.text == "a long text"
        await press("tab", "ctrl+c")
        assert app.prompt.text == "", "from anywhere"
        await press("ctrl+c")
        app.prompt.put("typed at the last moment")
        await press("ctrl+c")
        await screen.until(lambda: not app.is_running, "it leaves, as it has said")
        assert app.prompt._history.older("") == "typed at the last moment"


async def test_ctrl_c_stops_then_clears_then_leaves(talk: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    async with talk((80, 24)) as screen:
        app, press = screen.app, screen.pilot.press
        Held(screen, monkeypatch, tokens=1)
        await screen.start("one")
        await press(*"more")
        for key, text in (("ctrl+c", "more"), ("ctrl+c", "")):
            await press(key)
            assert app.prompt.text == text
            assert "again leaves" not in app.divider.remark
        await screen.answered()
        assert screen.chat.messages[-1].finish == "stopped"
        assert app.is_running
        await press("up")
        assert app.prompt.text == "more", "it is not lost"
        await press("ctrl+c", "ctrl+c", "ctrl+c")
        await screen.until(lambda: not app.is_running, "it leaves")


async def test_what_happens_next_replaces_a_notice(talk: Drive) -> None:
    async with talk((80, 24)) as screen:
        app, press = screen.app, screen.pilot.press
        for happens in ("/nonsense", "/edit", "/stats"):
            await press("escape", *"text", "ctrl+c")
            assert "cleared" in app.divider.remark
            await screen.ask(happens)
            assert "cleared" not in app.divider.remark
        await press(*"text", "ctrl+c", "ctrl+e")
        assert "editing" in app.divider.remark


async def test_a_selection_is_copied_while_an_answer_is_made(
    talk: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with talk((80, 24)) as screen:
        app, held = screen.app, Held(screen, monkeypatch, tokens=1)
        await screen.start("What is my name?")
        await screen.pilot.press(*"flower", "shift+left", "shift+left", "ctrl+c")
        assert app.clipboard == "er"
        assert app.busy
        held.go_on.set()
        await screen.answered()


# Commands that fail


@pytest.mark.parametrize("size", ONE_SIZE)
async def test_a_command_that_failed_is_replaced_by_typing(talk: Drive, size: tuple[int, int]) -> None:
    async with talk(size) as screen:
        app, press = screen.app, screen.pilot.press
        for wrong in ("/polcy window", "/budget many", "/copy 99"):
            await press(*wrong, "enter")
            assert app.prompt.selected_text == wrong
            await press(*"/stats", "enter")
            assert app.prompt.text == ""
            assert "KV heads" in screen.bodies()[-1]
            await press("up", "up")
            assert app.prompt.text == wrong, "and it is not lost"
            await press("ctrl+c")
        await press(*"/polcy", "enter", "ctrl+c")
        assert app.prompt.text == "", "nobody has selected it"
        assert app.clipboard == ""


@pytest.mark.parametrize("size", ONE_SIZE)
async def test_a_file_that_is_typed_out_is_sent(
    talk: Drive, size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    Path("notes.md").write_text("Trains run.")
    Path("notes.md.old").write_text("They do not.")
    async with talk(size) as screen:
        await screen.pilot.press(*"read @notes.md", "enter")
        await screen.until(lambda: len(screen.own()) == 3 and not screen.app.busy, "it is answered")
        assert "Trains run." in screen.own()[-1]
        await screen.pilot.press(*"read @notes.md", "down", "enter")
        assert screen.app.prompt.text == "read @notes.md.old ", "another one was chosen"


@pytest.mark.parametrize("size", ONE_SIZE)
async def test_a_signal_decides_the_exit_code_though_a_model_opens_just_then(
    talk: Drive, size: tuple[int, int]
) -> None:
    async with talk(size) as screen:
        app = screen.app
        app.exit_code = ExitCode.HUNG_UP
        # A real one would end the tests.
        app.deadline = cast(Deadline, SimpleNamespace(begun=True, begin=lambda code: None))
        app._take(Opened(screen.chat))
        assert app.exit_code == ExitCode.HUNG_UP
