"""One turn of a conversation: from a prompt to the events of its answer."""

import time
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress

from torch import Tensor

from h2o_chat.base.config import Sampling
from h2o_chat.base.errors import ModelError, OutOfMemoryError, UsageError, WindowFullError
from h2o_chat.base.progress import Seldom
from h2o_chat.engine.detokenize import Detokenizer, StopText, texts
from h2o_chat.engine.row import Row
from h2o_chat.events.events import Error, Event, Finish, Prompt, ReadSoFar, Token, Turn
from h2o_chat.models.load import out_of_memory

LOOK_SHARE = 0.05
"""Of the time of reading that may be spent on looking at the cache meanwhile."""


def generate(row: Row, ids: list[int], sampling: Sampling, cancel: Callable[[], bool]) -> Iterator[Event]:
    """Reads `ids` and answers: `ReadSoFar` ... where it takes a while, `Prompt`, `Token` ..., now and then
    `CacheState`, at the end `Turn`.

    `cancel` is asked before every step and every prompt chunk. A prompt that was not read to its end is
    forgotten: one `Turn` comes, of no tokens, and the state is what it was before the call. So it is if
    anything is raised, after a `Turn` with what was generated.

    Raises:
        UsageError: there is nothing to read.
        GenerationError: the model's logits cannot be sampled from.
        OutOfMemoryError: the device is full.
    """
    if not ids and not row.pending:
        raise UsageError("There is nothing to read: the prompt is empty.")
    before = None
    turn = _Turn(row, ids, sampling, cancel)
    try:
        before = row.snapshot()
        read = yield from turn.read()
        if read is None:
            row.restore(before, hand_over=True)
            before = None
            if turn.looked:
                yield row.look()  # takes back what was told of the tokens that are forgotten
            yield turn.ended("stopped")
            return
        yield from turn.answer(*read)
    except GeneratorExit:
        if before is not None and not turn.prompt_tokens:
            row.restore(before, hand_over=True)  # the reader left while it was read
        raise  # else between two events, where the state is whole
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)  # what failed still holds memory that going back needs
        if before is not None:  # there was room for it
            row.restore(before, hand_over=True)
        if row.settings.events_every:
            yield row.look()  # takes back what was told of the tokens that are forgotten
        yield turn.ended("error")
        if out_of_memory(error):
            raise OutOfMemoryError(f"{row.runner.device} ran out of memory: {error}") from error
        raise


class _Turn:
    """Its prompt is read, then it is answered token by token."""

    def __init__(self, row: Row, ids: list[int], sampling: Sampling, cancel: Callable[[], bool]) -> None:
        self.row, self.ids, self.sampling, self.cancel = row, ids, sampling, cancel
        self.observer = row.observer
        self.first = row.seen
        self.lost_before = self.observer.lost_mark()
        self.detokenizer = Detokenizer(row.tokenizer, [*row.pending, *ids])
        self.stop = StopText(sampling.stop)
        self.text: list[str] = []
        self.new_tokens = 0
        self.looks = 0
        self.prompt_tokens = 0
        self.looked = False
        """While the prompt was read it was told what the cache holds."""
        self.ttft_ms = 0.0
        self.decode_ms = 0.0

    def ended(self, finish: Finish) -> Turn:
        """The event that closes the turn."""
        steps, kept = self.new_tokens - 1, self.row.kept
        with suppress(ModelError):  # it has failed before, in the answer
            self.text.append(self._rest())
        return Turn(
            text="".join(self.text),
            finish=finish,
            prompt_tokens=self.prompt_tokens,
            new_tokens=self.new_tokens,
            ttft_ms=self.ttft_ms,
            tok_s=1000 * steps / self.decode_ms if steps > 0 else 0.0,
            seen=self.row.seen,
            kept=kept,
            evicted=self.row.seen - kept,
            lost=self.observer.lost_since(self.lost_before),
        )

    def read(self) -> Generator[Event, None, tuple[Prompt, Tensor] | None]:
        """Feeds the prompt, chunk by chunk, and tells how far it is.

        Returns:
            What was read and the logits after it, or None if cancelled.
        """
        clock = time.perf_counter()
        ids = [*self.row.pending, *self.ids]
        tokens = len(ids)
        logits = yield from self._feed(tokens, clock)
        if logits is None:
            return None
        self.ttft_ms = _ms_since(clock)
        self.prompt_tokens = tokens
        chunks = -(-tokens // self.row.cache.pass_tokens)
        told = texts(self.row.tokenizer, ids) if self.row.settings.events_every else []
        prompt = Prompt(tokens, self.first, self.first + tokens - 1, chunks, self.ttft_ms, texts=told)
        return prompt, logits

    def _feed(self, of: int, clock: float) -> Generator[Event, None, Tensor | None]:
        """What the prompt feeds; the logits after its last token, or None if it was cancelled."""
        row, seldom, told, look_at, last = self.row, Seldom(), False, 0.0, None
        for fed, logits in row.feeding(self.ids, self.cancel):
            last = logits if fed == of else None
            if not (told if fed == of else seldom.due()):
                continue
            told = True
            yield ReadSoFar(fed, of, _ms_since(clock))
            now = time.perf_counter()
            if row.settings.events_every and now >= look_at:
                yield row.look()
                self.looked = True
                look_at = now + (time.perf_counter() - now) / LOOK_SHARE
        return last

    def answer(self, prompt: Prompt, logits: Tensor) -> Iterator[Event]:
        """All events of a turn whose prompt was read."""
        yield prompt
        finish = yield from self._answer(logits)
        if self.row.settings.events_every:
            yield self.row.look()
        yield self.ended(finish)

    def _answer(self, logits: Tensor) -> Generator[Event, None, Finish]:
        """Token after token, until something ends it; returns what."""
        row, sampling = self.row, self.sampling
        step_ms = 0.0
        if self.cancel():
            return "stopped"
        while True:
            clock = time.perf_counter()
            token = row.sampler.choose(logits, sampling)
            row.pending = (token,)
            self.new_tokens += 1
            text = self.stop.add(self.detokenizer.add(token))
            finish = self._finish(token)
            if finish in ("eos", "length"):
                text += self._rest()
            self.text.append(text)
            choose_ms = _ms_since(clock)
            self.ttft_ms += choose_ms if self.new_tokens == 1 else 0
            yield Token(token, text, row.seen, step_ms + choose_ms)
            if finish is not None:
                return finish
            if self._looks(row.settings.events_every):
                yield row.look()
            if self.cancel():  # before the token is fed: it waits for the next turn
                return "stopped"
            clock = time.perf_counter()
            try:
                logits = row.forward([token])
            except WindowFullError as error:
                yield Error(error.code, error.message, error.hint)
                return "length"
            row.pending = ()
            step_ms = _ms_since(clock)
            self.decode_ms += step_ms + choose_ms

    def _looks(self, every: int) -> bool:
        """Whether to look now: every so many tokens, and then right after slots are given up where that fits.

        The policy has just ranked there, which else is half the cost of a look.
        """
        if not every or self.new_tokens < every * (self.looks + 1):
            return False
        stride, left = self.row.cache.plan.stride, self.row.slots_left
        if left is not None and left < stride and every % stride == 0:
            return False
        self.looks += 1
        return True

    def _rest(self) -> str:
        """Text held back so far; nothing after a stop string."""
        if self.stop.found:
            return ""
        return self.stop.add(self.detokenizer.flush()) + self.stop.flush()

    def _finish(self, token: int) -> Finish | None:
        if self.stop.found:
            return "stop"
        if token in self.row.eos and not self.sampling.ignore_eos:
            return "eos"
        return "length" if self.new_tokens == self.sampling.max_tokens else None


def _ms_since(clock: float) -> float:
    return 1000 * (time.perf_counter() - clock)
