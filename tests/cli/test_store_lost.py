"""The store vanishes while somebody talks: that is said at once, and what was said is saved beside it."""

import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from forking import Forked
from here import h2o_here
from program import PROGRAM

from h2o_chat.base.errors import ExitCode
from h2o_chat.chat.files.importer import read
from h2o_chat.store import DATABASE, Store

LONG = ("--ignore-eos", "--max-tokens", "400")


class Resumed:
    """`run --resume last --json`, in the middle of its answer."""

    def __init__(self, data: Path) -> None:
        command = [*PROGRAM, "run", "--resume", "last", "Go on.", "--json", "--events", "0", *LONG]
        self.process = Forked(
            [*command, "--data", str(data)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.events: list[dict[str, object]] = []
        while self.tokens < 20:
            self._read()

    @property
    def tokens(self) -> int:
        return sum(one["event"] == "token" for one in self.events)

    def _read(self) -> bool:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.events += [json.loads(line)] if line else []
        return bool(line)

    def ended(self) -> tuple[int, str]:
        while self._read():
            pass
        err = self.process.communicate()[1]
        return self.process.returncode, err


@pytest.fixture(scope="module")
def one_turn(tmp_path_factory: pytest.TempPathFactory, little: Path) -> Path:
    """A data folder with a conversation of one turn."""
    data = tmp_path_factory.mktemp("talked") / "data"
    for _ in range(2):  # so that the log is empty, and the database is not
        said = h2o_here("run", "Hello.", "--save", "--data", data, "-m", little, "--max-tokens", "40")
        assert said.code == ExitCode.OK, said.err
    return data


@pytest.fixture
def talked(one_turn: Path, tmp_path: Path) -> Path:
    """A copy of that folder."""
    return shutil.copytree(one_turn, tmp_path / "data")


def _remove(data: Path) -> None:
    data.rename(data.parent / "gone")  # in one move: what is saved then is not removed with it
    shutil.rmtree(data.parent / "gone")


def _move(data: Path) -> None:
    (data / DATABASE).rename(data / "elsewhere.db")


def _empty(data: Path) -> None:
    os.truncate(data / DATABASE, 0)


def _write_over(data: Path) -> None:
    file = data / DATABASE
    file.write_bytes(random.Random(0).randbytes(file.stat().st_size))


def _write_over_the_middle(data: Path) -> None:
    with (data / DATABASE).open("rb+") as file:
        file.seek(4096)
        file.write(random.Random(0).randbytes((data / DATABASE).stat().st_size - 4096))


def _replace(data: Path) -> None:
    shutil.copy(data / DATABASE, data / "copy")
    os.replace(data / "copy", data / DATABASE)


def _remove_the_log(data: Path) -> None:
    (data / f"{DATABASE}-wal").unlink()
    (data / f"{DATABASE}-shm").unlink()


def _remove_the_locks(data: Path) -> None:
    shutil.rmtree(data / "locks")


@pytest.mark.parametrize(
    "harm",
    [
        *(_remove, _move, _empty, _write_over, _write_over_the_middle),
        *(_replace, _remove_the_log, _remove_the_locks),
    ],
)
def test_a_store_that_vanishes_is_noticed(harm: Callable[[Path], None], talked: Path) -> None:
    """At once, on stdout and stderr; exit code 1; all that was said stands in a file to be imported."""
    run = Resumed(talked)
    harm(talked)
    noticed = run.tokens
    code, err = run.ended()
    assert code == ExitCode.FAILED, err
    kinds = [str(one["event"]) for one in run.events]
    note = next(at for at, one in enumerate(run.events) if one.get("code") == "store")
    assert kinds[:note].count("token") - noticed < 60, "it is said long before the answer ends"
    assert "was" in err
    assert "while it" in err
    assert run.events[-1]["event"] == "end"
    assert run.events[-1]["conversation"] is None
    assert "h2o-chat: conversation" not in err
    [file] = talked.glob("rescued-*.json")
    assert str(file) in err
    if os.name == "posix":
        assert file.stat().st_mode & 0o077 == 0
    [saved] = read(file)
    turn = next(one for one in run.events if one["event"] == "turn")
    assert [one.role for one in saved.messages] == ["user", "assistant"] * 2
    assert [saved.messages[2].text, saved.messages[3].text] == ["Go on.", turn["text"]]
    assert h2o_here("sessions", "import", file, "--data", talked.parent / "another").code == ExitCode.OK


def test_a_kill_after_it_was_noticed_leaves_what_was_said_until_then(talked: Path) -> None:
    run = Resumed(talked)
    _remove(talked)
    while not any(one.get("code") == "store" for one in run.events):
        assert run._read()
    run.process.kill()
    run.process.communicate()
    [file] = talked.glob("rescued-*.json")
    [saved] = read(file)
    assert saved.messages[2].text == "Go on."
    assert saved.messages[3].finish == "interrupted"
    assert saved.messages[3].text


def test_two_processes_never_write_one_conversation(talked: Path) -> None:
    """Whose lock was removed writes no more, and does not remove the lock of the other."""
    first = Resumed(talked)
    shutil.rmtree(talked / "locks")
    second = Resumed(talked)
    assert first.ended()[0] == ExitCode.FAILED
    assert first.tokens == 400, "the conversation itself goes on"
    code, err = second.ended()
    assert code == ExitCode.OK, err
    store = Store(talked)
    conversation = store.find("last")
    store.claim(conversation).close()  # nobody holds it any more
    path = store.path(conversation)
    assert [one.finish for one in path if one.role == "assistant"][-1] == "length"
    assert len(path[-1].ids) == 400
    store.close()


def test_a_lock_is_not_removed_with_the_first_holder(talked: Path) -> None:
    store, another = Store(talked), Store(talked)
    conversation = store.find("last")
    first = store.claim(conversation)
    shutil.rmtree(talked / "locks")
    with another.claim(conversation) as second:
        first.said("user", "mine")
        assert first.backlog.for_good
        assert len(first.backlog) == 1
        first.close()
        assert (talked / "locks" / conversation).exists()
        second.said("user", "theirs")
        assert not second.backlog.trouble
    assert store.path(conversation)[-1].text == "theirs"
    store.close()
    another.close()


def test_a_new_store_at_the_same_place_is_left_alone(talked: Path) -> None:
    """Also when the old one is closed: SQLite removes the log of a database then."""
    old = Store(talked)
    shutil.rmtree(talked)
    new = Store(talked)
    with new.begin("m", {}) as writer:
        writer.said("user", "Hello.")
        old.close()
        assert (talked / f"{DATABASE}-wal").exists()
        writer.said("user", "Still here.")
        assert not writer.backlog.trouble
    new.close()
    store = Store(talked)
    assert [one.text for one in store.path(store.find("last"))] == ["Hello.", "Still here."]
    store.close()


def test_other_processes_that_write_are_no_harm(talked: Path) -> None:
    """They write their log into the database, and then it is looked at as a whole."""
    store = Store(talked)
    with store.claim(store.find("last")) as writer:
        writer.said("user", "before")
        for _ in range(3):
            said = h2o_here("sessions", "import", _export(talked), "--data", talked)
            assert said.code == ExitCode.OK, said.err
            writer.said("user", "after")
            assert not writer.backlog.trouble
    store.close()


def _export(data: Path) -> Path:
    out = data.parent / "export.json"
    done = h2o_here("sessions", "export", "last", "--format", "json", "-o", out, "--force", "--data", data)
    assert done.code == ExitCode.OK, done.err
    return out
