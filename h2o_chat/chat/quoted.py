"""Whether the person said what an answer quotes: a model that has forgotten the words may make some up."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import islice

from h2o_chat.chat.message import Message
from h2o_chat.events.events import Note

_QUOTED = re.compile(
    r"""
    (?:^|[.!?,;:\n]\s*|\band\s)  # a clause begins: "the film that you mentioned" is no quotation
    you(?:['’]ve|\ have)?\s(?:also\s)?(?:said|told\ me|wrote|mentioned)(?:\sthat)?[:,]?\s
    [*_]*["“](?=\S)([^"“”]+)(["”]?)
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""`You said: "..."`; the closing mark is missing where an answer was broken off."""
_LEFT_OUT = re.compile(r"\.\.\.|…")
MOST = 8
"""Quotations of an answer that are looked up."""
SHOWN_CHARACTERS = 60
"""Of the quotation, in the note."""


def never_said(answer: str, messages: Sequence[Message]) -> Iterator[Note]:
    """The first thing that an answer quotes and the person never said, however sure it sounds.

    Words are compared, not marks: a quotation may write those otherwise, and leave out something in between.

    Args:
        messages: all of them, the answer last.
    """
    quoted = [(one[1], bool(one[2])) for one in islice(_QUOTED.finditer(answer), MOST)]
    if not quoted:  # as nearly always: then nothing is looked at
        return
    said = [_words(_fed(one)) for one in messages if one.role != "assistant"]
    for quotation, ended in quoted:
        if not all(_stands_in(said, part, ended) for part in _LEFT_OUT.split(quotation)):
            shown = " ".join(quotation.split())
            short = shown if len(shown) <= SHOWN_CHARACTERS else f"{shown[: SHOWN_CHARACTERS - 1]}…"
            yield Note(
                "never-said",
                f"The model may have made this up: no message of yours has the words “{short}”",
                about=len(messages) - 1,
            )
            return


def _fed(message: Message) -> str:
    """What the model read as the person's: also what it was told again."""
    return message.recalled.before(message.text) if message.recalled else message.text


def _stands_in(said: Sequence[str], part: str, ended: bool) -> bool:
    """Whether a part of a quotation stands in one message, word for word; the last may be broken off."""
    words = _words(part).rstrip() + (" " if ended else "")
    return any(words in one for one in said)


def _words(text: str) -> str:
    """The words of a text, whatever their marks and capitals, with a blank before and behind each."""
    words = re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold())
    return f" {' '.join(words)} "
