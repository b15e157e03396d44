"""Which earlier message an answer rested on, and which words of it: from what its tokens gave to the answer.

Words that were told again in front of the question (`recalling.py`) count for the message they come from.
"""

import re
from collections.abc import Sequence

from h2o_chat.chat.holds import Holds
from h2o_chat.chat.message import Message, Recalled, numbered
from h2o_chat.engine.source import LEAST, Rested
from h2o_chat.events.events import Source

HEAVY = 0.25
"""Of the heaviest token's weight: tokens with this much are named with it, and they alone count."""
LONGEST_CHARACTERS = 60
"""Of the words that are named."""
NOTHING = Source(-1)


def told_again(again: Recalled | None, first: int, texts: Sequence[str]) -> range:
    """Positions of the words that were told again, among the tokens of the message that they stand in.

    Args:
        first: position of the first token.
        texts: of each token.
    """
    if again is None or (start := "".join(texts).find(again.words)) < 0:
        return range(0)
    end, at, places = start + len(again.words), 0, []
    for place, text in enumerate(texts, first):
        if at < end and at + len(text) > start:
            places.append(place)
        at += len(text)
    return range(places[0], places[-1] + 1)


def source_of(rested: Rested, messages: Sequence[Message], holds: Holds, told: range) -> Source:
    """The message before the question that gave most; none where all gave too little.

    Args:
        messages: the question and its answer are the last two.
        holds: knows where the messages lie.
        told: positions in the question that were told again.
    """
    question = len(messages) - 2
    again = messages[question].recalled
    given: dict[int, dict[int, float]] = {}  # by message: its tokens, by position
    for position, weight in zip(rested.positions, rested.weights, strict=True):
        if not position:  # heads that look for nothing rest on the first token
            continue
        index = holds.at(position)
        if index == question and position in told and again is not None:
            index = again.index
        if index is not None and 0 <= index < question:
            given.setdefault(index, {})[position] = weight
    heavy = {index: _heavy(of_message) for index, of_message in given.items()}
    best = max(heavy, key=lambda index: sum(heavy[index].values()), default=-1)
    if best < 0 or sum(heavy[best].values()) <= LEAST:
        return NOTHING
    text, again = messages[best].text, messages[best].recalled
    if again is not None and again.index >= 0:
        in_words = _only_in(again.words, text, heavy[best], rested)
        if in_words > _only_in(text, again.words, heavy[best], rested):
            return Source(again.index, _words(heavy[best], rested, again.words))
    words = _words(heavy[best], rested, text)
    return NOTHING if not words and _of_template(heavy[best], rested, text) else Source(best, words)


def _heavy(given: dict[int, float]) -> dict[int, float]:
    """The tokens of a message that gave most: many that give a little each are a long message, no source."""
    least = HEAVY * max(given.values())
    return {place: weight for place, weight in given.items() if weight >= least}


def _only_in(text: str, other: str, given: dict[int, float], rested: Rested) -> float:
    """Weight of the tokens that stand in one text and not in the other."""
    said = {place: rested.texts.get(place, "").strip() for place in given}
    return sum(weight for place, weight in given.items() if said[place] in text and said[place] not in other)


def _of_template(given: dict[int, float], rested: Rested, text: str) -> bool:
    """Whether the heaviest of these tokens is not in a text, nor gone, nor a part of a character."""
    said = rested.texts.get(max(given, key=lambda place: given[place]), "").strip()
    return bool(said) and "\N{REPLACEMENT CHARACTER}" not in said and said not in text


def _words(given: dict[int, float], rested: Rested, text: str) -> str:
    """The words around the heaviest tokens of a message, as they stand in its text; empty if they do not.

    Args:
        given: weights of those tokens, by position.
    """
    # A token of the template, or a part of a character, stands in no text.
    heavy = [
        place for place in sorted(given) if (said := rested.texts.get(place, "").strip()) and said in text
    ]
    found: list[tuple[int, int]] = []
    for run in _runs(heavy):
        said = "".join(rested.texts[place] for place in run).strip()
        if said and (start := text.find(said)) >= 0:
            found.append((start, start + len(said)))
    if not found:
        return ""
    start, end = min(start for start, _ in found), max(end for _, end in found)
    start -= len(re.search(r"\S*$", text[:start])[0])  # type: ignore[index]
    end += len(re.match(r"\S*", text[end:])[0])  # type: ignore[index]
    words = " ".join(text[start:end].split()).rstrip(".,;:!?")
    return words if len(words) <= LONGEST_CHARACTERS else words[: LONGEST_CHARACTERS - 1].rstrip() + "…"


def _runs(places: Sequence[int]) -> list[list[int]]:
    """Whole numbers that follow each other."""
    runs: list[list[int]] = []
    for place in places:
        if runs and runs[-1][-1] == place - 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    return runs


def rests_on(source: Source) -> str:
    """What an answer rested on, in words."""
    if source.index < 0:
        return "rests on nothing said before your message"
    return f"rests on {numbered(source.index)}" + (f": “{source.words}”" if source.words else "")
