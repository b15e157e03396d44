"""The recorded first minute, `h2o-chat demo`, by real processes; and what the first minute leaves alone."""

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from here import h2o_here
from program import POCKET, PROGRAM
from terminals import Terminal

from h2o_chat.base.errors import ExitCode
from h2o_chat.cli.replay_command import DEMO
from h2o_chat.events.events import Note, Said, Session, Turn
from h2o_chat.events.recording import read
from h2o_chat.tui.prompt.first_minute import CODE, OFFERS

ROOT = Path(__file__).parents[2]
MOST_BYTES = 300_000
TELLS = """
import atexit, os, sys
import h2o_chat
atexit.register(lambda: open(os.environ["LOADED"], "w").write(f"{h2o_chat.__file__} {[*sys.modules]}"))
from h2o_chat.cli.cli import main
main()
"""
"""The program; at its end it writes down where it came from, and what it has imported."""


def test_the_demo_shows_a_conversation_without_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a folder that has what a wheel has, without model and checkout."""
    place = tmp_path / "site"
    left_out = shutil.ignore_patterns("_step.*", "__pycache__")
    shutil.copytree(ROOT / "h2o_chat", place / "h2o_chat", ignore=left_out)
    (place / "h2o_chat" / "assets").mkdir()
    shutil.copy(DEMO[1], place / "h2o_chat" / "assets")
    monkeypatch.setenv("PYTHONPATH", f"{place}{os.pathsep}{os.environ['PYTHONPATH']}")
    monkeypatch.chdir(tmp_path)  # where `python -c` looks first
    monkeypatch.setenv("LOADED", str(tmp_path / "loaded"))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("LINES", "36")
    program = [sys.executable, "-c", TELLS]
    with Terminal("demo", "--speed", "max", program=program, fresh=True) as terminal:
        terminal.sees("the command: h2o-chat")  # at its end it says how to begin
        assert f"locker code is {CODE}." in terminal.text
        terminal.types("\x11")
        assert terminal.ended() == ExitCode.OK
    loaded = (tmp_path / "loaded").read_text()
    assert loaded.startswith(f"{place}{os.sep}")
    assert "'textual'" in loaded
    assert "'torch'" not in loaded
    assert "'transformers'" not in loaded


@pytest.mark.parametrize("arguments", [["demo"], ["--no-store"]], ids=["replay", "chat"])
def test_what_is_drawn_on_stderr_is_not_drawn_into_a_file(arguments: list[str]) -> None:
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [*PROGRAM, *arguments], stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, text=True, timeout=60
    )
    os.close(theirs)
    os.close(ours)
    assert done.returncode == ExitCode.USAGE
    assert "needs a terminal" in done.stderr
    assert "\x1b" not in done.stderr


def test_the_demo_is_the_first_minute() -> None:
    [file] = [file for file in DEMO if file.is_file()]
    assert file.stat().st_size < MOST_BYTES
    events = list(read(file))
    [session] = [event for event in events if isinstance(event, Session)]
    assert (session.model, session.budget) == ("pocket", 128)
    said = tuple(event.text for event in events if isinstance(event, Said))
    assert " ".join(said) == " ".join(text for _, text in OFFERS), "sentence by sentence"
    last = [event for event in events if isinstance(event, Turn)][-1]
    assert CODE in last.text
    asked = [event for event in events if isinstance(event, Said)][-1]
    assert [(place, CODE in words) for place, words in asked.recalled] == [(2, True)]
    assert last.evicted > 200
    assert "h2o-chat" in [event for event in events if isinstance(event, Note)][-1].hint


def test_run_keeps_its_budget() -> None:
    done = h2o_here("run", "Hi.", "-m", POCKET, "--json", "--max-tokens", "1", "--threads", "1")
    assert done.events[0].budget == 512
