"""The words of a conversation, found from the tokens that they consist of. No widgets here.

A word is held by as many heads as the least held of its tokens: without one of them it cannot be said.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from h2o_chat.chat.conversation.message import Message
from h2o_chat.chat.conversation.spans import Span, Spans, texts_of
from h2o_chat.chat.memory.tokens import Tokens, looks_special
from h2o_chat.events.events import Event, Prompt, Said, Token

LOOKS = (8, 64)
"""Tokens on each side that are searched for the rest of a word; the second where it goes on."""
COMMON_SHARE, COMMON_TIMES = 0.01, 3
KNOWN_ALONE = 4096
"""Size of the memory of whether a token is a word by itself."""

_CHUNK = re.compile(r"(?:(?!--)[^\s—–…/()\[\]{}<>\"“”„«»!?;|*=+`#~\\。，、！？；：])+")
"""Letters between blanks and these marks; other marks stand inside words: `don't`, `3.5`."""
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
"""Scripts without blanks between words: there every token stands for itself."""


@dataclass(frozen=True)
class Word:
    text: str
    first: int
    last: int
    index: int

    @property
    def tokens(self) -> range:
        return range(self.first, self.last + 1)


class Words:
    """The texts of the tokens, and the words that they make; `places` has had each event before."""

    def __init__(self, places: Spans, messages: Sequence[Message] = ()) -> None:
        self._places = places
        self._said = {index: message.text for index, message in enumerate(messages)}
        self.tokens = {
            index: Tokens(message.first, message.texts)
            for index, message in enumerate(messages)
            if message.texts
        }
        """The tokens of each message of which they are known."""
        self._alone: dict[tuple[int, str], bool] = {}
        self._counts: Counter[str] = Counter()
        self._counted = set[int]()  # messages
        self._count_words()

    def add(self, event: Event) -> None:
        match event:
            case Said():
                for known in (self._said, self.tokens):
                    for index in [index for index in reversed(known) if index >= event.index]:
                        del known[index]
                self._alone.clear()
                if event.index in self._counted:  # an edit
                    self._counts, self._counted = Counter(), set()
                self._count_words()
                self._said[event.index] = event.text
                if event.texts:
                    self.tokens[event.index] = Tokens(event.first, event.texts)
            case Prompt():
                for span in self._places.all[-2:]:
                    if texts := texts_of(event, span.tokens):
                        self.tokens[span.index] = Tokens(span.first, texts)
            case Token():
                if (answer := self._places.at(event.position)) is not None:
                    tokens = self._of(answer) or Tokens(answer.first)
                    self.tokens[answer.index] = tokens
                    if len(tokens) == event.position - answer.first:
                        tokens.add(event.text)

    # Questions

    def at(self, position: int, text: str = "") -> Word | None:
        """The word that a token belongs to; None for a mark, a blank, or a token of the template.

        Args:
            text: of the token, where an event told it; in a message without texts only whole words are known.
        """
        span = self._places.at(position)
        if span is None:
            return None
        if (tokens := self._of(span)) is None:
            alone = self._is_alone(span.index, text)
            return Word(_stripped(text), position, position, span.index) if alone else None
        added, own = tokens.added(position), self._own(span, tokens)
        if added is None or added.stop <= own.start or added.start >= own.stop:
            return None
        for look in LOOKS:
            before, behind = tokens.added(position - look), tokens.added(position + look)
            low = max(own.start, before.start if before else 0)
            high = min(own.stop, behind.stop if behind else own.stop)
            found = _word_in(tokens.text, added, range(low, high))
            if found is None:
                return None
            word = _word(tokens, found, span.index)
            if (found.start > low or low == own.start) and (found.stop < high or high == own.stop):
                break
        return word

    def text(self, position: int) -> str | None:
        """The text of a single token, where that is known."""
        span = self._places.at(position)
        tokens = self._of(span) if span else None
        return tokens.own_text(position) if tokens and tokens.added(position) is not None else None

    def between(self, first: int, last: int) -> str:
        """The text from one token to another of the same message, on one line; empty: not known."""
        start, end = self.at(first), self.at(last)
        span = self._places.at(first)
        if span is None or start is None or end is None or (tokens := self._of(span)) is None:
            return ""
        begin, stop = tokens.added(start.first), tokens.added(end.last)
        whole = tokens.text[begin.start : stop.stop] if begin and stop else ""
        return " ".join(whole[whole.find(start.text) : whole.rfind(end.text) + len(end.text)].split())

    def find(self, wanted: str) -> Iterator[Word | int]:
        """Every place where one word or several in a row stand, the oldest first; case is ignored.

        For a message whose tokens are not known, its index, once.
        """
        pattern = _whole(wanted, re.IGNORECASE)
        for span in self._places.all:
            if (tokens := self._of(span)) is None:
                if pattern.search(self._said.get(span.index, "")):
                    yield span.index
                continue
            own = self._own(span, tokens)
            for match in pattern.finditer(tokens.text, own.start, own.stop):
                yield _word(tokens, range(*match.span()), span.index)

    def is_common(self, word: str) -> bool:
        """Whether a word is COMMON_SHARE of the words before the newest message, and said COMMON_TIMES."""
        return self._counts[word.lower()] >= self._common_times

    def _count_words(self) -> None:
        for index in self.tokens.keys() - self._counted:
            self._counts.update(_CHUNK.findall(self.tokens[index].text.lower()))
            self._counted.add(index)
        self._common_times = max(COMMON_TIMES, COMMON_SHARE * self._counts.total())

    def _of(self, span: Span) -> Tokens | None:
        """The tokens of a message, where they are known."""
        tokens = self.tokens.get(span.index)
        return tokens if tokens is not None and tokens.first == span.first else None

    def _own(self, span: Span, tokens: Tokens) -> range:
        """The characters that were said; the others are the template's."""
        if span.role == "assistant":
            return range(len(tokens.text))
        return tokens.own(self._said.get(span.index, ""))

    def _is_alone(self, index: int, text: str) -> bool:
        """Whether a token is a whole word, in a message of which only the text is known."""
        word = _stripped(text)
        if not word or looks_special(text):
            return False
        key = index, word
        if key not in self._alone:
            if len(self._alone) >= KNOWN_ALONE:
                self._alone.clear()
            self._alone[key] = _whole(word).search(self._said.get(index, "")) is not None
        return self._alone[key]


def _whole(words: str, flags: int = 0) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(words)}(?!\w)", flags)


def _word(tokens: Tokens, found: range, index: int) -> Word:
    """The word of some characters, with all tokens that have any of them."""
    first, last = tokens.at(found.start), tokens.at(found.stop - 1)
    assert first is not None
    assert last is not None
    return Word(tokens.text[found.start : found.stop], first, last, index)


def _word_in(text: str, token: range, window: range) -> range | None:
    """The characters of the word that overlaps those of a token; it is looked for in a window of the text."""
    start, end = token.start, max(token.stop, token.start + 1)
    for match in _CHUNK.finditer(text, window.start, window.stop):
        if match.end() <= start:
            continue
        if match.start() >= end:
            return None
        first, last = _trimmed(text, *match.span())
        if _UNSPACED.search(text, first, last):
            first, last = _trimmed(text, max(first, start), min(last, end))
        if first < min(last, end) and last > start:
            return range(first, last)
    return None


def _trimmed(text: str, first: int, last: int) -> tuple[int, int]:
    while first < last and not text[first].isalnum():
        first += 1
    while first < last and not (text[last - 1].isalnum() or unicodedata.category(text[last - 1])[0] == "M"):
        last -= 1
    return first, last


def _stripped(text: str) -> str:
    return text[slice(*_trimmed(text, 0, len(text)))]
