"""The store with real files and real processes."""

import os
import random
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2o_chat.errors import BusyError, ExitCode, StoreError, UsageError
from h2o_chat.store import DATABASE, Conversation, Store, StoredMessage, conversation_ids, schema

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
with store.claim(store.create("m", {})) as writer:
    for turn in range(5):
        writer.said("user", f"{sys.argv[2]} asks")
        writer.answering()
        for number in range(100):
            writer.token(number, f" {number}")
        writer.finished(f"{sys.argv[2]} is answered", "eos", 0, 99)
"""

AS_NOBODY = """
import os, sys
from pathlib import Path
from h2o_chat.store import Store
if os.getuid() == 0:
    os.setuid(65534)  # root may write everywhere
store = Store(Path(sys.argv[1]))
print(store.list()[0].title, len(store.path(sys.argv[2])), len(store.search("hello")))
for write, arguments in (
    (store.create, ("m", {})), (store.rename, (sys.argv[2], "x")), (store.claim, (sys.argv[2],))
):
    try:
        write(*arguments)
        print("written")
    except Exception as error:
        print(type(error).__name__, error)
"""

FILL_THE_DISK = """
import resource, sys
from pathlib import Path
from h2o_chat.errors import StoreError
from h2o_chat.store import Store
store = Store(Path(sys.argv[1]))
with store.claim(sys.argv[2]) as writer:
    answer = writer.answering()
    writer.token(0, " 0")
    free = resource.getrlimit(resource.RLIMIT_FSIZE)
    full = (Path(sys.argv[1]) / "conversations.db-wal").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (full, free[1]))
    for number in range(1, 4):
        try:
            writer.token(number, f" {number}")
            print("written")
        except StoreError as error:
            print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, free)
    writer.token(4, " 4")
    writer.finished(" 0 1 2 3 4", "eos", 0, 4)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def store(folder: Path) -> Iterator[Store]:
    store = Store(folder)
    yield store
    store.close()


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


def intact(folder: Path) -> bool:
    connection = sqlite3.connect(folder / DATABASE)
    try:
        connection.execute("INSERT INTO words (words, rank) VALUES ('integrity-check', 1)")
        return (
            connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            and connection.execute("PRAGMA foreign_key_check").fetchall() == []
        )
    finally:
        connection.close()


def test_a_conversation_comes_back(folder: Path) -> None:
    store = Store(folder)
    conversation = store.create("pocket", {"budget": 64, "stop": ["\udcff"]})
    with store.claim(conversation) as writer:
        writer.run({"versions": {"h2o-chat": "1"}})
        system = writer.said("system", "Be kind.")
        user = writer.said("user", "  Hello,\nmy name is Ada.  ", [5, 6, 70_000], 0, 2)
        writer.place(system, 0, 0, [5])
        writer.place(user, 1, 2)
        answer = writer.answering()
        for token, text in enumerate(["Hi", " Ada", "</s>"]):
            writer.token(token, text)
        writer.finished("Hi Ada", "stop", 3, 5)
        assert writer.leaf == answer
    store.close()
    store = Store(folder)
    assert [(m.role, m.text, m.finish, m.first, m.last, m.ids) for m in store.path(conversation)] == [
        ("system", "Be kind.", None, 0, 0, (5,)),
        ("user", "  Hello,\nmy name is Ada.  ", None, 1, 2, (5, 6, 70_000)),
        ("assistant", "Hi Ada", "stop", 3, 5, (0, 1, 2)),
    ]
    summary = store.summary(conversation)
    assert (summary.title, summary.model) == ("Hello, my name is Ada.", "pocket")
    assert (summary.messages, summary.tokens) == (3, 7)
    assert summary.created <= summary.updated
    assert store.settings(conversation) == {"budget": 64, "stop": ["\udcff"]}
    assert intact(folder)
    store.close()


def test_long_first_messages_make_short_titles(store: Store) -> None:
    conversation = store.create("m", {})
    with store.claim(conversation) as writer:
        writer.said("user", " \n" * 1000 + "word " * 1000)
        writer.said("user", "not this")
        assert store.summary(conversation).title == "word " * 11 + "word…"
        writer.title("mine")
    assert store.summary(conversation).title == "mine"
    store.rename(conversation, "a\udc80\0b")
    assert store.summary(conversation).title == "a?\0b"


def test_going_back_adds_branches(store: Store) -> None:
    conversation = store.create("m", {})
    with store.claim(conversation) as writer:
        asked = writer.said("user", "one")
        first = writer.said("assistant", "1")
        late = writer.said("user", "two")
        writer.move(asked)
        second = writer.said("assistant", "uno")
        writer.move(None)
        edited = writer.said("user", "eins")
        assert [m.id for m in store.path(conversation)] == [edited]
        writer.move(second)
    assert [m.text for m in store.path(conversation)] == ["one", "uno"]
    assert [m.text for m in store.path(conversation, late)] == ["one", "1", "two"]
    assert [m.id for m in store.children(conversation, asked)] == [first, second]
    assert [m.id for m in store.children(conversation, None)] == [asked, edited]
    assert [m.id for m in store.messages(conversation)] == [asked, first, late, second, edited]
    with store.claim(conversation) as writer:
        assert writer.leaf == second
        elsewhere = store.create("m", {})
        with store.claim(elsewhere) as other, pytest.raises(ValueError, match="is not in conversation"):
            other.move(second)
    assert store.path(elsewhere) == store.path(elsewhere, second) == []


def test_what_was_never_said_is_withdrawn(store: Store) -> None:
    conversation = store.create("m", {})
    with store.claim(conversation) as writer:
        system = writer.said("system", "Be kind.")
        withdrawn = [writer.said("user", "never mind"), writer.answering()]
        writer.token(1, "x")
        with pytest.raises(ValueError, match="something follows"):
            writer.withdraw(withdrawn[:1])
        writer.withdraw(withdrawn)
        assert writer.leaf == system
        assert store.summary(conversation).title == ""
        asked = writer.said("user", "hello")
        assert asked > withdrawn[1], "numbers do not come again"
    assert [m.text for m in store.path(conversation)] == ["Be kind.", "hello"]
    assert store.search("never") == []


def test_one_answer_at_a_time(store: Store) -> None:
    with store.claim(store.create("m", {})) as writer:
        with pytest.raises(RuntimeError):
            writer.token(1, "x")
        with pytest.raises(RuntimeError):
            writer.finished("x", "eos", 0, 0)
        writer.answering()
        with pytest.raises(RuntimeError):
            writer.answering()


def test_leaving_in_the_middle_of_an_answer(store: Store) -> None:
    conversation = store.create("m", {})
    with store.claim(conversation) as writer:
        answer = writer.answering()
        writer.place(answer, 7, 7)
        writer.token(3, "half")
        writer.token(4, " an answer")
        [partial] = store.path(conversation)
        assert (partial.text, partial.finish, partial.ids) == ("half an answer", None, (3, 4))
        assert store.search("half") == [], "not finished"
    [partial] = store.path(conversation)
    assert (partial.text, partial.finish, partial.ids) == ("half an answer", "interrupted", (3, 4))
    assert (partial.first, partial.last) == (7, 8)
    assert len(store.search("half")) == 1


def test_tokens_of_an_answer_that_streams_are_counted(store: Store) -> None:
    """Also after a kill, which leaves it so until somebody goes on."""
    for conversation in (store.create("m", {}), store.create("m", {})):
        with store.claim(conversation) as writer:
            writer.said("user", "hello", [1, 2, 3])
            writer.answering()
            for _ in range(5):
                writer.token(7, "a")
            assert store.summary(conversation).tokens == 8
        assert store.summary(conversation).tokens == 8
    assert [one.tokens for one in store.list()] == [8, 8]


def test_found_by_id_prefix_and_last(store: Store) -> None:
    with pytest.raises(UsageError, match=r"no conversation in .* yet"):
        store.find("last")
    ids = [store.create("m", {}, f"title {number}") for number in range(40)]
    assert store.find(ids[0].upper()) == store.find(ids[0][:7]) == ids[0]
    assert store.find("last") == ids[-1]
    with store.claim(ids[5]) as writer:
        writer.said("user", "hello")
    assert store.find("last") == ids[5]
    assert [one.id for one in store.list(2)] == [ids[5], ids[-1]]
    assert len(store.list()) == 40
    with pytest.raises(UsageError, match=f"Near it: .*{ids[0]}"):
        store.find(ids[0][:6] + "89")
    with pytest.raises(UsageError, match="no conversation ''"):
        store.find("")
    several = next(one[0] for one in ids if sum(other[0] == one[0] for other in ids) > 1)
    with pytest.raises(UsageError, match=f"'{several}' begins"):
        store.find(several)


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.summary("nope"),
        lambda store: store.settings("nope"),
        lambda store: store.path("nope"),
        lambda store: store.children("nope", None),
        lambda store: store.caches("../../nope"),
        lambda store: store.claim("../../nope"),
        lambda store: store.rename("nope", "x"),
        lambda store: store.remove("nope"),
    ],
)
def test_unknown_conversations(store: Store, use: Callable[[Store], object]) -> None:
    with pytest.raises(UsageError, match="no conversation"):
        use(store)


def test_ids_for_the_shell(folder: Path) -> None:
    assert conversation_ids(folder) == []
    assert not folder.exists()
    store = Store(folder)
    ids = [store.create("m", {}) for _ in range(3)]
    assert conversation_ids(folder) == ids[::-1]
    assert conversation_ids(folder, ids[0][:7].upper()) == ids[:1]
    store.close()
    (folder / DATABASE).write_text("garbage" * 1000)
    assert conversation_ids(folder) == []


def test_removed_with_its_caches(store: Store, folder: Path) -> None:
    kept, gone = store.create("m", {}), store.create("m", {})
    for conversation in (kept, gone):
        with store.claim(conversation) as writer:
            writer.run({})
            for _ in range(3):
                writer.said("user", "hello there")
        (store.caches(conversation) / "1.safetensors").write_bytes(b"x")
    with store.claim(gone), pytest.raises(BusyError):
        store.remove(gone)
    store.remove(gone)
    assert [one.id for one in store.list()] == [kept]
    assert {hit.conversation for hit in store.search("hello")} == {kept}
    assert os.listdir(folder / "caches") == [kept]
    assert os.listdir(folder / "locks") == []
    assert intact(folder)


def test_a_whole_conversation_or_nothing(store: Store) -> None:
    messages = [
        StoredMessage(10, None, "user", "a", None, 0, 1, (1, 2), 5.0),
        StoredMessage(30, 10, "assistant", "b", "eos", 2, 2, (3,), 6.0),
        StoredMessage(20, 10, "assistant", "c", "interrupted", -1, -1, (), 7.0),
    ]
    whole = Conversation("", "from elsewhere", "m", {"budget": 1}, 4.0, 5.0, 30, messages)
    other = replace(whole, leaf=20, created=9.0)
    conversation, second = store.put([whole, other])
    assert [(m.text, m.finish, m.ids, m.created) for m in store.path(conversation)] == [
        ("a", None, (1, 2), 5.0),
        ("b", "eos", (3,), 6.0),
    ]
    assert store.path(second)[-1].text == "c"
    back = store.whole(conversation)
    assert (back.title, back.model, back.settings, back.created) == (
        "from elsewhere",
        "m",
        {"budget": 1},
        4.0,
    )
    assert [message.text for message in back.branch()] == ["a", "b"]
    with pytest.raises(KeyError):
        store.put([whole, replace(whole, messages=messages[1:])])
    with pytest.raises(KeyError):
        store.put([replace(whole, leaf=99)])
    assert len(store.list()) == 2


# What goes wrong.


def test_killed_at_any_moment(folder: Path) -> None:
    """What was delivered is there, the file is whole, and the next start goes on."""
    store = Store(folder)
    conversation = store.create("m", {})
    chance = random.Random(4)
    finishes: list[str | None] = []
    for _ in range(20):
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
    store.close()


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
    conversation = store.create("m", {})
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
    conversation = store.create("m", {})
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
    conversation = store.create("m", {})

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


def test_a_newer_version_is_refused(folder: Path) -> None:
    Store(folder).close()
    connection = sqlite3.connect(folder / DATABASE)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError, match=r"newer h2o-chat: it has version 99, this one knows \d+. Update"):
        Store(folder)


def test_a_file_of_version_1_is_brought_up_to_date(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:1])
    monkeypatch.setattr("h2o_chat.store.database.MIGRATIONS", schema.MIGRATIONS)
    store = Store(folder)
    conversation = store.create("m", {}, "old")
    store.close()
    schema.MIGRATIONS.append(
        "-- a comment; with a semicolon\nALTER TABLE conversations ADD COLUMN star INTEGER;\n"
        "CREATE TRIGGER t AFTER INSERT ON runs BEGIN\n  SELECT 1;\nEND;"
    )
    schema.MIGRATIONS.append("CREATE TABLE extra (id);\nthis is no SQL;")
    with pytest.raises(StoreError, match="syntax error"):
        Store(folder)
    connection = sqlite3.connect(folder / DATABASE)
    assert connection.execute("PRAGMA user_version").fetchone() == (1,), "all or nothing"
    assert "star" not in [row[1] for row in connection.execute("PRAGMA table_info (conversations)")]
    connection.close()
    schema.MIGRATIONS[2] = "CREATE TABLE extra (id);"
    for _ in range(2):
        store = Store(folder)
        assert store.summary(conversation).title == "old"
        assert store._database.rows("SELECT star FROM conversations") == [(None,)]
        assert store._database.rows("PRAGMA user_version") == [(3,)]
        store.close()


def test_garbage_is_not_touched(folder: Path) -> None:
    folder.mkdir()
    garbage = b"this is no database" * 100
    (folder / DATABASE).write_bytes(garbage)
    with pytest.raises(StoreError, match=r"not a database of h2o-chat .* Move it away") as error:
        Store(folder)
    assert str(folder / DATABASE) in error.value.message
    assert (folder / DATABASE).read_bytes() == garbage


@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
def test_a_truncated_database(folder: Path, share: float) -> None:
    store = Store(folder)
    conversation = store.create("m", {})
    with store.claim(conversation) as writer:
        for number in range(500):
            writer.said("user", f"some words {number} " * 20)
    store.close()
    size = (folder / DATABASE).stat().st_size
    os.truncate(folder / DATABASE, int(size * share) // 4096 * 4096 + 100)
    with pytest.raises(StoreError, match="damaged") as error:
        Store(folder).path(conversation)
    assert "recover" in error.value.hint


@given(st.data())
def test_damage_anywhere_is_said(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Bytes overwritten at random: what is read is read, and what fails fails as ours."""
    folder = tmp_path_factory.mktemp("damaged")
    store = Store(folder)
    conversation = store.create("m", {"a": 1})
    with store.claim(conversation) as writer:
        for number in range(50):
            writer.said("user", f"some words {number} " * 20, range(20))
        writer.answering()
        writer.token(1, "x")
    store.close()
    raw = bytearray((folder / DATABASE).read_bytes())
    for _ in range(data.draw(st.integers(1, 20))):
        at = data.draw(st.integers(0, len(raw) - 1))
        junk = data.draw(st.binary(min_size=1, max_size=64))
        raw[at : at + len(junk)] = junk
    (folder / DATABASE).write_bytes(raw)
    try:
        store = Store(folder)
        store.list()
        store.settings(conversation)
        store.search("words")
        store.path(conversation)
        store.messages(conversation)
        with store.claim(conversation) as writer:
            writer.said("user", "more")
            writer.withdraw([writer.answering()])
        store.remove(conversation)
        store.close()
    except (StoreError, UsageError):
        pass


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_private_files(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        store = Store(tmp_path / "data")
        with store.claim(store.create("m", {})) as writer:
            writer.said("user", "hello")
            (store.caches(writer.conversation) / "x").touch(0o600)
            modes = {
                str(path.relative_to(tmp_path)): stat.S_IMODE(path.stat().st_mode)
                for path in tmp_path.rglob("*")
            }
            conversation = writer.conversation
        store.close()
    finally:
        os.umask(before)
    assert modes == {
        "data": 0o700,
        "data/conversations.db": 0o600,
        "data/conversations.db-wal": 0o600,
        "data/conversations.db-shm": 0o600,
        "data/locks": 0o700,
        f"data/locks/{conversation}": 0o600,
        "data/caches": 0o700,
        f"data/caches/{conversation}": 0o700,
        f"data/caches/{conversation}/x": 0o600,
    }


@pytest.mark.parametrize("was_closed", [True, False], ids=["closed", "killed"])
def test_a_folder_that_cannot_be_written(tmp_path_factory: pytest.TempPathFactory, was_closed: bool) -> None:
    folder = tmp_path_factory.mktemp("read only")
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(parent.stat().st_mode | 0o055)  # another user shall come so far
    store = Store(folder)
    conversation = store.create("m", {}, "old")
    with store.claim(conversation) as writer:
        writer.said("user", "hello")
    if was_closed:
        store.close()
    for path in folder.iterdir():
        path.chmod(0o555 if path.is_dir() else 0o444)
    folder.chmod(0o555)
    try:
        out = ended(start(AS_NOBODY, folder, conversation)).splitlines()
    finally:
        folder.chmod(0o755)
        store.close()
    assert out[0] == "old 1 1"
    assert all(line.startswith("StoreError") and "--data" in line for line in out[1:]), out
    assert len(out) == 4


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"Not a directory.*--data"):
        Store(tmp_path / "file" / "data")


def test_a_full_disk_leaves_no_hole(store: Store, folder: Path) -> None:
    """What could not be written follows when there is space again."""
    conversation = store.create("m", {})
    out = ended(start(FILL_THE_DISK, folder, conversation)).splitlines()
    assert len(out) == 3
    assert all("disk" in line and "what was stored before is safe" in line for line in out), out
    [answer] = store.path(conversation)
    assert (answer.text, answer.ids, answer.finish) == (" 0 1 2 3 4", (0, 1, 2, 3, 4), "eos")
    assert intact(folder)


def test_a_database_that_may_not_grow(store: Store) -> None:
    conversation = store.create("m", {})
    with store.claim(conversation) as writer:
        writer.said("user", "before")
        store._database.rows("PRAGMA max_page_count = 40")
        with pytest.raises(StoreError, match="the disk is full"):
            writer.said("user", "x" * 1_000_000)
        assert [m.text for m in store.path(conversation)] == ["before"]
        assert writer.leaf == store.path(conversation)[-1].id
        writer.said("user", "after")
    assert [m.text for m in store.path(conversation)] == ["before", "after"]


# Texts.

anything = st.text(st.characters(exclude_categories=()), max_size=40)
operators = st.sampled_from(
    ['"', "*", "AND", "OR", "NOT", "NEAR(a", ")", "text:", "^", "-", "+", "{", "\0", "'", ";"]
)


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = Store(tmp_path_factory.mktemp("spoken"))
    with store.claim(store.create("m", {}, "t")) as writer:
        writer.said("user", "The Grüße of an a AND b OR c near NOT text")
        writer.said("assistant", "other words")
    yield store
    store.close()


@given(words=st.lists(st.one_of(anything, operators), max_size=8).map(" ".join))
def test_search_takes_anything(spoken: Store, words: str) -> None:
    spoken.search(words)


@pytest.mark.parametrize(
    ("words", "snippet"),
    [
        ("gruss", None),
        ("grusse", None),
        ("GRUße", "The «Grüße» of an a AND b OR c near NOT text"),
        ("of gr", "The «Grüße» «of» an a AND b OR c near NOT text"),
        ("gr of", None),
        ("of nothere", None),
        ("b OR", "The Grüße of an a AND «b» «OR» c near NOT text"),
        ('"of"', "The Grüße «of» an a AND b OR c near NOT text"),
        ("g", None),
        ("of-an", "The Grüße «of an» a AND b OR c near NOT text"),
        ("", None),
    ],
)
def test_search(spoken: Store, words: str, snippet: str | None) -> None:
    """Accents and case do not matter; the last word may be the beginning of one."""
    assert [hit.snippet for hit in spoken.search(words)] == ([snippet] if snippet else [])


@given(text=anything, title=anything)
def test_any_text_is_kept(spoken: Store, text: str, title: str) -> None:
    written = text.encode("utf-8", "replace").decode()
    conversation = spoken.create("m", {}, title)
    with spoken.claim(conversation) as writer:
        writer.said("user", text)
        writer.answering()
        writer.token(1, text)
        writer.finished(text, "eos", 0, 0)
    assert [m.text for m in spoken.path(conversation)] == [written, written]
    spoken.remove(conversation)
