"""The texts of a conversation's tokens, and the words that they make. No widgets here.

A word is held by as many heads as the least held of its tokens: without one of them it cannot be said.
"""

import re
import unicodedata
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from h2o_chat.chat.conversation.message import Message
from h2o_chat.chat.conversation.spans import Span, Spans, texts_of
from h2o_chat.events.events import Event, Prompt, Said, Token

LOOKS = (8, 64)
"""Tokens on each side that are searched for the rest of a word; the second where it goes on."""
COMMON_SHARE, COMMON_TIMES = 0.01, 3

_SPECIAL = re.compile(r"<[|｜]?[^\s<>]*[|｜]?>|\[/?[A-Z_]+\]")
"""Tokens that look like a template's, where nothing better is known."""
_CHUNK = re.compile(r"(?:(?!--)[^\s—–…/()\[\]{}<>\"“”„«»!?;|*=+`#~\\。，、！？；：])+")
"""Letters between blanks and these marks; other marks stand inside words: `don't`, `3.5`."""
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
"""Scripts without blanks between words: there every token stands for itself."""


class Tokens:
    """Compact: one text and one number a token from position `first` on: a conversation may be long.

    A token without a text has begun a character that a later one completes: they are shown together.
    """

    def __init__(self, first: int, texts: Sequence[str] = ()) -> None:
        self.first = first
        self.text = "".join(texts)
        self._ends = array("Q", accumulate(map(len, texts)))
        self._own: tuple[str, int, range] | None = None
        """(message, length of the text, range) of the last question for the message's own words."""

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, text: str) -> None:
        self.text += text
        self._ends.append(len(self.text))

    def added(self, position: int) -> range | None:
        """The characters that a token adds by itself, perhaps none; None where it is no token of these."""
        at = position - self.first
        if not 0 <= at < len(self._ends):
            return None
        return range(self._ends[at - 1] if at else 0, self._ends[at])

    def span(self, position: int) -> tuple[int, int] | None:
        """(first, behind the last) character with which a token is shown; None where it has none."""
        added = self.added(position)
        if added is None or added.start == len(self.text):
            return None
        return added.start, self._ends[bisect_right(self._ends, added.start)]

    def own_text(self, position: int) -> str:
        """The text that a token adds by itself."""
        added = self.added(position)
        return self.text[added.start : added.stop] if added is not None else ""

    def at(self, character: int) -> int | None:
        """Position of the token that completes a character."""
        if not 0 <= character < len(self.text):
            return None
        return self.first + bisect_right(self._ends, character)

    def groups(self, start: int, end: int) -> Iterator[tuple[int, int, range]]:
        """(first, behind the last character, positions) of the tokens shown from `start` to before `end`."""
        at = start
        while at < min(end, len(self.text)):
            last = bisect_right(self._ends, at)
            begin = self._ends[last - 1] if last else 0
            first = bisect_left(self._ends, begin) + 1 if begin else 0
            yield (
                max(begin, start),
                min(self._ends[last], end),
                range(self.first + first, self.first + last + 1),
            )
            at = self._ends[last]

    def own(self, source: str) -> range:
        """The characters of the message's own words, without the template around them.

        Some tokenizers change what they read: then all but what looks like a template's.
        """
        if self._own is None or self._own[:2] != (source, len(self.text)):
            self._own = source, len(self.text), self._found(source)
        return self._own[2]

    def _found(self, source: str) -> range:
        for words in (source, source.strip()):
            at = self.text.find(words)
            if at >= 0 and words:
                return range(at, at + len(words))
        texts = [self.own_text(position) for position in range(self.first, self.first + len(self))]
        inner = [at for at, text in enumerate(texts) if text.strip() and not _looks_special(text)]
        if not inner:
            return range(0)
        return range(self._ends[inner[0] - 1] if inner[0] else 0, self._ends[inner[-1]])


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
        self._counts: Counter[str] = Counter()
        self._counted = set[int]()  # messages
        self._count_words()

    def add(self, event: Event) -> None:
        match event:
            case Said():
                for known in (self._said, self.tokens):
                    for index in [index for index in reversed(known) if index >= event.index]:
                        del known[index]
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
            bare = text[slice(*_trimmed(text, 0, len(text)))]
            alone = bare and not _looks_special(text) and _stands_in(bare, self._said.get(span.index, ""))
            return Word(bare, position, position, span.index) if alone else None
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


def _looks_special(text: str) -> bool:
    return _SPECIAL.fullmatch(text.strip()) is not None


def _whole(words: str, flags: int = 0) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(words)}(?!\w)", flags)


@lru_cache(maxsize=4096)
def _stands_in(word: str, said: str) -> bool:
    """Whether a token is a whole word, in a message of which only the text is known."""
    return _whole(word).search(said) is not None


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
