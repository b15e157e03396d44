"""Who may wait for whom: another process writes, for long, and what is said meanwhile."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from storing import created, intact, start

from h2o_chat.base.errors import StoreBusyError, UsageError
from h2o_chat.store import DATABASE, Store
from h2o_chat.store.records import Conversation

MESSAGES = 20_000
WORD = "kweluzebra"
PROGRAM = [sys.executable, "-m", "h2o_chat"]
PATIENCE_S = 100.0
"""Seconds that a test waits, on a busy machine."""


@pytest.fixture
def foreign(store: Store, folder: Path) -> Iterator[sqlite3.Connection]:
    """Another writer of the same file; begins and ends its transactions as it likes."""
    connection = sqlite3.connect(folder / DATABASE, timeout=PATIENCE_S, isolation_level=None)
    yield connection
    connection.close()


def large(path: Path) -> Path:
    said = [{"role": "user", "content": f"{WORD} {number}"} for number in range(MESSAGES)]
    path.write_text(json.dumps(said))
    return path


def sessions(folder: Path, *arguments: object) -> subprocess.Popen[str]:
    command = [*PROGRAM, "sessions", *map(str, arguments), "--data", str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def until_hidden(store: Store, process: subprocess.Popen[str], messages: int) -> None:
    """Until so many messages are there of what nobody sees yet, or any more."""
    give_up = time.monotonic() + PATIENCE_S
    query = "SELECT count(*) FROM messages WHERE conversation IN (SELECT id FROM conversations WHERE hidden)"
    while not messages <= store._database.rows(query)[0][0] < MESSAGES:
        assert process.poll() is None, "too late"
        assert time.monotonic() < give_up
        time.sleep(0.005)


def test_what_is_said_waits_in_order(store: Store, foreign: sqlite3.Connection) -> None:
    """Messages, tokens, places, pins and ends alike; the first only costs time."""
    with store.begin("m", {}) as writer:
        conversation = writer.conversation
        first = writer.said("user", "one")
        foreign.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        for turn in range(20):
            answer = writer.answering()
            for number in range(50):
                writer.token(number, f" {number}")
            writer.finished(f"answer {turn}", "eos", 0, 49)
            said = writer.said("user", f"and {turn}", [1, 2])
            writer.place(said, 7, 9)
            writer.pinned(said, True)
        never = [writer.said("user", "never"), writer.answering()]
        writer.withdraw(never)
        writer.move(answer)
        assert time.monotonic() - began < 20, "1,100 steps, none of which waits"
        assert isinstance(writer.backlog.trouble, StoreBusyError)
        assert writer.backlog.words == "42 messages (the first: 'and 0') and 1,000 tokens"
        assert [m.id for m in store.path(conversation)] == [first]
        foreign.execute("ROLLBACK")
        assert writer.backlog.flush(PATIENCE_S)
        path = store.path(conversation)
    assert [m.text for m in path][-2:] == ["and 18", "answer 19"]
    assert (path[-1].ids, path[-2].first, path[-2].pinned) == (tuple(range(50)), 7, True)
    assert len(store.messages(conversation)) == 41


def test_a_conversation_begins_while_another_process_writes(
    store: Store, foreign: sqlite3.Connection
) -> None:
    foreign.execute("BEGIN IMMEDIATE")
    with store.begin("m", {"budget": 64}) as writer:
        said = writer.said("user", "hello")
        assert store.list() == []
        foreign.execute("ROLLBACK")
        assert writer.backlog.flush(PATIENCE_S)
    assert [(m.id, m.text) for m in store.path(writer.conversation)] == [(said, "hello")]
    assert store.settings(writer.conversation) == {"budget": 64}


@pytest.mark.parametrize("command", ["import", "rm"])
def test_others_write_during_a_long_command(store: Store, folder: Path, tmp_path: Path, command: str) -> None:
    file = large(tmp_path / "large.json")
    if command == "rm":
        done = sessions(folder, "import", file)
        out, _ = done.communicate(timeout=PATIENCE_S)
        process = sessions(folder, "rm", "--yes", out.strip())
    else:
        process = sessions(folder, "import", file)
    on_disk = 0
    with store.begin("m", {}) as writer:
        while process.poll() is None:
            writer.said("user", "hello")
            if store._database.rows("SELECT 1 FROM conversations WHERE hidden"):
                on_disk += not writer.backlog
            time.sleep(0.01)
        assert writer.backlog.flush(PATIENCE_S)
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert on_disk > 2, "written in between"  # how often depends on the machine
    assert intact(folder)


def test_an_import_that_is_killed_is_never_seen(store: Store, folder: Path, tmp_path: Path) -> None:
    file = large(tmp_path / "large.json")
    process = sessions(folder, "import", file)
    until_hidden(store, process, 500)
    assert store.list() == store.search(WORD) == []
    process.kill()
    process.communicate()
    assert store.list() == store.search(WORD) == []
    small = tmp_path / "small.json"
    small.write_text(json.dumps([{"role": "user", "content": "hello"}]))
    _, err = (again := sessions(folder, "import", small)).communicate(timeout=PATIENCE_S)
    assert again.returncode == 0, err
    assert [one.title for one in store.list()] == ["hello"]
    assert store._database.rows("SELECT count(*) FROM messages") == [(1,)], "swept out"
    assert all(WORD.encode() not in part.read_bytes() for part in folder.glob(f"{DATABASE}*"))
    assert intact(folder)


def test_a_removal_that_is_killed_is_ended_by_the_next(store: Store, folder: Path, tmp_path: Path) -> None:
    imported = sessions(folder, "import", large(tmp_path / "large.json"))
    out, _ = imported.communicate(timeout=PATIENCE_S)
    kept, other = created(store, "m", {}, "kept"), created(store, "m", {})
    process = sessions(folder, "rm", "--yes", out.strip())
    until_hidden(store, process, 1)
    process.kill()
    process.communicate()
    assert {one.id for one in store.list()} == {kept, other}, "nobody sees it from the beginning on"
    store.remove(other)
    assert [one.id for one in store.list()] == [kept]
    assert store._database.rows("SELECT count(*) FROM conversations") == [(1,)]
    assert all(WORD.encode() not in part.read_bytes() for part in folder.glob(f"{DATABASE}*"))
    assert os.listdir(folder / "locks") == []


REMOVE_AND_DIE = """
import os, signal, sys
from pathlib import Path
from h2o_chat.store import Store
from h2o_chat.store.database import Database
Database.forget_removed = lambda self: os.kill(os.getpid(), signal.SIGKILL)
Store(Path(sys.argv[1])).remove(sys.argv[2])
"""


def test_a_removal_that_is_killed_after_its_last_message_is_ended_by_the_next(
    store: Store, folder: Path
) -> None:
    """The index of words and the log still have the words then."""
    with store.begin("m", {"system": f"system {WORD}"}) as writer:
        writer.run({"system": f"system {WORD}"})
        for number in range(100):
            writer.said("user", f"{WORD} {number}")
    killed = start(REMOVE_AND_DIE, folder, writer.conversation)
    assert killed.wait(PATIENCE_S) == -signal.SIGKILL, killed.communicate()
    assert (store.list(), store._database.rows("SELECT count(*) FROM messages")) == ([], [(0,)])
    with pytest.raises(UsageError):
        store.find(writer.conversation)
    small = Conversation("", "hello", "m", {}, 4.0, 5.0, None, [])
    put = store.put([small])
    assert [one.id for one in store.list()] == put
    assert store._database.rows("SELECT count(*) FROM conversations") == [(1,)]
    assert all(WORD.encode() not in part.read_bytes() for part in folder.glob(f"{DATABASE}*"))
    assert intact(folder)
