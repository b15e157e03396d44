"""`run` tells on stderr how far the reading of a long prompt is, where that is a terminal."""

import re
import signal

import pytest
from here import h2o_here
from program import POCKET
from terminals import Terminal

from h2o_chat.base.errors import ExitCode
from h2o_chat.events.events import Prompt, ReadSoFar

TEXT = "Once there was a bird that lived in a garden with a red key and a blue door. " * 150
FLAGS = ("-m", POCKET, "-b", 128, "--max-tokens", 4, "--seed", 1)
FAR = re.compile(r"reading ([\d,]+) of ([\d,]+) tokens +\S+ +(\d+)%")
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def shown(drawn: str) -> list[tuple[int, int, int]]:
    """(tokens read, of how many, per cent) of each state of the bar."""
    found = FAR.findall(CONTROL.sub("", drawn))
    return [(int(read.replace(",", "")), int(of.replace(",", "")), int(share)) for read, of, share in found]


def test_the_bar_moves_and_is_erased() -> None:
    with Terminal("run", *FLAGS, piped=TEXT * 3) as terminal:
        assert terminal.ended() == ExitCode.OK
        assert b"reading" not in terminal.process.stdout.read()
    drawn, states = terminal.text, shown(terminal.text)
    tokens = [read for read, _, _ in states]
    assert len(set(tokens)) >= 3
    assert tokens == sorted(tokens)
    assert len({of for _, of, _ in states}) == 1
    assert f"{states[0][1]:,} tokens, 128 slots: it is read once from beginning to end" in drawn
    assert drawn.index("128 slots") < drawn.index("reading ")
    assert "\x1b[2K" in drawn[drawn.rindex("reading ") :], "the line is erased"


def test_ctrl_c_in_the_middle_stops_it_and_erases_the_bar() -> None:
    with Terminal("run", *FLAGS, piped=TEXT * 20) as terminal:
        terminal.until(lambda: shown(terminal.text), "the bar")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.ended() == ExitCode.INTERRUPTED
        assert terminal.process.stdout.read().strip() == b""
    assert "100%" not in terminal.text
    assert "\x1b[2K" in terminal.text[terminal.text.rindex("reading ") :]


@pytest.mark.parametrize("json", [True, False], ids=["json", "plain"])
def test_without_a_terminal_there_is_no_bar(json: bool) -> None:
    done = h2o_here("run", *FLAGS, *(["--json"] if json else []), piped=TEXT)
    assert "reading" not in done.err
    assert "128 slots: it is read once" in done.err
    if json:
        read, (prompt,) = done.of(ReadSoFar), done.of(Prompt)
        assert len(read) >= 2
        assert read[-1].tokens == read[-1].of
        assert done.events.index(read[-1]) < done.events.index(prompt)
