"""The store vanishes while somebody talks: that is said at once, and what was said is saved beside it."""

import os
import random
import shutil
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

import pytest
from here import h2o_here
from program import Streamed, kept, of_kind

from h2o_chat.base.errors import ExitCode
from h2o_chat.chat.files.importer import read
from h2o_chat.events.events import End, Error, Event, Note, Token, Turn
from h2o_chat.store import DATABASE, Store


def resumed(data: Path) -> Streamed:
    """The last conversation, in the middle of its next answer."""
    flags = ("--events", 0, "--ignore-eos", "--max-tokens", 400, "--data", data)
    run = Streamed("--resume", "last", "Go on.", *flags)
    run.until(Token, 20)
    return run


def lost(event: Event) -> bool:
    """Whether it says that the store has vanished."""
    return isinstance(event, Note | Error) and event.code == "store"


@pytest.fixture(scope="module")
def one_turn(tmp_path_factory: pytest.TempPathFactory, little: Path) -> Path:
    """A data folder with a conversation of one turn."""
    data = tmp_path_factory.mktemp("talked") / "data"
    for _ in range(2):  # so that the log is empty, and the database is not
        h2o_here("run", "Hello.", "--save", "--data", data, "-m", little, "--max-tokens", "40")
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
    with resumed(talked) as run:
        harm(talked)
        code, err = run.ended()
    assert code == ExitCode.FAILED, err
    until_then = [*takewhile(lambda event: not lost(event), run.events)]
    assert len(until_then) < len(run.events)
    assert len(of_kind(Token, until_then)) < 80, "it is said long before the answer ends"
    assert "was" in err
    assert "while it" in err
    end = run.events[-1]
    assert isinstance(end, End)
    assert end.conversation is None
    assert "h2o-chat: conversation" not in err
    [file] = talked.glob("rescued-*.json")
    assert str(file) in err
    assert file.stat().st_mode & 0o077 == 0
    [saved] = read(file)
    (turn,) = of_kind(Turn, run.events)
    assert turn.new_tokens == 400, "the conversation itself goes on"
    assert [one.role for one in saved.messages] == ["user", "assistant"] * 2
    assert [saved.messages[2].text, saved.messages[3].text] == ["Go on.", turn.text]
    h2o_here("sessions", "import", file, "--data", talked.parent / "another")


def test_a_kill_after_it_was_noticed_leaves_what_was_said_until_then(talked: Path) -> None:
    with resumed(talked) as run:
        _remove(talked)
        while not lost(run.events[-1]):
            assert run.read()
    [file] = talked.glob("rescued-*.json")
    [saved] = read(file)
    assert saved.messages[2].text == "Go on."
    assert saved.messages[3].finish == "interrupted"
    assert saved.messages[3].text


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
    assert [one.text for one in kept(talked)] == ["Hello.", "Still here."]


def test_other_processes_that_write_are_no_harm(talked: Path) -> None:
    """They write their log into the database, and then it is looked at as a whole."""
    out, data = talked.parent / "export.json", ("--data", talked)
    h2o_here("sessions", "export", "last", "--format", "json", "-o", out, *data)
    store = Store(talked)
    with store.claim(store.find("last")) as writer:
        writer.said("user", "before")
        for _ in range(3):
            h2o_here("sessions", "import", out, *data)
            writer.said("user", "after")
            assert not writer.backlog.trouble
    store.close()
