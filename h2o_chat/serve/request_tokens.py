"""The tokens of a request: those of the messages that were not read before."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

from h2o_chat.base.config import Settings
from h2o_chat.base.utf8 import encoded
from h2o_chat.chat.conversation import loops
from h2o_chat.chat.conversation.message import Message
from h2o_chat.chat.templates.chat_template import Template, literal
from h2o_chat.engine.request import Request, RequestPiece
from h2o_chat.events.events import Note, Session
from h2o_chat.serve.asked import Asked
from h2o_chat.serve.errors import wrong
from h2o_chat.serve.prefixes import Kept
from h2o_chat.serve.retelling import Holding, Known, Places, places_of, retold

PROMPT_TOKENS = 1_000_000
"""A request has at most so many that were not read before."""


def check_length(tokens: int) -> None:
    """
    Raises:
        ApiError: so many tokens are more than a prompt may have.
    """
    if tokens > PROMPT_TOKENS:
        raise wrong(
            "messages",
            f"What was not read before has at least {tokens:,} tokens: {PROMPT_TOKENS:,} is the most.",
        )


@dataclass(frozen=True)
class Prepared:
    """A request in tokens."""

    request: Request
    places: Places | None
    """Where its messages lie; None: not known."""
    notes: list[Note]
    """What is said of recalled words."""


@dataclass(frozen=True)
class Reader:
    """Puts messages into the tokens of one model.

    Args:
        eos: tokens that end an answer.
        longest_token_bytes: of the vocabulary; no text of more bytes is a single token.
    """

    template: Template
    tokenizer: Any
    eos: AbstractSet[int]
    settings: Settings
    session: Session
    longest_token_bytes: int
    known: Known = field(init=False)

    def __post_init__(self) -> None:
        count = lambda text: len(literal(self.tokenizer, text))  # noqa: E731
        object.__setattr__(self, "known", Known(count))

    def prepare(self, asked: Asked, read: int, begin: Kept | None) -> Prepared:
        """
        Args:
            read: so many of the messages are in the memory that it begins with.
            begin: that memory; its state is there.

        Raises:
            ApiError: it is too long; where its bytes alone say so, before it is tokenised.
            UsageError: the model's template does not take the system prompt.
            ModelError: the template or the tokenizer fails.
        """
        state = begin.state if begin else None
        begins = at = state.cache.fed + len(state.pending) if state else 0
        unread_bytes = sum(len(piece) for _, text in asked.messages[read:] for piece in encoded(text))
        check_length(unread_bytes // self.longest_token_bytes)
        places = places_of(state.about, read, at) if state else Places()
        pieces, system, system_tokens, notes = list[RequestPiece](), None, 0, list[Note]()
        for index, (role, text) in list(enumerate(asked.messages))[read:]:
            if role == "system":
                system = text  # read with the first message
                continue
            if index + 1 == len(asked.messages) and places is not None:
                holding = Holding(state, newest_from(at, self.session))
                text, notes = retold(
                    asked.messages, places, holding, self.settings, self.known, self.session.budget
                )
            if role == "assistant":
                ids = literal(self.tokenizer, text)
            elif pieces:
                ids = self.template.later(text).ids
            elif begin is not None:
                ids = self._going_on(text, begin)
            else:
                fed = self.template.first(system, text)
                ids, system_tokens = fed.ids, fed.head if system else 0
                if places is not None and system is not None:
                    places.ends.append(system_tokens)
            pieces.append(RequestPiece(ids, role == "assistant"))
            at += len(ids)
            check_length(at - begins)
            if places is not None:
                places.ends.append(at)
        *before, (_, last) = asked.messages
        loop = loops.loop_in([Message(*one) for one in before], last)
        if loop and loop.begins:
            notes = [*notes, loops.BROKEN]
        stop, marker = asked.sampling.stop, self.template.marker
        sampling = replace(asked.sampling, stop=(*stop, marker)) if marker else asked.sampling
        request = Request(
            pieces,
            sampling,
            asked.seed,
            system_tokens,
            others=loops.tokenized(self.tokenizer, loop.others) if loop and text == last else (),
            gives_up=loop is not None,
            begin=state,
            keep=True,
        )
        return Prepared(request, places, notes)

    def _going_on(self, text: str, begin: Kept) -> list[int]:
        """The ids of a message behind an answer that a memory has read."""
        assert begin.state is not None
        fed, waits = self.template.later(text, begin.marked), begin.state.pending
        if waits and waits[-1] in self.eos and waits[-1] in fed.ids[: fed.head]:
            # The model has closed its answer itself: the template's own closing would say so twice.
            return fed.ids[fed.ids.index(waits[-1]) + 1 :]
        return fed.ids


def newest_from(tokens: int, session: Session) -> int:
    """From which position on all is held for sure, after so many tokens."""
    if session.budget is None or tokens <= session.budget:
        return 0
    return tokens - session.recent
