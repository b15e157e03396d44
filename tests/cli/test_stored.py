"""`run --save`: what is on disk when it has ended, and what it says of what is not."""

import json
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from forking import Forked
from here import h2o_here
from program import Streamed, kept, of_kind
from sweep import sweep

from h2o_chat.base.errors import ExitCode
from h2o_chat.events.events import Error, Token, Turn
from h2o_chat.models.obtain import size
from h2o_chat.store import DATABASE

TURNS = "\n---\n".join(f"Go on with part {number}." for number in range(8))
ON_A_SMALL_DISK = """
import ctypes, os, subprocess, sys
def ran(arguments):
    reading, writing = os.pipe()
    if not (number := os.fork()):
        os.dup2(writing, 1)
        from h2o_chat.cli.cli import main
        sys.argv = ["h2o-chat", *arguments]
        main()  # ends this process
    os.close(writing)
    with open(reading) as file:
        said = file.read()
    return said.splitlines(), os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
folder, arguments, user, group = sys.argv[1], sys.argv[2:], os.getuid(), os.getgid()
assert ctypes.CDLL(None).unshare(0x10000000 | 0x20000) == 0  # as `unshare -rm`: users and mounts of its own
for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
    with open(f"/proc/self/{name}", "w") as file:
        file.write(text)
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "none", folder], check=True)
assert ran(arguments)[1] == 0
caches = [os.path.join(at, name) for at, _, names in os.walk(folder + "/data/caches") for name in names]
assert caches, "nothing was saved"
[conversation] = os.listdir(folder + "/data/caches")
for number in range(1, 40):  # the program's own memories fill the disk, all but a little
    old = f"{folder}/data/caches/{conversation}/{number}.safetensors"
    try:
        if not os.path.exists(old):
            open(old, "wb").write(bytes(500_000))
    except OSError:
        break
try:
    open(f"{folder}/data/caches/{conversation}/0.safetensors", "wb").write(bytes(10_000_000))
except OSError:
    pass
assert os.statvfs(folder).f_bavail == 0
said, code = ran(arguments)
print(len([line for line in said if '"event": "token"' in line]))
from pathlib import Path
from h2o_chat.store import Store
store = Store(Path(folder + "/data"))
print(sum(len(m.ids) for m in store.path(store.find("last")) if m.role == "assistant"))
print([one.name for one in Path(folder + "/data/caches").rglob("0.safetensors")])
sys.exit(code)
"""


@pytest.fixture
def talk(folder: Path, small: Path, tmp_path: Path) -> Iterator[Streamed]:
    """A run of eight turns that are stored."""
    script = tmp_path / "script.txt"
    script.write_text(TURNS)
    flags = ("--events", 0, "--ignore-eos", "--max-tokens", 40, "--save", "--data", folder)
    with Streamed("--script", script, "-m", small, *flags) as talk:
        yield talk


def held(folder: Path) -> sqlite3.Connection:
    """A foreign transaction that holds the database."""
    connection = sqlite3.connect(folder / DATABASE, timeout=60, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    return connection


def stored(folder: Path) -> list[int]:
    return [token for one in kept(folder) if one.role == "assistant" for token in one.ids]


def test_a_busy_store_loses_nothing(talk: Streamed, folder: Path) -> None:
    """Turns go on while another process writes, and all is stored when it has done."""
    talk.until(Token)
    foreign = held(folder)
    talk.until(Turn, 3)
    assert len(stored(folder)) < len(talk.tokens), "they stand only in memory"
    foreign.execute("ROLLBACK")
    code, err = talk.ended()
    assert code == ExitCode.OK, err
    assert len(talk.tokens) == 8 * 40
    assert stored(folder) == talk.tokens
    assert err.count("what is said stands only in memory") == 1
    assert "All that was said is stored again." in err


@pytest.mark.parametrize("number", [signal.SIGINT, *sweep(signal.SIGTERM)])
def test_leaving_a_busy_store_waits_until_told_again(talk: Streamed, folder: Path, number: int) -> None:
    talk.until(Token)
    foreign = held(folder)
    talk.until(Turn, 8)
    seen = ""
    while "waiting for the store" not in seen:
        line = talk.process.stderr.readline()
        assert line, seen
        seen += line
    talk.process.send_signal(number)
    code, err = talk.ended()
    foreign.execute("ROLLBACK")
    assert code == ExitCode.FAILED, err
    assert "Not stored: " in err
    assert "tokens" in err
    (error,) = of_kind(Error, talk.events)
    assert error.code == "store"
    kept = stored(folder)
    assert kept == talk.tokens[: len(kept)]
    assert f"{len(talk.tokens) - len(kept)} tokens" in error.message


@pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode != 0,
    reason="a small disk needs a mount",
)
def test_saved_memories_give_way_to_words(small: Path, tmp_path: Path) -> None:
    """On a disk that the program's own memories have filled."""
    flags = ("--save", "--json", "--ignore-eos", "--max-tokens", "300", "--budget", "64")
    run = ("run", "Once upon a time", *flags, "-m", str(small), "--data", str(tmp_path / "data"))
    with Forked(
        [sys.executable, "-c", ON_A_SMALL_DISK, str(tmp_path), *run],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert out.splitlines() == ["300", "300", "[]"], err


def test_the_command_that_is_printed_for_a_chat_of_another_model_works(little: Path, tmp_path: Path) -> None:
    data = tmp_path / "a folder"
    h2o_here("run", "Hello.", "--save", "--data", data, "-m", little, "--max-tokens", 4)
    refused = h2o_here(
        "run", "Hello.", "--resume", "last", "--data", data, "-m", "pocket", ends=ExitCode.USAGE
    )
    (command,) = re.findall(r"h2o-chat (--resume \S+ --data '[^']+') goes on with", refused.err)
    h2o_here("run", "And now?", *shlex.split(command), "--max-tokens", 4)


def test_all_saved_memories_together_have_a_limit(
    little: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest go first, whatever conversation they are of, and those of none; the doctor says how much."""
    monkeypatch.setenv("H2O_CHAT_DATA", str(tmp_path))

    def talk(*more: object) -> None:
        few = "--budget", 8, "--max-tokens", 4  # full at once, so that all files have one size
        h2o_here("run", "Hello. It is a long day.", "--save", "-m", little, *few, *more)

    def saved() -> dict[str, int]:
        return {str(one.relative_to(tmp_path)): one.stat().st_size for one in tmp_path.glob("caches/*/*")}

    (nobodys := tmp_path / "caches" / "aaaaaaaa").mkdir(parents=True)
    (nobodys / "2.safetensors").write_bytes(bytes(1000))
    talk()
    first = saved()
    assert len(first) == 2
    one_bytes = max(first.values())
    monkeypatch.setenv("H2O_CHAT_SAVED_MEMORIES_BYTES", str(3 * one_bytes + 4096))
    for _ in range(3):
        talk()
    talk("--resume", "last")
    assert sum(saved().values()) <= 3 * one_bytes + 4096
    assert len(saved()) == 3
    assert not first.keys() & saved().keys()
    report = json.loads(h2o_here("doctor", "--json").out)
    assert report["rows"]["conversations"].endswith(f"saved memories: {size(sum(saved().values()))}")
    monkeypatch.setenv("H2O_CHAT_SAVED_MEMORIES_BYTES", "0")
    talk("--resume", "last")
    assert not saved(), "none is kept; a conversation is rebuilt from what was said"
    talk("--resume", "last")
