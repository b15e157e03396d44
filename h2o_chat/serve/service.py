"""Who waits, who is answered: between the clients and one `Batch`.

The event loop talks to clients and computes nothing. As many threads as prompts are read at once prepare
requests, in turn, piece by piece: each puts one into the model's template and finds what of it was read
before. One thread answers: it alone steps the batch; to add to it and to cancel, any thread may.
"""

import asyncio
import sys
import threading
from collections import deque
from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import H2OChatError, name_of
from h2o_chat.chat.templates.chat_template import after_piece, choose
from h2o_chat.engine.request import BatchReport, Request
from h2o_chat.events.events import Prompt, Session, Token, Turn
from h2o_chat.serve import errors
from h2o_chat.serve.asked import Asked
from h2o_chat.serve.counts import Counts
from h2o_chat.serve.errors import ApiError, busy
from h2o_chat.serve.line import Limits, Ticket
from h2o_chat.serve.prefixes import Kept, Prefixes, after, beginning, chain, tag_of
from h2o_chat.serve.retelling import with_places
from h2o_chat.serve.stream import Ended, Item, Stream
from h2o_chat.serve.tokens import Reader, check_length
from h2o_chat.serve.turns import Turns
from h2o_chat.store import clean

if TYPE_CHECKING:
    from h2o_chat.engine.batch import Batch


FIRST_WORDS_S = 0.002
"""So long the next step waits at most until the first words of an answer are sent."""


def _ending() -> ApiError:
    return busy(503, "The server is ending.", "ending")


def _cut() -> ApiError:
    return busy(503, "The server ends, and this answer with it.", "ending")


def _ended_early(told: BatchReport, turn: Turn) -> ApiError | None:
    """Why an answer did not come to its end; None: it did."""
    if told.error is not None:
        return errors.of(told.error)
    return _cut() if turn.finish == "stopped" else None


def _broken() -> ApiError:
    return ApiError(500, "The engine has failed: the server is ending.", "bug")


class Service:
    """Answers requests until it is closed.

    Args:
        batch: no other thread uses it.
        sampling: for what a request does not say.
        prefixes: what may be gone on from.
    """

    def __init__(
        self, batch: "Batch", settings: Settings, sampling: Sampling, limits: Limits, prefixes: Prefixes
    ) -> None:
        self.batch, self.settings, self.sampling = batch, settings, sampling
        self.limits, self.prefixes = limits, prefixes
        self.tokenizer = batch.runner.loaded.tokenizer
        self.template = choose(self.tokenizer, settings.template)
        self.session: Session = batch.session(settings.seed or 0)
        self.context = context_of(self.session, self.template.name, self.tokenizer.chat_template)
        self._longest_token_bytes = max(len(token.encode()) for token in self.tokenizer.get_vocab())
        self.row_bytes, self.snapshot_bytes = bytes_of(batch)
        """Of one, as computed."""
        self.counts = Counts()
        self.slots: list[tuple[bytes, bytes] | None] = [None] * batch.runner.rows
        """Key and hash of what was answered last in each row, or put there; it may be kept no more."""
        self.seated: tuple[Request | None, ...] = (None,) * batch.runner.rows
        """Who is answered, row by row."""
        self.read: Callable[[Kept], None] = lambda kept: None
        """Brings one that is in its file alone into memory."""
        self.ending = self.broken = False
        self._loop = asyncio.get_running_loop()
        self._changed = threading.Condition()
        self._line: deque[Ticket] = deque()
        self._turns = Turns()
        """Of those that prepare, piece by piece."""
        self._prepared: set[Ticket] = set()
        """Those that are being prepared."""
        self._under_way: dict[Request, Ticket] = {}
        self._cut = self._closed = False
        works = [*[("prepare", self._prepare_all)] * batch.readers, ("answer", self._answer_all)]
        self._threads = [threading.Thread(target=work, name=name, daemon=True) for name, work in works]
        for thread in self._threads:
            thread.start()

    # -- in the event loop ---------------------------------------------------------------------------

    @property
    def waiting(self) -> set[Ticket]:
        """Those that nothing was read of yet."""
        with self._changed:
            batch = [self._under_way.get(request) for request in self.batch.line]
            return {ticket for ticket in (*self._line, *self._prepared, *batch) if ticket is not None}

    @property
    def reading(self) -> int:
        """Requests that are read, or were read and have no row yet."""
        with self._changed:
            return len(self._under_way.keys() - {*self.batch.line, *self.seated})

    @property
    def computed_bytes(self) -> int:
        """What rows, snapshots and the reading of prompts take at most."""
        from h2o_chat.engine.row_capacity import serving_bytes

        return serving_bytes(self.batch.reader, len(self.seated), len(self.prefixes))

    @property
    def busy(self) -> bool:
        """Whether anybody waits or is answered."""
        return bool(self._line or self._prepared or self._under_way)

    def ticket(self, asked: Asked, owner: bytes) -> Ticket:
        """A request that does not wait yet; in any thread, for it may take a while."""
        hashes = chain(beginning(owner, self.context), asked.messages)
        return Ticket(asked, owner, Stream(asked.stream), hashes)

    def submit(self, ticket: Ticket) -> None:
        """Has a request wait its turn.

        Raises:
            ApiError: too many wait, or the server is ending.
        """
        if self.ending:
            raise _broken() if self.broken else _ending()
        self.limits.check(self.waiting, ticket.owner)
        with self._changed:
            self._line.append(ticket)
            self._changed.notify_all()

    def leave(self, ticket: Ticket) -> None:
        """Nobody wants it any more: it ends with the next step or piece. One that has ended is as it was."""
        with self._changed:
            ticket.left = True
            if ticket in self._line:
                self._line.remove(ticket)
            if ticket.request in self._under_way:
                self.batch.cancel(ticket.request)
            self._changed.notify_all()

    def end(self) -> None:
        """Takes no more; who waits is told so, who is answered is answered."""
        self.ending = True
        with self._changed:
            line, self._line = list(self._line), deque()
        for ticket in line:
            ticket.stream.put(_ending())

    def cut(self) -> None:
        """Ends all that goes on, with the next step or piece."""
        with self._changed:
            self._cut = True
            for request in self._under_way:
                self.batch.cancel(request)
            self._changed.notify_all()

    def close(self, longest_s: float) -> bool:
        """Ends all threads; whether they came to their end in time."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(longest_s)
        return not any(thread.is_alive() for thread in self._threads)

    # -- the threads that prepare --------------------------------------------------------------------

    def _prepare_all(self) -> None:
        given = self.template, self.tokenizer, self.batch.runner.eos, self.settings, self.session
        reader = Reader(*given, self._longest_token_bytes)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or _next_of(self) is not None)
                ticket = _next_of(self)
                if self._closed or ticket is None:
                    return
                self._line.remove(ticket)
                self._prepared.add(ticket)
            try:
                with self._turns.one():
                    request = self._prepare(ticket, reader)
                with self._changed:
                    if not ticket.left:
                        self.batch.add(request)
                        self._under_way[request], ticket.request = ticket, request
            except Exception as error:
                self._tell([(ticket, errors.of(error))])
            with self._changed:
                self._prepared.remove(ticket)
                self._changed.notify_all()

    def _prepare(self, ticket: Ticket, reader: Reader) -> Request:
        """
        Raises:
            ApiError: it is too long, or nobody waits for it any more.
            UsageError: there is nothing to read.
            H2OChatError: the template or the tokenizer does not take it.
        """

        def looked(tokens: int) -> None:
            if ticket.left or self._cut or self._closed:
                raise _cut()
            check_length(tokens)
            self._turns.give_way()

        after_piece.set(looked)
        found = _read_before(self, ticket)
        read = 0 if found is None else ticket.chain.index(found.chain) + 1
        ticket.cached_tokens = found.tokens if found else 0
        prepared = reader.prepare(ticket.asked, read, found)
        ticket.places, ticket.notes = prepared.places, prepared.notes
        return prepared.request

    # -- the thread that answers ---------------------------------------------------------------------

    def _answer_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self.batch.busy)
                if self._closed:
                    return
            try:
                told = self.batch.step()
            except Exception as error:  # it never should: what the batch holds is not known any more
                self._break(error)
                return
            with self._changed:
                heard = [item for one in told for item in self._hear(one)]
                self.seated = self.batch.seated
                if self._line:  # there may be room for the next one
                    self._changed.notify_all()
            begun = [ticket for ticket, item in heard if isinstance(item, str) and ticket.begins()]
            if heard:
                self._tell(heard)
            for ticket in begun:  # else the event loop may wait for a processor until the next tick
                ticket.stream.sent.wait(FIRST_WORDS_S)

    def _hear(self, told: BatchReport) -> list[tuple[Ticket, Item]]:
        """What a client is told."""
        ticket = self._under_way.get(told.request)
        if ticket is None:
            return []
        match told.event:
            case Prompt(ms=ms):
                ticket.prompt_ms = ms
            case Token(text=text):
                return [(ticket, text)]
            case Turn() as turn:
                del self._under_way[told.request]
                return [(ticket, self._ended(ticket, turn, told))]
        return []

    def _ended(self, ticket: Ticket, turn: Turn, told: BatchReport) -> Item:
        self.counts.turn(turn, ticket.cached_tokens, ticket.prompt_ms)
        if told.state is not None and not ticket.left:
            self._keep(ticket, turn, told.row, told.state)
        early = _ended_early(told, turn)
        return Ended(turn, ticket.cached_tokens, ticket.prompt_ms, told.row, early, ticket.notes)

    def _keep(self, ticket: Ticket, turn: Turn, row: int | None, state: Any) -> None:
        """The next request may go on from there."""
        marked = bool(self.template.marker) and turn.finish == "stop" and not ticket.asked.sampling.stop
        hashed = after(ticket.chain[-1], ("assistant", clean(turn.text)))
        state = with_places(state, ticket.places)
        self.prefixes.add(Kept(hashed, marked, turn.seen, state, tag=tag_of(ticket.owner)))
        if row is not None:
            self.slots[row] = ticket.owner, hashed

    def _break(self, error: Exception) -> None:
        sys.stderr.write("h2o-chat: the engine has failed; the server ends\n")
        errors.of(error)
        self.ending = self.broken = True
        with self._changed:
            lost = [*self._line, *self._under_way.values()]
            self._line.clear()
            self._under_way.clear()
        self._tell([(ticket, _broken()) for ticket in lost])

    def _tell(self, items: list[tuple[Ticket, Item]]) -> None:
        """In the event loop, which goes on meanwhile."""
        try:
            self._loop.call_soon_threadsafe(self._deliver, items)
        except RuntimeError:  # it is closed: nobody reads any more
            if not self._loop.is_closed():
                raise

    def _deliver(self, items: list[tuple[Ticket, Item]]) -> None:
        for ticket, item in items:
            if not ticket.stream.put(item):
                self.counts.slow += 1
                self.leave(ticket)


def _next_of(service: Service) -> Ticket | None:
    """Who is prepared next; None: nobody waits, or nobody may yet."""
    under_way = (*service._prepared, *service._under_way.values())
    return service.limits.next(service._line, under_way, service.seated, service.batch.readers)


def _read_before(service: Service, ticket: Ticket) -> Kept | None:
    """The longest memory that a request goes on from, brought into this process; None: there is none.

    One that cannot be read is forgotten, which is said.
    """
    while ticket.asked.looks and (found := service.prefixes.longest(ticket.chain)) is not None:
        try:
            service.read(found)
        except (H2OChatError, OSError) as error:
            sys.stderr.write(f"h2o-chat: {name_of(error)} The conversation is read again.\n")
            service.prefixes.drop(found)
        else:
            return found
    return None


def bytes_of(batch: "Batch") -> tuple[int, int]:
    """Of a row, and of a snapshot of one: computed before there is any."""
    from h2o_chat.engine.row_capacity import row_bytes, snapshot_bytes

    return row_bytes(batch.reader), snapshot_bytes(batch.reader)


def context_of(session: Session, template: str, jinja: Any) -> bytes:
    """What must be alike where a conversation goes on: a hash of it."""
    from h2o_chat.engine.saved_cache import IDENTITY

    alike = [(name, getattr(session, name)) for name in IDENTITY]
    return sha256(repr((alike, session.chunk, session.prefill, template, jinja)).encode()).digest()
