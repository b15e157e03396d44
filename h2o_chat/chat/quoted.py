"""Whether the person said what an answer quotes: a model that has forgotten the words may make some up."""

import re
from collections.abc import Iterator, Sequence

from h2o_chat.chat.message import Message
from h2o_chat.events.events import Note

_QUOTED = re.compile(
    r"""\byou(?:['’]ve|\ have)?\s(?:also\s)?(?:said|told\ me|wrote|mentioned)\b[^"“”]{0,20}["“]([^"“”]+)""",
    re.IGNORECASE | re.VERBOSE,
)
"""`You said: "..."`, up to the closing mark, which is missing where an answer was broken off."""
SHOWN_CHARACTERS = 60
"""Of the quotation, in the note."""


def never_said(answer: str, messages: Sequence[Message]) -> Iterator[Note]:
    """The first thing that an answer quotes and the person never said, however sure it sounds.

    Args:
        messages: all of them, the answer last.
    """
    said = [_plain(one.text) for one in messages if one.role != "assistant"]
    for quotation in _QUOTED.findall(answer):
        if not any(_plain(quotation) in one for one in said):
            shown = " ".join(quotation.split())
            short = shown if len(shown) <= SHOWN_CHARACTERS else f"{shown[: SHOWN_CHARACTERS - 1]}…"
            yield Note(
                "never-said", f"You never said “{short}”: the model made it up.", about=len(messages) - 1
            )
            return


def _plain(text: str) -> str:
    """Without what a quotation may leave out or write otherwise: spaces, capitals, marks at its end."""
    return " ".join(text.casefold().replace("’", "'").split()).strip(" .,;:!?…")
