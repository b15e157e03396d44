"""Saved memories that cannot be used: what is wrong is said, and the conversation goes on."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from stored_chats import (
    SAID,
    SETTINGS,
    close,
    codes,
    conversation_of,
    loaded,
    newest,
    open_chat,
    resumed,
    say,
    store,
)

from h2o_chat.base.errors import SavedCacheError
from h2o_chat.engine.engine import Engine
from h2o_chat.models.load import Loaded
from h2o_chat.store import Store

__all__ = ["loaded", "store"]


@pytest.mark.parametrize(
    "harm",
    [
        "missing",
        "empty",
        "cut",
        "flipped",
        "no header",
        "other format",
        "other budget",
        "shape",
        "slot",
        "nan",
        "far",
        "far base",
        "texts",
        "layers",
    ],
)
def test_a_memory_that_cannot_be_used_is_rebuilt(loaded: Loaded, store: Store, harm: str) -> None:
    chat = open_chat(loaded, store)
    for text in SAID[:2]:
        say(chat, text)
    conversation = close(chat)
    settings = SETTINGS
    for file in store.caches(conversation).iterdir():
        raw = file.read_bytes()
        if harm == "missing":
            file.unlink()
        elif harm == "other budget":
            settings = replace(SETTINGS, budget=64)
        elif harm in ("empty", "cut", "flipped", "no header"):
            middle = len(raw) // 2
            flipped = raw[:middle] + bytes([raw[middle] ^ 1]) + raw[middle + 1 :]
            file.write_bytes(
                {"empty": b"", "cut": raw[:middle], "flipped": flipped, "no header": b"\xff" * 99}[harm]
            )
        else:
            craft(file, harm)
    again = open_chat(loaded, store, conversation, settings)
    assert again.resume(lambda _: None)
    assert codes(again)[-1] == "rebuilt"
    assert set(codes(again)) <= {"rebuilt", "saved-cache"}
    assert again.engine.cache.fed == chat.engine.cache.fed
    assert say(again, SAID[6])


def craft(file: Path, harm: str) -> None:
    """A file whose checks are right and whose content is not: somebody made it."""
    from safetensors import safe_open

    from h2o_chat.engine.saved_cache import _check

    with safe_open(file, framework="pt") as opened:
        about = json.loads(opened.metadata()["h2o-chat"])
    tensors = load_file(file)
    if harm == "other format":
        about["format"] = 99
    elif harm == "shape":
        tensors["0.keys"] = tensors["0.keys"][..., :4].contiguous()
    elif harm == "slot":
        tensors["0.positions"] = torch.full_like(tensors["0.positions"], 10**6)
    elif harm == "nan":
        tensors["0.score"][0, 0, 0] = torch.nan
    elif harm in ("far", "far base"):  # keys would be turned by ever more positions
        about["fed"] = about["clock"]["seen"] = about["clock"]["near_from"] = 1_431_656_000
        about["clock"]["base"] = 0 if harm == "far" else about["fed"]
    elif harm == "order":
        for name in [name for name in tensors if name[0].isdigit() and not name.endswith("lost")]:
            tensors[name] = tensors[name].flip(3).contiguous()
    elif harm == "texts":
        tensors["texts"] = tensors["texts"][:, :1].contiguous()
    elif harm == "layers":
        about["parts"] = [list(reversed(part)) for part in about["parts"]]
    about["checks"] = {name: _check(tensor) for name, tensor in tensors.items()}
    save_file(tensors, file, metadata={"h2o-chat": json.dumps(about)})


def test_tokens_that_do_not_stand_where_they_were_written_are_refused(loaded: Loaded, tmp_path: Path) -> None:
    """Until something is given up only the first slots are looked at."""
    engine, file = Engine(loaded, SETTINGS), tmp_path / "memory"
    engine.forward([5, 6, 7])
    engine.save(file)
    Engine(loaded, SETTINGS).load(file)
    craft(file, "order")
    with pytest.raises(SavedCacheError, match="first slots"):
        Engine(loaded, SETTINGS).load(file)


def test_what_is_wrong_with_a_file_is_said(loaded: Loaded, store: Store) -> None:
    chat = open_chat(loaded, store)
    say(chat, SAID[0])
    file = newest(store, close(chat))
    with pytest.raises(SavedCacheError, match="budget was 48, now it is 64"):
        Engine(loaded, replace(SETTINGS, budget=64)).load(file)
    craft(file, "slot")
    with pytest.raises(SavedCacheError, match="not those of the tokens fed"):
        Engine(loaded, SETTINGS).load(file)


@pytest.mark.parametrize(("damaged", "hints"), [(1, 1), (2, 0)])
def test_what_was_done_instead_is_said(loaded: Loaded, store: Store, damaged: int, hints: int) -> None:
    chat = open_chat(loaded, store)
    for text in SAID[:2]:
        say(chat, text)
    files = sorted(store.caches(close(chat)).iterdir(), key=lambda file: int(file.stem))
    for file in files[-damaged:]:
        file.write_bytes(file.read_bytes()[:999])
    again = resumed(loaded, store, conversation_of(chat))
    notes = [note for note in again.keeper.notes if note.code == "saved-cache"]
    assert [note.message for note in notes] == [f"The saved memory {files[-1].name} is damaged."]
    assert sum("the memory is the same" in note.hint for note in notes) == hints
    assert codes(again)[1:] == ([] if hints else ["rebuilt"])
