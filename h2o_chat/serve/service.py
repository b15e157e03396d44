"""Passes requests from clients to one `Batch`, and answers back.

The event loop handles clients and computes nothing. As many threads as prompts are read at the same time
prepare requests, taking turns piece by piece: they render the template, tokenise, and find kept memories. One
thread answers: only it steps the batch, while any thread may add to it and cancel.
"""

import asyncio
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import H2OChatError, name_of
from h2o_chat.chat.templates.chat_template import ModelTemplate, Template, after_piece, choose
from h2o_chat.chat.templates.tool_form import ToolForm, form_of
from h2o_chat.engine.request import BatchReport, Request
from h2o_chat.events.events import Prompt, Session, Token, Turn
from h2o_chat.serve import api_errors
from h2o_chat.serve.api_errors import ApiError, busy
from h2o_chat.serve.chat_request import ChatRequest, Served
from h2o_chat.serve.counters import Counts
from h2o_chat.serve.prefixes import Memory, Prefixes, after, beginning, chain, tag_of
from h2o_chat.serve.request_queue import Limits, Ticket, TurnLock
from h2o_chat.serve.request_tokens import Reader, check_length
from h2o_chat.serve.shared_memories import Shared
from h2o_chat.serve.stream import Ended, Item, Stream
from h2o_chat.store import clean

if TYPE_CHECKING:
    from h2o_chat.engine.batch import Batch


FIRST_WORDS_S = 0.002
"""Longest wait of the next step until the first text of an answer is sent."""


def _ending() -> ApiError:
    return busy(503, "The server is ending.", "ending")


def _cut() -> ApiError:
    return busy(503, "The server ends, and this answer with it.", "ending")


def _broken() -> ApiError:
    return ApiError(500, "The engine has failed: the server is ending.", "bug")


class Service:
    """Answers requests until it is closed; `sampling` are their defaults. Nothing else uses the batch."""

    def __init__(
        self, batch: "Batch", settings: Settings, sampling: Sampling, limits: Limits, prefixes: Prefixes
    ) -> None:
        self.batch, self.settings, self.sampling = batch, settings, sampling
        self.limits, self.prefixes = limits, prefixes
        self.tokenizer = batch.runner.loaded.tokenizer
        self.template = choose(self.tokenizer, settings.template, settings.think)
        self.form = form_of(self.template)
        """How the model writes tools and thoughts."""
        self.switched = {"auto": (self.template, self.form)}
        self.session: Session = batch.session(settings.seed or 0)
        self.served = served_by(self)
        self.context = context_of(self.session, self.template.name, self.tokenizer.chat_template)
        self._longest_token_bytes = max(len(token.encode()) for token in self.tokenizer.get_vocab())
        from h2o_chat.engine.grammar import Grammars
        from h2o_chat.engine.row_capacity import row_bytes, snapshot_bytes

        self.row_bytes, self.snapshot_bytes = row_bytes(batch.reader), snapshot_bytes(batch.reader)
        """Computed bytes of one row, and of one snapshot."""
        self.counts = Counts()
        self.slots: list[tuple[bytes, bytes] | None] = [None] * batch.runner.rows
        """Per row: (key, hash) of the last answer or restored memory, which may not be kept any more."""
        self.seated: tuple[Request | None, ...] = (None,) * batch.runner.rows
        """Per row: the request that is answered."""
        self.load_memory: Callable[[Memory], None] = lambda kept: None
        self.shared: Shared | None = None
        """Where conversations are that other servers can go on with."""
        self.ending = self.broken = False
        self._loop = asyncio.get_running_loop()
        self._changed = threading.Condition()
        self._line: deque[Ticket] = deque()
        self._grammars = Grammars(self.tokenizer, sorted(batch.runner.eos))
        self._turns = TurnLock()  # one of the threads that prepare requests computes at a time
        self._prepared: set[Ticket] = set()
        self._under_way: dict[Request, Ticket] = {}
        self._cut = self._closed = False
        works = [*[("prepare", self._prepare_all)] * batch.readers, ("answer", self._answer_all)]
        self._threads = [threading.Thread(target=work, name=name, daemon=True) for name, work in works]
        for thread in self._threads:
            thread.start()

    # -- in the event loop ---------------------------------------------------------------------------

    @property
    def waiting(self) -> set[Ticket]:
        """Requests whose reading has not begun."""
        with self._changed:
            batch = [self._under_way.get(request) for request in self.batch.line]
            return {ticket for ticket in (*self._line, *self._prepared, *batch) if ticket is not None}

    @property
    def reading(self) -> int:
        """Number of requests that are being read, or were read and have no row yet."""
        with self._changed:
            return len(self._under_way.keys() - {*self.batch.line, *self.seated})

    @property
    def computed_bytes(self) -> int:
        """Most bytes of rows, snapshots and the reading of prompts."""
        from h2o_chat.engine.row_capacity import serving_bytes

        return serving_bytes(self.batch.reader, len(self.seated), len(self.prefixes))

    @property
    def busy(self) -> bool:
        return bool(self._line or self._prepared or self._under_way or (self.shared and self.shared.pending))

    def ticket(self, asked: ChatRequest, owner: bytes, answer_id: str = "") -> Ticket:
        """A ticket for a request, not queued yet; thread-safe, since hashing takes a while."""
        context = self.context + (repr(asked.tools.tools).encode() if asked.tools.tools else b"")
        context += b"" if asked.think == "auto" else asked.think.encode()
        hashes = chain(beginning(owner, context), asked.messages)
        form = thinking_as(self, asked.think)[1]
        return Ticket(asked, owner, Stream(asked.stream), hashes, form=form, id=answer_id)

    def submit(self, ticket: Ticket) -> None:
        """Queues a request; raises ApiError if too many wait, or the server is ending."""
        if self.ending:
            raise _broken() if self.broken else _ending()
        self.limits.check(self.waiting, ticket.owner)
        with self._changed:
            self._line.append(ticket)
            self._changed.notify_all()

    def leave(self, ticket: Ticket) -> None:
        """Ends a request with the next step or piece, since its client has hung up."""
        with self._changed:
            ticket.left = True
            if ticket in self._line:
                self._line.remove(ticket)
            if ticket.request in self._under_way:
                self.batch.cancel(ticket.request)
            self._changed.notify_all()

    def end(self) -> None:
        """Refuses new and waiting requests; those in progress go on."""
        self.ending = True
        with self._changed:
            line, self._line = list(self._line), deque()
        for ticket in line:
            ticket.stream.put(_ending())

    def cut(self) -> None:
        """Ends all requests with the next step or piece."""
        with self._changed:
            self._cut = True
            for request in self._under_way:
                self.batch.cancel(request)
            self._changed.notify_all()

    def close(self, longest_s: float) -> bool:
        """Ends all threads; returns whether they ended in time."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(longest_s)
        return not any(thread.is_alive() for thread in self._threads)

    # -- the threads that prepare --------------------------------------------------------------------

    def _prepare_all(self) -> None:
        reader = Reader(
            self.tokenizer,
            self.batch.runner.eos,
            self.settings,
            self.session,
            self._grammars,
            self._longest_token_bytes,
        )
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or _next_of(self) is not None)
                ticket = _next_of(self)
                if self._closed or ticket is None:
                    return
                self._line.remove(ticket)
                self._prepared.add(ticket)
            try:
                with self._turns:
                    request = self._prepare(ticket, reader)
                with self._changed:
                    if not ticket.left:
                        self.batch.add(request)
                        self._under_way[request], ticket.request = ticket, request
            except Exception as error:
                self._tell([(ticket, api_errors.of(error))])
            with self._changed:
                self._prepared.remove(ticket)
                self._changed.notify_all()

    def _prepare(self, ticket: Ticket, reader: Reader) -> Request:
        """Tokenises a request, without messages that a kept memory has read."""

        def looked(tokens: int) -> None:
            if ticket.left or self._cut or self._closed:
                raise _cut()
            check_length(tokens)
            self._turns.give_way()

        after_piece.set(looked)
        found = _read_before(self, ticket)
        read = 0 if found is None else ticket.chain.index(found.chain) + 1
        ticket.cached_tokens = found.tokens if found else 0
        return reader.prepare(ticket, thinking_as(self, ticket.asked.think)[0], read, found)

    # -- the thread that answers ---------------------------------------------------------------------

    def _answer_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self.batch.busy)
                if self._closed:
                    return
            try:
                told = self.batch.step()
            except Exception as error:  # a bug: the state of the batch is not known any more
                self._break(error)
                return
            with self._changed:
                heard = [item for one in told for item in self._hear(one)]
                self.seated = self.batch.seated
                if self._line:  # there may be room for another request
                    self._changed.notify_all()
            begun = [ticket for ticket, item in heard if isinstance(item, str) and ticket.begins()]
            if heard:
                self._tell(heard)
            for ticket in begun:  # without this the event loop may get no processor until the next tick
                ticket.stream.sent.wait(FIRST_WORDS_S)

    def _hear(self, told: BatchReport) -> list[tuple[Ticket, Item]]:
        ticket = self._under_way.get(told.request)
        if ticket is None:
            return []
        match told.event:
            case Prompt(ms=ms):
                ticket.prompt_ms = ms
            case Token(text=text):
                if told.chances:
                    ticket.chances.append(told.chances)
                if ticket.form.thinking.marks[1]:
                    ticket.texts.append(text)
                return [(ticket, text)]
            case Turn() as turn:
                del self._under_way[told.request]
                return _ended(self, ticket, turn, told)
        return []

    def _break(self, error: Exception) -> None:
        sys.stderr.write("h2o-chat: the engine has failed; the server ends\n")
        api_errors.of(error)
        self.ending = self.broken = True
        with self._changed:
            lost = [*self._line, *self._under_way.values()]
            self._line.clear()
            self._under_way.clear()
        self._tell([(ticket, _broken()) for ticket in lost])

    def _tell(self, items: list[tuple[Ticket, Item]]) -> None:
        """Delivers items in the event loop, without waiting."""
        try:
            self._loop.call_soon_threadsafe(self._deliver, items)
        except RuntimeError:  # the loop is closed
            if not self._loop.is_closed():
                raise

    def _deliver(self, items: list[tuple[Ticket, Item]]) -> None:
        for ticket, item in items:
            if not ticket.stream.put(item):
                self.counts.slow += 1
                self.leave(ticket)


def thinking_as(service: Service, think: str) -> tuple[Template, ToolForm]:
    """The template, and how the model writes, with thoughts switched so."""
    if think not in service.switched:
        template = service.template.thinking_as(think)
        service.switched[think] = template, replace(service.form, thinking=template.thinking)
    return service.switched[think]


def _ended(service: Service, ticket: Ticket, turn: Turn, told: BatchReport) -> list[tuple[Ticket, Item]]:
    """The end of an answer; nothing where it comes once its conversation is written."""
    early = _cut() if turn.finish == "stopped" else None
    if told.error is not None:
        early = api_errors.of(told.error)
    end = Ended(turn, ticket.cached_tokens, ticket.prompt_ms, told.row, early, ticket.notes)
    service.counts.add(end)
    if told.state is None or ticket.left:
        return [(ticket, end)]
    said = ticket.form.written(ticket.form.read(turn.text, bool(ticket.asked.tools.tools)))
    kept = _keep(service, ticket, turn, said, told.row, told.state)
    if service.shared is None or not ticket.conversation or early:
        return [(ticket, end)]
    tell = lambda error: service._tell([(ticket, replace(end, error=error))])  # noqa: E731
    write = service.shared.keep(ticket, kept, said, tell)
    done = asyncio.run_coroutine_threadsafe(write, service._loop)
    done.add_done_callback(lambda one: one.cancelled() or one.result())  # raises what was a bug
    return []


def _keep(service: Service, ticket: Ticket, turn: Turn, said: str, row: int | None, state: Any) -> Memory:
    at_marker = turn.finish == "stop" and not ticket.asked.sampling.stop
    turn_marker_fed = bool(service.template.marker) and at_marker
    hashed = after(ticket.chain[-1], ("assistant", clean(said)))
    if ticket.places is not None:
        end = state.cache.fed + len(state.pending)
        ticket.places.ends.append(end)
        if tokens := ticket.form.thinking.tokens(ticket.texts):
            ticket.places.thoughts.append([end - len(ticket.texts), tokens])
        state = replace(state, about=ticket.places.to_json())
    kept = Memory(hashed, turn_marker_fed, turn.seen, state, tag=tag_of(ticket.owner), id=ticket.id)
    service.prefixes.add(kept)
    if row is not None:
        service.slots[row] = ticket.owner, hashed
    return kept


def _next_of(service: Service) -> Ticket | None:
    """The request to prepare next; None: none waits, or none may start yet."""
    under_way = (*service._prepared, *service._under_way.values())
    return service.limits.next(service._line, under_way, service.seated, service.batch.readers)


def _read_before(service: Service, ticket: Ticket) -> Memory | None:
    """The memory of the longest read prefix of a request, loaded; one that cannot be read is dropped."""
    while ticket.asked.may_continue and (found := service.prefixes.longest(ticket.chain)) is not None:
        try:
            service.load_memory(found)
        except (H2OChatError, OSError) as error:
            sys.stderr.write(f"h2o-chat: {name_of(error)} The conversation is read again.\n")
            service.prefixes.drop(found)
        else:
            return found
    return None


def context_of(session: Session, template: str, jinja: Any) -> bytes:
    """A hash of everything that must be equal to continue a memory."""
    from h2o_chat.engine.saved_cache import IDENTITY

    alike = [(name, getattr(session, name)) for name in IDENTITY]
    return sha256(repr((alike, session.chunk, session.prefill, template, jinja)).encode()).digest()


def served_by(service: Service) -> Served:
    """The names and defaults against which requests are checked."""
    name = service.session.model
    names = {name, name.removesuffix(".gguf"), f"{name.removesuffix('.gguf')}.gguf"}
    names |= {service.settings.model or name}
    template = service.template
    marks = tuple(template.mark_texts()) if isinstance(template, ModelTemplate) else ()
    added = {str(token): number for number, token in service.tokenizer.added_tokens_decoder.items()}
    return Served(frozenset(names), service.sampling, service.settings.system, service.form, marks, added)
