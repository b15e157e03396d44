"""Loops: conversations whose answers repeat each other, and answers that repeat themselves.

Small models copy. An answer that repeats an earlier one makes the next one repeat it too, until one sentence
is left. Three repeating answers of four begin a loop, so that a refrain, a table or code asked for once more
changes nothing. 32 answers in a row that do not repeat end it; from then on one that does begins another.
In a loop two things are done before a message is read (docs/STUCK.md has the evidence):

- The memory evicts all that the model itself said, with the tokens by which the template opens each answer:
  else larger models read that they said nothing, and say nothing. What people said stays.
- The answer may begin as an earlier one did, but not go on so (`engine/request.py`).

The words alone decide, so a conversation that is resumed, or that a client sends anew, is treated alike; the
transcript keeps everything. Calls of tools do not count, and a grammar that forces the answer rules this out.
"""

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from h2o_chat.chat.conversation.message import Message
from h2o_chat.chat.templates.chat_template import Template, literal
from h2o_chat.chat.templates.thinking import Thinking
from h2o_chat.engine.request import EarlierAnswer
from h2o_chat.events.events import Note
from h2o_chat.store import StoredMessage

if TYPE_CHECKING:  # importing torch takes seconds
    from h2o_chat.engine.row import Row

BEFORE = 8
"""Number of earlier answers that one is compared with."""
SHARE = 0.5
"""Share of an answer's grams that must stand in earlier ones, so that it counts as repeating."""
LEAST_WORDS = 5
"""A shorter answer repeats nothing: "Yes." answers many questions. "No, no, no, no, no" does."""
LONG_GRAMS = 100
"""Above this length all grams must be repeated: letters and stories are often repeated with small changes."""
OF, BEGIN = 4, 3
"""BEGIN of the last OF answers must repeat: then a loop begins."""
END = 32
"""This many answers in a row must not repeat: then it ends. The next one that repeats begins another."""
MOST_TOKENS = 512
"""In a loop an answer of which nobody chose the length has at most so many tokens: barred from what it would
repeat, a small model may babble to the end.
"""
LOOKED_AT = 128
COMPARED_CHARACTERS = 4000
"""Length to which messages and answers are cut: what is compared is kept for the next time."""
AVOIDED = 64
"""Number of earlier answers that may not be continued: it takes 100 microseconds to tokenise one."""
FREE_TOKENS = 8
"""An answer may begin with this many tokens of an earlier one, but with half of it at most."""
LINES, LINE_WORDS = 4, 10
"""An answer of at least LINES lines loses those below LINE_WORDS words before it is compared: people ask for
verse, lists, tables and code once more with a small change.
"""

Grams = frozenset[tuple[str, ...]]


Spoken = Message | StoredMessage


@dataclass(frozen=True)
class Loop:
    """A loop: the memory evicts what the model said before the next message is read."""

    begins: bool
    """The message before was not in a loop yet."""
    others: tuple[str, ...]
    """Answers that the next one must not continue."""


BROKEN = Note(
    "stuck",
    "The answers repeat each other: the memory gives them up, and for a while they are made to differ.",
    "What you said stays, and the transcript keeps everything.",
)


def loop_in(messages: Sequence[Spoken], asked: str, thinking: Thinking | None = None) -> Loop | None:
    """The loop that a conversation is in before `asked` is read; None: none. Thoughts are not compared."""
    answered = thinking.answered if thinking else str
    newest = messages[-2 * LOOKED_AT - 1 :]
    roles = [one.role for one in newest]
    said = [
        (newest[at].text[:COMPARED_CHARACTERS], _clipped(answered(newest[at + 1].text)))
        for at in range(len(roles))
        if roles[at : at + 3] in (["user", "assistant"], ["user", "assistant", "user"])
    ]
    flags = [_repeats(tuple(said[max(0, at - BEFORE) : at + 1])) for at in range(len(said))]
    if not _goes_on(flags):
        return None
    others = dict.fromkeys(
        answer
        for message, answer in said[-AVOIDED:]
        if not same_question(message, asked[:COMPARED_CHARACTERS])
    )
    return Loop(not _goes_on(flags[:-1]), tuple(others))


def break_loop(
    engine: "Row",
    template: Template,
    messages: Sequence[Spoken],
    asked: str,
    notes: list[Note],
    recalls: bool,
) -> list[EarlierAnswer]:
    """Evicts what the model said, where that is due; returns answers that the next must not continue."""
    # Only the engine of `run` can have a grammar.
    if getattr(engine, "grammar", "") or (loop := loop_in(messages, asked, template.thinking)) is None:
        return []
    if loop.begins:
        notes.append(BROKEN)
    engine.evict_generated(openings(template, messages))
    # An answer to what is recalled may have been given before, but it has words.
    others = [answer for answer in loop.others if not (recalls and answer.strip())]
    return tokenized(engine.tokenizer, engine.eos, others)


def openings(template: Template, messages: Sequence[Spoken]) -> list[int]:
    """Positions of the tokens by which the template opened the answers."""
    first = [one.first for one in messages if one.role == "assistant" and one.first >= 0]
    return [at for begin in first for at in range(max(0, begin - template.opening_tokens), begin)]


def tokenized(
    tokenizer: Any, eos: AbstractSet[int], answers: Sequence[str], free: int = FREE_TOKENS
) -> list[EarlierAnswer]:
    """Answers that the next one must not continue beyond `free` tokens, or half of it.

    Where one of them is empty the next one must not end at once.
    """
    ids = [tuple(literal(tokenizer, answer)) for answer in answers]
    found = [EarlierAnswer(one, min(free, len(one) // 2)) for one in ids if one]
    silent = any(not answer.strip() for answer in answers)
    return found + [EarlierAnswer((end,), 0) for end in sorted(eos) if silent]


def same_question(message: str, other: str) -> bool:
    return message.casefold().split() == other.casefold().split()


def _goes_on(flags: Sequence[int]) -> bool:
    """Whether a loop has begun and not ended, by what `_repeats` says of each answer."""
    on = before = False
    for at in range(len(flags)):
        on = on or sum(flags[max(0, at - OF + 1) : at + 1]) >= (1 if before else BEGIN)
        on = on and any(flags[max(0, at - END + 1) : at + 1])
        before = before or on
    return on


def _clipped(answer: str) -> str:
    """Its beginning, which another may copy, and its end, where it may repeat itself."""
    half = COMPARED_CHARACTERS // 2
    return answer if len(answer) <= COMPARED_CHARACTERS else answer[:half] + answer[-half:]


@lru_cache(maxsize=8 * LOOKED_AT)
def _repeats(said: tuple[tuple[str, str], ...]) -> int:
    """1 where the last answer repeats those before it to other messages, or only its own message; BEGIN where
    it repeats itself, which begins a loop at once; else 0."""
    *before, (message, answer) = said
    if repeated_words(answer, message):
        return BEGIN
    if not answer.strip():
        return any(not one.strip() for _, one in before)
    found = _prose(answer)
    if not found or len(_WORD.findall(answer)) < LEAST_WORDS:
        return False
    others = [_prose(one) for other, one in before if not same_question(other, message)]
    again, only = len(found & frozenset().union(*others)), len(found & _prose(message))
    if len(found) > LONG_GRAMS:
        return len(found) in (again, only)
    return again >= SHARE * len(found) or only >= ALIKE * len(found)


@lru_cache(maxsize=2 * LOOKED_AT)
def _prose(text: str) -> Grams:
    """The grams of a text that are compared."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    few = len(lines) < LINES
    return grams(" ".join(" ".join(words) for words in lines if few or len(words) >= LINE_WORDS))


GRAM_WORDS = 3
ALIKE = 0.8
"""Share of an answer's grams that stand in another one, from which on both count as the same."""
_WORD = re.compile(r"\w+")


def grams(text: str) -> Grams:
    """Every three consecutive words; an answer of fewer words is one gram."""
    words = _WORD.findall(text.casefold())
    size = min(GRAM_WORDS, len(words))
    return frozenset(zip(*(words[at:] for at in range(size)), strict=False)) if size else frozenset()


def alike(answer: Grams, earlier: Grams) -> bool:
    return bool(answer) and len(answer & earlier) >= ALIKE * len(answer)


TIMES = 4
"""An answer repeats itself that ends with a piece so many times in a row,"""
PIECE_WORDS = range(3, 129)
"""which has so many words, of which at least the first number differ, and which nobody asked for."""


def repeated_words(answer: str, asked: str) -> int:
    """Length in words of the piece that an answer says again and again at its end; 0: there is none.

    Args:
        asked: the message. Its words may be repeated: people ask for a sentence twenty times.
    """
    words, wanted = _WORD.findall(answer.casefold()), f" {' '.join(_WORD.findall(asked.casefold()))} "
    for length in range(PIECE_WORDS.start, min(PIECE_WORDS.stop, len(words) // TIMES + 1)):
        if _ends_with_turns(words, length, TIMES * length):
            end = words[-TIMES * length :]
            turned = (end[at : at + length] for at in range(length))
            meant = any(f" {' '.join(piece)} " in wanted for piece in turned)
            return 0 if meant or len(set(end)) < PIECE_WORDS.start else length
    return 0


LONGEST_TOKENS = 64
"""The longest piece whose repetition is noticed."""
ENOUGH_TOKENS, ENOUGH_TIMES = 256, 16
"""A loop inside an answer is this many tokens of one piece, and this many times: similar rows of a table are
no loop. Who asks for a hundred equal lines gets these, and is told how to get more.
"""
EVERY_TOKENS = 16
"""Tokens between two looks; one takes 60 microseconds."""
_KEPT = LONGEST_TOKENS * ENOUGH_TIMES


class Repeating:
    """Notices when one answer repeats itself."""

    def __init__(self, asked: str) -> None:
        self.words = self.tokens = 0
        """Length of the repeated piece; 0 while nothing repeats."""
        self.ends_answer = False
        """The answer is ended when it repeats itself: nobody has chosen its length."""
        self._asked, self._text = asked, ""
        self._newest: list[int] = []
        self._heard = 0

    def note_token(self, token: int, text: str) -> None:
        self._newest.append(token)
        self._text += text
        self._heard += 1
        if self.words or self.tokens or self._heard % EVERY_TOKENS:
            return
        self._newest, self._text = self._newest[-_KEPT:], self._text[-COMPARED_CHARACTERS:]
        self.words = repeated_words(self._text, self._asked)
        lengths = ((one, max(ENOUGH_TOKENS, one * ENOUGH_TIMES)) for one in range(1, LONGEST_TOKENS + 1))
        self.tokens = next((one for one, of in lengths if _ends_with_turns(self._newest, one, of)), 0)

    @property
    def piece(self) -> str:
        """The repeated piece in words for people; empty while nothing repeats."""
        count = self.words or self.tokens
        unit = ("word" if self.words else "token") + "s" * (count > 1)
        return f"the same {count} {unit}" if count > 1 else f"the same {unit}" * count


def _ends_with_turns(items: Sequence[str] | Sequence[int], length: int, count: int) -> bool:
    """Whether the last `count` items are one piece of this length, again and again."""
    if len(items) < count or items[-1] != items[-1 - length]:
        return False
    return items[-count + length :] == items[-count:-length]
