"""Who may wait for whom: another process writes, for long, and what is said meanwhile."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from storing import created, ended, intact, start

from h2o_chat.base.errors import StoreBusyError
from h2o_chat.store import DATABASE, Store
from h2o_chat.store.records import Conversation

WORD = "kweluzebra"
PATIENCE_S = 100.0  # seconds that a test waits, on a busy machine


@pytest.fixture
def foreign(store: Store, folder: Path) -> Iterator[sqlite3.Connection]:
    """Another writer of the same file; begins and ends its transactions as it likes."""
    connection = sqlite3.connect(folder / DATABASE, timeout=PATIENCE_S, isolation_level=None)
    yield connection
    connection.close()


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


def test_others_write_during_a_long_command(store: Store, folder: Path, tmp_path: Path) -> None:
    def meanwhile(*arguments: object) -> str:
        """Runs `sessions ARGUMENTS`, and writes until it has ended; its output."""
        command = [sys.executable, "-m", "h2o_chat", "sessions", *map(str, arguments), "--data", str(folder)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        on_disk = 0
        with store.begin("m", {}) as writer:
            while process.poll() is None:
                writer.said("user", "hello")
                if store._database.rows("SELECT 1 FROM conversations WHERE hidden"):
                    on_disk += not writer.backlog
                time.sleep(0.01)
            assert writer.backlog.flush(PATIENCE_S)
        assert on_disk > 2, "written in between"  # how often depends on the machine
        return ended(process)

    file = tmp_path / "large.json"
    file.write_text(json.dumps([{"role": "user", "content": f"{WORD} {number}"} for number in range(6_000)]))
    imported = meanwhile("import", file)
    meanwhile("rm", "--yes", imported.strip())
    assert intact(folder)


STOPPED = f"""
import itertools, signal, sys
from pathlib import Path
from h2o_chat.store import Conversation, Store, StoredMessage, database

def stops_at(call, calls=itertools.count()):
    def stop(*_):
        if next(calls) == call:
            print("stopped", flush=True)
            signal.pause()
    return stop

store, settings = Store(Path(sys.argv[1])), {{"system": "system {WORD}"}}
texts = [f"{WORD} {{number}}" for number in range(100)]
database.SHORT_S = 0  # a transaction for each message, or each 20 that are removed
if sys.argv[2] == "import":
    messages = [
        StoredMessage(at, at - 1 or None, "user", text, None, -1, -1, (), 5.0)
        for at, text in enumerate(texts, 1)
    ]
    database.time.sleep = stops_at(9)
    store.put([Conversation("", "", "m", settings, 4.0, 5.0, 100, messages)])
with store.begin("m", settings) as writer:
    writer.run(settings)
    for text in texts:
        writer.said("user", text)
if sys.argv[2] == "removal":
    database.time.sleep = stops_at(1)
else:  # of the messages; the index of words and the log still have the words then
    database.Database.forget_removed = stops_at(0)
store.remove(writer.conversation)
"""


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(
    ("what", "left", "next_one"),
    [
        ("import", 9, lambda store: store.put([Conversation("", "hello", "m", {}, 4.0, 5.0, None, [])])),
        ("removal", 60, lambda store: store.remove(created(store, "m", {}))),
        ("end of a removal", 0, lambda store: store.put([])),
    ],
    ids=["import", "removal", "end of a removal"],
)
def test_what_is_killed_in_its_middle_is_never_seen_and_erased_by_the_next(
    store: Store, folder: Path, what: str, left: int, next_one: Callable[[Store], object]
) -> None:
    kept = created(store, "m", {}, "kept")
    process = start(STOPPED, folder, what)
    assert process.stdout is not None
    assert process.stdout.readline() == "stopped\n", process.communicate()
    for killed in (False, True):
        if killed:
            process.kill()
            process.communicate()
        assert [one.id for one in store.list()] == [store.find("last")] == [kept]
        assert store.search(WORD) == []
        assert store._database.rows("SELECT count(*) FROM messages") == [(left,)]
    next_one(store)
    assert "kept" in [one.title for one in store.list()]
    assert store._database.rows("SELECT count(*) FROM messages") == [(0,)]
    assert store._database.rows("SELECT count(*) FROM conversations") == [(len(store.list()),)]
    assert all(WORD.encode() not in part.read_bytes() for part in folder.glob(f"{DATABASE}*"))
    assert os.listdir(folder / "locks") == []
    assert intact(folder)
