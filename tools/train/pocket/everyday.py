"""Facts of everyday life, and the questions that they answer.

Those of `everyday.jsonl` have one to three values each, and are answered with one of them. They were
written by hand, a line each: ways to tell the fact with a letter for each value, ways to ask for each value,
how it is answered, values that fit, and questions near by that the fact does not answer. Those of
`told_facts.txt` are answered with the whole sentence that told them, in quotes: so may be any
other fact, of a kind that nobody thought of.
"""

import json
import random
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from .values import draw_value, is_held_out

_HERE = Path(__file__).parent
_INVENTED = 0.2
"""Share of values that are drawn from nowhere near: what is told is copied, not guessed."""
_SPACES = ("name", "noun", "town", "number", "colour")
_QUOTED = 0.5
"""Share of facts that are answered with what told them."""
_WORD = re.compile(r"\b[a-zA-Z]{5,}\b|\b\d+\b")


@dataclass(frozen=True)
class Everyday:
    """One fact with its values."""

    line: dict[str, Any]
    """Facts of the file."""
    values: dict[str, str]
    """By letter."""

    def tell(self, rng: random.Random) -> str:
        said: str = rng.choice(self.line["tell"])
        for letter, value in self.values.items():
            said = said.replace(f"{{{letter}}}", value)
        if "quoted" in self.line:
            return said
        return _typed(rng, said[:1].upper() + said[1:] if rng.random() < 0.3 else said)

    def ask(self, rng: random.Random, letter: str) -> str:
        return _typed(rng, rng.choice(self.line["ask"][letter]))

    def answer(self, letter: str) -> str:
        text: str = self.line["answer"][letter].replace(f"{{{letter}}}", self.values[letter])
        return text

    def ask_untold(self, rng: random.Random) -> str:
        """A question near by that this does not answer."""
        return _typed(rng, rng.choice(self.line["untold"]))

    def changed(self, rng: random.Random, letter: str) -> "Everyday":
        """The fact with another value."""
        return replace(self, values=self.values | {letter: _value(rng, self.line, letter)})


def draw_everyday(rng: random.Random, held_out: bool = False) -> Everyday:
    """A fact to train on, or one that somebody else wrote for the test."""
    if held_out:
        line = rng.choice(_lines("held_out_everyday"))
        return Everyday(line, {letter: rng.choice(known) for letter, known in line["values"].items()})
    line = rng.choice(_quoted_lines() if rng.random() < _QUOTED else _lines("everyday"))
    return Everyday(line, {letter: _value(rng, line, letter) for letter in line["values"]})


@cache
def _lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (_HERE / f"{name}.jsonl").read_text("utf-8").splitlines()]


@cache
def _quoted_lines() -> list[dict[str, Any]]:
    """Facts of `told_facts.txt` in the same form: the whole sentence is the value."""
    file = _HERE / "told_facts.txt"
    lines = []
    for row in file.read_text("utf-8").splitlines():
        told, asked, untold = row.split(" | ")
        line = {"tell": ["{a}"], "ask": {"a": asked.split(" ; ")}, "answer": {"a": 'You said: "{a}"'}}
        lines.append(line | {"values": {"a": [told]}, "untold": untold.split(" ; "), "quoted": True})
    return lines


def _value(rng: random.Random, line: dict[str, Any], letter: str) -> str:
    known: list[str] = line["values"][letter]
    if "quoted" in line:
        return _with_another_word(rng, known[0], " ".join(line["ask"][letter]))
    if rng.random() < _INVENTED:
        return draw_value(rng, rng.choice(_SPACES), held_out=False)
    return rng.choice([value for value in known if not is_held_out(value)] or known)


def _with_another_word(rng: random.Random, told: str, asked: str) -> str:
    """A sentence with one of its words, that no question names, put in the place of another."""
    free = [one for one in _WORD.finditer(told) if one[0].lower()[:4] not in asked.lower()]
    if not free or rng.random() < 0.4:
        return told
    old = rng.choice(free)
    word = (
        str(rng.randint(2, 99)) if old[0].isdigit() else draw_value(rng, rng.choice(("name", "noun")), False)
    )
    return told[: old.start()] + word + told[old.end() :]


def _typed(rng: random.Random, text: str) -> str:
    """Now and then the text as somebody in a hurry types it."""
    draw = rng.random()
    if draw < 0.1:
        text = text[:1].lower() + text[1:]
    if draw < 0.07:
        text = text.replace("'", "")
    return re.sub(r"[.?!]$", "", text) if 0.05 < draw < 0.15 else text
