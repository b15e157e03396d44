"""Disks that are full, files that are damaged, newer or not to be written."""

import os
import resource
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storing import created, ended, intact, start

from h2o_chat.base.errors import StoreError, UsageError
from h2o_chat.store import DATABASE, Store
from h2o_chat.store import records as schema

AS_NOBODY = """
import os, sys
from pathlib import Path
from h2o_chat.store import Store
if os.getuid() == 0:
    os.setuid(65534)  # root may write everywhere
store = Store(Path(sys.argv[1]))
print(store.list()[0].title, len(store.path(sys.argv[2])), len(store.search("hello")))
for write, arguments in (
    (store.begin, ("m", {})), (store.rename, (sys.argv[2], "x")), (store.claim, (sys.argv[2],))
):
    try:
        write(*arguments)
        print("written")
    except Exception as error:
        print(type(error).__name__, error)
"""


def test_a_newer_version_is_refused(folder: Path) -> None:
    Store(folder).close()
    connection = sqlite3.connect(folder / DATABASE)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError, match=r"newer h2o-chat: it has version 99, this one knows \d+. Update"):
        Store(folder)


def test_an_older_file_is_brought_up_to_date(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:])
    monkeypatch.setattr("h2o_chat.store.database.MIGRATIONS", schema.MIGRATIONS)
    now = len(schema.MIGRATIONS)
    store = Store(folder)
    conversation = created(store, "m", {}, "old")
    store.close()
    schema.MIGRATIONS.append(
        "-- a comment; with a semicolon\nALTER TABLE conversations ADD COLUMN star INTEGER;\n"
        "CREATE TRIGGER t AFTER INSERT ON runs BEGIN\n  SELECT 1;\nEND;"
    )
    schema.MIGRATIONS.append("CREATE TABLE extra (id);\nthis is no SQL;")
    with pytest.raises(StoreError, match="syntax error"):
        Store(folder)
    connection = sqlite3.connect(folder / DATABASE)
    assert connection.execute("PRAGMA user_version").fetchone() == (now,), "all or nothing"
    assert "star" not in [row[1] for row in connection.execute("PRAGMA table_info (conversations)")]
    connection.close()
    schema.MIGRATIONS[now + 1] = "CREATE TABLE extra (id);"
    for _ in range(2):
        store = Store(folder)
        assert store.summary(conversation).title == "old"
        assert store._database.rows("SELECT star FROM conversations") == [(None,)]
        assert store._database.rows("PRAGMA user_version") == [(now + 2,)]
        store.close()


def test_a_transaction_that_ended_too_early_is_no_success(store: Store) -> None:
    """A full disk makes SQLite roll back, whoever catches that error."""
    with pytest.raises(StoreError, match="no transaction is active"), store._database.writing() as connection:
        connection.execute("ROLLBACK")
    assert created(store, "m", {}, "the next one")


def older(folder: Path, version: int) -> sqlite3.Connection:
    """A database as this version made it."""
    folder.mkdir(0o700)
    connection = sqlite3.connect(folder / DATABASE)
    for script in schema.MIGRATIONS[:version]:
        connection.executescript(script)
    connection.execute(f"PRAGMA user_version = {version}")
    return connection


def test_messages_of_version_2_keep_their_numbers(folder: Path) -> None:
    """Saved memories are named after them; what is said from then on follows."""
    connection = older(folder, 2)
    for conversation in ("aaaaaaaa", "bbbbbbbb"):
        connection.execute(
            "INSERT INTO conversations VALUES (?, 't', 'm', '{}', 1, 1, NULL)", (conversation,)
        )
    insert = "INSERT INTO messages (id, conversation, parent, role, created, text) VALUES (?, ?, ?, ?, 1, ?)"
    connection.execute(insert, (3, "aaaaaaaa", None, "user", "one"))
    connection.execute(insert, (4, "bbbbbbbb", None, "user", "another"))
    connection.execute(insert, (7, "aaaaaaaa", 3, "assistant", "two"))
    connection.execute("UPDATE conversations SET leaf = 7 WHERE id = 'aaaaaaaa'")
    connection.commit()
    connection.close()
    store = Store(folder)
    with store.claim("aaaaaaaa") as writer:
        assert writer.said("user", "three") == 8
    assert [(m.id, m.parent, m.text) for m in store.path("aaaaaaaa")] == [
        (3, None, "one"),
        (7, 3, "two"),
        (8, 7, "three"),
    ]
    assert [(hit.conversation, hit.message) for hit in store.search("another")] == [("bbbbbbbb", 4)]
    assert intact(folder)
    store.close()


def test_what_was_recalled_in_version_5_is_one_piece(folder: Path) -> None:
    connection = older(folder, 5)
    connection.execute("INSERT INTO conversations VALUES ('aaaaaaaa', 't', 'm', '{}', 1, 1, 3, 0)")
    insert = (
        "INSERT INTO messages (id, conversation, parent, role, created, text, number, recalled,"
        " recalled_from)"
        " VALUES (?, 'aaaaaaaa', ?, 'user', 1, 'hi', ?, ?, ?)"
    )
    for at, (words, number) in enumerate([("", None), ('My dog is "Rexo".', 1), ("[[1, 2]]", None)], 1):
        connection.execute(insert, (at, at - 1 or None, at, words, number))
    connection.commit()
    connection.close()
    store = Store(folder)
    with store.claim("aaaaaaaa") as writer:
        writer.said("user", "who?", recalled=((1, "a"), (None, "b\udcff")))
    found = [one.recalled for one in store.path("aaaaaaaa")]
    assert found == [(), ((1, 'My dog is "Rexo".'),), ((None, "[[1, 2]]"),), ((1, "a"), (None, "b?"))]
    store._database.rows("UPDATE messages SET recalled = 'by hand' WHERE number = 4")
    assert store.path("aaaaaaaa")[-1].recalled == ((None, "by hand"),)
    store.close()


def test_garbage_is_not_touched(folder: Path) -> None:
    folder.mkdir()
    garbage = b"this is no database" * 100
    (folder / DATABASE).write_bytes(garbage)
    with pytest.raises(StoreError, match=r"not a database of h2o-chat .* Move it away") as error:
        Store(folder)
    assert str(folder / DATABASE) in error.value.message
    assert (folder / DATABASE).read_bytes() == garbage


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, str]:
    """A database of one conversation, and its id."""
    folder = tmp_path_factory.mktemp("whole")
    store = Store(folder)
    with store.begin("m", {"a": 1}) as writer:
        for number in range(50):
            writer.said("user", f"some words {number} " * 20, range(20))
        writer.answering()
        writer.token(1, "x")
    store.close()
    return (folder / DATABASE).read_bytes(), writer.conversation


@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
def test_a_truncated_database(tmp_path: Path, written: tuple[bytes, str], share: float) -> None:
    raw, conversation = written
    (tmp_path / DATABASE).write_bytes(raw[: int(len(raw) * share) // 4096 * 4096 + 100])
    with pytest.raises(StoreError, match="damaged") as error:
        Store(tmp_path).path(conversation)
    assert "recover" in error.value.hint


@given(st.data())
def test_damage_anywhere_is_said(
    tmp_path_factory: pytest.TempPathFactory, written: tuple[bytes, str], data: st.DataObject
) -> None:
    """Bytes overwritten at random: what is read is read, and what fails fails as ours."""
    folder, raw, conversation = tmp_path_factory.mktemp("damaged"), bytearray(written[0]), written[1]
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
        with store.claim(created(store, "m", {})) as writer:
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


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that another user comes to. Pytest's are closed again whenever another pytest starts."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize("was_closed", [True, False], ids=["closed", "killed"])
def test_a_folder_that_cannot_be_written(outside: Path, was_closed: bool) -> None:
    folder = outside / "read only"
    folder.mkdir()
    store = Store(folder)
    conversation = created(store, "m", {}, "old")
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
    assert all(line.startswith("DiskError") and "--data" in line for line in out[1:]), out
    assert len(out) == 4


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"file is a file, not a folder\..*--data"):
        Store(tmp_path / "file" / "data")


def test_a_full_disk_leaves_no_hole(store: Store, folder: Path) -> None:
    """Changes that could not be written are written when there is space again."""
    with store.begin("m", {}) as writer:
        writer.answering()
        writer.token(0, " 0")
        usual = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, ((folder / f"{DATABASE}-wal").stat().st_size, usual[1]))
        try:
            for number in range(1, 4):
                writer.token(number, f" {number}")
                said = str(writer.backlog.trouble)
                assert "disk" in said
                assert "what was stored before is safe" in said
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, usual)
        writer.token(4, " 4")
        writer.finished(" 0 1 2 3 4", "eos", 0, 4)
    [answer] = store.path(writer.conversation)
    assert (answer.text, answer.ids, answer.finish) == (" 0 1 2 3 4", (0, 1, 2, 3, 4), "eos")
    assert intact(folder)


def test_a_database_that_may_not_grow(store: Store) -> None:
    """Changes that do not fit wait in order, with all later ones, until there is room."""
    with store.begin("m", {}) as writer:
        writer.said("user", "before")
        store._database.rows("PRAGMA max_page_count = 50")
        writer.said("user", "Much. " * 200_000)
        assert "the disk is full" in str(writer.backlog.trouble)
        assert (
            writer.backlog.words
            == "1 message (the first: 'Much. Much. Much. Much. Much. Much. Much. Much. Much. Much.…')"
        )
        assert [m.text for m in store.path(writer.conversation)] == ["before"]
        last = writer.said("user", "after")
        assert [m.text for m in store.path(writer.conversation)] == ["before"]
        store._database.rows("PRAGMA max_page_count = 5000")
        assert writer.backlog.flush()
        assert writer.backlog.trouble is None
        assert writer.leaf == last
    assert [m.text[:6] for m in store.path(writer.conversation)] == ["before", "Much. ", "after"]
