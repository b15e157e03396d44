"""One turn of a conversation: from a prompt to the events of its answer."""

import time
import traceback
from collections.abc import Generator, Iterator, Sequence

from torch import Tensor

from h2o_chat.base.config import Sampling
from h2o_chat.base.errors import OutOfMemoryError, UsageError, WindowFullError
from h2o_chat.base.progress import Seldom, ShouldStop
from h2o_chat.engine.answer import Answer, ms_since
from h2o_chat.engine.detokenize import texts
from h2o_chat.engine.grammar import Grammars
from h2o_chat.engine.request import EarlierAnswer, Wishes
from h2o_chat.engine.row import Row
from h2o_chat.events.events import Error, Event, Finish, Prompt, ReadSoFar
from h2o_chat.models.load import out_of_memory

LOOK_SHARE = 0.05  # share of the reading time that may be spent on looking at the cache meanwhile


def generate(
    row: Row, ids: list[int], sampling: Sampling, cancel: ShouldStop, others: Sequence[EarlierAnswer] = ()
) -> Iterator[Event]:
    """Reads `ids` and answers: `ReadSoFar` ... where it takes a while, `Prompt`, `Token` ..., now and then
    `CacheState`, at the end `Turn`.

    `cancel` is asked before every step, and before every layer while a prompt is read. A prompt that was not
    read to its end is forgotten: one `Turn` of no tokens comes, and the state is what it was before the call.
    Where anything is raised, the state goes back too, after a `Turn` with the tokens so far.

    Args:
        others: answers that this one must not continue.

    Raises:
        UsageError: there is nothing to read, or `row.grammar` cannot be compiled.
        GenerationError: the model's logits cannot be sampled from.
        OutOfMemoryError: the device is full.
    """
    if not ids and not row.pending:
        raise UsageError("There is nothing to read: the prompt is empty.")
    before = None
    grammar = Grammars(row.tokenizer, sorted(row.eos)).compiled(row.grammar) if row.grammar else None
    turn = _Turn(row, ids, cancel, Answer(row, ids, sampling, others, Wishes(grammar=grammar)))
    try:
        before = row.snapshot()
        read = yield from turn.read()
        if read is None:
            row.restore(before, hand_over=True)
            before = None
            if turn.looked:
                yield row.cache_state()  # a reader of events was told of tokens that are undone
            yield turn.answer.ended("stopped")
            return
        prompt, logits = read
        yield prompt
        row.note_before_thoughts()
        finish = yield from turn.tokens(logits)
        if row.settings.events_every:
            yield row.cache_state()
        yield turn.answer.ended(finish)
    except GeneratorExit:
        if before is not None and not turn.answer.prompt_tokens:
            row.restore(before, hand_over=True)  # the reader left while it was read
        raise  # otherwise between two events: the state is complete
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)  # the failed frames hold memory that going back needs
        if before is not None:  # there was room for it
            row.restore(before, hand_over=True)
        if row.settings.events_every:
            yield row.cache_state()  # a reader of events was told of tokens that are undone
        yield turn.answer.ended("error")
        if out_of_memory(error):
            raise OutOfMemoryError(f"{row.runner.device} ran out of memory: {error}") from error
        raise


class _Turn:
    def __init__(self, row: Row, ids: list[int], cancel: ShouldStop, answer: Answer) -> None:
        self.row, self.ids, self.cancel = row, ids, cancel
        self.first = row.seen
        self.answer = answer
        self.looked = False  # a `CacheState` came while the prompt was read

    def read(self) -> Generator[Event, None, tuple[Prompt, Tensor] | None]:
        """Feeds the prompt, chunk by chunk, and yields its progress.

        Returns:
            The event and the logits after it, or None if cancelled.
        """
        row, began, seldom = self.row, time.perf_counter(), Seldom()
        told, look_at, last = False, 0.0, None
        ids = [*row.pending, *self.ids]
        for fed, logits in row.feeding(self.ids, self.cancel):
            last = logits if fed == len(ids) else None
            if not (told if fed == len(ids) else seldom.due()):
                continue
            told = True
            yield ReadSoFar(fed, len(ids), ms_since(began))
            now = time.perf_counter()
            if row.settings.events_every and now >= look_at:
                yield row.cache_state()
                self.looked = True
                look_at = now + (time.perf_counter() - now) / LOOK_SHARE
        if last is None:
            return None
        self.answer.ttft_ms, self.answer.prompt_tokens = ms_since(began), len(ids)
        return prompt_read(row, self.first, ids, self.answer.ttft_ms), last

    def tokens(self, logits: Tensor) -> Generator[Event, None, Finish]:
        """Makes token after token; returns what has ended the answer."""
        row, answer = self.row, self.answer
        if self.cancel():
            return "stopped"
        while True:
            token = answer.choose(logits, ahead=True)
            yield token
            if answer.finish is not None:
                return answer.finish
            if answer.state_due:
                yield row.cache_state()
            if self.cancel():  # before the token is fed: it waits for the next turn
                return "stopped"
            began = time.perf_counter()
            try:
                logits = row.forward([token.id])
            except WindowFullError as error:
                yield Error(error.code, error.message, error.hint)
                return "length"
            answer.note_fed(ms_since(began))


def prompt_read(row: Row, first: int, ids: list[int], ms: float) -> Prompt:
    """The event of a prompt that was read, from position `first` on."""
    chunks = -(-len(ids) // row.cache.pass_tokens)
    told = texts(row.tokenizer, ids) if row.settings.events_every else []
    return Prompt(len(ids), first, first + len(ids) - 1, chunks, ms, texts=told)
