"""Tokens a second of the real program, as a process of its own: with the screen, in a terminal, and without.

Both are timed from outside, by the events that they write to a file.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import H2OChatError, UsageError
from h2o_chat.events.events import Event
from h2o_chat.events.recording import read

SPOKEN = "answer with the screen and without"
PROMPT = "Tell me about the weather, and about trains, and then about everything else."
COLUMNS, ROWS = 120, 36
LONGEST_S = 600.0
LOOK_S = 0.01


def record(settings: Settings, path: Path, tokens: int) -> list[Event]:
    """The events of one answer of the real engine."""
    _run(settings, path, tokens, events=16)
    return list(read(path))


def share(settings: Settings, folder: Path, tokens: int, screen_first: bool) -> tuple[float, float]:
    """(without, with the screen) tokens a second of the same answer, one after the other."""
    if screen_first:
        beside = _screen(settings, _new(folder), tokens)
        return _run(settings, _new(folder), tokens, events=0), beside
    return _run(settings, _new(folder), tokens, events=0), _screen(settings, _new(folder), tokens)


def _new(folder: Path) -> Path:
    path = folder / "turn.jsonl"
    path.unlink(missing_ok=True)
    return path


def _flags(settings: Settings, tokens: int) -> list[str]:
    flags = ["--budget", str(settings.budget), "--max-tokens", str(tokens), "--ignore-eos", "--seed", "1"]
    if settings.threads:
        flags += ["--threads", str(settings.threads)]
    return [*flags, "--model", str(settings.model), "--dtype", settings.dtype]


def _run(settings: Settings, path: Path, tokens: int, events: int) -> float:
    """`h2o-chat run`, its events in a file."""
    command = [sys.executable, "-m", "h2o_chat", "run", PROMPT, "--json", "--events", str(events)]
    with path.open("wb") as file:
        program = subprocess.Popen(
            [*command, *_flags(settings, tokens)],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.PIPE,
        )
    with program:
        return _rate(program, path, tokens)


def _screen(settings: Settings, path: Path, tokens: int) -> float:
    """The screen in a terminal of its own, typed into, recorded to a file."""
    import fcntl  # these are not on Windows, where the screen is not timed: --rounds 0
    import pty
    import struct
    import termios

    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    command = [sys.executable, "-m", "h2o_chat", "--no-store", "--record", str(path)]
    program = subprocess.Popen(
        [*command, *_flags(settings, tokens)],
        stdin=inner, stdout=inner, stderr=inner, start_new_session=True,
        env=os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor"},
    )  # fmt: skip
    os.close(inner)
    reader = threading.Thread(target=_swallow, args=(outer,), daemon=True)
    reader.start()
    try:
        _wait(program, lambda: path.exists() and b'"session"' in path.read_bytes())
        os.write(outer, f"{PROMPT}\r".encode())
        rate = _rate(program, path, tokens)
        os.write(outer, b"\x11")
        program.wait(LONGEST_S)
    finally:
        program.kill()
        program.wait()
        reader.join()
        os.close(outer)
    return rate


def _swallow(terminal: int) -> None:
    """Reads what is drawn, as a terminal does."""
    try:
        while os.read(terminal, 1 << 16):
            pass
    except OSError:  # on Linux this is how the other end closes
        pass


def _rate(program: "subprocess.Popen[bytes]", path: Path, tokens: int) -> float:
    """Tokens a second from the first to the last, by when they are in the file."""
    counts: list[tuple[float, int]] = []
    with path.open("rb") as file:

        def ended() -> bool:
            new = file.read()
            total = (counts[-1][1] if counts else 0) + new.count(b'"event": "token"')
            if total:
                counts.append((time.perf_counter(), total))
            return b'"event": "turn"' in new

        _wait(program, ended)
    (began, first), (end, last) = counts[0], counts[-1]
    if first == last:
        raise UsageError(
            f"{last:,} tokens came within {1000 * LOOK_S:.0f} ms, between two looks: no rate can be told.",
            "Use more --tokens.",
        )
    return (last - first) / (end - began)


def _wait(program: "subprocess.Popen[bytes]", met: Callable[[], bool]) -> None:
    """Raises H2OChatError if the program ended before, or takes too long."""
    end = time.perf_counter() + LONGEST_S
    while not met():
        if program.poll() is not None and not met():
            said = program.stderr.read().decode(errors="replace") if program.stderr else ""
            raise H2OChatError(
                f"The program that is measured has ended with {program.returncode}.", said.strip()
            )
        if time.perf_counter() > end:
            raise H2OChatError(f"The program that is measured takes more than {LONGEST_S:.0f} s.")
        time.sleep(LOOK_S)
