"""Reads files of texts, or of one JSON object a line, and cuts documents from texts.

A file that cannot be read, or holds something else, raises UsageError.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from h2o_chat.base.errors import UsageError, refusal
from h2o_chat.models.tokenizer_calls import tokens_of
from h2o_chat.store import clean

MAX_BYTES = 256 << 20
"""Largest file that is read."""
Items = TypeVar("Items", Tensor, list[Any])
Item = TypeVar("Item")
HALVES = ("even", "odd")
"""One half to choose on, one to report on."""


def read_texts(path: Path) -> list[str]:
    """A JSON list of strings, or any other file as one text."""
    wanted = "Give a text file, or a .json file with a list of strings."
    try:
        text = _read(path)
        found = json.loads(text) if path.suffix == ".json" else [text]
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read: {refusal(error)}.", wanted) from error
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise UsageError(f"{path} is not a list of strings.", wanted)
    return [clean(one) for one in found]


def read_items(path: Path, kind: type[Item]) -> list[Item]:
    """A file of one JSON object a line, with the fields of a dataclass, which all are texts."""
    try:
        lines = [line for line in _read(path).split("\n") if line.strip()]
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {refusal(error)}.") from error
    names, items = list(kind.__annotations__), []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            given = [row[name] for name in names]
        except (ValueError, TypeError, KeyError, RecursionError):
            given = [None]
        if not all(isinstance(text, str) and clean(text).strip() for text in given):
            hint = f"One JSON object a line, with {', '.join(names)}."
            raise UsageError(f"Line {number} of {path} is no item.", hint)
        items.append(kind(*map(clean, given)))
    if not items:
        raise UsageError(f"{path} holds no items.")
    return items


def _read(path: Path) -> str:
    with path.open("rb") as file:
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES >> 20} MiB")
    return raw.decode("utf-8")


def documents(texts: Sequence[str], tokenizer: Any, length: int) -> Tensor:
    """The texts, each as BOS + " " + text, joined and cut; what is left over is dropped. [N, L]

    Args:
        length: L, tokens of a document.

    Raises:
        UsageError: they do not fill one document.
    """
    start = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
    ids = [token for text in texts for token in (*start, *tokens_of(tokenizer, " " + text))]
    count = len(ids) // length
    if count == 0:
        raise UsageError(
            f"The texts hold {len(ids):,} tokens, one document needs {length:,}.",
            "Give more text or a smaller --length.",
        )
    return torch.tensor(ids[: count * length]).view(count, length)


def half_of(items: Items, half: str | None) -> Items:
    """Every second document, prompt or item, from the first one (`even`: 0, 2, 4 ...) or the second (`odd`).

    Raises:
        UsageError: no such half, or it is empty.
    """
    if half is None:
        return items
    if half not in HALVES:
        raise UsageError(f"--half {half!r} is not known.", f"One of: {', '.join(HALVES)}.")
    chosen = items[HALVES.index(half) :: 2]
    if not len(chosen):
        raise UsageError(f"Of {len(items)} documents none is {half}.", "Give more text or no --half.")
    return chosen
