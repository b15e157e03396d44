"""Token ids to text as they come: never half a character, never a special token. No torch."""

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from h2o_chat.models.tokenizer_calls import text_of

UNFINISHED = "\N{REPLACEMENT CHARACTER}"
MOST_TEXTS = 1 << 16  # longest prompt whose tokens get a text each: a line of a recording has a limit
LONGEST_CHARACTER_TOKENS = 8  # UTF-8 needs four bytes; what is broken after so many tokens stays broken


class Detokenizer:
    """Turns one stream of ids into text deltas, at a cost per token that does not grow.

    The text of a token depends on its neighbours (spaces, characters split over tokens), so the tokens of
    the last delta, which ended with a whole character, are decoded with the new ones and cut off again.
    """

    def __init__(
        self,
        tokenizer: Any,
        before: Sequence[int] = (),
        *,
        special: bool = False,
        shown: AbstractSet[int] = frozenset(),
    ) -> None:
        """Args:
        before: the ids that precede the stream; the last whole character of them is enough.
        special: special tokens have their text too, and not none.
        shown: these special tokens have their text, in any case.
        """
        self._tokenizer = tokenizer
        self._special = special or bool(shown)
        self._hidden = frozenset(tokenizer.all_special_ids) - shown if shown and not special else frozenset()
        tails = (list(before[-size:]) for size in range(1, LONGEST_CHARACTER_TOKENS + 1))
        self._ids = next((tail for tail in tails if UNFINISHED not in self._decode(tail)), [])
        self._shown = len(self._ids)  # number of ids whose text was returned

    def add(self, token: int) -> str:
        """The text that this token completes; empty while a character is unfinished."""
        self._ids.append(token)
        waiting = len(self._ids) - self._shown
        text = self._decode(self._ids)
        if text.endswith(UNFINISHED) and waiting < LONGEST_CHARACTER_TOKENS:
            return ""
        return self._shows(text)

    def flush(self) -> str:
        return self._shows(self._decode(self._ids))

    def _shows(self, text: str) -> str:
        """The new part of the text of all ids; they are decoded with the next token."""
        text = text[len(self._decode(self._ids[: self._shown])) :]
        self._ids = self._ids[self._shown :] or self._ids
        self._shown = len(self._ids)
        return text

    def _decode(self, ids: list[int]) -> str:
        if self._hidden:
            ids = [one for one in ids if one not in self._hidden]
        return text_of(
            self._tokenizer, ids, skip_special_tokens=not self._special, clean_up_tokenization_spaces=False
        )


def texts(
    tokenizer: Any, ids: Sequence[int], *, special: bool = True, shown: AbstractSet[int] = frozenset()
) -> list[str]:
    """The text of each token; a character split over tokens belongs to the last of them.

    Empty where there are more than MOST_TEXTS.

    Args:
        special, shown: see `Detokenizer`.
    """
    if not 0 < len(ids) <= MOST_TEXTS:
        return []
    stream = Detokenizer(tokenizer, special=special, shown=shown)
    found = [stream.add(token) for token in ids]
    return [*found[:-1], found[-1] + stream.flush()]


class StopText:
    """Finds stop strings in a stream of text deltas, whichever way they are cut into pieces."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.found = ""  # the stop string that was found; empty: none yet

    def add(self, text: str) -> str:
        """The text that is safe to show; sets `found` at a stop string, which is not shown."""
        self._held += text
        ends = [(at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if ends:
            at, self.found = min(ends)
            shown, self._held = self._held[:at], ""
            return shown
        hold = max((_overlap(self._held, stop) for stop in self._stops), default=0)
        cut = len(self._held) - hold
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown

    def flush(self) -> str:
        """The text held back because a stop string might have begun."""
        shown, self._held = self._held, ""
        return shown


def spelling(tokenizer: Any, token: int) -> tuple[str, bytes]:
    """The text of a token that is not the first, and its bytes, which may be part of a character."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode  # takes a while

    # SentencePiece's first token has no space; behind another one, here itself, it has.
    once, twice = (
        text_of(tokenizer, ids, clean_up_tokenization_spaces=False) for ids in ([token], [token] * 2)
    )
    text = twice[len(once) :]
    if UNFINISHED not in text:
        return text, text.encode()
    spelt = str(tokenizer.convert_ids_to_tokens(token))
    if byte := re.fullmatch("<0x([0-9A-F]{2})>", spelt):  # SentencePiece's form
        return text, bytes.fromhex(byte[1])
    byte_of = {letter: byte for byte, letter in bytes_to_unicode().items()}
    return text, bytes(byte_of[one] for one in spelt) if byte_of.keys() >= set(spelt) else text.encode()


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins `stop`."""
    sizes = range(min(len(text), len(stop) - 1), 0, -1)
    return next((size for size in sizes if text.endswith(stop[:size])), 0)
