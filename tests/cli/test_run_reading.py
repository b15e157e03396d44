"""`run` tells on stderr how far the reading of a long prompt is, where that is a terminal."""

import os
import pty
import re
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from forking import Forked
from here import h2o_here
from program import PROGRAM

from h2o_chat.base.errors import ExitCode
from h2o_chat.events.events import Prompt, ReadSoFar

POCKET = Path(__file__).parents[2] / "assets" / "pocket"
TEXT = "Once there was a bird that lived in a garden with a red key and a blue door. " * 150
FLAGS = ["-m", str(POCKET), "-b", "128", "--max-tokens", "4", "--seed", "1"]
FAR = re.compile(r"reading ([\d,]+) of ([\d,]+) tokens +\S+ +(\d+)%")
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
WAIT_S = 90


def run_in_a_terminal(
    meanwhile: Callable[["subprocess.Popen[bytes]", str], None] = lambda *_: None,
    text: str = TEXT,
) -> tuple[int, str, str]:
    """(exit code, stdout, what stood on stderr) of a run whose stderr alone is a terminal."""
    ours, theirs = pty.openpty()
    process = Forked([*PROGRAM, "run", *FLAGS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    assert process.stdin
    assert process.stdout
    process.stdin.write(text.encode())
    process.stdin.close()
    drawn, give_up = b"", time.monotonic() + WAIT_S
    with suppress(OSError):  # nobody is at the other end any more
        while more := os.read(ours, 65536):
            assert time.monotonic() < give_up
            drawn += more
            meanwhile(process, drawn.decode(errors="replace"))
    os.close(ours)
    out = process.stdout.read().decode()
    process.stdout.close()
    return process.wait(WAIT_S), out, drawn.decode()


def shown(drawn: str) -> list[tuple[int, int, int]]:
    """(tokens read, of how many, per cent) of each state of the bar."""
    found = FAR.findall(CONTROL.sub("", drawn))
    return [(int(read.replace(",", "")), int(of.replace(",", "")), int(share)) for read, of, share in found]


def test_the_bar_moves_and_is_erased() -> None:
    code, out, drawn = run_in_a_terminal(text=TEXT * 3)
    assert code == ExitCode.OK
    assert "reading" not in out
    states = shown(drawn)
    tokens = [read for read, _, _ in states]
    assert len(set(tokens)) >= 3
    assert tokens == sorted(tokens)
    assert len({of for _, of, _ in states}) == 1
    assert f"{states[0][1]:,} tokens, 128 slots: it is read once from beginning to end" in drawn
    assert drawn.index("128 slots") < drawn.index("reading ")
    assert "\x1b[2K" in drawn[drawn.rindex("reading ") :], "the line is erased"


def test_ctrl_c_in_the_middle_stops_it_and_erases_the_bar() -> None:
    sent: list[int] = []

    def meanwhile(process: "subprocess.Popen[bytes]", drawn: str) -> None:
        if not sent and shown(drawn):
            sent.append(process.pid)
            process.send_signal(signal.SIGINT)

    code, out, drawn = run_in_a_terminal(meanwhile, TEXT * 20)
    assert code == ExitCode.INTERRUPTED
    assert out.strip() == ""
    assert "100%" not in drawn
    assert "\x1b[2K" in drawn[drawn.rindex("reading ") :]


@pytest.mark.parametrize("json", [True, False], ids=["json", "plain"])
def test_without_a_terminal_there_is_no_bar(json: bool) -> None:
    done = h2o_here("run", *FLAGS, *(["--json"] if json else []), piped=TEXT)
    assert done.code == ExitCode.OK
    assert "reading" not in done.err
    assert "128 slots: it is read once" in done.err
    if json:
        events = done.events
        read = [event for event in events if isinstance(event, ReadSoFar)]
        assert len(read) >= 2
        assert read[-1].tokens == read[-1].of
        assert events.index(read[-1]) < next(n for n, one in enumerate(events) if isinstance(one, Prompt))
