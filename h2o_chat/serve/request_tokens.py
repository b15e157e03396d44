"""Tokenises the messages of a request that were not read before."""

from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from h2o_chat.base.config import Settings
from h2o_chat.base.utf8 import encoded
from h2o_chat.chat.conversation import loops
from h2o_chat.chat.conversation.message import Message
from h2o_chat.chat.recall.index import rarity_of
from h2o_chat.chat.templates.chat_template import PlainTemplate, Template, literal
from h2o_chat.chat.templates.tool_form import RESULTS, THEN, ToolForm
from h2o_chat.engine.request import Request, RequestPiece, Wishes
from h2o_chat.events.events import Note, Session
from h2o_chat.serve.api_errors import wrong
from h2o_chat.serve.chat_request import ChatRequest
from h2o_chat.serve.prefixes import Memory
from h2o_chat.serve.request_queue import Ticket
from h2o_chat.serve.server_recall import (
    HeldTokens,
    LastConversation,
    MessagePositions,
    positions_of_json,
    with_recalled,
)

if TYPE_CHECKING:
    from h2o_chat.engine.grammar import Grammars

PROMPT_TOKENS = 1_000_000
"""Most tokens of a request that were not read before."""


def check_length(tokens: int) -> None:
    """Raises ApiError if there are more than PROMPT_TOKENS."""
    if tokens > PROMPT_TOKENS:
        what = f"What was not read before has at least {tokens:,} tokens: {PROMPT_TOKENS:,} is the most."
        raise wrong("messages", what)


class Reader:
    """Tokenises requests for one model, one at a time.

    Args:
        eos: tokens that end an answer.
        longest_token_bytes: bytes of the longest token in the vocabulary.
    """

    def __init__(
        self,
        tokenizer: Any,
        eos: AbstractSet[int],
        settings: Settings,
        session: Session,
        grammars: "Grammars",
        longest_token_bytes: int,
    ) -> None:
        self._tokenizer, self._eos, self._grammars = tokenizer, eos, grammars
        self._settings, self._session = settings, session
        self._longest_token_bytes = longest_token_bytes
        self._known = LastConversation(
            lambda text: len(literal(tokenizer, text)), lambda text: rarity_of(literal(tokenizer, text))
        )

    def prepare(self, ticket: Ticket, template: Template, read: int, begin: Memory | None) -> Request:
        """Tokenises a request; sets the ticket's `places` and `notes`.

        Args:
            template: with thoughts switched as the request asks.
            read: number of messages that the memory `begin` has read.
            begin: a loaded memory, or None.

        Raises:
            ApiError: it is too long; raised before tokenising if its bytes show that.
            UsageError: the model's template refuses the system prompt.
            ModelError: the template or the tokenizer fails.
        """
        asked, form = ticket.asked, ticket.form
        state = begin.state if begin else None
        begins = at = state.cache.fed + len(state.pending) if state else 0
        unread_bytes = sum(len(piece) for _, text in asked.messages[read:] for piece in encoded(text))
        check_length(unread_bytes // self._longest_token_bytes)
        places = positions_of_json(state.about, read, at) if state else MessagePositions()
        pieces, system, system_tokens, notes = list[RequestPiece](), None, 0, list[Note]()
        for index, (role, text) in list(enumerate(asked.messages))[read:]:
            if role == "system":
                system = text  # read with the first message
                continue
            if index + 1 == len(asked.messages) and places is not None and role == "user":
                budget = self._session.budget
                newest = 0 if budget is None or at <= budget else at - self._session.recent
                holding = HeldTokens(state, newest)
                text, notes = with_recalled(
                    asked.messages, places, holding, self._settings, self._known, budget
                )
            if role == "assistant":
                ids = literal(self._tokenizer, text)
            elif pieces or begin is not None:
                ids = self._following(form, template, role, text, None if pieces else begin)
            elif role == "text":
                ids = PlainTemplate(self._tokenizer).first(None, text).ids
            else:
                fed = template.first(system, text, asked.tools.tools if form.native else ())
                ids, system_tokens = fed.ids, fed.tokens_before_text if system else 0
                if places is not None and system is not None:
                    places.ends.append(system_tokens)
            pieces.append(RequestPiece(ids, role == "assistant"))
            at += len(ids)
            check_length(at - begins)
            if places is not None:
                places.ends.append(at)
        *before, (role, last) = asked.messages
        free = role == "user" and not asked.tools.grammar
        # A call without a result is no answer either: a client that forces calls may leave results out.
        said = [Message("call" if _is_call(form, *one) else one[0], one[1]) for one in before] if free else []
        loop = loops.loop_in(said, last, template.thinking)
        if loop and loop.begins:
            notes = [*notes, loops.BROKEN]
        bias = asked.wishes.get("bias", {})
        if wrong_ids := [number for number in bias if number >= len(self._tokenizer)]:
            what = f"logit_bias names token {wrong_ids[0]:,}: there are {len(self._tokenizer):,}."
            raise wrong("logit_bias", what)
        grammar = self._grammars.compiled(asked.tools.grammar) if asked.tools.grammar else None
        stop, marker = asked.sampling.stop, template.marker
        sampling = replace(asked.sampling, stop=(*stop, marker)) if marker else asked.sampling
        thinking, thoughts = template.thinking, list[range]()
        if role == "user" and places is not None:
            thoughts = [thinking.place(at, tokens) for at, tokens in places.thoughts]
            places.thoughts = []
        ticket.places, ticket.notes = places, [*asked.notes, *notes]
        return Request(
            pieces,
            sampling,
            asked.seed,
            system_tokens,
            others=loops.tokenized(self._tokenizer, self._eos, loop.others) if loop and text == last else (),
            wishes=Wishes(**asked.wishes, grammar=grammar),
            evicts_generated=loop is not None,
            openings=_openings(template, asked, places) if loop else (),
            thoughts=thoughts,
            drops_thoughts=thinking.drops,
            shown=thinking.special,
            begin=state,
            keep=True,
        )

    def _following(
        self, form: ToolForm, template: Template, role: str, text: str, begin: Memory | None
    ) -> list[int]:
        """Ids of a user's message, or of results, that follows an answer.

        Args:
            begin: the memory that ends with this answer; None: the answer is part of the prompt.
        """
        state, marker_fed = (begin.state, begin.turn_marker_fed) if begin else (None, False)
        if role == "user":
            fed = template.later(text, marker_fed)
        else:
            told, _, then = text.partition(THEN)
            fed = form.fed(told.split(RESULTS), then, template, marker_fed)
        return fed.after(state.pending if state else (), self._eos)


def _is_call(form: ToolForm, role: str, text: str) -> bool:
    return role == "assistant" and bool(form.read(text, True).calls)


def _openings(template: Template, asked: ChatRequest, places: MessagePositions | None) -> list[int]:
    """Positions of the tokens by which the template opened the answers."""
    ends = places.ends if places is not None else []
    at = [end for end, (role, _) in zip(ends, asked.messages[1:], strict=False) if role == "assistant"]
    return loops.openings(template, [Message("assistant", "", first=end) for end in at])
