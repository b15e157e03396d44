"""The queue of requests, the fair choice of the next one among keys, and the turns of their threads."""

import threading
from asyncio import Future
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from h2o_chat.chat.templates.tool_form import ToolForm
from h2o_chat.engine.request import Chance, Request
from h2o_chat.events.events import Note
from h2o_chat.serve.api_errors import ApiError, busy
from h2o_chat.serve.chat_request import ChatRequest
from h2o_chat.serve.server_recall import MessagePositions
from h2o_chat.serve.stream import Stream

AHEAD = 2
"""Requests prepared in advance; their memories stay loaded even if they are no longer kept."""


@dataclass(eq=False)
class Ticket:
    """A request, from its body to its last token."""

    asked: ChatRequest
    owner: bytes
    stream: Stream
    chain: list[bytes]
    request: Request | None = None
    """None until it is prepared."""
    cached_tokens: int = 0
    places: MessagePositions | None = None
    """Positions of its messages, once it is prepared."""
    notes: Sequence[Note] = ()
    """Notes about recalled words."""
    form: ToolForm = field(default_factory=ToolForm)
    texts: list[str] = field(default_factory=list)
    """The text of each token so far, where the model may think."""
    chances: list[Sequence[Chance]] = field(default_factory=list)
    """Chances of each token so far, where they are wished."""
    prompt_ms: float = 0.0
    left: bool = False
    """Its client has hung up."""
    begun: bool = False
    """Its first text was delivered."""
    id: str = ""
    conversation: str = ""
    """Its folder in the shared storage; empty: it is not kept there."""
    epoch: int = 0
    """The epoch of that conversation that was the newest before the request; -1: not known."""
    base: int = 0
    """The epoch that the request goes on from."""
    before: "Future[ApiError | None] | None" = None
    """The write of an epoch that was under way when the request came."""

    def begins(self) -> bool:
        """Whether this is a stream's first text; if so, `stream.sent` is cleared until it is sent."""
        begins, self.begun = self.asked.stream and not self.begun, True
        if begins:
            self.stream.sent.clear()
        return begins


@dataclass(frozen=True)
class Limits:
    waiting: int
    """Most requests whose reading has not begun."""
    waiting_of_key: int
    """Most of them for one key."""
    time_s: float
    """Longest time of a request, from its body to its last token."""
    grace_s: float
    """Time for requests in progress when the server ends."""
    keys: int = 1

    def check(self, waiting: Collection[Ticket], owner: bytes) -> None:
        """Raises ApiError if too many requests wait, in all or of this key."""
        if len(waiting) >= self.waiting:
            raise busy(429, f"{len(waiting):,} requests wait already. Try again.", "queue_full")
        of_key = sum(ticket.owner == owner for ticket in waiting)
        if of_key >= self.waiting_of_key:
            raise busy(429, f"{of_key:,} requests of this key wait already. Try again.", "queue_full")

    def next(
        self,
        line: Collection[Ticket],
        under_way: Collection[Ticket],
        seated: Collection[Request | None],
        readers: int,
    ) -> Ticket | None:
        """The next request for the batch: the first of the key with fewest in progress; None: none may start.

        With several keys, a key gets a reader, or a second row, only while more are free than it has: neither
        its long prompts nor its long answers take all of them.

        Args:
            under_way: prepared requests and those in the batch.
            seated: per row the request that is answered; others in the batch are read or wait.
            readers: prompts that can be read at the same time.
        """
        of = Counter(ticket.owner for ticket in under_way)
        read = {request for request in seated if request is not None}
        unread = Counter(ticket.owner for ticket in under_way if ticket.request not in read)
        free = readers - unread.total()
        if self.keys == 1:
            return min(line, key=lambda one: of[one.owner], default=None) if free > -AHEAD else None
        rows = len(seated) - of.total()
        may = [ticket for ticket in line if free > unread[ticket.owner]]
        may = [ticket for ticket in may if rows > of[ticket.owner] or not of[ticket.owner]]
        return min(may, key=lambda one: of[one.owner], default=None)


class TurnLock:
    """A lock that is granted in the order of requests: threads that prepare take one processor at most."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._taken = self._over = 0  # turns that were taken, and turns that ended

    def __enter__(self) -> None:
        with self._changed:
            mine, self._taken = self._taken, self._taken + 1
            self._changed.wait_for(lambda: self._over == mine)

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._over += 1
            self._changed.notify_all()

    def give_way(self) -> None:
        """Ends the turn and waits for the next one, after all other waiting threads."""
        self.__exit__()
        self.__enter__()
