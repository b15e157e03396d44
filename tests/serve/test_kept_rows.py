"""Memories that the server keeps on disk: place, amount and permissions."""

import os
from pathlib import Path

import pytest
from serving import answered, begun

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import BusyError, SavedCacheError, StoreError
from h2o_chat.engine.batch import Batch
from h2o_chat.engine.engine import Engine
from h2o_chat.models.load import Loaded
from h2o_chat.serve import saved_memories as saved_module
from h2o_chat.serve.api_errors import ApiError
from h2o_chat.serve.prefixes import Memory, tag_of
from h2o_chat.serve.saved_memories import Saved

SETTINGS = Settings(budget=32, threads=1, seed=0, events_every=0)
CONTEXT = b"c" * 32


@pytest.fixture
def saved(loaded: Loaded, tmp_path: Path) -> Saved:
    return Saved(tmp_path, CONTEXT, Batch(loaded, SETTINGS, rows=1))


@pytest.fixture
def kept(loaded: Loaded) -> Memory:
    engine = Engine(loaded, SETTINGS)
    engine.forward([5, 6, 7], prompt=True)
    return Memory(b"k" * 32, True, 3, engine.snapshot())


def test_rows_come_back_in_their_order_and_others_go(saved: Saved, kept: Memory) -> None:
    rows = [
        Memory(bytes([number]) * 32, number == 2, 3, kept.state, tag=tag_of(bytes([number])))
        for number in (3, 1, 2)
    ]
    saved.write_rows(rows)
    found = saved.rows()
    assert [one.chain[0] for one in found] == [3, 1, 2]
    assert [one.turn_marker_fed for one in found] == [False, False, True]
    assert [one.tag for one in found] == [one.tag for one in rows], "whose it is stays known"
    assert {one.state for one in found} == {None}, "they are read when somebody goes on"
    saved.read(found[2])
    assert found[2].tokens == 3
    saved.write_rows([rows[1], found[0]])
    again = saved.rows()
    assert [one.chain[0] for one in again] == [1, 3]
    assert again[1].file == found[0].file, "it is the same file"


def test_files_that_are_none_of_ours_are_left(saved: Saved, kept: Memory) -> None:
    saved.write_rows([kept])
    for name in ("row-x.safetensors", "row-zz-0.safetensors", "notes.txt"):
        (saved.folder / name).write_text("mine")
    assert [one.chain for one in saved.rows()] == [kept.chain]
    (saved.folder / f"row-{'0' * 64}-0.safetensors").write_text("no memory")
    damaged = next(one for one in saved.rows() if one.chain == bytes(32))
    with pytest.raises(SavedCacheError):
        saved.read(damaged)


def test_a_name_is_replaced_and_leads_to_what_its_key_has_saved(saved: Saved, kept: Memory) -> None:
    assert kept.state is not None
    saved.write_session(b"one", "a", kept)
    other = Memory(b"o" * 32, False, 3, kept.state)
    saved.write_session(b"one", "a", other)
    assert saved.session(b"one", "a")[0].chain == other.chain
    assert len(list(saved.folder.glob("session-*"))) == 1
    assert saved.rows() == []
    for owner, name in ((b"two", "a"), (b"one", "b"), (b"", "a"), (b"one", "*"), (b"one", "../a")):
        with pytest.raises(ApiError) as error:
            saved.session(owner, name)
        assert error.value.status == 404


def test_a_key_saves_so_many_sessions(saved: Saved, kept: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_module, "SESSIONS", 2)
    for name in "ab":
        saved.write_session(b"one", name, kept)
    with pytest.raises(ApiError) as error:
        saved.write_session(b"one", "c", kept)
    assert error.value.status == 507
    saved.write_session(b"one", "a", kept)
    saved.write_session(b"two", "c", kept)


async def test_a_damaged_row_is_read_again(
    saved: Saved, loaded: Loaded, capsys: pytest.CaptureFixture[str]
) -> None:
    said = [("user", "My name is Ada.")]
    with begun(loaded, SETTINGS, rows=1) as first:
        end = await answered(first, said)
    saved.write_rows(first.prefixes.all())
    said += [("assistant", end.turn.text), ("user", "What is my name?")]
    for damaged in (False, True):
        (row,) = saved.rows()
        assert row.file is not None
        if damaged:
            raw = bytearray(row.file.read_bytes())
            raw[-100] ^= 255
            row.file.write_bytes(raw)
        with begun(loaded, SETTINGS, rows=1) as second:
            second.load_memory = saved.read
            second.prefixes.add(row)
            end = await answered(second, said)
        assert end.error is None
        assert (end.cached_tokens > 0) is not damaged
    assert "is damaged. The conversation is read again." in capsys.readouterr().err


def test_two_servers_do_not_share_a_folder(saved: Saved, loaded: Loaded, tmp_path: Path) -> None:
    with pytest.raises(BusyError, match="Another server"):
        Saved(tmp_path, CONTEXT, Batch(loaded, SETTINGS, rows=1))
    other = Saved(tmp_path, b"d" * 32, Batch(loaded, SETTINGS, rows=1))
    assert other.folder != saved.folder


def test_links_are_not_followed(saved: Saved, kept: Memory, loaded: Loaded, tmp_path: Path) -> None:
    saved.write_rows([kept])
    (found,) = saved.rows()
    assert found.file is not None
    elsewhere = tmp_path / "elsewhere.safetensors"
    found.file.rename(elsewhere)
    found.file.symlink_to(elsewhere)
    with pytest.raises(StoreError, match="symbolic link"):
        saved.read(found)
    before = elsewhere.read_bytes()
    saved.write_session(b"", "a", kept)
    assert elsewhere.read_bytes() == before
    folder = tmp_path / "linked"
    folder.mkdir()
    (folder / "serve").symlink_to(tmp_path)
    with pytest.raises(StoreError, match="symbolic link"):
        Saved(folder, CONTEXT, Batch(loaded, SETTINGS, rows=1))


def test_what_a_killed_server_left_half_written_goes(loaded: Loaded, tmp_path: Path) -> None:
    folder = tmp_path / "serve" / CONTEXT.hex()[:16]
    folder.mkdir(parents=True)
    (folder / "row-a.safetensors.part").write_text("half")
    os.chmod(tmp_path, 0o700)
    Saved(tmp_path, CONTEXT, Batch(loaded, SETTINGS, rows=1))
    assert [file.name for file in folder.iterdir()] == ["lock"]
