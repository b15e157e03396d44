"""The tokens of a request: those of the messages that were not read before."""

from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from h2o_chat.chat.templates import Template, literal
from h2o_chat.engine.request import Piece, Request
from h2o_chat.serve.asked import Asked
from h2o_chat.serve.prefixes import Kept


def request_of(
    asked: Asked,
    read: int,
    begin: Kept | None,
    template: Template,
    tokenizer: Any,
    eos: AbstractSet[int],
) -> Request:
    """A request in tokens.

    Args:
        read: so many of the messages are in the memory that it begins with.
        begin: that memory; its state is there.
        eos: tokens that end an answer.

    Raises:
        UsageError: the model's template does not take the system prompt.
        ModelError: the template or the tokenizer fails.
    """
    messages = list(asked.messages[read:])
    pieces, system_tokens, state = [], 0, None
    if begin is None:
        system = messages.pop(0)[1] if messages[0][0] == "system" else None
        first = template.first(system, messages.pop(0)[1])
        pieces, system_tokens = [Piece(first.ids)], first.head if system else 0
    else:
        assert begin.state is not None
        state = begin.state
        fed, waits = template.later(messages.pop(0)[1], begin.marked), state.pending
        if waits and waits[-1] in eos and waits[-1] in fed.ids[: fed.head]:
            # The model has closed its answer itself: the template's own closing would say so twice.
            pieces = [Piece(fed.ids[fed.ids.index(waits[-1]) + 1 :])]
        else:
            pieces = [Piece(fed.ids)]
    for role, text in messages:
        answer = role == "assistant"
        ids = literal(tokenizer, text) if answer else template.later(text).ids
        pieces.append(Piece(ids, answer))
    stop = asked.sampling.stop
    sampling = replace(asked.sampling, stop=(*stop, template.marker)) if template.marker else asked.sampling
    return Request(pieces, sampling, asked.seed, system_tokens, begin=state, keep=True)
