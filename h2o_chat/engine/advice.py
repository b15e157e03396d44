"""What a person should know about the room in the memory, in words."""

from collections.abc import Iterator

from h2o_chat.events.events import Note, Prompt, Session
from h2o_chat.models.fits import mb


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


def pinned(number: int, on: bool, tokens: int, held: int, slots: int, left: int | None) -> Note:
    """What it costs that a message was pinned (`on`), or that it is no longer.

    Args:
        tokens: of the message.
        held: of these, the ones that are left somewhere.
        slots: protected ones of the fullest cache.
        left: slots for heavy hitters; None without a limit.
    """
    what = f"{held} tokens stay" if held == tokens else f"{held} of its {tokens} tokens are left and stay"
    said = f"is pinned: {what}." if on else "is no longer pinned."
    room = "" if left is None else f", {left:,} are left for heavy hitters"
    code, text = "pinned" if on else "unpinned", f"Message {number} {said} {slots:,} slots protected{room}."
    return Note(code, text, about=number)


def smaller(session: Session, slot_bytes: int, itemsize: int, seen: int, can_be_halved: bool) -> str:
    """What to ask for where a device was too small, in numbers of this model.

    Args:
        slot_bytes: of one slot in every layer and KV head.
        itemsize: bytes of a number in the precision that is computed in.
        seen: tokens fed so far.
        can_be_halved: half of the budget still holds sinks and recent tokens.
    """
    if session.budget is None:
        half = max(64, seen // 2)
        size = mb(half * slot_bytes)
        return f"The full cache grows with every token: --policy h2o --budget {half} stays below {size}."
    fewer = f"--budget {session.budget // 2} needs half of that" if can_be_halved else "they cannot be fewer"
    more = [f"--chunk {session.chunk // 2} reads prompts in smaller parts"] if session.chunk > 16 else []
    more = ["--prefill chunked reads prompts in parts"] if session.prefill == "full" else more
    more += ["--kv-dtype int8 makes slots smaller"] if session.kv_dtype == session.dtype else []
    more += ["--dtype bfloat16 halves slots and weights"] if itemsize > 2 else []
    more += ["--quantize nf4 makes the weights smaller"] if session.quantization == "none" else []
    return (
        f"The {session.budget:,} slots take {mb(session.budget * slot_bytes)}, and as much again so that a"
        f" turn can be taken back: {fewer}. Else: {'; '.join(more) or 'a smaller model'}."
    )
