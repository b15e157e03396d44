"""The words of a conversation, found from the tokens that they consist of. No widgets here.

A word is held by as many heads as the least held of its tokens: without one of them it cannot be said.
"""

import re
import sys
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from h2o_chat.chat.conversation.message import Message
from h2o_chat.chat.conversation.spans import Span, Spans, texts_of
from h2o_chat.events.events import Event, Prompt, Said, Token

LOOKS = (8, 64)
"""Tokens on each side that are searched for the rest of a word; the second where it goes on."""
KNOWN_ALONE = 4096
"""Size of the memory of whether a token is a word by itself."""

_CHUNK = re.compile(r"(?:(?!--)[^\s—–…/()\[\]{}<>\"“”„«»!?;|*=+`#~\\。，、！？；：])+")
"""Letters between blanks and these marks; other marks stand inside words: `don't`, `3.5`."""
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
"""Scripts without blanks between words: there every token stands for itself."""
_SPECIAL = re.compile(r"<[|｜]?[^\s<>]*[|｜]?>|\[/?[A-Z_]+\]")
"""Tokens that look like a template's, where nothing better is known."""


@dataclass(frozen=True)
class Word:
    text: str
    first: int
    last: int
    index: int

    @property
    def tokens(self) -> range:
        return range(self.first, self.last + 1)


@dataclass
class _Texts:
    first: int
    texts: list[str] = field(default_factory=list)
    own: range | None = None
    """Range of the tokens that are not the template's; None: not looked at yet."""


class Words:
    """The texts of the tokens, and the words that they make.

    Args:
        places: which message lies where; it has had each event before.
    """

    def __init__(self, places: Spans, messages: Sequence[Message] = ()) -> None:
        self._places = places
        self._said = {index: message.text for index, message in enumerate(messages)}
        self._texts = {
            index: _Texts(message.first, message.texts)
            for index, message in enumerate(messages)
            if message.texts
        }
        self._alone: dict[tuple[int, str], bool] = {}

    def add(self, event: Event) -> None:
        """Take in one event; those without text change nothing."""
        match event:
            case Said():
                for known in (self._said, self._texts):
                    for index in [index for index in reversed(known) if index >= event.index]:
                        del known[index]
                self._alone.clear()
                self._said[event.index] = event.text
                if event.texts:
                    self._texts[event.index] = _Texts(event.first, event.texts)
            case Prompt():
                for span in self._places.all[-2:]:
                    if texts := texts_of(event, span.tokens):
                        self._texts[span.index] = _Texts(span.first, [sys.intern(text) for text in texts])
            case Token():
                self._answered(event)

    def _answered(self, token: Token) -> None:
        span = self._places.at(token.position)
        if span is None:
            return
        known = self._texts.get(span.index)
        if known is None or known.first != span.first:
            known = self._texts[span.index] = _Texts(span.first)
        if len(known.texts) == token.position - span.first:
            known.texts.append(sys.intern(token.text))  # the vocabulary bounds how many there are

    # Questions

    def at(self, position: int, text: str = "") -> Word | None:
        """The word that a token belongs to; None for a mark, a blank, or a token of the template.

        Args:
            text: of the token, where an event told it; in a message without texts only whole words are known.
        """
        span = self._places.at(position)
        if span is None:
            return None
        known, own = self._own(span)
        if known is None:
            alone = self._is_alone(span.index, text)
            return Word(_stripped(text), position, position, span.index) if alone else None
        at = position - known.first
        if at not in own:
            return None
        for look in LOOKS:
            low, high = max(own.start, at - look), min(own.stop, at + look + 1)
            pieces = known.texts[low:high]
            ends = list(accumulate(map(len, pieces)))
            joined, end = "".join(pieces), ends[at - low]
            start = end - len(pieces[at - low])
            found = word_in(joined, start, max(end, start + 1))
            if found is None:
                return None
            first, last = bisect_right(ends, found[0]), bisect_left(ends, found[1])
            base = known.first + low
            word = Word(joined[slice(*found)], base + first, base + last, span.index)
            if (found[0] or low == own.start) and (found[1] < len(joined) or high == own.stop):
                break
        return word

    def text(self, position: int) -> str | None:
        """The text of a single token, where that is known."""
        span = self._places.at(position)
        known = self._texts.get(span.index) if span else None
        if known is None or span is None or known.first != span.first:
            return None
        at = position - known.first
        return known.texts[at] if 0 <= at < len(known.texts) else None

    def between(self, first: int, last: int) -> str:
        """The text from one token to another of the same message, on one line; empty: not known."""
        start, end = self.at(first), self.at(last)
        span = self._places.at(first)
        if span is None or start is None or end is None or (known := self._texts.get(span.index)) is None:
            return ""
        whole = "".join(known.texts[start.first - known.first : end.last - known.first + 1])
        begin, stop = whole.find(start.text), whole.rfind(end.text)
        return " ".join(whole[begin : stop + len(end.text)].split())

    def find(self, wanted: str) -> Iterator[Word | int]:
        """Every place where one word or several in a row stand, the oldest first; case is ignored.

        For a message whose tokens are not known, its index, once.
        """
        pattern = re.compile(rf"(?<!\w){re.escape(wanted)}(?!\w)", re.IGNORECASE)
        for span in self._places.all:
            known, own = self._own(span)
            if known is None:
                if pattern.search(self._said.get(span.index, "")):
                    yield span.index
                continue
            ends = list(accumulate(map(len, known.texts[own.start : own.stop])))
            for match in pattern.finditer("".join(known.texts[own.start : own.stop])):
                first, last = bisect_right(ends, match.start()), bisect_left(ends, match.end())
                start = known.first + own.start
                yield Word(match[0], start + first, start + last, span.index)

    def _own(self, span: Span) -> tuple[_Texts | None, range]:
        """The texts of a message, and the range of tokens that are its own."""
        known = self._texts.get(span.index)
        if known is None or known.first != span.first:
            return None, range(0)
        if span.role == "assistant":
            return known, range(len(known.texts))
        if known.own is None:
            known.own = _own(known.texts, self._said.get(span.index, ""))
        return known, known.own

    def _is_alone(self, index: int, text: str) -> bool:
        """Whether a token is a whole word, in a message of which only the text is known."""
        word = _stripped(text)
        if not word or _SPECIAL.fullmatch(text.strip()):
            return False
        key = index, word
        if key not in self._alone:
            if len(self._alone) >= KNOWN_ALONE:
                self._alone.clear()
            found = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", self._said.get(index, ""))
            self._alone[key] = found is not None
        return self._alone[key]


def word_in(text: str, start: int, end: int) -> tuple[int, int] | None:
    """(first, behind the last) character of the word that overlaps `start` to `end`."""
    for match in _CHUNK.finditer(text):
        if match.end() <= start:
            continue
        if match.start() >= end:
            return None
        first, last = _trimmed(text, *match.span())
        if _UNSPACED.search(text, first, last):
            first, last = _trimmed(text, max(first, start), min(last, end))
        if first < min(last, end) and last > start:
            return first, last
    return None


def _trimmed(text: str, first: int, last: int) -> tuple[int, int]:
    """The range without the marks around it."""
    while first < last and not text[first].isalnum():
        first += 1
    while first < last and not (text[last - 1].isalnum() or unicodedata.category(text[last - 1])[0] == "M"):
        last -= 1
    return first, last


def _stripped(text: str) -> str:
    return text[slice(*_trimmed(text, 0, len(text)))]


def _own(texts: Sequence[str], said: str) -> range:
    """The range of tokens that were said; the others are the template's."""
    whole = "".join(texts)
    for words in (said, said.strip()):
        at = whole.find(words) if words else -1
        if at >= 0:
            ends = list(accumulate(map(len, texts)))
            return range(bisect_right(ends, at), bisect_left(ends, at + len(words)) + 1)
    # Some tokenizers change what they read: then all but what looks like a template's.
    inner = [at for at, text in enumerate(texts) if text.strip() and not _SPECIAL.fullmatch(text.strip())]
    return range(inner[0], inner[-1] + 1) if inner else range(0)
