"""An answer as it grows: tokens are chosen and become text, until something ends it."""

import math
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from torch import Tensor

from h2o_chat.base.config import Sampling
from h2o_chat.base.errors import ModelError
from h2o_chat.engine.detokenize import LONGEST_CHARACTER_TOKENS, Detokenizer, StopText
from h2o_chat.engine.observer import lost_per_token
from h2o_chat.engine.request import NO_WISHES, AnswersToAvoid, Chance, EarlierAnswer, Wishes
from h2o_chat.engine.row import Row
from h2o_chat.events.events import Finish, Token, Turn


class Answer:
    """The answer of a row after `ids`, other than `others`; its caller feeds the chosen tokens."""

    def __init__(
        self,
        row: Row,
        ids: Sequence[int],
        sampling: Sampling,
        others: Sequence[EarlierAnswer] = (),
        wishes: Wishes = NO_WISHES,
    ) -> None:
        self.row, self.sampling = row, sampling
        self.finish: Finish | None = None  # None while it grows
        self.new_tokens = 0
        self.prompt_tokens = 0  # tokens read before it; 0 until all of them are read
        self.ttft_ms = 0.0
        before = [*row.pending, *ids[-LONGEST_CHARACTER_TOKENS:]]
        self._detokenizer = Detokenizer(row.tokenizer, before, shown=row.shown)
        self._stop = StopText(sampling.stop)
        self._avoided = AnswersToAvoid(others)
        self.logit_changes = LogitChanges(wishes)
        self._text: list[str] = []
        self._looks = 0
        self.state_due = False  # whether a `cache` event comes before the token chosen last is fed
        self._lost_before = row.observer.lost_mark()
        self._choose_ms = self._step_ms = self._decode_ms = 0.0

    def choose(self, logits: Tensor, ahead: bool = False) -> Token:
        """Chooses the next token from logits [V], which waits in the row until it is fed, or sets `finish`.

        Args:
            ahead: the token may be fed on the GPU before its id is known here (`graph/ahead.py`), unless it
                ends the answer or a `cache` event comes before.

        Raises:
            GenerationError: the logits cannot be sampled from.
            ModelError: the tokenizer fails on it.
        """
        began = time.perf_counter()
        changes = self.logit_changes.changes(self._avoided.refused())
        self.state_due = self._state_due()
        ahead = (
            ahead
            and not self.state_due
            and self.logit_changes.wishes.chances is None  # else that step overwrites the logits
            and self.new_tokens + 1 != self.sampling.max_tokens
        )
        token = self.row.choose(self.logit_changes.allowed(logits), self.sampling, changes, ahead)
        self._avoided.note_token(token)
        self.logit_changes.note_chosen(token, logits)
        self.row.pending = (token,)
        self.new_tokens += 1
        text = self._stop.add(self._detokenizer.add(token))
        self.finish = self._finish(token)
        if self.finish in ("eos", "length"):
            text += self._rest()
        self._text.append(text)
        self._choose_ms = ms_since(began)
        self.ttft_ms += self._choose_ms if self.new_tokens == 1 else 0
        return Token(token, text, self.row.seen, self._step_ms + self._choose_ms)

    def note_fed(self, step_ms: float) -> None:
        """Note that the token chosen last was fed, in this time."""
        self.row.pending = ()
        self._step_ms = step_ms
        self._decode_ms += step_ms + self._choose_ms

    def ended(self, finish: Finish) -> Turn:
        self.row.runner.sync_cache()
        steps, kept = self.new_tokens - 1, self.row.kept
        with suppress(ModelError):  # it has failed before, in the answer
            self._text.append(self._rest())
        # After an error the cache may have no attention to count.
        lost = 0.0 if finish == "error" else lost_per_token(self._lost_before, self.row.observer.lost_mark())
        return Turn(
            text="".join(self._text),
            finish=finish,
            prompt_tokens=self.prompt_tokens,
            new_tokens=self.new_tokens,
            ttft_ms=self.ttft_ms,
            tok_s=1000 * steps / self._decode_ms if steps > 0 else 0.0,
            seen=self.row.seen,
            kept=kept,
            evicted=self.row.seen - kept,
            lost=lost,
            stop=self._stop.found,
        )

    def _state_due(self) -> bool:
        """Whether a `cache` event is due: every `events_every` tokens, if possible after an eviction."""
        every = self.row.settings.events_every
        if not every or self.new_tokens + 1 < every * (self._looks + 1):
            return False
        plan = self.row.runner.cache.plan
        left = plan.budget + 1 - self.row.kept if plan.shares.bounded else plan.stride
        if left < plan.stride and every % plan.stride == 0:
            return False
        self._looks += 1
        return True

    def _rest(self) -> str:
        if self._stop.found:
            return ""
        return self._stop.add(self._detokenizer.flush()) + self._stop.flush()

    def _finish(self, token: int) -> Finish | None:
        if self._stop.found:
            return "stop"
        if token in self.row.eos and not self.sampling.ignore_eos:
            return "eos"
        return "length" if self.new_tokens == self.sampling.max_tokens else None


class LogitChanges:
    """Changes the logits of one answer as a client wishes, and tells the chances of what was chosen."""

    def __init__(self, wishes: Wishes) -> None:
        self.wishes = wishes
        self._said = Counter[int]()
        self.chances: tuple[Chance, ...] = ()  # the token chosen last, then the likeliest ones

    def allowed(self, logits: Tensor) -> Tensor:
        """Logits [V], -inf where the grammar does not allow a token.

        Raises:
            UsageError: the grammar has become too complex.
        """
        return logits if self.wishes.grammar is None else self.wishes.grammar.masked(logits)

    def changes(self, barred: Sequence[int]) -> dict[int, float]:
        """Returns a number for each token whose logit it is added to; -inf for those that are barred."""
        wishes, added = self.wishes, dict(self.wishes.bias)
        if wishes.presence or wishes.frequency:
            for token, times in self._said.items():
                added[token] = added.get(token, 0.0) - wishes.presence - times * wishes.frequency
        return added | dict.fromkeys(barred, -math.inf)

    def note_chosen(self, token: int, logits: Tensor) -> None:
        """Notes the token that was chosen from logits [V]."""
        self._said[token] += 1
        if self.wishes.grammar is not None:
            self.wishes.grammar.note_chosen(token)
        if self.wishes.chances is None:
            return
        logs = logits.float().log_softmax(-1)
        top = logs.topk(self.wishes.chances)
        likeliest = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        self.chances = (Chance(token, float(logs[token])), *(Chance(*one) for one in likeliest))


def ms_since(began: float) -> float:
    """Milliseconds since a value of `time.perf_counter()`."""
    return 1000 * (time.perf_counter() - began)
