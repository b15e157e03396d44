"""Messages on stderr, in a terminal and elsewhere."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from program import PROGRAM

from h2o_chat.cli.run import complain

MESSAGE = "No model 'nope': looked for a folder /home/me/nope with config.json, among the 45 short names."
END = "that was all"
HINT = "Did you mean opt-6.7b? It can be fetched: h2o-chat models pull opt-6.7b"


def in_a_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines that stand in a terminal of so many columns."""
    here, there = pty.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with os.fdopen(there, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        complain(MESSAGE, HINT)
        terminal.write(END)
        terminal.flush()
        said = b""
        while not said.endswith(END.encode()):  # it may come in pieces
            said += os.read(here, 10_000)
    os.close(here)
    return said.decode().removesuffix(END).split("\r\n")[:-1]


@pytest.mark.parametrize("columns", [30, 60, 80, 200])
def test_lines_break_between_words(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = in_a_terminal(columns, monkeypatch)
    assert all(len(line) <= columns for line in lines)
    assert " ".join(line.strip() for line in lines) == f"h2o-chat: {MESSAGE} {HINT}"
    assert all(line.startswith("  ") for line in lines[1:])


def test_a_word_that_is_longer_than_a_line_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "  /home/me/nope" in in_a_terminal(8, monkeypatch)


def test_a_terminal_that_does_not_know_its_size_has_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    assert in_a_terminal(0, monkeypatch) == in_a_terminal(80, monkeypatch)


def test_elsewhere_a_message_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    complain(MESSAGE, HINT)
    assert capsys.readouterr().err == f"h2o-chat: {MESSAGE}\n  {HINT}\n"


def test_text_is_utf_8_whatever_the_locale_says(tmp_path: Path) -> None:
    """From a pipe, from the command line, from a variable; what is written is UTF-8, too."""
    plain = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "H2O_CHAT_STOP": "é"}

    def ran(*arguments: str, piped: str = "") -> "subprocess.CompletedProcess[bytes]":
        command = [*PROGRAM, *arguments, "--data", str(tmp_path)]
        return subprocess.run(command, input=piped.encode(), env=plain, capture_output=True, check=False)

    done = ran("run", "hi é", "--save", "--max-tokens", "2", "--stop", "ü", piped="漢 é\n")
    assert done.returncode == 0, done.stderr
    assert "hi é\n\n漢 é" in ran("sessions", "show", "last").stdout.decode()
    assert "«é»" in ran("sessions", "search", "é").stdout.decode()
    assert ran("sessions", "rename", "last", "Zoé").returncode == 0
    assert "Zoé" in ran("sessions", "list").stdout.decode()
