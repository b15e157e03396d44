"""Many conversations in one runner: every answer grows by a token a turn, while prompts are read in chunks.

A prompt is read in a cache of one row, in the same calls in which a conversation alone reads it, and moves to
a free row after its first token. The oldest prompt and the one with the fewest tokens left get a call in
turn: a short prompt does not wait for a long one. Rows do not look at each other, so each is what it is
alone: in the native step bit for bit.
"""

import sys
import time
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import torch
from torch import Tensor

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import OutOfMemoryError, UsageError
from h2o_chat.base.progress import never
from h2o_chat.engine.answer import Answer, ms_since
from h2o_chat.engine.engine import feeding_again
from h2o_chat.engine.generation import prompt_read
from h2o_chat.engine.request import BatchReport, Request
from h2o_chat.engine.row import Row
from h2o_chat.engine.row_capacity import READERS, rows_for
from h2o_chat.engine.runner import Runner, cache_for, session_of
from h2o_chat.engine.saved_cache import RowSnapshot
from h2o_chat.events.events import Finish, Session, Turn
from h2o_chat.models.load import Loaded, out_of_memory


@dataclass(eq=False)
class _Talk:
    """A request under way."""

    request: Request
    row: Row
    answer: Answer
    waited: Sequence[int]  # tokens read before its pieces
    reader: Runner  # the runner that reads the prompt
    reading: Iterator[Tensor | None]  # reads the prompt, call by call
    ends_at: int  # `row.seen` once all of it was read
    began: float
    logits: Tensor | None = None  # [V] after the prompt; None before
    chosen: bool = False  # its first token was chosen; it moves to a row with the next step


class Batch:
    """Answers requests, as many at once as it has rows; `add` them, then call `step` until it is not `busy`.

    Args:
        loaded: the model, with attn_implementation="h2o".
        settings: for every conversation; their `seed` is not used.
        rows: R, at least 1; None: `row_capacity.ROWS`, or as many as fit into memory.
        most: requests at once; no more rows are made.

    Raises:
        BudgetError: the budget cannot work, or so many rows do not fit.
        ModelError: the model's positions are not understood.
    """

    def __init__(
        self, loaded: Loaded, settings: Settings, rows: int | None = None, most: int = sys.maxsize
    ) -> None:
        self.settings = settings
        self.reader = Runner(loaded, cache_for(loaded, settings))
        """Reads prompts; the size of a row is computed with it."""
        rows = rows_for(self.reader, rows, most)
        native = self.reader.native
        self.runner = Runner(loaded, cache_for(loaded, settings), rows, native)
        more = range(min(READERS, rows) - 1)
        self._readers = [
            self.reader, *(Runner(loaded, cache_for(loaded, settings), native=native) for _ in more)
        ]  # fmt: skip
        self._waiting: deque[Request] = deque()
        self._reading: list[_Talk] = []  # in the order in which they began, each until it has moved to a row
        self._calls = 0  # calls for prompts so far
        self._rows: list[_Talk | None] = [None] * rows
        self._cancelled: deque[Request] = deque()

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._reading or any(self._rows))

    @property
    def waiting(self) -> int:
        """Number of requests of which nothing was read yet."""
        return len(self._waiting)

    @property
    def line(self) -> list[Request]:
        """Requests of which nothing was read yet; may be asked for in any thread."""
        return list(self._waiting)

    @property
    def readers(self) -> int:
        return len(self._readers)

    @property
    def talking(self) -> int:
        return sum(talk is not None for talk in self._rows)

    @property
    def seated(self) -> tuple[Request | None, ...]:
        """The request that is answered in each row."""
        return tuple(None if talk is None else talk.request for talk in self._rows)

    def session(self, seed: int) -> Session:
        return session_of(self.runner, seed)

    def add(self, request: Request) -> None:
        """Queues a request, from any thread; raises UsageError if there is nothing to read."""
        if not request.pieces or request.pieces[-1].answer or not request.pieces[-1].ids:
            raise UsageError("There is nothing to read: the prompt is empty.")
        self._waiting.append(request)

    def cancel(self, request: Request) -> None:
        """Ends a request with the next step, as `stopped`; may be called in any thread."""
        self._cancelled.append(request)

    def step(self) -> list[BatchReport]:
        """Calls the model once for all rows that answer, and once for the prompts that are read."""
        told: list[BatchReport] = []
        self._seat(told)
        self._stop(told)
        self._decode(told)
        self._read(told)
        self._begin_answers(told)
        return told

    # -- what a step does ------------------------------------------------------------------------------

    def _stop(self, told: list[BatchReport]) -> None:
        wanted = set()
        while self._cancelled:  # others may add to it meanwhile
            wanted.add(self._cancelled.popleft())
        if not wanted:
            return
        for request in [request for request in self.line if request in wanted]:
            self._waiting.remove(request)
            told.append(BatchReport(request, _nothing("stopped")))
        for one in (*self._reading, *self._rows):
            if one is not None and one.request in wanted:
                self._end(one, "stopped", told)

    def _begin_answers(self, told: list[BatchReport]) -> None:
        """Choose the first token of each prompt that was read, while rows are free."""
        read = [talk for talk in self._reading if talk.logits is not None]
        for talk in read[: self._rows.count(None)]:
            assert talk.logits is not None
            talk.answer.ttft_ms = ms_since(talk.began)
            talk.chosen = self._choose(talk, talk.logits, told)

    def _seat(self, told: list[BatchReport]) -> None:
        """Move each answer that was begun to a free row."""
        for talk in [talk for talk in self._reading if talk.chosen]:
            number = self._rows.index(None)
            try:
                talk.row.move_to(self.runner, number)
            except Exception as error:
                self.runner.empty(number)
                self._fail(talk, error, told)
                continue
            self._reading.remove(talk)
            self._rows[number], talk.logits = talk, None
            self._go_on(talk, told)

    def _decode(self, told: list[BatchReport]) -> None:
        """Make a token for each row that answers."""
        for talk in [talk for talk in self._rows if talk is not None]:
            if not self.runner.has_room(talk.row.number):
                self._end(talk, "length", told)
        talks = [talk for talk in self._rows if talk is not None]
        if not talks:
            return
        clock = time.perf_counter()
        found = self._fed(talks)
        step_ms = ms_since(clock)
        for talk, logits in zip(talks, found, strict=True):
            if isinstance(logits, Exception):
                self._fail(talk, logits, told)
                continue
            talk.row.note_fed(talk.row.seen - 1, talk.row.pending)
            talk.answer.note_fed(step_ms)
            if self._choose(talk, logits, told):
                self._go_on(talk, told)

    def _fed(self, talks: list[_Talk]) -> list[Tensor | Exception]:
        """Feeds each its chosen token; returns its logits [V], or the error.

        Where the call for all of them raises, each is fed alone, so that only those at fault end.
        """
        waiting = {talk.row.number: talk.row.pending for talk in talks}
        try:
            logits = self.runner.feed([waiting.get(row, ()) for row in range(self.runner.rows)], prompt=False)
        except Exception as error:
            if len(talks) == 1 or self.runner.torn:
                return [error] * len(talks)
            return [self._fed([talk])[0] for talk in talks]
        return [logits[talk.row.number, -1] for talk in talks]

    def _choose(self, talk: _Talk, logits: Tensor, told: list[BatchReport]) -> bool:
        """Choose the next token of an answer; returns False where the answer has ended."""
        try:
            token = talk.answer.choose(logits)
        except Exception as error:
            self._fail(talk, error, told)
            return False
        told.append(BatchReport(talk.request, token, chances=talk.answer.logit_changes.chances))
        return True

    def _go_on(self, talk: _Talk, told: list[BatchReport]) -> None:
        """Continue after a token of a row, which may be its last."""
        if talk.answer.finish is not None:
            self._end(talk, talk.answer.finish, told)
        elif talk.answer.state_due:
            try:
                told.append(BatchReport(talk.request, talk.row.cache_state()))
            except Exception as error:
                self._fail(talk, error, told)

    def _read(self, told: list[BatchReport]) -> None:
        """Calls the model for a prompt: in turn for the oldest and for the one with least left."""
        self._begin(told)
        unread = [talk for talk in self._reading if talk.logits is None]
        if not unread:
            return
        self._calls += 1
        talk = unread[0] if self._calls % 2 else min(unread, key=lambda one: one.ends_at - one.row.seen)
        try:
            logits = next(talk.reading)
        except Exception as error:
            self._fail(talk, error, told)
            return
        if logits is None:
            return
        ids = [*talk.waited, *chain.from_iterable(piece.ids for piece in talk.request.pieces)]
        talk.logits, talk.answer.prompt_tokens = logits, len(ids)
        read = prompt_read(talk.row, talk.row.seen - len(ids), ids, ms_since(talk.began))
        told.append(BatchReport(talk.request, read))

    # -- how a request begins and ends -----------------------------------------------------------------

    def _begin(self, told: list[BatchReport]) -> None:
        """Give free readers to waiting requests."""
        used = [talk.reader for talk in self._reading]
        for reader in [reader for reader in self._readers if reader not in used]:
            if not self._waiting:
                return
            request = self._waiting.popleft()
            try:
                self._reading.append(_begun(request, reader, self.settings))
            except Exception as error:
                told.append(BatchReport(request, _nothing("error"), _ours(error, reader.device)))

    def _fail(self, talk: _Talk, error: Exception, told: list[BatchReport]) -> None:
        self._end(talk, "error", told, _ours(error, self.runner.device))

    def _end(
        self, talk: _Talk, finish: Finish, told: list[BatchReport], error: Exception | None = None
    ) -> None:
        row, state, reads = talk.row, None, talk in self._reading
        whole = not reads and finish != "error"
        try:
            if whole and self.settings.events_every:
                told.append(BatchReport(talk.request, row.cache_state()))
            if whole and talk.request.keep:
                state = _state(row)
            turn = talk.answer.ended(finish)
        except Exception as raised:
            state, turn = None, talk.answer.ended("error")
            error = error or _ours(raised, self.runner.device)
        told.append(BatchReport(talk.request, turn, error, None if reads else row.number, state=state))
        if reads:
            self._reading.remove(talk)
            talk.reader.empty(0)
        else:
            self._rows[row.number] = None
            self.runner.empty(row.number)


def _begun(request: Request, reader: Runner, settings: Settings) -> _Talk:
    """The state of a request that begins: its row is that of a reader, until it was read."""
    row = Row(reader, replace(settings, seed=request.seed))
    begin, request.begin = request.begin, None
    if begin is None:
        row.reset()
    else:
        row.restore(begin)
        row.reseed(request.seed)
    row.expect_thoughts(request.shown)
    tokens = len(row.pending) + sum(len(piece.ids) for piece in request.pieces)
    answer = Answer(row, request.pieces[-1].ids, request.sampling, request.others, request.wishes)
    reading = _reading(row, request, begins=begin is None)
    ends_at = row.seen + tokens
    return _Talk(request, row, answer, row.pending, reader, reading, ends_at, time.perf_counter())


def _ours(error: Exception, device: torch.device) -> Exception:
    traceback.clear_frames(error.__traceback__)  # the failed frames hold memory that others need
    if not out_of_memory(error):
        return error
    why = OutOfMemoryError(f"{device} ran out of memory: {error}")
    why.__cause__ = error
    return why


def _state(row: Row) -> RowSnapshot | None:
    """A copy of the state of a row; None where memory is short: the answer is complete all the same."""
    try:
        return row.snapshot()
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        return None


def _nothing(finish: Finish) -> Turn:
    return Turn("", finish, 0, 0, 0.0, 0.0, 0, 0, 0, 0.0)


def _reading(row: Row, request: Request, *, begins: bool) -> Iterator[Tensor | None]:
    """Reads a prompt; yields None after each call, logits [V] after the last. Raises BudgetError."""
    if begins:
        row.protect(request.system_tokens)
    row.pin(request.pins)
    *before, last = request.pieces
    for piece in before:
        for _ in feeding_again(row, piece.ids, answer=piece.answer, exact=False):
            yield None
    if request.evicts_generated:
        row.evict_generated(request.openings)
    row.give_up_thoughts(request.thoughts, request.drops_thoughts)
    of = len(row.pending) + len(last.ids)
    for fed, logits in row.feeding(last.ids, never):
        yield logits if fed == of else None
