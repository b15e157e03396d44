"""Where the lock and the saved caches of a conversation lie in a data folder."""

import shutil
from pathlib import Path

from h2o_chat.base.own import no_link, own_folder
from h2o_chat.store.database import explained
from h2o_chat.store.lock import Lock, held


class Places:
    """Paths below one data folder.

    Raises:
        StoreError: from the methods that make or remove something: it cannot be done.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def lock_file(self, conversation: str) -> Path:
        return self._folder / "locks" / conversation

    def is_held(self, conversation: str) -> bool:
        """Whether somebody has it."""
        return held(self.lock_file(conversation))

    def cache_folder(self, conversation: str) -> Path:
        return self._folder / "caches" / conversation

    def lock(self, conversation: str) -> Lock:
        """Takes a conversation.

        Raises:
            Held: somebody has it.
        """
        path = self.lock_file(conversation)
        with explained(path):
            no_link(path.parent)
            own_folder(path.parent)
            return Lock(path)

    def made_cache_folder(self, conversation: str) -> Path:
        """The folder of saved caches, made when first asked for."""
        folder = self.cache_folder(conversation)
        with explained(folder):
            for one in (folder.parent, folder):
                no_link(one)
                own_folder(one)
        return folder

    def remove_caches(self, conversation: str) -> None:
        """Its saved caches, with their folder."""
        with explained(self._folder):
            if self.cache_folder(conversation).exists():
                shutil.rmtree(self.cache_folder(conversation))


def saved_caches(folder: Path) -> list[Path]:
    """Those of one conversation, by the number of their message: clocks go backwards, numbers do not."""
    files = [file for file in folder.glob("*.safetensors") if file.stem.isdecimal()]
    return sorted(files, key=lambda file: int(file.stem))
