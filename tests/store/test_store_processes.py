"""A store among processes and threads, some of which are killed."""

import os
import random
import threading
from pathlib import Path

import pytest
from storing import created, ended, intact, start
from sweep import sweep

from h2o_chat.base.errors import BusyError, ExitCode
from h2o_chat.store import Store

WRITE_FOREVER = """
import sys
from pathlib import Path
from h2o_chat.store import Store
store = Store(Path(sys.argv[1]))
with store.claim(sys.argv[2]) as writer:
    print("ready", flush=True)
    while True:
        writer.said("user", "Go on.", [1, 2])
        answer = writer.answering()
        for number in range(200):
            writer.token(number, f" {number}")
            print(answer, number, flush=True)
        writer.finished("".join(f" {number}" for number in range(200)), "eos", 0, 199)
"""

WRITE_SOME = """
import sys
from pathlib import Path
from h2o_chat.store import Store
store = Store(Path(sys.argv[1]))
with store.begin("m", {}) as writer:
    for turn in range(5):
        writer.said("user", f"{sys.argv[2]} asks")
        writer.answering()
        for number in range(100):
            writer.token(number, f" {number}")
        writer.finished(f"{sys.argv[2]} is answered", "eos", 0, 99)
"""


@pytest.mark.parametrize("kills", [6, *sweep(20)])
def test_killed_at_any_moment(store: Store, folder: Path, kills: int) -> None:
    """Delivered tokens are stored, the file is sound, and the next start continues."""
    conversation = created(store, "m", {})
    chance = random.Random(4)
    finishes: list[str | None] = []
    for _ in range(kills):
        process = start(WRITE_FOREVER, folder, conversation)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.stderr and process.stderr.read()
        timer = threading.Timer(chance.uniform(0, 0.1), process.kill)
        timer.start()
        lines = process.stdout.read().split("\n")[:-1]  # without the one that the kill cut
        process.wait()
        assert intact(folder)
        newest = store.path(conversation)[-1]
        if newest.role == "assistant":
            assert newest.ids == tuple(range(len(newest.ids)))
            assert newest.text == "".join(f" {number}" for number in newest.ids)
            finishes.append(newest.finish)
        if lines:
            answer, delivered = map(int, lines[-1].split())
            message = next(m for m in store.messages(conversation) if m.id == answer)
            assert delivered < len(message.ids)
        with store.claim(conversation) as writer:
            assert writer.leaf == newest.id
        assert store.path(conversation)[-1] == newest
    assert "interrupted" in finishes
    assert os.listdir(folder / "locks") == []


def test_two_processes_write_two_conversations(folder: Path) -> None:
    """They also begin at once, in a folder that is not there yet."""
    writers = [start(WRITE_SOME, folder, name) for name in ("Ada", "Grace", "Joan", "Mary")]
    for writer in writers:
        ended(writer)
    store = Store(folder)
    assert len(store.list()) == 4
    assert {one.messages for one in store.list()} == {10}
    assert len(store.search("Ada answ")) == 5
    assert intact(folder)
    store.close()


def test_the_same_conversation_twice_is_refused(store: Store, folder: Path) -> None:
    conversation = created(store, "m", {})
    process = start(WRITE_FOREVER, folder, conversation)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        with pytest.raises(BusyError, match=f"open in process {process.pid}") as busy:
            store.claim(conversation)
        assert (busy.value.code, busy.value.exit_code) == ("busy", ExitCode.FAILED)
        assert all(m.finish != "interrupted" for m in store.path(conversation)), "it lives"
    finally:
        process.kill()
        process.communicate()
    store.claim(conversation).close()


def test_looking_does_not_refuse_a_writer(store: Store) -> None:
    """Who reads an open answer asks for a moment whether its writer lives."""
    conversation = created(store, "m", {})
    with store.claim(conversation) as writer:
        writer.answering()
    store._database.rows("UPDATE messages SET open = 1 WHERE conversation = ?", conversation)
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            store.path(conversation)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for _ in range(200):
            store.claim(conversation).close()
    finally:
        stop.set()
        looking.join()


def test_threads_share_a_store(store: Store) -> None:
    """A worker writes while the screen reads; nobody sees half a turn."""
    conversation = created(store, "m", {})

    def write() -> None:
        with store.claim(conversation) as writer:
            for _ in range(20):
                writer.answering()
                for number in range(20):
                    writer.token(number, "x")
                writer.finished("x" * 20, "eos", 0, 19)

    worker = threading.Thread(target=write)
    worker.start()
    while worker.is_alive():
        for message in store.path(conversation):
            assert len(message.text) == len(message.ids)
            assert message.finish in ("eos", None)
    assert len(store.path(conversation)) == 20
