"""How a message is cut: its sentences, the pieces of it that may be recalled, and the question in it.

No list of words: a sentence ends at a mark of whatever script, or with the line.
"""

import re
import unicodedata
from collections.abc import Iterator

PIECE_CHARACTERS = 200
"""Longest piece: a longer message is cut where a sentence ends, else at a space."""
PAGE_CHARACTERS = 1000
"""A longer message is a page: only its last paragraph, shorter than this, or its last sentence may ask."""

_ASKS = "?\uff1f\u061f\u037e\u055e\u1367\u2047\u2048"
"""Question marks: Latin, Chinese, Arabic, Greek, Armenian, Ethiopic; `⁇`, `⁈`."""
_ENDS = rf".!\u3002\uff01\u0964{_ASKS}"
SENTENCE_CHARACTERS = 10_000
"""A longer sentence is cut: no other thread runs while a regular expression is matched, here 1 ms at most."""
_SENTENCE = re.compile(
    rf".{{1,{SENTENCE_CHARACTERS}}}?"
    rf"(?:(?<![{_ENDS}])[{_ENDS}]+[\"'»”)\]]*(?=\s|$)|[\u3002\uff1f\uff01][”」』]?|\n|$)"
    rf"|.{{{SENTENCE_CHARACTERS}}}",
    re.S,
)
_GAP = re.compile(r"\n\s*\n\s*")
"""An empty line, or several."""
_ASKING = re.compile(rf"[{_ASKS}][^\w{_ASKS}]*$")


def asks(text: str) -> bool:
    """Whether a text ends in a question mark, of whatever script."""
    return _ASKING.search(text) is not None


def question_of(text: str) -> str:
    """The sentences of a message that ask; else its last one, if that ends in a word. A page that ends in a
    fence is a file, and asks nothing.

    Of more than PAGE_CHARACTERS the end: a text without a full stop is one sentence, and may have millions.
    """
    if ends_in_file(text):
        return ""
    said = [one for _, one in sentences(text[asked_from(text) :][-SENTENCE_CHARACTERS:])]
    asking = [one for one in said if asks(one)]
    return " ".join(asking or [one for one in said[-1:] if ends_in_word(one)])[-PAGE_CHARACTERS:]


def ends_in_file(text: str) -> bool:
    """Whether a page ends in a fence."""
    return len(text) > PAGE_CHARACTERS and text.rstrip().endswith("```")


def ends_in_word(text: str) -> bool:
    """Whether a text ends in a letter, a digit or a vowel sign, and not in a mark."""
    return text != "" and unicodedata.category(text[-1])[0] in "LMN"


def asked_from(text: str) -> int:
    """Where the question of a message begins: at 0, or, in a page, with its last paragraph; where that is
    long, with its last sentence, if that has at most SENTENCE_CHARACTERS.
    """
    if len(text) <= PAGE_CHARACTERS:
        return 0
    end = len(text.rstrip())
    tail = max(0, end - PAGE_CHARACTERS)
    if gaps := [found.end() for found in _GAP.finditer(text, tail, end)]:
        return gaps[-1]
    skipped = max(0, len(text) - SENTENCE_CHARACTERS)
    starts = [start for start, _ in sentences(text[skipped:])]
    return skipped + starts[-1] if len(starts) > 1 or (starts and not skipped) else 0


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """(where it begins, sentence) of each sentence."""
    for found in _SENTENCE.finditer(text):
        if found[0].strip():
            yield found.start() + len(found[0]) - len(found[0].lstrip()), found[0].strip()


def pieces_of(text: str, questions: bool = False) -> Iterator[str]:
    """Neighbouring sentences, up to PIECE_CHARACTERS together.

    Args:
        questions: sentences that ask are taken, too: in a story an answer may follow.
    """
    joined = ""
    for _, sentence in sentences(text):
        left_out = asks(sentence) and not questions
        for part in _parts(" ".join(sentence.split())):
            if joined and (left_out or len(joined) + 1 + len(part) > PIECE_CHARACTERS):
                yield joined
                joined = ""
            if not left_out:
                joined = f"{joined} {part}".strip()
    if joined:
        yield joined


def _parts(sentence: str) -> Iterator[str]:
    """Cut to PIECE_CHARACTERS, at a space where there is one."""
    while len(sentence) > PIECE_CHARACTERS:
        at = sentence.rfind(" ", 1, PIECE_CHARACTERS)
        at = PIECE_CHARACTERS if at < 0 else at
        yield sentence[:at]
        sentence = sentence[at:].strip()
    yield sentence
