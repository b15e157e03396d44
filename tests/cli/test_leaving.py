"""The program is left within a deadline, whatever in it is stuck; what was delivered is stored."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from here import h2o_here
from program import POCKET, Streamed, kept, of_kind
from sweep import sweep
from terminals import Terminal

from h2o_chat.base.errors import ExitCode, UsageError
from h2o_chat.events.events import Token
from h2o_chat.store import Store
from h2o_chat.tui.prompt.first_minute import FILE

GONE_S = 20.0
"""The deadline is 3 s; the machine may be loaded. What it must not do is wait for what is stuck."""
LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
FLAGS = ("--ignore-eos", "--threads", 1, "--seed", 1)


def screen(folder: Path) -> Terminal:
    """The screen, not for the first time: nothing is offered in its prompt."""
    folder.mkdir(exist_ok=True)
    (folder / FILE).touch()
    return Terminal("-m", POCKET, "--data", folder, *FLAGS)


def said(folder: Path) -> list[str]:
    """The messages of the last conversation that are on disk."""
    try:
        return [one.text for one in kept(folder)]
    except UsageError:  # nothing was said yet
        return []


def released(folder: Path) -> str:
    """The last conversation, which nobody holds any more."""
    store = Store(folder)
    conversation = store.find("last")
    store.claim(conversation).close()
    store.close()
    return conversation


def answering(terminal: Terminal, folder: Path) -> None:
    """Asks, and returns in the middle of the answer."""
    terminal.sees("pocket is ready")
    terminal.types("Once upon a time\r")
    terminal.until(lambda: len((said(folder) or [""])[-1]) > 40 and len(said(folder)) == 2, "it answers")


def alive(process: int) -> bool:
    """Whether it still runs; what nobody has waited for after its end does not."""
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def assert_gone(processes: list[psutil.Process]) -> None:
    """All have ended, or do soon."""
    end = time.monotonic() + GONE_S
    while any(alive(process.pid) for process in processes):
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("how", "code"),
    [("ctrl+c twice", ExitCode.OK), ("SIGHUP", ExitCode.HUNG_UP), *sweep(("SIGTERM", ExitCode.TERMINATED))],
)
def test_an_engine_that_is_stopped_is_left(tmp_path: Path, how: str, code: ExitCode) -> None:
    with screen(tmp_path) as terminal:
        answering(terminal, tmp_path)
        children = psutil.Process(terminal.process.pid).children(recursive=True)
        engine = max(children, key=lambda child: child.memory_info().rss)
        os.kill(engine.pid, signal.SIGSTOP)
        try:
            before = said(tmp_path)[-1]
            if how == "ctrl+c twice":
                terminal.types("\x03\x03")
            else:
                terminal.process.send_signal(signal.Signals[how])
            assert terminal.ended(GONE_S) == code
            assert_gone(children)
        finally:
            with suppress(ProcessLookupError):
                os.kill(engine.pid, signal.SIGKILL)
    conversation = released(tmp_path)
    question, answer = kept(tmp_path)
    assert (question.text, answer.finish) == ("Once upon a time", "stopped")
    assert answer.text.startswith(before)
    assert f"go on with --resume {conversation} --data {tmp_path}" in terminal.text


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory as Linux has them")
@pytest.mark.parametrize("moment", ["asked once more", *sweep("answering")])
def test_a_screen_without_memory_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Where no thread can be started any more: Python would wait for ever for one that it has begun."""
    # malloc has no room left from before: no arena that was counted already, nothing for a tensor.
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "4096")
    with screen(tmp_path) as terminal:
        answering(terminal, tmp_path)
        program = psutil.Process(terminal.process.pid)
        children = program.children(recursive=True)
        if moment == "asked once more":
            del terminal.drawn[:]
            terminal.types("\x1b")
            terminal.sees("ask something")
        before = said(tmp_path)[1]
        for process in (program, *children):
            _, most = process.rlimit(psutil.RLIMIT_AS)
            process.rlimit(psutil.RLIMIT_AS, (1, most))
        if moment == "asked once more":
            terminal.types("And then\r")
        terminal.types("\x03\x03")
        # It may have no memory left to hear of the keys: then it ends by itself, and says so.
        assert terminal.ended(GONE_S) in (ExitCode.OK, ExitCode.MEMORY)
        assert_gone(children)
    released(tmp_path)
    assert kept(tmp_path)[1].text.startswith(before)


def test_a_terminal_that_nobody_reads_is_left(tmp_path: Path) -> None:
    """The screen's own thread waits to write: it never comes to what a signal has asked for."""
    with screen(tmp_path) as terminal:
        answering(terminal, tmp_path)
        wait_until_blocked(terminal.process)  # what it draws fills the terminal
        before = said(tmp_path)[-1]
        terminal.process.terminate()
        assert terminal.process.wait(timeout=GONE_S) == ExitCode.TERMINATED
    assert said(tmp_path)[-1].startswith(before)


def wait_until_blocked(program: "subprocess.Popen[Any]") -> None:
    """Until ten looks in a row have found its first thread asleep in a lock, and nothing drawn."""
    process, looks, end = psutil.Process(program.pid), 0, time.monotonic() + 60
    while looks < 10:
        assert time.monotonic() < end
        before = process.num_ctx_switches().voluntary
        time.sleep(0.1)
        asleep = process.status() == psutil.STATUS_SLEEPING
        looks = looks + 1 if asleep and process.num_ctx_switches().voluntary - before <= 1 else 0


@pytest.fixture
def looping(copied: Path) -> Path:
    """A model whose chat template counts to ten thousand million."""
    (copied / "chat_template.jinja").write_text(LOOPS)
    return copied


HASTY_ONCE = """
import os
from h2o_chat.chat.templates import template_process
try:
    os.close(os.open({mark!r}, os.O_CREAT | os.O_EXCL))
    template_process.LONGEST_S = 0.3
except FileExistsError:
    pass
template_process.main()
"""
"""The process of templates: the first may compute for 0.3 s, the next as long as the program lets it."""
HASTY = """
from h2o_chat.chat.templates import rendering
rendering._PROGRAM = {program!r}
from h2o_chat.cli.cli import main
main()
"""


def test_a_template_that_loops_is_told_of_and_left(tmp_path: Path, looping: Path) -> None:
    code = HASTY.format(program=HASTY_ONCE.format(mark=str(tmp_path / "asked")))
    events, program = tmp_path / "events", [sys.executable, "-c", code]
    flags = ("--data", tmp_path, "--record", events, *FLAGS)
    with Terminal("-m", looping, *flags, program=program) as terminal:
        terminal.sees("is ready")
        terminal.types("Once upon a time\r")
        terminal.until(lambda: "1.5 s of computing" in events.read_text(), "it says what was too much")
        terminal.sees("Use --template plain")
        del terminal.drawn[:]
        terminal.types("And again")
        terminal.sees("And again")
        before = len(terminal.drawn)
        terminal.types("\r")
        terminal.until(lambda: len(terminal.drawn) > before, "it is under way")  # else it is only cleared
        terminal.types("\x03\x03")
        assert terminal.ended(GONE_S) == ExitCode.OK


@pytest.mark.usefixtures("hasty")
def test_a_template_that_loops_ends_a_run(looping: Path) -> None:
    done = h2o_here("run", "Once", "-m", looping, ends=ExitCode.MODEL)
    assert "0.3 s of computing" in done.err
    assert "--template plain" in done.err


@pytest.fixture
def unread(tmp_path: Path) -> Iterator[Path]:
    """A regular file that cannot be opened for now, as on a network that is gone: it is leased."""
    path = tmp_path / "unread.txt"
    path.write_text("at last")
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)  # the kernel asks for the lease back, and waits 45 s
    with path.open("r+") as file:
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except (OSError, AttributeError):
            pytest.skip("no leases on this file system")
        yield path
    signal.signal(signal.SIGIO, before)


def test_a_file_that_cannot_be_read_is_given_up_and_left(tmp_path: Path, unread: Path) -> None:
    with screen(tmp_path / "data") as terminal:
        terminal.sees("pocket is ready")
        terminal.types(f"Sum up @{unread} \r")
        terminal.sees("reading files")
        terminal.types("\x1b")
        terminal.sees("your text is back")
        del terminal.drawn[:]
        terminal.types("\r")
        terminal.sees("reading files")
        terminal.types("\x03\x03")
        assert terminal.ended(GONE_S) == ExitCode.OK
    assert said(tmp_path / "data") == []


@pytest.mark.parametrize("number", [signal.SIGHUP, *sweep(signal.SIGINT, signal.SIGTERM)])
def test_a_run_whose_reader_has_stopped_reading_is_left(tmp_path: Path, number: int) -> None:
    flags = ("-m", POCKET, "--data", tmp_path, "--save", "--max-tokens", 100_000, *FLAGS)
    with Streamed("Once", *flags) as run:
        run.until(Token, 20)
        wait_until_blocked(run.process)
        run.process.send_signal(number)
        assert run.process.wait(timeout=GONE_S) == 128 + number
        assert "kept" in run.process.communicate(timeout=GONE_S)[1]
    shown = "".join(token.text for token in of_kind(Token, run.events))
    assert len(shown) > 40
    assert said(tmp_path)[-1].startswith(shown)


def test_a_script_that_nobody_writes_is_left_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with Streamed("--script", pipe, "-m", POCKET) as run:
        wait_until_blocked(run.process)
        run.process.send_signal(signal.SIGINT)
        assert run.process.wait(timeout=GONE_S) == ExitCode.INTERRUPTED


def test_a_script_from_another_program() -> None:
    """A script as a shell hands it over: `--script <(...)`."""
    reading, writing = os.pipe()
    os.write(writing, b"Once\n---\nupon\n")
    os.close(writing)
    flags = ("-m", POCKET, "--max-tokens", 3)
    done = h2o_here("run", "--script", f"/dev/fd/{reading}", *flags)
    os.close(reading)
    assert done.out.count("---\n") == 1
