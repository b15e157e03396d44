"""Every way to end, and what is said. One process a case, so cases that end early come many in a test."""

import contextlib
import json
import os
import pty
import resource
import signal
import struct
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from forking import Forked
from here import h2o_here
from program import PROGRAM, Program
from sweep import sweep

from h2o_chat.base.errors import ExitCode
from h2o_chat.events.events import End, Error, Turn
from h2o_chat.store import Store


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], ["needs a terminal", "h2o-chat run"]),
        (["run"], ["nothing to say", "--script"]),
        (["run", "hi", "--policy", "nope"], ["--policy", "nope", "h2o-paper"]),
        (["run", "hi", "--budget", "0"], ["--budget is 0"]),
        (["run", "hi", "--top-p", "nan"], ["--top-p is nan"]),
        (["run", "hi", "--temperature", "-1"], ["--temperature is -1", "It must be 0, or in [0.001, 100]"]),
        (["run", "hi", "--stop", ""], ["--stop is empty"]),
        (["run", "hi", "--script", "turns.txt"], ["--script"]),
        (["run", "--script", "no such file"], ["no such file", "No such file or directory"]),
        (["--budget", "3", "run", "hi"], ["--budget stands before run"]),
        (["what is this"], ["what is this"]),
    ],
    ids=lambda value: " ".join(value)[:30] or "no terminal",
)
def test_usage(arguments: list[str], said: list[str]) -> None:
    done = h2o_here(*arguments)
    assert done.code == ExitCode.USAGE
    assert done.out == ""
    assert all(words in done.err for words in said), done.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["hello"], 'h2o-chat run "hello"'),
        (["ls"], "h2o-chat models list"),
        (["/"], "h2o-chat -m /"),
        (["run", "pocket", "Why?"], "-m MODEL"),
        (["what's", "up?", "-m", "pocket"], 'h2o-chat run "what\'s up?"'),
        (["say $HOME"], 'h2o-chat run "your question"'),
        (["sesions", "list"], "Did you mean 'sessions'?"),
    ],
)
def test_a_question_instead_of_a_command_is_told_where_it_goes(arguments: list[str], says: str) -> None:
    done = h2o_here(*arguments)
    assert done.code == ExitCode.USAGE
    assert done.out == ""
    assert says in " ".join(done.err.replace("│", " ").split())
    assert ("alone" in done.err) is ("run" in says)


def test_usage_errors_are_events_too(h2o: Program) -> None:
    error, end = h2o("run", "hi", "--json", "--events", -1).events
    assert isinstance(error, Error)
    assert isinstance(end, End)
    assert (error.code, error.message) == ("usage", "--events is -1.")


def test_unreadable_text_is_usage(tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("---\n\n---\n")
    assert "script is empty" in h2o_here("run", "--script", empty).err
    done = h2o_here("run", "hi", piped=b"\xff\xfe\x00")
    assert done.code == ExitCode.USAGE
    assert "not UTF-8" in done.err


def test_model_not_found(tmp_path: Path) -> None:
    near = tmp_path / "stories"
    near.mkdir()
    (near / "config.json").write_text("{}")
    done = h2o_here("run", "hi", "-m", tmp_path / "storys", "--json")
    assert done.code == ExitCode.MODEL
    error, end = done.events
    assert isinstance(error, Error)
    assert isinstance(end, End)
    assert error.code == "model"
    assert str(tmp_path / "storys") in error.message
    assert str(near) in error.hint
    assert error.message in done.err


def test_unsupported_family_before_any_weight(tmp_path: Path) -> None:
    """No weight is of any model here, and the error is about the family."""
    config = {"model_type": "gpt_neo", "architectures": ["GPTNeoForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    done = h2o_here("run", "hi", "-m", tmp_path)
    assert done.code == ExitCode.MODEL
    assert "GPTNeoForCausalLM is not supported: its attention does not go through" in done.err


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("config.json", b"{", "config.json is not JSON"),
        ("model.safetensors", b"", "model.safetensors is damaged: header too small"),
        ("model.safetensors", None, "has no safetensors weights"),
        ("model.safetensors.index.json", b'{"weight_map": {"a": "model-1.safetensors"}}', "lacks 1 of 1"),
    ],
)
def test_damaged_and_partial_folders(
    small: Path, tmp_path: Path, file: str, content: bytes | None, said: str
) -> None:
    """Without torch: whoever waits for it waits two seconds more."""
    for path in small.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    if file.endswith(".index.json"):
        (tmp_path / "model.safetensors").unlink()
    if content is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_bytes(content)
    code = (
        "import sys; from h2o_chat.cli.cli import app\n"
        "try: app(sys.argv[1:])\n"
        "finally: print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "run", "hi", "-m", str(tmp_path)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (ExitCode.MODEL, "False\n")
    assert said in done.stderr


def test_impossible_budget(small: Path) -> None:
    done = h2o_here("run", "hi", "-m", small, "--budget", 3, "--policy", "caote", "--json")
    assert done.code == ExitCode.MEMORY
    error = done.events[0]
    assert isinstance(error, Error)
    assert error.code == "budget"
    assert "3" in error.message
    assert "smallest budget that works" in error.hint


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited as Linux does it")
def test_out_of_memory(h2o: Program, small: Path) -> None:
    limit = partial(resource.setrlimit, resource.RLIMIT_AS, (8 << 30, 8 << 30))
    done = h2o("run", "hi", "-m", small, "--budget", 10**8, "--json", preexec_fn=limit)
    assert done.code == ExitCode.MEMORY, done.err
    codes = [event.code for event in done.events if isinstance(event, Error)]
    assert codes == ["memory"]
    assert "--budget" in done.err


def test_a_failed_turn_stops_the_script(small: Path, tmp_path: Path) -> None:
    """The `full` policy ends at the model's window, and says so."""
    script = tmp_path / "turns.txt"
    script.write_text("Once upon a time\n---\nand then\n")
    flags = ("--policy", "full", "--ignore-eos", "--max-tokens", 600, "--json", "--events", 0)
    done = h2o_here("run", "--script", script, "-m", small, *flags)
    assert done.code == ExitCode.FAILED
    turns = [event for event in done.events if isinstance(event, Turn)]
    assert [turn.finish for turn in turns] == ["length"]
    assert [event.code for event in done.events if isinstance(event, Error)] == ["window"]
    assert "512 tokens the model was trained for" in done.err
    end = done.events[-1]
    assert isinstance(end, End)
    assert end.turns == 1


def test_our_own_bug_shows_a_traceback_and_asks_for_a_report() -> None:
    broken = (
        "import sys, h2o_chat.cli.cli as cli\n"
        "cli.obtain = lambda name: 1 / 0\n"
        "sys.argv = ['h2o-chat', 'run', 'hi', '--json']; cli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", broken], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == ExitCode.BUG
    assert "Traceback" in done.stderr
    assert "please report it" in done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(event["event"], event.get("code")) for event in events] == [("error", "bug"), ("end", None)]


def test_a_screen_without_its_model_is_not_opened() -> None:
    """On a terminal too: the error stands in the shell, where the name can be mended."""
    ours, theirs = pty.openpty()
    process = Forked([*PROGRAM, "-m", "no/such-model"], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    assert process.wait(timeout=60) == ExitCode.MODEL
    shown = os.read(ours, 10_000).decode()
    os.close(ours)
    assert "No model 'no/such-model'" in shown


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, ExitCode.TERMINATED), *sweep((signal.SIGHUP, ExitCode.HUNG_UP))]
)
def test_a_screen_told_to_end_keeps_the_answer(small: Path, tmp_path: Path, number: int, code: int) -> None:
    flags = ("-m", str(small), "--data", str(tmp_path), "--record", str(tmp_path / "events"), "--ignore-eos")
    ours, theirs = pty.openpty()
    process = Forked([*PROGRAM, *flags], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)

    drawn = bytearray()

    def draw() -> None:  # what nobody reads would keep it from drawing
        with contextlib.suppress(OSError):
            while more := os.read(ours, 65536):
                drawn.extend(more)

    drawing = threading.Thread(target=draw)
    drawing.start()
    events, give_up = tmp_path / "events", time.monotonic() + 60
    for awaited, typed in (('"session"', b"Once upon a time\r"), ('"event": "token"', b"")):
        while not (events.exists() and awaited in events.read_text()):
            assert time.monotonic() < give_up, awaited
            time.sleep(0.05)
        os.write(ours, typed)
    process.send_signal(number)
    assert process.wait(timeout=60) == code
    store = Store(tmp_path)
    conversation = store.find("last")
    answer = store.path(conversation)[-1]
    store.close()
    assert answer.finish == "stopped"
    assert answer.text
    drawing.join()
    assert f"go on with --resume {conversation} --data {tmp_path}" in drawn[-400:].decode(errors="replace")
    os.close(ours)


def test_version(h2o: Program) -> None:
    done = h2o("--version")
    assert (done.code, done.out.split()[0]) == (ExitCode.OK, "h2o-chat")
