"""The program is left within a deadline, whatever in it is stuck; what was delivered is stored."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from forking import Forked
from here import h2o_here
from program import PROGRAM
from sweep import sweep
from test_hangup import POCKET, Terminal, alive

from h2o_chat.base.errors import ExitCode, UsageError
from h2o_chat.events.events import Token, from_json
from h2o_chat.store import Store
from h2o_chat.tui.prompt.first_minute import FILE

GONE_S = 20.0
"""The deadline is 3 s; the machine may be loaded. What it must not do is wait for what is stuck."""
LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
FLAGS = ("--ignore-eos", "--threads", 1, "--seed", 1)


def screen(folder: Path, *flags: object) -> Terminal:
    """The screen, not for the first time: nothing is offered in its prompt."""
    folder.mkdir(exist_ok=True)
    (folder / FILE).touch()
    return Terminal("-m", POCKET, "--data", folder, *FLAGS, *flags)


def said(folder: Path) -> list[str]:
    """The messages of the last conversation that are on disk."""
    store = Store(folder)
    try:
        return [one.text for one in store.path(store.find("last"))]
    except UsageError:  # nothing was said yet
        return []
    finally:
        store.close()


def answering(terminal: Terminal, folder: Path) -> None:
    """Asks, and returns in the middle of the answer."""
    terminal.until(lambda: b"pocket is ready" in terminal.drawn, "the model is open")
    os.write(terminal.ours, b"Once upon a time\r")
    terminal.until(lambda: len((said(folder) or [""])[-1]) > 40 and len(said(folder)) == 2, "it answers")


def leave(terminal: Terminal, how: str) -> None:
    if how == "ctrl+c twice":
        os.write(terminal.ours, b"\x03\x03")
    else:
        terminal.process.send_signal(signal.Signals[how])


def assert_gone(processes: list[psutil.Process]) -> None:
    """All have ended, or do soon."""
    end = time.monotonic() + GONE_S
    while any(alive(process.pid) for process in processes):
        assert time.monotonic() < end
        time.sleep(0.05)


LEAVING = [
    ("ctrl+c twice", ExitCode.OK),
    ("SIGHUP", ExitCode.HUNG_UP),
    *sweep(("SIGTERM", ExitCode.TERMINATED)),
]


@pytest.mark.parametrize(("how", "code"), LEAVING)
def test_an_engine_that_is_stopped_is_left(tmp_path: Path, how: str, code: ExitCode) -> None:
    with screen(tmp_path) as terminal:
        answering(terminal, tmp_path)
        children = psutil.Process(terminal.process.pid).children(recursive=True)
        engine = max(children, key=lambda child: child.memory_info().rss)
        os.kill(engine.pid, signal.SIGSTOP)
        try:
            before = said(tmp_path)[-1]
            leave(terminal, how)
            assert ended(terminal) == code
            assert_gone(children)
        finally:
            with suppress(ProcessLookupError):
                os.kill(engine.pid, signal.SIGKILL)
    store = Store(tmp_path)
    conversation = store.find("last")
    store.claim(conversation).close()
    question, answer = store.path(conversation)
    store.close()
    assert (question.text, answer.finish) == ("Once upon a time", "stopped")
    assert answer.text.startswith(before)
    assert f"go on with --resume {conversation} --data {tmp_path}".encode() in terminal.drawn


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
            os.write(terminal.ours, b"\x1b")
            terminal.until(lambda: b"ask something" in terminal.drawn, "it has stopped")
        before = said(tmp_path)[1]
        for process in (program, *children):
            _, most = process.rlimit(psutil.RLIMIT_AS)
            process.rlimit(psutil.RLIMIT_AS, (1, most))
        if moment == "asked once more":
            os.write(terminal.ours, b"And then\r")
        leave(terminal, "ctrl+c twice")
        # It may have no memory left to hear of the keys: then it ends by itself, and says so.
        assert ended(terminal) in (ExitCode.OK, ExitCode.MEMORY)
        assert_gone(children)
    store = Store(tmp_path)
    conversation = store.find("last")
    store.claim(conversation).close()
    assert store.path(conversation)[1].text.startswith(before)
    store.close()


def test_a_terminal_that_nobody_reads_is_left(tmp_path: Path) -> None:
    """The screen's own thread waits to write: it never comes to what a signal has asked for."""
    with screen(tmp_path) as terminal:
        answering(terminal, tmp_path)
        process = psutil.Process(terminal.process.pid)
        end = time.monotonic() + 60
        while blocked(process) < 10:  # what it draws fills the terminal
            assert time.monotonic() < end
        before = said(tmp_path)[-1]
        terminal.process.terminate()
        assert terminal.process.wait(timeout=GONE_S) == ExitCode.TERMINATED
    assert said(tmp_path)[-1].startswith(before)


def blocked(process: psutil.Process) -> int:
    """How many looks in a row found its first thread asleep in a lock, and nothing drawn."""
    looks = 0
    while looks < 10 and process.status() == psutil.STATUS_SLEEPING:
        before = process.num_ctx_switches()
        time.sleep(0.1)
        if process.num_ctx_switches().voluntary - before.voluntary > 1:
            break
        looks += 1
    return looks


def ended(terminal: Terminal) -> int:
    """How it has ended; what it still says is read, or it could not say it."""
    end = time.monotonic() + GONE_S
    while terminal.process.poll() is None:
        assert time.monotonic() < end, terminal.drawn[-1000:].decode(errors="replace")
        terminal.read()
    terminal.read()
    return terminal.process.returncode


@pytest.fixture
def looping(tmp_path: Path) -> Path:
    """A model whose chat template counts to ten thousand million."""
    folder = shutil.copytree(POCKET, tmp_path / "looping")
    (folder / "chat_template.jinja").write_text(LOOPS)
    return folder


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


def test_a_template_that_loops_is_told_of_and_left(
    tmp_path: Path, looping: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = HASTY.format(program=HASTY_ONCE.format(mark=str(tmp_path / "asked")))
    monkeypatch.setattr("test_hangup.PROGRAM", [sys.executable, "-c", program])
    events = tmp_path / "events"
    with Terminal("-m", looping, "--data", tmp_path, "--record", events, *FLAGS) as terminal:
        terminal.until(lambda: b"is ready" in terminal.drawn, "the model is open")
        os.write(terminal.ours, b"Once upon a time\r")
        terminal.until(lambda: "1.5 s of computing" in events.read_text(), "it says what was too much")
        terminal.until(lambda: b"Use --template plain" in terminal.drawn, "and shows it")
        del terminal.drawn[:]
        os.write(terminal.ours, b"And again")
        terminal.until(lambda: b"And again" in terminal.drawn, "it is written")
        before = len(terminal.drawn)
        os.write(terminal.ours, b"\r")
        terminal.until(lambda: len(terminal.drawn) > before, "it is under way")  # else it is only cleared
        os.write(terminal.ours, b"\x03\x03")
        assert ended(terminal) == ExitCode.OK


@pytest.mark.usefixtures("hasty")
def test_a_template_that_loops_ends_a_run(looping: Path) -> None:
    done = h2o_here("run", "Once", "-m", looping)
    assert done.code == ExitCode.MODEL
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
        terminal.until(lambda: b"pocket is ready" in terminal.drawn, "the model is open")
        os.write(terminal.ours, f"Sum up @{unread} \r".encode())
        terminal.until(lambda: b"reading files" in terminal.drawn, "it says what it does")
        os.write(terminal.ours, b"\x1b")
        terminal.until(lambda: b"your text is back" in terminal.drawn, "it is given up")
        del terminal.drawn[:]
        os.write(terminal.ours, b"\r")
        terminal.until(lambda: b"reading files" in terminal.drawn, "it is read again")
        os.write(terminal.ours, b"\x03\x03")
        assert ended(terminal) == ExitCode.OK
    assert said(tmp_path / "data") == []


@pytest.mark.parametrize("number", [signal.SIGHUP, *sweep(signal.SIGINT, signal.SIGTERM)])
def test_a_run_whose_reader_has_stopped_reading_is_left(tmp_path: Path, number: int) -> None:
    flags = ["-m", POCKET, "--data", tmp_path, "--save", "--json", "--max-tokens", 100_000, *FLAGS]
    process = Forked(
        [*PROGRAM, "run", "Once", *map(str, flags)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        shown = ""
        for line in process.stdout:
            event = from_json(line)
            shown += event.text if isinstance(event, Token) else ""
            if len(shown) > 40:
                break
        end = time.monotonic() + 60
        while blocked(psutil.Process(process.pid)) < 10:
            assert time.monotonic() < end
        process.send_signal(number)
        assert process.wait(timeout=GONE_S) == 128 + number
        assert "kept" in process.communicate(timeout=GONE_S)[1]
    finally:
        process.kill()
        process.communicate()
    assert said(tmp_path)[-1].startswith(shown)


def test_a_script_that_nobody_writes_is_left_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    process = Forked(
        [*PROGRAM, "run", "--script", str(pipe), "-m", str(POCKET)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        end = time.monotonic() + 60
        while blocked(psutil.Process(process.pid)) < 10:
            assert time.monotonic() < end
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=GONE_S) == ExitCode.INTERRUPTED
    finally:
        process.kill()
        process.communicate()


def test_a_script_from_another_program() -> None:
    """As a shell hands it over: `--script <(...)`."""
    reading, writing = os.pipe()
    os.write(writing, b"Once\n---\nupon\n")
    os.close(writing)
    flags = ("-m", POCKET, "--max-tokens", 3)
    done = h2o_here("run", "--script", f"/dev/fd/{reading}", *flags)
    os.close(reading)
    assert done.code == ExitCode.OK
    assert done.out.count("---\n") == 1
