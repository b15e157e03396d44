"""Faults that a new user met on the command line: each by a real process, in words that say what to do."""

import json
import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import Hub, Repository, serve
from program import PROGRAM, Program

from h2o_chat.base.errors import ExitCode

LARGE_BYTES = 13_500_000_000
SMALL_ENOUGH_BYTES = 100_000_000


def words(text: str) -> str:
    """What a box says, without its lines and breaks."""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "hi", "--policy", "foo"), "'--policy': 'foo' is not one of 'h2o'"),
        (("--policy", "foo"), "'--policy': 'foo' is not one of 'h2o'"),
        (("run", "hi", "--budget", "1.5"), "'1.5' is not a whole number."),
        (("run", "hi", "--top-p", "x"), "'x' is not a number."),
        (("sessions", "list", "-n", "0"), "0 is out of range: at least 1."),
        (("bench", "bounded", "--tokens", "5"), "5 is out of range: at least 3,000."),
    ],
)
def test_a_wrong_value_is_named(h2o: Program, arguments: tuple[str, ...], said: str) -> None:
    done = h2o(*arguments)
    assert done.code == ExitCode.USAGE
    assert said in words(done.err)
    assert "Value error" not in done.err
    assert "Input should" not in done.err


def test_a_wrong_value_in_the_file_is_named(h2o: Program, tmp_path: Path) -> None:
    folder = tmp_path / "h2o-chat"
    folder.mkdir()
    (folder / "config.toml").write_text('[defaults]\npolicy = "foo"\n')
    done = h2o("run", "hi", env=os.environ | {"XDG_CONFIG_HOME": str(tmp_path)})
    assert done.code == ExitCode.USAGE
    assert "[defaults] policy 'foo' is not known." in done.err
    assert "Value error" not in done.err


@pytest.mark.parametrize("command", ["", "run", "models rm", "sessions list", "bench speed"])
def test_switches_take_no_value_in_the_help(h2o: Program, command: str) -> None:
    done = h2o(*command.split(), "--help")
    assert done.code == 0
    assert "--help" in done.out
    assert "<bool>" not in done.out


@pytest.mark.parametrize(
    ("arguments", "verdict"),
    [
        (("rounding",), "the oldest key stays exact enough"),
        (("store", "--conversations", "5", "--messages", "50"), "are listed, searched and opened"),
        (("turns", "--turns", "50"), "a turn costs"),
        (("bounded", "--tokens", "3000", "-b", "32"), "with 3,"),
    ],
)
def test_a_bench_ends_in_a_verdict(h2o: Program, arguments: tuple[str, ...], verdict: str) -> None:
    if arguments[0] == "bounded":  # the model that comes with the program
        arguments += ("--threads", "1")
    done = h2o("bench", *arguments)
    assert done.code == 0, done.err
    last = done.out.splitlines()[-1]
    assert last.startswith("Verdict: ")
    assert verdict in last
    assert last.endswith(".")


def test_imported_conversations_do_not_have_no_tokens(h2o: Program, tmp_path: Path) -> None:
    file = tmp_path / "said.json"
    said = [{"role": "user", "content": "I am Flora."}, {"role": "assistant", "content": "Hello, Flora."}]
    file.write_text(json.dumps({"messages": said}))
    data = ("--data", tmp_path / "data")
    imported = h2o("sessions", "import", file, *data).out.strip()
    h2o("run", "hi", "--save", "--max-tokens", "3", *data)
    listed = json.loads(h2o("sessions", "list", "--json", *data).out)
    tokens = {one["id"] == imported: one["tokens"] for one in listed}
    assert tokens[True] is None
    assert tokens[False] > 3
    rows = h2o("sessions", "list", *data).out.splitlines()
    (row,) = [row for row in rows if imported in row]
    assert row.split()[4] == "-"


def test_what_cannot_be_saved_does_not_end_well(h2o: Program) -> None:
    done = h2o("run", "hi", "--save", "--max-tokens", "3", "--data", "/dev/null")
    assert done.code != ExitCode.OK
    assert "Nothing of this conversation is stored" in done.err


# -- large downloads


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A hub that claims to have a large model and a small one."""
    config = json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}).encode()
    files = {"config.json": config, "tokenizer.json": b"{}", "model.safetensors": b"\0" * 1000}
    with serve() as running:
        for name, size in (("some/large", LARGE_BYTES), ("some/small", SMALL_ENOUGH_BYTES)):
            running.repositories[name] = Repository(files, sizes={"model.safetensors": size})
        yield running


@pytest.fixture
def environment(hub: Hub, tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSF"))}
    return kept | {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "hf"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "NO_PROXY": "127.0.0.1",
    }


@pytest.fixture
def room(tmp_path: Path) -> None:
    if os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize < LARGE_BYTES + (1 << 30):
        pytest.skip("the disk has no room for what is claimed")


@pytest.mark.loopback
@pytest.mark.usefixtures("room")
@pytest.mark.parametrize("command", [("models", "pull", "some/large"), ("run", "hi", "-m", "some/large")])
def test_a_large_download_is_refused_without_a_terminal(
    h2o: Program, hub: Hub, environment: dict[str, str], command: tuple[str, ...]
) -> None:
    done = h2o(*command, env=environment)
    assert done.code == ExitCode.USAGE
    assert "some/large is not here: 13.5 GB are to be fetched" in words(done.err)
    assert "GB are free" in words(done.err)
    assert "Say --yes." in done.err
    assert hub.downloads("model.safetensors") == []
    done = h2o(*command, "--yes", env=environment)
    assert "Say --yes." not in done.err
    assert hub.downloads("model.safetensors") != [], "it is fetched: that the hub lied about its size is told"


@pytest.mark.loopback
def test_a_small_download_is_fetched_without_a_question(
    h2o: Program, hub: Hub, environment: dict[str, str]
) -> None:
    done = h2o("models", "pull", "some/small", env=environment)
    assert "Say --yes." not in done.err
    assert hub.downloads("model.safetensors") != []


@pytest.mark.loopback
@pytest.mark.usefixtures("room")
@pytest.mark.parametrize(
    ("command", "answer", "fetched"),
    [
        (("models", "pull", "some/large"), "n", False),
        (("models", "pull", "some/large"), "", False),
        (("models", "pull", "some/large"), "y", True),
        (("-m", "some/large"), "n", False),  # asked before the screen opens
    ],
)
def test_a_large_download_is_asked_for_on_a_terminal(
    hub: Hub, environment: dict[str, str], command: tuple[str, ...], answer: str, fetched: bool
) -> None:
    shown, code = on_terminal(command, environment, "[y/N]", f"{answer}\n")
    assert "13.5 GB" in shown
    assert "are free" in shown
    assert ("was not fetched" in shown) == (not fetched)
    assert bool(hub.downloads("model.safetensors")) == fetched
    assert code != ExitCode.OK


def on_terminal(
    command: tuple[str, ...], environment: dict[str, str], question: str, answer: str
) -> tuple[str, int]:
    """(all that was shown, the exit code) of a program that asks one question on a terminal."""
    ours, theirs = pty.openpty()
    program = subprocess.Popen(
        [*PROGRAM, *command],
        env=environment | {"COLUMNS": "100", "TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown, end = b"", time.monotonic() + 120
    try:
        while time.monotonic() < end:
            if not select.select([ours], [], [], 1)[0]:
                continue
            try:
                shown += os.read(ours, 1 << 16)
            except OSError:  # it has left
                break
            if answer and question.encode() in shown:
                os.write(ours, answer.encode())
                answer = ""
        return " ".join(shown.decode().split()), program.wait(30)
    finally:
        program.kill()
        program.wait()
        os.close(ours)
