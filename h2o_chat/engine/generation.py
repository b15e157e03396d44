"""One call of `Engine.generate`: from a prompt to the events of its answer."""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from torch import Tensor

from h2o_chat.base.config import Sampling
from h2o_chat.base.errors import ModelError, WindowFullError
from h2o_chat.engine.detokenize import Detokenizer, StopText, texts
from h2o_chat.events.events import Error, Event, Finish, Prompt, Token, Turn

if TYPE_CHECKING:
    from h2o_chat.engine.engine import Engine


class Generation:
    """One turn: its prompt is read, then it is answered token by token."""

    def __init__(
        self, engine: "Engine", ids: list[int], sampling: Sampling, cancel: Callable[[], bool]
    ) -> None:
        self.engine, self.ids, self.sampling, self.cancel = engine, ids, sampling, cancel
        self.observer = engine.observer
        self.first = engine.seen
        self.lost_before = self.observer.lost_mark()
        self.detokenizer = Detokenizer(engine.tokenizer, [*engine.pending, *ids])
        self.stop = StopText(sampling.stop)
        self.text: list[str] = []
        self.new_tokens = 0
        self.prompt_tokens = 0
        self.ttft_ms = 0.0
        self.decode_ms = 0.0

    def ended(self, finish: Finish) -> Turn:
        """The event that closes the turn."""
        steps, kept = self.new_tokens - 1, self.engine.cache.most_kept
        with suppress(ModelError):  # it has failed before, in the answer
            self.text.append(self._rest())
        return Turn(
            text="".join(self.text),
            finish=finish,
            prompt_tokens=self.prompt_tokens,
            new_tokens=self.new_tokens,
            ttft_ms=self.ttft_ms,
            tok_s=1000 * steps / self.decode_ms if steps > 0 else 0.0,
            seen=self.engine.seen,
            kept=kept,
            evicted=self.engine.seen - kept,
            lost=self.observer.lost_since(self.lost_before),
        )

    def read(self) -> tuple[Prompt, Tensor] | None:
        """Feeds the prompt, chunk by chunk; what was read and the logits after it, or None if cancelled."""
        clock = time.perf_counter()
        ids = [*self.engine.pending, *self.ids]
        tokens = len(ids)
        logits = self.engine.feed(self.ids, self.cancel)
        if logits is None:
            return None
        self.ttft_ms = _ms_since(clock)
        self.prompt_tokens = tokens
        chunks = -(-tokens // self.engine.cache.pass_tokens)
        told = texts(self.engine.tokenizer, ids) if self.engine.settings.events_every else []
        prompt = Prompt(tokens, self.first, self.first + tokens - 1, chunks, self.ttft_ms, texts=told)
        return prompt, logits

    def answer(self, prompt: Prompt, logits: Tensor) -> Iterator[Event]:
        """All events of a turn whose prompt was read."""
        yield prompt
        finish = yield from self._answer(logits)
        if self.engine.settings.events_every:
            yield self.engine.look()
        yield self.ended(finish)

    def _answer(self, logits: Tensor) -> Generator[Event, None, Finish]:
        """Token after token, until something ends it; returns what."""
        engine, sampling = self.engine, self.sampling
        step_ms = 0.0
        if self.cancel():
            return "stopped"
        while True:
            clock = time.perf_counter()
            token = engine.sampler.choose(logits, sampling)
            engine.pending = (token,)
            self.new_tokens += 1
            text = self.stop.add(self.detokenizer.add(token))
            finish = self._finish(token)
            if finish in ("eos", "length"):
                text += self._rest()
            self.text.append(text)
            choose_ms = _ms_since(clock)
            self.ttft_ms += choose_ms if self.new_tokens == 1 else 0
            yield Token(token, text, engine.seen, step_ms + choose_ms)
            if finish is not None:
                return finish
            every = engine.settings.events_every
            if every and self.new_tokens % every == 0:
                yield engine.look()
            if self.cancel():  # before the token is fed: it waits for the next turn
                return "stopped"
            clock = time.perf_counter()
            try:
                logits = engine.forward([token])
            except WindowFullError as error:
                yield Error(error.code, error.message, error.hint)
                return "length"
            engine.pending = ()
            step_ms = _ms_since(clock)
            self.decode_ms += step_ms + choose_ms

    def _rest(self) -> str:
        """Text held back so far; nothing after a stop string."""
        if self.stop.found:
            return ""
        return self.stop.add(self.detokenizer.flush()) + self.stop.flush()

    def _finish(self, token: int) -> Finish | None:
        if self.stop.found:
            return "stop"
        if token in self.engine.eos and not self.sampling.ignore_eos:
            return "eos"
        return "length" if self.new_tokens == self.sampling.max_tokens else None


def _ms_since(clock: float) -> float:
    return 1000 * (time.perf_counter() - clock)
