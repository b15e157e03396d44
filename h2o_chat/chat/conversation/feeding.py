"""The tokens that a turn feeds to the engine, and notes where they leave the cache too little room."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from h2o_chat.base.errors import BudgetError
from h2o_chat.chat.conversation import advice
from h2o_chat.chat.conversation.message import Recalled
from h2o_chat.chat.templates.chat_template import Template
from h2o_chat.events.events import Note, Prompt

if TYPE_CHECKING:  # importing torch takes seconds
    from h2o_chat.engine.engine import Engine


def turn_tokens(
    engine: "Engine", template: Template, system: str | None, text: str, marked: bool
) -> tuple[list[int], int]:
    """The tokens of a turn, and how many of them are the protected system prompt.

    Args:
        marked: the last answer ended in the marker that the next turn begins with: it was fed already.
    """
    pending = engine.pending
    if not engine.seen and not pending:
        fed = template.first(system, text)
        system_tokens = fed.head if system else 0
        engine.protect(system_tokens)
        return fed.ids, system_tokens
    fed = template.later(text, marked)
    if pending and pending[-1] in engine.eos and pending[-1] in fed.ids[: fed.head]:
        # The model has closed its answer itself: the template's own closing would say so twice.
        return fed.ids[fed.ids.index(pending[-1]) + 1 :], 0
    return fed.ids, 0


def pin_before(engine: "Engine", place: range, recalled: Sequence[Recalled]) -> None:
    """Protects a message that is about to be read.

    Args:
        place: positions of its tokens.
        recalled: what is read once more with it, which is among them.

    Raises:
        BudgetError: so many tokens cannot be protected.
    """
    try:
        engine.pin(place)
    except BudgetError as error:
        if not recalled:
            raise
        what = f"The {len(place):,} tokens of your message include what is recalled with it."
        raise BudgetError(error.message, f"{error.hint} {what}") from error


def longer_than_budget(engine: "Engine", ids: list[int]) -> Iterator[Note]:
    """See `advice.longer_than`."""
    return advice.longer_than(len(engine.pending) + len(ids), engine.session)


def too_small(engine: "Engine", prompt: Prompt) -> Iterator[Note]:
    """See `advice.too_small`; nothing where the cache keeps all."""
    budget = engine.session.budget
    if budget is not None:
        protected, _ = engine.protection()
        fits = engine.budget_for(prompt.system) if prompt.system > protected else None
        fits = fits if fits and fits <= engine.session.window else None
        yield from advice.too_small(prompt, budget, protected, fits)
