"""Requests in line, and which of them is read next: keys share what reads prompts."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from h2o_chat.engine.request import Request
from h2o_chat.events.events import Note
from h2o_chat.serve.asked import Asked
from h2o_chat.serve.errors import busy
from h2o_chat.serve.retelling import Places
from h2o_chat.serve.stream import Stream

AHEAD = 2
"""Requests that wait in the batch; what they go on from is in memory even if it is no longer kept."""


@dataclass(eq=False)
class Ticket:
    """A request of a client, from its body to its last token."""

    asked: Asked
    owner: bytes
    stream: Stream
    chain: list[bytes]
    """The hash after each message."""
    request: Request | None = None
    """Once it was prepared."""
    cached_tokens: int = 0
    """Of its prompt, read for an earlier request."""
    places: Places | None = None
    """Where its messages lie, once it was prepared."""
    notes: Sequence[Note] = ()
    """What is said of recalled words."""
    prompt_ms: float = 0.0
    left: bool = False
    """Its client does not want it any more."""
    begun: bool = False
    """Its first words were told."""

    def begins(self) -> bool:
        """Whether these words are the first that a client waits for; then it is known once they are sent."""
        begins, self.begun = self.asked.stream and not self.begun, True
        if begins:
            self.stream.sent.clear()
        return begins


@dataclass(frozen=True)
class Limits:
    """How much at once."""

    waiting: int
    """Requests that nothing was read of yet."""
    waiting_of_key: int
    """Of them those of one key."""
    time_s: float
    """For a request, from its body to its last token."""
    grace_s: float
    """For those under way when the server is told to end."""
    keys: int = 1
    """Which share."""

    def check(self, waiting: Collection[Ticket], owner: bytes) -> None:
        """Whether one more may wait.

        Raises:
            ApiError: too many wait, of all keys or of this one.
        """
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
        """Who of the line goes to the batch: of the key with the fewest under way, who came first.

        Several keys share the rows and what reads prompts: a key takes a reader, and a second row, only while
        more are free than it has. So neither its long prompts nor its long answers take all of them.

        Args:
            under_way: those that are prepared, and those in the batch.
            seated: row by row those that are answered; the others are read, or wait for it.
            readers: prompts that are read at once.
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
