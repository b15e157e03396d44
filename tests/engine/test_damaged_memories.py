"""Saved memories that cannot be used: what is wrong is said, and the conversation goes on."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from crafted import craft
from stored_chats import (
    SAID,
    SETTINGS,
    close,
    codes,
    conversation_of,
    loaded,
    resumed,
    say,
    talked,
)

from h2o_chat.base.errors import SavedCacheError
from h2o_chat.engine.engine import Engine
from h2o_chat.models.load import Loaded
from h2o_chat.store import Store

__all__ = ["loaded"]


def beyond(_: Any, tensors: dict[str, torch.Tensor]) -> None:
    """Tokens that were never fed."""
    tensors["0.positions"].fill_(10**6)


def other_way_round(_: Any, tensors: dict[str, torch.Tensor]) -> None:
    """Tokens do not stand where they were written."""
    for name in [name for name in tensors if name[0].isdigit() and not name.endswith("lost")]:
        tensors[name] = tensors[name].flip(3).contiguous()


@pytest.mark.parametrize(
    "harm", ["missing", "empty", "cut", "flipped", "no header", "other budget", "crafted"]
)
def test_a_memory_that_cannot_be_used_is_rebuilt(loaded: Loaded, store: Store, harm: str) -> None:
    """More crafted files: `test_saved.py`."""
    chat = talked(loaded, store, 2)
    conversation = close(chat)
    settings = replace(SETTINGS, budget=64) if harm == "other budget" else SETTINGS
    for file in store.caches(conversation).iterdir():
        raw = file.read_bytes()
        middle = len(raw) // 2
        flipped = raw[:middle] + bytes([raw[middle] ^ 1]) + raw[middle + 1 :]
        written = {"empty": b"", "cut": raw[:middle], "flipped": flipped, "no header": b"\xff" * 99}
        if harm == "missing":
            file.unlink()
        elif harm == "crafted":
            craft(file, beyond)
        elif harm in written:
            file.write_bytes(written[harm])
    again = resumed(loaded, store, conversation, settings)
    assert codes(again)[-1] == "rebuilt"
    assert set(codes(again)) <= {"rebuilt", "saved-cache"}
    assert again.engine.cache.fed == chat.engine.cache.fed
    assert say(again, SAID[6])


def test_what_is_wrong_with_a_file_is_said(loaded: Loaded, tmp_path: Path) -> None:
    """Until something is given up only the first slots are looked at."""
    engine, file = Engine(loaded, SETTINGS), tmp_path / "memory"
    engine.forward([5, 6, 7])
    engine.save(file)
    Engine(loaded, SETTINGS).load(file)
    with pytest.raises(SavedCacheError, match="budget was 48, now it is 64"):
        Engine(loaded, replace(SETTINGS, budget=64)).load(file)
    for harm, said in ((other_way_round, "first slots"), (beyond, "not those of the tokens fed")):
        craft(file, harm)
        with pytest.raises(SavedCacheError, match=said):
            engine.load(file)


@pytest.mark.parametrize(("damaged", "hints"), [(1, 1), (2, 0)])
def test_what_was_done_instead_is_said(loaded: Loaded, store: Store, damaged: int, hints: int) -> None:
    chat = talked(loaded, store, 2)
    files = sorted(store.caches(close(chat)).iterdir(), key=lambda file: int(file.stem))
    for file in files[-damaged:]:
        file.write_bytes(file.read_bytes()[:999])
    again = resumed(loaded, store, conversation_of(chat))
    notes = [note for note in again.keeper.notes if note.code == "saved-cache"]
    assert [note.message for note in notes] == [f"The saved memory {files[-1].name} is damaged."]
    assert sum("the memory is the same" in note.hint for note in notes) == hints
    assert codes(again)[1:] == ([] if hints else ["rebuilt"])
