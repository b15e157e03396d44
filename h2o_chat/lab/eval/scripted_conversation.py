"""A conversation as the tokens that a model is fed, without a model: as `Engine` feeds them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from h2o_chat.base.config import Settings
from h2o_chat.chat.conversation.message import Message
from h2o_chat.chat.recall.recall import Holding, Recall
from h2o_chat.chat.templates.chat_template import Template, literal
from h2o_chat.engine.detokenize import Detokenizer


@dataclass(frozen=True)
class Feed:
    """Tokens that are fed together, before they are cut into chunks."""

    ids: list[int]
    prompt: bool
    """True for tokens said to the model, not by it."""
    asks: bool = False
    """True for a question; the conversation goes on as if it had not been asked."""
    recall: bool = False
    """True if the question is asked with recall."""


@dataclass(frozen=True)
class Asked:
    """A question of a script."""

    text: str
    before: int
    """Messages said before it."""


class Script:
    """Written message by message, read by `scripted_answers.answers`.

    The last token of an answer waits for the next turn, as in `Engine.pending`.
    """

    def __init__(self, tokenizer: Any, template: Template) -> None:
        self.tokenizer, self.template = tokenizer, template
        self.feeds: list[Feed] = []
        self.tokens = 0
        """Tokens fed so far, without questions."""
        self.protected = 0
        """First tokens to protect: the system prompt."""
        self.messages: list[Message] = []
        """Messages so far."""
        self.questions: list[Asked] = []
        self.pins: set[int] = set()
        """Positions to protect."""
        self._system: str | None = None
        self.pending: list[int] = []
        """Last token of the last answer, which was not fed yet."""

    def say(self, role: str, text: str) -> range:
        """Adds a message; returns the positions of its tokens."""
        if role == "system":
            self._system = text
            return range(0)
        first = self.tokens + len(self.pending)
        if role == "user":
            ids = self._prompt(text)
            self._feed(ids, prompt=True)
        else:
            ids = literal(self.tokenizer, text)
            if ids[:-1]:
                self._feed(ids[:-1], prompt=False)
            self.pending += ids[-1:]
        self.messages.append(Message(role, text, first, first + len(ids) - 1))
        return range(first, first + len(ids))

    def ask(self, text: str, recall: bool = False) -> None:
        """Asks a question here, which the rest of the conversation does not know of."""
        self.questions.append(Asked(text, len(self.messages)))
        self.feeds.append(Feed([*self.pending, *self._prompt(text)], prompt=True, asks=True, recall=recall))

    def asked_again(self, number: int, holding: Holding, budget: int | None) -> list[int]:
        """Tokens of a question with what is recalled for it, as `Chat.send` does it.

        Args:
            holding: the cache as it is when that is asked.
            budget: slots per layer and KV head; None keeps everything.
        """
        asked = self.questions[number]
        recall = Recall([], lambda text: len(literal(self.tokenizer, text)))
        _, fed = recall.before(asked.text, self.messages[: asked.before], holding, Settings(), budget)
        whole = next(islice((feed for feed in self.feeds if feed.asks), number, None))
        pending = len(whole.ids) - len(self._prompt(asked.text))
        return [*whole.ids[:pending], *self._prompt(fed)]

    def pin(self, positions: range) -> None:
        """Protects the messages that lie there."""
        self.pins |= set(positions)
        for message in self.messages:
            message.pinned |= message.first in positions

    def text(self, asked: Sequence[int], answer: Sequence[int]) -> str:
        """Text of an answer, as `Engine` decodes it."""
        words = Detokenizer(self.tokenizer, asked)
        return "".join([words.add(token) for token in answer]) + words.flush()

    def _prompt(self, text: str) -> list[int]:
        if self.tokens:
            return self.template.later(text).ids
        fed = self.template.first(self._system, text)
        self.protected = fed.tokens_before_text if self._system is not None else 0
        return fed.ids

    def _feed(self, ids: list[int], prompt: bool) -> None:
        feed = Feed([*self.pending, *ids], prompt)
        self.feeds.append(feed)
        self.tokens += len(feed.ids)
        self.pending = []
