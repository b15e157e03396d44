"""Questions for what was told earlier, and which answers are right."""

import re
from dataclasses import dataclass

ANSWER_TOKENS = 32
_NOT_TOLD = re.compile(r"(?:\bnot\b|\bnever\b|n't\b).*\b(?:told|tell|mentioned|know)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Question:
    messages: list[dict[str, str]]
    """{"role", "content"}, the question last."""
    distance: int
    """Tokens between the telling and the question."""
    expected: str | None
    """The value; None where it was never told, and the right answer says so."""
    stale: str | None = None
    """The value before a correction: an answer with it is wrong."""
    kind: str = ""


def is_right(question: Question, answer: str) -> bool:
    """True if an answer holds the value and not the one it replaced, or says that it was not told."""
    if question.expected is None:
        return _NOT_TOLD.search(answer) is not None
    if question.stale and holds(answer, question.stale):
        return False
    return holds(answer, question.expected)


def holds(answer: str, value: str) -> bool:
    """True if the value stands in the answer as a whole: 14 is not in 149."""
    return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", answer, re.IGNORECASE) is not None
