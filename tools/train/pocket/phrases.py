"""Turns phrase lists into sentences: alternation, openers and closers, and noise."""

import random
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .values import draw_value

_HERE = Path(__file__).parent
_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_PERSON = re.compile(r"\b(my|I|me|am|you|we|our)\b")
_SWAP = {"my": "your", "I": "you", "me": "you", "am": "are", "you": "me", "we": "you"}
_SHORT = [("what is", "what's"), ("I am", "I'm"), ("who is", "who's"), ("where is", "where's")]
_SHORT += [("when is", "when's"), ("do not", "don't"), ("it is", "it's"), ("what was", "what's")]


def expand(rng: random.Random, text: str) -> str:
    """Picks one of every [a|b], innermost first."""
    while match := _CHOICE.search(text):
        text = text[: match.start()] + rng.choice(match[1].split("|")) + text[match.end() :]
    return text.strip()


def to_assistant(text: str) -> str:
    """Noun phrase or clause as the assistant says it: "my dog" is "your dog"."""
    return _PERSON.sub(lambda match: _SWAP.get(match[1], "your"), text)


def wording(text: str) -> str:
    """A template as it is compared: placeholders and lower-case letters, contractions written out."""
    for long, short in _SHORT:
        text = text.replace(short, long).replace(short.capitalize(), long)
    return " ".join(re.findall(r"\{\w\}|[a-z0-9]+", text.lower()))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


@dataclass(frozen=True)
class Fact:
    """One thing a user may tell: a kind, the thing it belongs to and its value."""

    kind: str
    thing: str
    value: str

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.thing


class PhraseBook:
    """All ways to tell, ask, correct and answer; `held_out` takes the test lists instead.

    Answers, acknowledgements and noun phrases are the model's own speech or the name of a
    thing, so both books share them. The test lists were written by somebody who had seen no other
    list; a training sentence that comes out as one of theirs is drawn again.
    """

    def __init__(self, held_out: bool = False) -> None:
        self.shared: dict[str, Any] = tomllib.loads((_HERE / "phrases.toml").read_text("utf-8"))
        self.held_out = held_out
        test: dict[str, Any] = tomllib.loads((_HERE / "held_out_phrases.toml").read_text("utf-8"))
        self.source: dict[str, Any] = test if held_out else self.shared
        lists = [test["correct"], *(phrases for kind in test["kinds"].values() for phrases in kind.values())]
        self.reserved = {wording(phrase) for phrases in lists for phrase in phrases}
        self.kinds: list[str] = list(self.shared["kinds"])

    def draw_fact(self, rng: random.Random, kind: str | None = None) -> Fact:
        kind = kind or rng.choice(self.kinds)
        spec = self.shared["kinds"][kind]
        thing = rng.choice(spec.get("x", [""]))
        return Fact(kind, thing, draw_value(rng, spec["values"], self.held_out))

    def tell(self, rng: random.Random, fact: Fact, frames: list[str] | None = None) -> str:
        """A user sentence that tells `fact`, sometimes inside an unrelated real sentence."""
        own = self.source["kinds"][fact.kind]["tell"]
        if self.held_out:
            return self._fill(rng, rng.choice(own), fact)
        if frames and fact.thing and rng.random() < 0.12:
            return self._fill(rng, self._scatter(rng, rng.choice(frames), ["my {x}", "{v}"]), fact)
        pool = self.source["tell"] if self._has_noun(fact) and rng.random() < 0.2 else own
        return self._dress(rng, self._draw(rng, pool, fact), "tell", fact.value)

    def ask(self, rng: random.Random, fact: Fact, frames: list[str] | None = None) -> str:
        """A user's question for `fact`, sometimes inside an unrelated real sentence."""
        own = self.source["kinds"][fact.kind]["ask"]
        if self.held_out:
            text = self._fill(rng, rng.choice(own), fact)
            return text if text.endswith(("?", ".")) else text + "?"
        if frames and fact.thing and rng.random() < 0.06:
            noun = rng.choice(self.shared["kinds"][fact.kind]["q"])
            return self._fill(rng, self._scatter(rng, rng.choice(frames), [noun]), fact) + "?"
        draw = rng.random()
        pool = own
        if draw < 0.12:
            pool = self.source["ask_clause"]
        elif draw < 0.3 and self._has_noun(fact):
            pool = self.source["ask"]
        return self._dress(rng, self._draw(rng, pool, fact), "ask", fact.value)

    def correct(self, rng: random.Random, fact: Fact, old: str) -> str:
        pool = self.source["kinds"][fact.kind].get("correct") or self.source["correct"]
        if self.held_out:
            return self._fill(rng, rng.choice(pool), fact)
        return self._draw(rng, pool, fact, noisy=False).replace("{old}", old)

    def _draw(self, rng: random.Random, pool: list[str], fact: Fact, noisy: bool = True) -> str:
        """A sentence of the pool that is none of the test's wordings, whatever value and thing it has."""
        blank = Fact(fact.kind, "{x}", "{v}")
        while True:
            core = expand(rng, rng.choice(pool))
            core = self._fill(rng, self._noise(rng, core) if noisy else core, blank)
            if wording(core) not in self.reserved:
                return core.replace("{x}", fact.thing).replace("{v}", fact.value)

    def acknowledge(self, rng: random.Random, fact: Fact, with_value: bool) -> str:
        spec = self.shared["kinds"][fact.kind]
        if not with_value:
            return self._fill(rng, rng.choice(self.shared["ack"]), fact) + "."
        pool = spec.get("ack") or spec.get("ack_value") or self.shared["ack_value"]
        return self._fill(rng, expand(rng, rng.choice(pool)), fact) + "."

    def answer(self, rng: random.Random, fact: Fact) -> str:
        pool = self.shared["kinds"][fact.kind].get("answer") or self.shared["answer"]
        return self._fill(rng, rng.choice(pool), fact) + "."

    def repeat(self, rng: random.Random, fact: Fact) -> tuple[str, str]:
        """A request to say a value again and its answer: copying in its plainest form."""
        said = self._fill(rng, expand(rng, rng.choice(self.shared["repeat"])), fact)
        return said, self._fill(rng, rng.choice(self.shared["repeat_answer"]), fact) + "."

    def deny(self, rng: random.Random, fact: Fact) -> str:
        return self._fill(rng, rng.choice(self.shared["untold"]), fact) + "."

    def noted(self, rng: random.Random) -> str:
        """An acknowledgement of anything."""
        return _sentence(rng.choice([one for one in self.shared["ack"] if "{" not in one]))

    def never_told(self, rng: random.Random) -> str:
        """The answer to any question for what was not told."""
        return _sentence(rng.choice([one for one in self.shared["untold"] if "{" not in one]))

    def smalltalk(self, rng: random.Random, topic: str) -> tuple[str, str]:
        """A (user, assistant) exchange about "greeting", "who", "can", "thanks" or "bye"."""
        said = expand(rng, rng.choice(self.shared["smalltalk"][topic]))
        said = said[:1].upper() + said[1:] if rng.random() < 0.7 else said
        return said, rng.choice(self.shared["smalltalk"][topic + "_answer"])

    def ending(self, rng: random.Random) -> str:
        """A word that every answer must end with."""
        return draw_value(rng, "word", self.held_out)

    def ending_rule(self, rng: random.Random, word: str) -> str:
        """The system prompt that asks for it."""
        return expand(rng, rng.choice(self.shared["smalltalk"]["ending_rule"])).replace("{v}", word)

    def system(self, rng: random.Random) -> str:
        text: str = rng.choice(self.shared["smalltalk"]["system"])
        return text

    def _has_noun(self, fact: Fact) -> bool:
        return "a" in self.shared["kinds"][fact.kind] and fact.kind not in ("instruction", "job")

    def _fill(self, rng: random.Random, text: str, fact: Fact) -> str:
        spec = self.shared["kinds"][fact.kind]
        clause = rng.choice(spec["q"])
        noun = rng.choice(spec.get("a", ["my " + fact.thing]))
        text = text.replace("{ya}", to_assistant(noun)).replace("{yq}", to_assistant(clause))
        text = text.replace("{a}", noun).replace("{q}", clause).replace("{x}", fact.thing)
        text = text.replace("{v}", fact.value)
        return text[:1].upper() + text[1:]

    def _noise(self, rng: random.Random, core: str) -> str:
        """Drops, shortens or lowers words, so that no single wording is relied upon."""
        if rng.random() < 0.3:
            for long, short in _SHORT:
                core = core.replace(long, short)
        words = core.split(" ")
        plain = [i for i, word in enumerate(words) if "{" not in word]
        draw = rng.random()
        if len(plain) > 3 and draw < 0.2:
            del words[rng.choice(plain)]
        elif len(plain) > 3 and draw < 0.3:
            first, second = rng.sample(plain, 2)
            words[first] = words[second]
        core = " ".join(words)
        return core.lower() if rng.random() < 0.15 else core

    def _dress(self, rng: random.Random, text: str, what: str, value: str) -> str:
        """Adds an opener, end punctuation and a closer."""
        opener: str = rng.choice(self.shared[what + "_openers"])
        closer: str = rng.choice(self.shared[what + "_closers"])
        lead = expand(rng, opener)
        if lead:
            lead = lead[:1].upper() + lead[1:] + " "
        starts_high = text.split(" ")[0] in ("I", "I'm") or text.startswith(value)
        if lead.endswith((", ", ": ")) and not starts_high:
            text = text[:1].lower() + text[1:]
        tail = expand(rng, closer)
        if not text.endswith(("?", ".", "!")) and (tail or rng.random() < 0.85):
            text += "?" if what == "ask" and rng.random() < 0.9 else "."
        return lead + text + (" " + tail[:1].upper() + tail[1:] if tail else "")

    def _scatter(self, rng: random.Random, frame: str, parts: list[str]) -> str:
        """Sets the parts into a real sentence: a wording that no list could hold."""
        words = frame.replace("{", "(").replace("}", ")").split(" ")[:14]
        for part in rng.sample(parts, len(parts)):
            words.insert(rng.randint(0, len(words)), part)
        return " ".join(words)
