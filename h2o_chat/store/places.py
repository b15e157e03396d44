"""Where the lock and the saved caches of a conversation lie in a data folder."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from h2o_chat.base.own import no_link, own_folder
from h2o_chat.store.explained import explained
from h2o_chat.store.lock import Lock, held


class Places:
    """Paths below one data folder.

    Args:
        folder: None: everything is in memory, so nothing is locked and no cache is saved.

    Raises:
        StoreError: from the methods that make or remove something: it cannot be done.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def lock_file(self, conversation: str) -> Path | None:
        return self._folder / "locks" / conversation if self._folder else None

    def is_held(self, conversation: str) -> bool:
        """Whether somebody has it; in memory nobody but this process can."""
        path = self.lock_file(conversation)
        return path is None or held(path)

    def cache_folder(self, conversation: str) -> Path | None:
        return self._folder / "caches" / conversation if self._folder else None

    def lock(self, conversation: str) -> Lock:
        """Takes a conversation.

        Raises:
            Held: somebody has it.
        """
        if (path := self.lock_file(conversation)) is None:
            return Lock(None)
        with explained(path):
            no_link(path.parent)
            own_folder(path.parent)
            return Lock(path)

    def made_cache_folder(self, conversation: str) -> Path | None:
        """The folder of saved caches, made when first asked for."""
        if (folder := self.cache_folder(conversation)) is None:
            return None
        with explained(folder):
            for one in (folder.parent, folder):
                no_link(one)
                own_folder(one)
        return folder

    def remove_caches(self, conversation: str) -> None:
        """Its saved caches, with their folder."""
        if (folder := self.cache_folder(conversation)) and folder.exists():
            with explained(folder):
                shutil.rmtree(folder)

    def removable_caches(self, others: Sequence[str], ours: str) -> Iterator[Path]:
        """Saved caches of none of these conversations, of `others`, then of `ours`; not what others hold."""
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
    """Those of one conversation, by the number of their message: clocks go backwards, numbers do not."""
    files = [file for file in folder.glob("*.safetensors") if file.stem.isdecimal()]
    return sorted(files, key=lambda file: int(file.stem))
