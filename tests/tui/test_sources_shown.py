"""Under an answer stands what it rested on: live, in a replay, when it is opened again, in the plain chat."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from screens import POCKET, WIDE, Screen
from textual.widgets import Static

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.progress import Progress
from h2o_chat.chat.chat import Chat
from h2o_chat.chat.sources import rests_on
from h2o_chat.events.events import Source
from h2o_chat.events.recorder import Recorder
from h2o_chat.events.recording import read
from h2o_chat.remote.engine_here import engine_here
from h2o_chat.tui.app import ChatApp
from h2o_chat.tui.player import Pace, Player
from h2o_chat.tui.replay import ReplayPane
from h2o_chat.tui.transcript.below import below
from h2o_chat.tui.work import ChatLike, Jobs

FACT, ASKED, TALK = "My dog is called Rexo.", "What is my dog called?", "How are you today?"
SAMPLING = Sampling(temperature=0.0, max_tokens=12)
SETTINGS = Settings(model=str(POCKET), budget=256, threads=1, seed=7)


def open_chat(progress: Progress) -> ChatLike:
    return Chat(engine_here(SETTINGS, progress), SETTINGS)


def last_lines(screen: Any) -> list[str]:
    """Of each answer."""
    views = screen.app.transcript.messages.views
    return [view.plain.splitlines()[-1] for view in views if view.kind == "assistant"]


async def test_a_faint_line_under_each_answer(drive: Callable[..., Any], tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "recorded.jsonl")
    recorder.open()
    how = {"open_chat": open_chat, "sampling": SAMPLING, "recorder": recorder}
    async with drive(str(POCKET), WIDE, **how) as screen:
        await screen.opened()
        for text in (FACT, ASKED, TALK):
            await screen.ask(text)
            await screen.answered()
        live = last_lines(screen)
        answers = [view for view in screen.app.transcript.messages.views if view.kind == "assistant"]
        assert live[1].startswith("↳ rests on #1: “")
        assert "Rexo" in live[1]
        assert live[2] == "↳ rests on nothing said before your message"
        await screen.pilot.press("ctrl+t")  # heat: all is shown as the text of its tokens
        assert [view.raw for view in answers] == [True] * 3
        assert last_lines(screen) == live
        await screen.ask("/why Rexo")
        rows = [line for line in screen.bodies()[-1].splitlines() if line.startswith("#")]
        numbers = [int(row[1 : row.index(" ")]) for row in rows]
        assert numbers == sorted(numbers), "one row for each place where it was said, the oldest first"
        assert {1, 4} <= set(numbers)
    player = Player(read(tmp_path / "recorded.jsonl"), Pace(float("inf")))
    app = ChatApp(player.open, SETTINGS, SAMPLING, pane=ReplayPane(Jobs(), player, "recorded"))
    async with app.run_test(size=WIDE) as pilot:
        again = Screen(app, pilot)
        line = app.query_one("#replaying", Static)
        await again.until(lambda: "it has ended" in str(line.content), "the recording has ended")
        views = app.transcript.messages.views
        assert [view.plain.splitlines()[-1] for view in views if view.kind == "assistant"] == live


def test_words_of_a_stranger_obey_nothing() -> None:
    hostile = Source(0, "[bold]red[/bold] \x1b[31m")
    assert below(None, hostile).plain == "↳ rests on #1: “[bold]red[/bold] ␛[31m”"
    assert below("length", Source(-1)).plain.splitlines()[-1] == "↳ rests on nothing said before your message"
    assert below("eos", None).plain == ""
    assert rests_on(Source(4)) == "rests on #5"


@pytest.mark.usefixtures("forked")
def test_the_plain_chat_says_it_and_events_have_it(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "h2o_chat"]
    asked = ["-m", POCKET, "-b", "256", "--no-store", "--temperature", "0", "--seed", "1"]
    done = subprocess.run(
        [*program, "--plain", *asked], input=f"{FACT}\n{ASKED}\n", capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert "rests on #1: “" in done.stdout
    (tmp_path / "turns").write_text(f"{FACT}\n---\n{ASKED}\n")
    done = subprocess.run(
        [*program, "run", *asked[:4], "--temperature", "0", "--json", "--script", tmp_path / "turns"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200, check=True,
    )  # fmt: skip
    turns = [json.loads(line) for line in done.stdout.splitlines() if '"event": "turn"' in line]
    assert turns[1]["source"]["index"] == 0
    assert "Rexo" in turns[1]["source"]["words"]
