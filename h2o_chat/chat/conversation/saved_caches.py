"""The files with the cache after an answer: which are kept, and which are removed for room.

A cache can be built again from the words, so words come first.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from h2o_chat.base.errors import StoreError, refusal
from h2o_chat.events.events import Note, Session
from h2o_chat.models.resolve import POCKET
from h2o_chat.store import Store, saved_caches, saved_caches_bytes

if TYPE_CHECKING:  # importing torch takes seconds
    from h2o_chat.engine.row import Row

SAVED_TURNS = 4
"""Saved caches kept of a conversation: going back this many turns needs no reading."""
FULL_BYTES = 4 << 20
"""A disk with less room than this is full."""


def save(store: Store, engine: "Row", path: Path, most_bytes: int) -> None:
    """Saves the cache, and removes the oldest files beyond SAVED_TURNS, and beyond `most_bytes` of all.

    Caches of the conversation that was used longest ago go first, the one just saved last; what is open in
    another process stays. Raises OSError, EngineError, or StoreError if the other files cannot be found.
    """
    engine.save(path)
    older = [file for file in saved_caches(path.parent) if file != path]
    for file in older[: max(0, len(older) + 1 - SAVED_TURNS)]:
        file.unlink(missing_ok=True)
    too_much = saved_caches_bytes(path.parents[2]) - most_bytes
    if too_much > 0:
        for file in [*(one for one in store.removable_caches(path.parent.name) if one != path), path]:
            with suppress(FileNotFoundError):  # somebody else has removed it
                too_much -= file.stat().st_size
                file.unlink()
            if too_much <= 0:
                break


def make_room(store: Store, conversation: str, write: Callable[[], bool]) -> bool:
    """Removes saved caches on a full disk until `write` succeeds, those of `conversation` last.

    Those of open conversations stay. Returns whether all of them were removed.
    """
    if store.folder is None or not _full(store.folder):
        return False
    try:
        for file in store.removable_caches(conversation):
            file.unlink(missing_ok=True)
            if not _full(store.folder) and write():
                return False
        write()
    except (StoreError, OSError):  # the disk has another fault: `write` has told of it
        return False
    return True


def drop_earlier_pocket(store: Store, conversation: str, session: Session) -> Iterator[Note]:
    """Removes the saved caches of a conversation with a pocket of other weights; StoreError: they stay."""
    was = store.last_run(conversation).get("revision", session.revision)
    if session.model != POCKET or was == session.revision:
        return
    try:
        folder = store.caches(conversation)
        for file in saved_caches(folder) if folder else []:
            file.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"An old saved memory cannot be removed: {refusal(error)}.", "") from error
    text = f"This conversation was held with an earlier {POCKET}, whose weights are gone."
    yield Note("pocket", text, f"Every word is kept: the {POCKET} of now reads them again.")


def _full(folder: Path) -> bool:
    return shutil.disk_usage(folder).free < FULL_BYTES
