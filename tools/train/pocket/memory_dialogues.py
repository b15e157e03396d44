"""Conversations in which facts are told and asked for much later, and the recall test.

Training conversations are drawn for ever and never repeat. The test uses other phrasings,
other values (values.is_held_out) and other real dialogue.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import cycle, islice

from h2o_chat.lab.eval.synthetic_talk import Question

from .everyday import Everyday, draw_everyday
from .phrases import Fact, PhraseBook


@dataclass(frozen=True)
class Turn:
    """One message; `value` is the part of it that was told or recalled, None in real text."""

    role: str
    content: str
    value: str | None = None


Exchange = tuple[Turn, Turn]
"""A user's message and its answer."""
Measure = Callable[[Turn], int]
"""The number of tokens that a turn adds to a conversation."""


EVERYDAY = 0.45
"""Share of facts that are of everyday life; the others are of fourteen kinds."""
WRONG_REMINDERS = 0.25
"""Share of reminders that do not answer the question."""


def with_reminder(words: str, question: str) -> str:
    """A question with earlier words told again in front of it, like `chat/conversation/message.py`."""
    return f"I said before: {words}{'.' if words[-1:].isalnum() else ''} {question}"


class MemoryWriter:
    """Draws training conversations of about `budget` tokens around real exchanges."""

    def __init__(self, filler: Iterator[Exchange], frames: list[str], measure: Measure) -> None:
        self.book = PhraseBook()
        self.filler = filler
        self.frames = frames
        self.measure = measure
        self.denials = 0.25
        """Questions for something that was never told, for each fact that was."""

    def conversation(self, rng: random.Random, budget: int) -> list[Turn]:
        word = self.book.ending(rng) if rng.random() < 0.08 else None
        turns = self._opening(rng, word)
        position = sum(map(self.measure, turns))
        for at, exchange in self._schedule(rng, budget):
            while position < at:
                pair = next(self.filler)
                turns += pair
                position += sum(map(self.measure, pair))
            turns += exchange
            position += sum(map(self.measure, exchange))
            if rng.random() < 0.1:
                turns += self._smalltalk(rng, "thanks")
            if position > budget:
                break
        return turns if word is None else [_ending_with(word, turn) for turn in turns]

    def _opening(self, rng: random.Random, word: str | None) -> list[Turn]:
        turns = []
        if word is not None:
            turns.append(Turn("system", self.book.ending_rule(rng, word)))
        elif rng.random() < 0.1:
            turns.append(Turn("system", self.book.system(rng)))
        if rng.random() < 0.2:
            turns += self._smalltalk(rng, "greeting")
        if rng.random() < 0.08:
            turns += self._smalltalk(rng, rng.choice(["who", "can"]))
        return turns

    def _smalltalk(self, rng: random.Random, topic: str) -> Exchange:
        said, answer = self.book.smalltalk(rng, topic)
        return Turn("user", said), Turn("assistant", answer)

    def _schedule(self, rng: random.Random, budget: int) -> list[tuple[float, Exchange]]:
        """(position, exchange) in order: tells, corrections, questions, denials, reminders."""
        wanted = max(1, round(budget * rng.uniform(0.5, 1.5) / 80))
        facts: dict[tuple[str, str], Fact] = {}
        events: list[tuple[float, Exchange]] = []
        lines = set()
        for _ in range(wanted):
            if rng.random() < EVERYDAY:
                one = draw_everyday(rng)
                if one.line["tell"][0] not in lines:  # the same told twice would be a correction
                    events += self._everyday(rng, one, budget)
                lines.add(one.line["tell"][0])
                continue
            fact = self.book.draw_fact(rng)
            facts.setdefault(fact.key, fact)
        pending = list(facts.values())
        while pending:
            draw = rng.random()
            size = 1 if draw < 0.7 else 2 if draw < 0.9 else 3
            group, pending = pending[:size], pending[size:]
            told_at = rng.uniform(0, 0.1 if rng.random() < 0.25 else 0.8) * budget
            if draw < 0.08:
                events.append((told_at, self._told_and_asked(rng, group[0])))
            elif draw < 0.16:
                events.append((told_at, self._repeated(rng, group[0])))
            elif draw > 0.88:
                events.append((told_at, self._reminded(rng, group[0])))
            else:
                events += self._told_then_asked(rng, group, told_at, budget)
        for _ in range(round(len(facts) * rng.uniform(0, 2 * self.denials))):
            other = self.book.draw_fact(rng)
            if other.key not in facts:
                events.append((rng.uniform(0, budget), self._denied(rng, other)))
        return sorted(events, key=lambda event: event[0])

    def _told_then_asked(
        self, rng: random.Random, group: list[Fact], told_at: float, budget: int
    ) -> list[tuple[float, Exchange]]:
        events: list[tuple[float, Exchange]] = [(told_at, self._told(rng, group))]
        for fact in group:
            known, since = fact, told_at
            if rng.random() < 0.15:
                since = told_at + rng.uniform(1, 0.4 * (budget - told_at))
                known, correction = self._corrected(rng, fact)
                events.append((since, correction))
            for _ in range(rng.choice([1, 1, 1, 2, 2, 3])):
                events.append((_later(rng, since, budget), self._asked(rng, known)))
        return events

    def _everyday(self, rng: random.Random, fact: Everyday, budget: int) -> list[tuple[float, Exchange]]:
        """A fact of everyday life: told, asked for, sometimes corrected; or told again with the question."""
        told_at = rng.uniform(0, 0.1 if rng.random() < 0.25 else 0.8) * budget
        if rng.random() < 0.12:
            return [(told_at, self._reminded_everyday(rng, fact))]
        events = [(told_at, self._noted(rng, fact.tell(rng)))]
        since = told_at
        if rng.random() < 0.12:
            since = told_at + rng.uniform(1, 0.4 * (budget - told_at))
            fact = fact.changed(rng, rng.choice(list(fact.values)))
            events.append((since, self._noted(rng, f"{rng.choice(_SORRY)} {fact.tell(rng)}")))
        for letter in fact.values:
            for _ in range(rng.choice([1, 1, 2])):
                asked = self._answered_everyday(rng, fact, letter, fact.ask(rng, letter))
                events.append((_later(rng, since, budget), asked))
        if rng.random() < 0.6 * self.denials:
            events.append((_later(rng, told_at, budget), self._unknown(rng, fact.ask_untold(rng))))
        if rng.random() < 0.3 * self.denials:
            never = draw_everyday(rng)
            asked = self._unknown(rng, never.ask(rng, rng.choice(list(never.values))))
            events.append((rng.uniform(0, budget), asked))
        return events

    def _noted(self, rng: random.Random, said: str) -> Exchange:
        return Turn("user", said, said), Turn("assistant", self.book.noted(rng), "")

    def _answered_everyday(self, rng: random.Random, fact: Everyday, letter: str, said: str) -> Exchange:
        return Turn("user", said, ""), Turn("assistant", fact.answer(letter), fact.values[letter])

    def _reminded_everyday(self, rng: random.Random, fact: Everyday) -> Exchange:
        if rng.random() < WRONG_REMINDERS:
            return self._unknown(rng, with_reminder(fact.tell(rng), fact.ask_untold(rng)))
        letter = rng.choice(list(fact.values))
        said = with_reminder(fact.tell(rng), fact.ask(rng, letter))
        return self._answered_everyday(rng, fact, letter, said)

    def _unknown(self, rng: random.Random, said: str) -> Exchange:
        return Turn("user", said, ""), Turn("assistant", self.book.never_told(rng), "")

    def _told(self, rng: random.Random, group: list[Fact]) -> Exchange:
        said = " ".join(self.book.tell(rng, fact, self.frames) for fact in group)
        if rng.random() < 0.1:
            said = f"{rng.choice(self.frames)} {said}"
        repeated = group[-1] if rng.random() < 0.5 else None
        reply = self.book.acknowledge(rng, group[-1], repeated is not None)
        values = group[0].value if len(group) == 1 else said
        return Turn("user", said, values), Turn("assistant", reply, repeated.value if repeated else "")

    def _asked(self, rng: random.Random, fact: Fact) -> Exchange:
        said = self.book.ask(rng, fact, self.frames)
        if rng.random() < 0.05:  # other words were told again; the fact stands further back
            said = with_reminder(self._other_words(rng, fact), said)
        return self._answered(rng, said, fact)

    def _answered(self, rng: random.Random, question: str, fact: Fact) -> Exchange:
        answer = Turn("assistant", self.book.answer(rng, fact), fact.value)
        return Turn("user", question, ""), answer

    def _told_and_asked(self, rng: random.Random, fact: Fact) -> Exchange:
        said = f"{self.book.tell(rng, fact)} {self.book.ask(rng, fact)}"
        return self._answered(rng, said, fact)

    def _repeated(self, rng: random.Random, fact: Fact) -> Exchange:
        said, reply = self.book.repeat(rng, fact)
        return Turn("user", said, fact.value), Turn("assistant", reply, fact.value)

    def _reminded(self, rng: random.Random, fact: Fact) -> Exchange:
        if rng.random() < WRONG_REMINDERS:
            said = with_reminder(self._other_words(rng, fact), self.book.ask(rng, fact))
            return Turn("user", said, ""), Turn("assistant", self.book.deny(rng, fact), "")
        told = self.book.tell(rng, fact, self.frames)
        if rng.random() < 0.2:
            told = f"{rng.choice(self.frames)} {told}"
        return self._answered(rng, with_reminder(told, self.book.ask(rng, fact)), fact)

    def _other_words(self, rng: random.Random, fact: Fact) -> str:
        """Something told that does not tell this."""
        other = self.book.draw_fact(rng)
        if other.key == fact.key or rng.random() < 0.4:
            return draw_everyday(rng).tell(rng)
        return self.book.tell(rng, other)

    def _corrected(self, rng: random.Random, fact: Fact) -> tuple[Fact, Exchange]:
        fresh = self.book.draw_fact(rng, fact.kind)
        known = Fact(fact.kind, fact.thing, fresh.value)
        said = self.book.correct(rng, known, fact.value)
        if rng.random() < 0.5:
            reply = Turn("assistant", self.book.acknowledge(rng, known, True), known.value)
        else:
            reply = Turn("assistant", self.book.acknowledge(rng, known, False), "")
        return known, (Turn("user", said, known.value), reply)

    def _denied(self, rng: random.Random, fact: Fact) -> Exchange:
        reply = self.book.deny(rng, fact)
        return Turn("user", self.book.ask(rng, fact, self.frames), ""), Turn("assistant", reply, "")


_SORRY = ("Sorry, I got that wrong.", "I made a mistake:", "That has changed.", "Correction:", "No, wait.")


def _later(rng: random.Random, since: float, budget: int) -> float:
    """Near questions teach copying soon, far ones use the rest of the window."""
    near = since + 20 * 15 ** rng.random()
    far = rng.uniform(since, budget)
    return min(near, far) if rng.random() < 0.4 else far


def _ending_with(word: str, turn: Turn) -> Turn:
    """Turn by an assistant who was told to end every answer with `word`."""
    return replace(turn, content=f"{turn.content} {word}") if turn.role == "assistant" else turn


def recall_questions(
    exchanges: list[Exchange],
    measure: Measure,
    ranges: list[tuple[int, int]],
    per_cell: int,
    seed: int = 1,
) -> list[Question]:
    """Test questions: `per_cell` of every kind in every range of distances.

    Kinds are those of the facts and "correction" and "not told". Phrasings and values are
    the held-out ones; `exchanges` is real dialogue in order, never trained on.
    """
    book, rng = PhraseBook(held_out=True), random.Random(seed)
    questions = []
    for low, high in ranges:
        for kind in [*book.kinds, "correction", "not told"]:
            for _ in range(per_cell):
                gap = rng.randint(low, high)
                questions.append(_recall_question(book, rng, exchanges, measure, kind, gap, high))
    return questions


EVERYDAY_KINDS = ("everyday", "everyday, told again", "everyday, not told")


def everyday_questions(
    exchanges: list[Exchange],
    measure: Measure,
    ranges: list[tuple[int, int]],
    per_cell: int,
    seed: int = 1,
) -> list[Question]:
    """Questions on facts of everyday life, written for the test by somebody else (`held_out_everyday.jsonl`).

    Also with the fact told again in front of the question and nowhere else, and for what it does not answer.
    """
    rng = random.Random(seed)
    questions = []
    for low, high in ranges:
        for kind in EVERYDAY_KINDS:
            for _ in range(per_cell):
                fact = draw_everyday(rng, held_out=True)
                letter = rng.choice(list(fact.values))
                asked = fact.ask(rng, letter)
                before = [Turn("user", fact.tell(rng)), Turn("assistant", "Okay.")]
                expected: str | None = fact.values[letter]
                if kind == "everyday, told again":
                    before, asked = [], with_reminder(before[0].content, asked)
                elif kind == "everyday, not told":
                    expected, asked = None, fact.ask_untold(rng)
                between, distance = _between(rng, exchanges, measure, rng.randint(low, high), high)
                turns = [*before, *between, Turn("user", asked)]
                messages = [{"role": turn.role, "content": turn.content} for turn in turns]
                questions.append(Question(messages, distance, expected, None, kind))
    return questions


def _between(
    rng: random.Random, exchanges: list[Exchange], measure: Measure, gap: int, longest: int
) -> tuple[list[Turn], int]:
    """Real dialogue of about `gap` tokens, at most `longest`, and how many they are."""
    turns: list[Turn] = []
    distance = 0
    for pair in islice(cycle(exchanges), rng.randrange(len(exchanges)), None):
        size = sum(map(measure, pair))
        if distance >= gap or distance + size > longest:
            return turns, distance
        turns += pair
        distance += size
    raise AssertionError("a cycle does not end")


def _recall_question(
    book: PhraseBook,
    rng: random.Random,
    exchanges: list[Exchange],
    measure: Measure,
    kind: str,
    gap: int,
    longest: int,
) -> Question:
    fact = book.draw_fact(rng, kind if kind in book.kinds else None)
    others = [book.draw_fact(rng) for _ in range(rng.randint(1, 3))]
    others = [other for other in others if other.kind != fact.kind]
    untold, stale = kind == "not told", None
    before: list[Turn] = []
    if others and rng.random() < 0.5:
        before += _told(book, rng, others.pop())
    if kind == "correction":
        stale = book.draw_fact(rng, fact.kind).value
        before += _told(book, rng, Fact(fact.kind, fact.thing, stale))
        said = book.correct(rng, fact, stale)
        before += (Turn("user", said), Turn("assistant", "Okay."))
    elif not untold:
        before += _told(book, rng, fact)
    tail = measure(before[-1]) if before else 0
    between = [turn for other in others for turn in _told(book, rng, other)]
    distance = tail + sum(map(measure, between))
    more, size = _between(rng, exchanges, measure, gap - distance, longest - distance)
    between += more
    distance += size
    turns = [*before, *between, Turn("user", book.ask(rng, fact))]
    messages = [{"role": turn.role, "content": turn.content} for turn in turns]
    return Question(messages, distance, None if untold else fact.value, stale, kind)


def _told(book: PhraseBook, rng: random.Random, fact: Fact) -> Exchange:
    reply = book.acknowledge(rng, fact, with_value=False)
    return Turn("user", book.tell(rng, fact)), Turn("assistant", reply)
