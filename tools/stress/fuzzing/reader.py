"""A reader of the program: its inputs, and the errors that it may raise."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from fuzzing.mutate import mutated
from h2o_chat.base.errors import H2OChatError

LONGEST_COMPLAINT = 4000
"""Characters: whoever reads an error reads a line, not the file that it is about."""

Make = Callable[[Random, Sequence[bytes]], bytes]


@dataclass(frozen=True)
class Reader:
    """One reader; its input is always bytes, so that each can be kept in a file and read again."""

    name: str
    examples: Sequence[bytes]
    """Valid inputs, of which others are made."""
    read: Callable[[bytes], Any]
    """Reads an input and uses what came of it."""
    refuses: type[Exception] = H2OChatError
    """Errors that may be raised: `ValueError` only where its docstring says so."""
    share: float = 1.0
    """How many inputs it gets, to those of others: what takes long gets fewer."""
    make: Make = mutated


class Violation(Exception):
    """Something that no reader may do."""


def accepts(reader: Reader, raw: bytes) -> bool:
    """Whether the input was taken; False if it was refused in words.

    Raises:
        Violation: it was refused without words, or in words that a terminal would obey.
        BaseException: whatever else came out of it, which is a violation as well.
    """
    try:
        reader.read(raw)
    except reader.refuses as error:
        complain(error)
        return False
    return True


def complain(error: Exception) -> None:
    """Looks at what is said.

    Raises:
        Violation: nothing, or too much, or something that a terminal would obey.
    """
    said = f"{error.message}\n{error.hint}" if isinstance(error, H2OChatError) else str(error)
    if not said.strip():
        raise Violation("it was refused without a word") from error
    if len(said) > LONGEST_COMPLAINT:
        raise Violation(f"it was refused in {len(said):,} characters") from error
    if isinstance(error, H2OChatError):
        refuse_controls(said, "the error")


def refuse_controls(text: str, what: str) -> None:
    """Looks for what a terminal would obey.

    Raises:
        Violation: some of it is there.
    """
    obeyed = [one for one in text if (one < " " and one not in "\n\t") or "\x7f" <= one < "\xa0"]
    if obeyed:
        raise Violation(f"{what} holds {obeyed[0]!a}")
