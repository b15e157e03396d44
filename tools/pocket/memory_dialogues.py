"""Conversations in which facts are told and asked for much later, and the recall test.

Training conversations are drawn for ever and never repeat. The test uses other phrasings,
other values (values.is_held_out) and other real dialogue.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import cycle, islice

from h2o_chat.lab.recall import Question

from .phrases import Fact, PhraseBook


@dataclass(frozen=True)
class Turn:
    """One message; `value` is the part of it that was told or recalled, None in real text."""

    role: str
    content: str
    value: str | None = None


Exchange = tuple[Turn, Turn]
"""What a user said and what was answered."""
Measure = Callable[[Turn], int]
"""The number of tokens that a turn adds to a conversation."""


def with_reminder(passages: list[str], question: str) -> str:
    """A question with passages from earlier in the conversation put before it, marked."""
    return f"[Earlier: {' / '.join(passages)}]\n{question}"


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
        for _ in range(wanted):
            fact = self.book.draw_fact(rng)
            facts.setdefault(fact.key, fact)
        events: list[tuple[float, Exchange]] = []
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
            elif draw > 0.95:
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
                # Near questions teach copying soon, far ones use the rest of the window.
                near = since + 20 * 15 ** rng.random()
                far = rng.uniform(since, budget)
                at = min(near, far) if rng.random() < 0.4 else far
                events.append((at, self._asked(rng, known)))
        return events

    def _told(self, rng: random.Random, group: list[Fact]) -> Exchange:
        said = " ".join(self.book.tell(rng, fact, self.frames) for fact in group)
        if rng.random() < 0.1:
            said = f"{rng.choice(self.frames)} {said}"
        repeated = group[-1] if rng.random() < 0.5 else None
        reply = self.book.acknowledge(rng, group[-1], repeated is not None)
        values = group[0].value if len(group) == 1 else said
        return Turn("user", said, values), Turn("assistant", reply, repeated.value if repeated else "")

    def _asked(self, rng: random.Random, fact: Fact) -> Exchange:
        return self._answered(rng, self.book.ask(rng, fact, self.frames), fact)

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
        passages = [self.book.tell(rng, fact, self.frames)]
        passages += rng.sample(self.frames, rng.randint(0, 2))
        rng.shuffle(passages)
        return self._answered(rng, with_reminder(passages, self.book.ask(rng, fact)), fact)

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


def _ending_with(word: str, turn: Turn) -> Turn:
    """The same turn by an assistant who was told to end every answer with `word`."""
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
    start = rng.randrange(len(exchanges))
    for pair in islice(cycle(exchanges), start, None):
        size = sum(map(measure, pair))
        if distance >= gap or distance + size > longest:
            break
        between += pair
        distance += size
    turns = [*before, *between, Turn("user", book.ask(rng, fact))]
    messages = [{"role": turn.role, "content": turn.content} for turn in turns]
    return Question(messages, distance, None if untold else fact.value, stale, kind)


def _told(book: PhraseBook, rng: random.Random, fact: Fact) -> Exchange:
    reply = book.acknowledge(rng, fact, with_value=False)
    return Turn("user", book.tell(rng, fact)), Turn("assistant", reply)
