"""Which tokens a message is: the one place that knows; the conversation, exports and the screen ask here.

A prompt has, in this order: the last token of the answer before, if that was not fed yet (it stays the
answer's); the system prompt, with the first message; the user's text, with the template around it. An answer
has the tokens that follow, one by one.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from h2o_chat.events.events import ASKS, Event, Prompt, Said, Token, Turn

BLOCK_CHARACTERS = 1000


class Placed(Protocol):
    @property
    def role(self) -> str: ...
    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...


def was_read(message: Placed) -> bool:
    """Whether its tokens have positions: it was read, or has been begun."""
    return message.first >= 0


def tokens_of(message: Placed) -> range:
    """The positions of its tokens; empty where it was not read."""
    return range(message.first, message.last + 1) if was_read(message) else range(0)


def tokens_read(tokens: range, seen: int) -> int:
    """How many of these the model has read: the last token of an answer waits for the next prompt."""
    return max(0, min(tokens.stop, seen) - tokens.start)


def coming_span(before: int, ids: int, system: int) -> range:
    """Positions of the user's text in `ids` to be read after `before` tokens, behind a system prompt."""
    return range(before + system, before + ids)


def prompt_spans(prompt: Prompt, after: int) -> tuple[range, range]:
    """Positions, from `after` on, of the system prompt and of the user's text in a prompt that was read."""
    first = max(prompt.first, after)
    system = range(first, min(first + prompt.system, prompt.last + 1))
    return system, range(system.stop, prompt.last + 1)


def texts_of(prompt: Prompt, tokens: range) -> Sequence[str]:
    """The texts of these tokens, if they are among the prompt's."""
    if tokens.start < prompt.first or not prompt.texts:
        return ()
    return prompt.texts[tokens.start - prompt.first : tokens.stop - prompt.first]


def own_ids(message: Placed, stored: int) -> slice:
    """The slice of the ids stored with a message that are its own.

    A message that is answered is stored with all ids that were read with it; its own are the last ones.
    """
    count = min(len(tokens_of(message)), stored)
    return slice(stored - count, stored) if message.role in ASKS else slice(0, count)


@dataclass
class Span:
    index: int
    role: str
    first: int
    last: int

    @property
    def tokens(self) -> range:
        return tokens_of(self)


class Spans:
    """The messages that were read, in order, as events tell of them."""

    def __init__(self) -> None:
        self.all: list[Span] = []
        self._asked, self._role = 0, "user"
        """Index and role of the message that the model answers, or is about to."""

    def add(self, event: Event) -> None:
        match event:
            case Said():
                self._cut(event.index)
                self.place(event.index, event.role, event.first, event.last)
                self._asked, self._role = event.index, event.role
            case Prompt():
                system, user = prompt_spans(event, self._end)
                if not self.all:
                    self.place(0, "system", system.start, system.stop - 1)
                self.place(self._asked, self._role, user.start, user.stop - 1)
            case Token():
                self._answer(event.position)
            case Turn(finish="error"):  # the model has not seen this turn, nor a system prompt read with it
                self._cut(self._asked if self._asked > 1 else 0)

    def place(self, index: int, role: str, first: int, last: int) -> None:
        """Place a message; one that overlaps an earlier one is left out."""
        if self._end <= first <= last:
            self.all.append(Span(index, role, first, last))

    def at(self, position: int) -> Span | None:
        found = bisect_right(self.all, position, key=lambda span: span.first) - 1
        return self.all[found] if found >= 0 and position <= self.all[found].last else None

    @property
    def _end(self) -> int:
        return self.all[-1].last + 1 if self.all else 0

    def _answer(self, position: int) -> None:
        last = self.all[-1] if self.all else None
        if last is not None and last.index == self._asked + 1:
            last.last = max(last.last, position)
        else:
            self.place(self._asked + 1, "assistant", position, position)

    def _cut(self, index: int) -> None:
        """Forget message `index` and all behind it: they are on another branch."""
        while self.all and self.all[-1].index >= index:
            self.all.pop()


class Places:
    """How many tokens stand before each place of a text.

    The text is tokenised once, in blocks that end where a word does, if one does; then one block a question.
    """

    def __init__(self, text: str, count: Callable[[str], int]) -> None:
        self._text, self._count = text, count
        self._begins, self._before = [0], [0]
        while (begins := self._begins[-1]) < len(text):
            end = text.find(" ", begins + BLOCK_CHARACTERS, begins + 2 * BLOCK_CHARACTERS)
            if end < 0:
                end = min(len(text), begins + 2 * BLOCK_CHARACTERS)
            self._begins.append(end)
            self._before.append(self._before[-1] + count(text[begins:end]))

    def of(self, words: str, tokens: range) -> range:
        """The tokens that the words are, of those that the text is; all where they are not found.

        Args:
            tokens: positions of the text's tokens; those of the template among them are shared out.
        """
        # Between sentences of a script without spaces there is none, and pieces have one.
        found = re.search(r" ?".join(map(re.escape, words.split())), self._text)
        if found is None or not self._before[-1]:
            return tokens
        block, whole = bisect_right(self._begins, found.start()) - 1, self._before[-1]
        before = self._before[block] + self._count(self._text[self._begins[block] : found.start()])
        stop = -(-(before + self._count(words)) * len(tokens) // whole)
        return tokens[before * len(tokens) // whole : stop]
