"""The screen with its engine in a process of its own, as the command line opens it."""

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from psutil import pid_exists
from screens import POCKET, Drive, slowly, unfolded

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.chat.conversation.opening import ConversationPlace, opener, opener_of
from h2o_chat.remote.engine_apart import _Process, engine_apart
from h2o_chat.tui.chat_app import ChatApp

SETTINGS = Settings(model=str(POCKET), budget=48, threads=1, seed=3)
LONG = Sampling(max_tokens=20_000, ignore_eos=True)


@pytest.mark.usefixtures("forked")
async def test_asks_stops_goes_back_and_builds_anew(drive: Drive, tmp_path: Path) -> None:
    kept = ConversationPlace(tmp_path / "data")
    opened = slowly(opener(SETTINGS, kept, engine_apart))
    async with drive("stories3m", open_chat=opened, sampling=LONG) as screen:

        def answer() -> str:
            return unfolded(screen.app.transcript.messages.by_index[1])

        await screen.ask("My name is Ada. Tell me about trains.")
        await screen.streaming()
        await screen.until(lambda: screen.app._memory.cache, "it was told what the cache holds")
        assert screen.app.pane.submit("/why @5")  # in the middle of the answer, which goes on
        await screen.until(lambda: screen.said("@5 "), "told")
        assert screen.app.busy
        await screen.pilot.press("escape")
        await screen.answered()
        assert len(answer()) > 20
        await screen.pilot.press("ctrl+r")
        await screen.until(lambda: screen.app.busy, "it answers again")
        await screen.streaming()
        await screen.pilot.press("escape")
        await screen.answered()
        keeper = screen.chat.keeper
        assert len(keeper.store.children(keeper.conversation, None)) == 2, (
            "the first answer is kept beside it"
        )
        assert len(answer()) > 20
        await screen.ask("/set budget 32")
        await screen.until(
            lambda: screen.chat.session.budget == 32 and not screen.app.busy, "it is built anew"
        )
        engine = screen.chat.engine
        state = screen.chat.state
        assert state.kept <= 32
        held = {at for at in range(engine.seen) if any(map(any, engine.inspect(at)))}
        assert {at for at, hold in screen.app._memory.hold.items() if hold} == held


@pytest.mark.usefixtures("forked")
async def test_an_engine_that_is_killed_is_told_and_the_screen_stays(drive: Drive, tmp_path: Path) -> None:
    kept = ConversationPlace(tmp_path / "data")
    opened, others = opener(SETTINGS, kept, engine_apart), opener_of(SETTINGS, kept, engine_apart)

    async with drive("stories3m", open_chat=opened, sampling=LONG, opener_of=others) as screen:
        await screen.ask("Tell me about trains.")
        await screen.streaming()
        os.kill(screen.chat.engine._process._process.pid, signal.SIGKILL)
        await screen.answered()
        assert "SIGKILL" in screen.bodies()[-1]
        assert "less" in screen.bodies()[-1]
        said = screen.bodies()[-2]
        assert len(said) > 20, "what it said stays"
        assert screen.chat.messages[-1].finish == "interrupted"
        keeper = screen.chat.keeper
        assert keeper.path(keeper.leaf)[-1].finish == "interrupted"
        assert not screen.said("could not be saved")
        assert "SIGKILL" in await screen.say("And now?")
        await screen.ask("/set seed 5")
        await screen.until(lambda: "SIGKILL" in screen.bodies()[-1], "settings are refused")
        await screen.pilot.press("ctrl+b")  # what would be told to the engine is not, and nothing falls
        await screen.ask(f"/model {POCKET}")
        await screen.until(lambda: screen.app.exit_code == 0 and not screen.app.busy, "another one is open")
        screen.app.pane.sampling = replace(LONG, max_tokens=8)
        await screen.ask("And now?")
        await screen.until(lambda: screen.chat.messages and not screen.app.busy, "it answers")
        assert screen.chat.messages[-1].text
        first = screen.chat.engine._process._process.pid
        await screen.ask(f"/model {POCKET}")
        await screen.until(lambda: screen.chat.messages == [] and not screen.app.busy, "a third one is open")
        assert not pid_exists(first), "nothing of the model that was left is there"


@pytest.mark.usefixtures("forked")
async def test_a_message_to_an_engine_that_is_gone_comes_back(drive: Drive, tmp_path: Path) -> None:
    """Also the first one of a conversation, for which the engine is asked before anything is written."""
    opened = opener(SETTINGS, ConversationPlace(tmp_path / "data"), engine_apart)
    async with drive("stories3m", open_chat=opened, sampling=LONG) as screen:
        os.kill(screen.chat.engine._process._process.pid, signal.SIGKILL)
        for number in range(2):
            await screen.say("Tell me about trains.")
            assert screen.app.prompt.text == "Tell me about trains."
            assert screen.chat.messages == []
            assert len(screen.app.transcript.messages.by_index) == 0
            assert sum("SIGKILL" in body for body in screen.bodies()) == number + 1
            screen.app.prompt.text = ""


def test_what_the_engine_said_last_is_told_and_no_advice_for_its_authors() -> None:
    process = _Process()
    try:
        words = b"thread 'main' panicked at src/lib.rs:1:1:\nno room\nnote: run with `RUST_BACKTRACE=1`\n"
        process._words.write(words)
        process._process.kill()
        assert "It said: no room" in str(process._gone())
    finally:
        process.end()


async def test_leaving_while_the_engine_starts_does_not_wait_for_it(tmp_path: Path) -> None:
    app = ChatApp(opener(SETTINGS, ConversationPlace(tmp_path), engine_apart), SETTINGS, LONG)
    async with app.run_test() as pilot:
        await pilot.pause(0.1)
        app.exit()
    assert app.chat is None


@pytest.mark.usefixtures("forked")
async def test_a_tokenizer_that_panics_is_told_and_the_screen_stays(drive: Drive, tmp_path: Path) -> None:
    """A panic of Rust is no `Exception`: it ended the thread, and the screen waited for it for ever."""
    folder = tmp_path / "copy"
    shutil.copytree(POCKET, folder)
    path = folder / "tokenizer.json"
    about = json.loads(path.read_text())
    pattern = {"Regex": "(a+)+$|(a|aa)+b"}
    split = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    about["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, about["pre_tokenizer"]]}
    path.write_text(json.dumps(about))
    settings = replace(SETTINGS, model=str(folder))
    opened = opener(settings, ConversationPlace(tmp_path / "data"), engine_apart)
    async with drive("stories3m", open_chat=opened, sampling=Sampling(max_tokens=5)) as screen:
        assert "tokenizer fails" in await screen.say("a" * 44 + "c")
        await screen.say("Hi")
        assert screen.chat.messages[-1].text
