"""What a person should know about the room in the memory, in words."""

from collections.abc import Iterator

from h2o_chat.events import Note, Prompt
from h2o_chat.message import Message


def too_small(prompt: Prompt, budget: int, protected: int, fits: int | None) -> Iterator[Note]:
    """What of a prompt that was just read the budget cannot hold, and what would.

    Args:
        protected: slots of the fullest cache that are.
        fits: the smallest budget that would protect all of the system prompt; None: no budget.
    """
    if prompt.system > protected:
        yield Note(
            "small-budget",
            f"The system prompt has {prompt.system:,} tokens. The first {protected:,} are protected, the"
            " others can be forgotten.",
            f"A budget of {fits:,} would protect it all." if fits else "",
        )
    if prompt.tokens > budget:
        yield Note(
            "small-budget",
            f"{prompt.tokens:,} tokens were read at once, and each cache keeps {budget:,}: part of it is"
            " forgotten already.",
            f"A budget of {prompt.tokens + budget // 2:,} would hold it.",
        )


def pinned(number: int, message: Message, tokens: int, slots: int, left: int | None) -> Note:
    """What it costs that a message was pinned, or that it is no longer.

    Args:
        tokens: of the message, that are still held.
        slots: protected ones of the fullest cache.
        left: slots for heavy hitters; None without a limit.
    """
    of = message.last - message.first + 1
    what = f"{tokens} tokens stay" if tokens == of else f"{tokens} of its {of} tokens are left and stay"
    said = f"is pinned: {what}." if message.pinned else "is no longer pinned."
    room = "" if left is None else f", {left:,} are left for heavy hitters"
    return Note(
        "pinned" if message.pinned else "unpinned",
        f"Message {number} {said} {slots:,} slots protected{room}.",
    )
