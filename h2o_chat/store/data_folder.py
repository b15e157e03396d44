"""Paths of the lock and the saved caches of a conversation in a data folder."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from h2o_chat.base.private_files import no_link, own_folder
from h2o_chat.store.lock import Lock, held
from h2o_chat.store.store_errors import explained


class DataFolder:
    """Locks and saved caches in one data folder.

    Args:
        folder: None: the store is in memory: nothing is locked and no cache is saved.

    Raises:
        StoreError: from methods that create or remove files: the disk does not allow it.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def lock_file(self, conversation: str) -> Path | None:
        return self._folder / "locks" / conversation if self._folder else None

    def is_held(self, conversation: str) -> bool:
        """Whether a process holds the conversation; in memory that is always this one."""
        path = self.lock_file(conversation)
        return path is None or held(path)

    def cache_folder(self, conversation: str) -> Path | None:
        return self._folder / "caches" / conversation if self._folder else None

    def lock(self, conversation: str) -> Lock:
        """Locks a conversation.

        Raises:
            Held: another holder has it.
        """
        if (path := self.lock_file(conversation)) is None:
            return Lock(None)
        with explained(path):
            no_link(path.parent)
            own_folder(path.parent)
            return Lock(path)

    def made_cache_folder(self, conversation: str) -> Path | None:
        """The folder of saved caches, created if needed; None in memory."""
        if (folder := self.cache_folder(conversation)) is None:
            return None
        with explained(folder):
            for one in (folder.parent, folder):
                no_link(one)
                own_folder(one)
        return folder

    def remove_caches(self, conversation: str) -> None:
        """Removes the saved caches of a conversation, with their folder."""
        if (folder := self.cache_folder(conversation)) and folder.exists():
            with explained(folder):
                shutil.rmtree(folder)

    def removable_caches(self, others: Sequence[str], ours: str) -> Iterator[Path]:
        """Saved caches that may be removed, in this order: of unknown conversations, of `others`, of `ours`.

        Conversations that another process holds are left out.
        """
        there = {folder.name for folder in self._folder.glob("caches/*")} if self._folder else set()
        for conversation in [*sorted(there - {*others, ours}), *others, ours]:
            if (folder := self.cache_folder(conversation)) and (
                conversation == ours or not self.is_held(conversation)
            ):
                yield from saved_caches(folder)


def saved_caches_bytes(folder: Path) -> int:
    """Bytes of all saved caches in a data folder."""
    found = 0
    for file in folder.glob("caches/*/*"):
        with suppress(FileNotFoundError):  # removed by another process
            found += file.stat().st_size
    return found


def saved_caches(folder: Path) -> list[Path]:
    """Saved caches of one conversation, by number of their message: unlike clocks, it only increases."""
    files = [file for file in folder.glob("*.safetensors") if file.stem.isdecimal()]
    return sorted(files, key=lambda file: int(file.stem))
