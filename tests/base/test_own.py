"""Folders and files with known names: others may not write there, and no link is followed."""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from storing import created

from h2o_chat.base.errors import StoreError
from h2o_chat.store import DATABASE, Store
from h2o_chat.tui.prompt.prompt_box import FILE, PromptHistory


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A file that must stay as it is."""
    victim = tmp_path / "victim"
    victim.write_text("precious\n")
    yield victim
    assert victim.read_text() == "precious\n"
    assert not victim.is_symlink()


def test_a_lock_that_is_a_link_is_not_followed(store: Store, folder: Path, victim: Path) -> None:
    conversation = created(store, "m", {})
    store.claim(conversation).close()
    (folder / "locks" / conversation).symlink_to(victim)
    with pytest.raises(StoreError, match=r"symbolic link.*remove it"):
        store.claim(conversation)
    with pytest.raises(StoreError, match="symbolic link"):
        store.remove(conversation)


@pytest.mark.parametrize("name", ["locks", "caches"])
def test_a_folder_that_is_a_link_is_not_followed(
    store: Store, folder: Path, name: str, tmp_path: Path
) -> None:
    conversation = created(store, "m", {})
    (tmp_path / "elsewhere").mkdir()
    shutil.rmtree(folder / name, ignore_errors=True)
    (folder / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="symbolic link"):
        (store.claim if name == "locks" else store.caches)(conversation)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("name", [DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm"])
def test_a_database_that_is_a_link_is_not_followed(folder: Path, victim: Path, name: str) -> None:
    folder.mkdir(0o700)
    (folder / name).symlink_to(victim)
    with pytest.raises(StoreError, match="symbolic link"):
        Store(folder)


def test_a_history_that_is_a_link_is_not_followed(folder: Path, victim: Path) -> None:
    folder.mkdir(0o700)
    (folder / FILE).symlink_to(victim)
    history = PromptHistory(folder)
    history.add("hello")
    assert history.older("") == "hello", "in memory alone"


def test_what_others_may_write_is_mended_and_said(folder: Path) -> None:
    Store(folder).close()
    folder.chmod(0o777)
    store = Store(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    assert [note.message for note in store.notes] == [
        f"Others could write in {folder}: that right was taken away."
    ]
    store.close()
    store = Store(folder)
    assert store.notes == []
    store.close()


def test_what_is_not_ours_to_mend_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)  # as /tmp is
    with pytest.raises(StoreError, match=r"others may write there.*--data"):
        Store(shared)
    assert stat.S_IMODE(shared.stat().st_mode) == 0o1777
    shared.chmod(0o777)
    with pytest.raises(StoreError, match=r"everybody may write there.*chmod o-w"):
        Store(shared / "data")
    if os.geteuid() == 0:
        theirs = tmp_path / "theirs"
        theirs.mkdir(0o770)
        os.chown(theirs, 65534, 65534)
        theirs.chmod(0o770)
        with pytest.raises(StoreError, match="others may write there"):
            Store(theirs)
