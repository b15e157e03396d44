"""`eval recall --generate`: made-up conversations that the model itself answers, as in a chat."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from h2o_chat.base.config import Sampling
from h2o_chat.base.errors import BudgetError
from h2o_chat.base.progress import Tick, part, unheard
from h2o_chat.chat.conversation import pinning
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.engine.engine import Engine
from h2o_chat.engine.runner import trained_positions
from h2o_chat.events.events import Turn
from h2o_chat.lab.eval.long_recall import BARE, LongRecallReport, shares_of
from h2o_chat.lab.eval.recall_questions import ANSWER_TOKENS, Question, Share, is_right
from h2o_chat.lab.eval.synthetic_conversations import KINDS, write
from h2o_chat.lab.shared.measured_results import Results, key
from h2o_chat.lab.shared.policy_runs import Run
from h2o_chat.models.load import Loaded


class Answered:
    """Written message by message, as a `Script` is; the model answers each.

    Args:
        chat: a new one.
    """

    def __init__(self, chat: Chat) -> None:
        self.chat = chat
        self.answers: list[str] = []
        """Answers to the questions, in order."""

    @property
    def tokens(self) -> int:
        """Tokens fed so far."""
        return self.chat.engine.seen

    def say(self, role: str, text: str) -> range:
        """Says a user's message, not a made-up answer; the positions of its tokens."""
        if role == "user":
            self._send(text)
        user = self.chat.messages[-2]
        return range(user.first, user.last + 1)

    def pin(self, _: range) -> None:
        """Protects the message that was said last; where so many cannot be protected it is not."""
        with suppress(BudgetError):
            list(pinning.pin(self.chat, len(self.chat.messages) - 2))

    def ask(self, text: str, recall: bool = False) -> None:
        """Asks a question, which the rest of the conversation does not know of."""
        chat, before = self.chat, len(self.chat.messages)
        state = chat.engine.snapshot()
        chat.settings = replace(chat.settings, recall="auto" if recall else "off")
        self.answers.append(self._send(text))
        chat.engine.restore(state, hand_over=True)
        del chat.messages[before:]

    def _send(self, text: str) -> str:
        sampling = Sampling(max_tokens=ANSWER_TOKENS)
        return next(event.text for event in self.chat.send(text, sampling) if isinstance(event, Turn))


def _answers(
    loaded: Loaded, run: Run, tokens: int, seeds: Sequence[str], recall: bool, tick: Tick
) -> tuple[list[list[str]], list[dict[str, Any]]]:
    """Answers of every conversation, without recall, then with it; all questions in order, as JSON."""
    found, questions = [], list[dict[str, Any]]()
    for number, seed in enumerate(seeds):
        settings = replace(run.settings(), recall="off")
        script, asked = write(Answered(Chat(Engine(loaded, settings), settings)), tokens, seed, recall)
        found.append(script.answers)
        questions += map(asdict, asked)
        script.chat.close()
        tick((number + 1) / len(seeds))
    return found, questions


def measure(
    loaded: Loaded,
    tokens: int,
    conversations: int,
    seed: int,
    runs: Sequence[Run],
    tick: Tick = unheard,
    results: Results | None = None,
    recall: bool = False,
) -> LongRecallReport:
    """Measures the facts with nothing in between first, then every run.

    Args:
        runs: without the cache that keeps everything, which a long conversation does not fit.
        results: what is there already is not measured again.
        recall: each is asked once more with what is gone told again.
    """
    results, shares, known = results or Results(None), list[Share](), list[bool]()
    seeds = [f"{seed} {number}" for number in range(conversations)]
    ways = [(Run(), 0), *((run, tokens) for run in runs)]
    for done, (run, length) in enumerate(ways):
        again = recall and length > 0
        where = key(loaded, "answered", [length, seeds, again], policy=run.name, budget=run.budget)
        told = part(tick, done, len(ways))
        said, rows = results.once(where, partial(_answers, loaded, run, length, seeds, again, told))
        questions = [Question(**row) for row in rows]
        for at, name in enumerate((run.name, f"{run.name}, recall")[: 1 + again]):
            each = [answer for one in said for answer in one[at * KINDS.total() : (at + 1) * KINDS.total()]]
            right = [is_right(*pair) for pair in zip(questions, each, strict=True)]
            known = known or right
            shares += shares_of(
                name if length else BARE, run.budget, questions, right, known, tokens, True, run.budget
            )
    window = trained_positions(loaded).window
    return LongRecallReport(loaded.name, tokens, conversations, window, False, shares)
