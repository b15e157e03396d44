"""A connection, with limits of time: for what comes before a request, and for a reader that does not read."""

import asyncio
import json
import sys
from collections import Counter
from typing import Any

import h11
import psutil
from uvicorn.protocols.http.h11_impl import H11Protocol

from h2o_chat.serve.errors import ApiError

HEAD_S = 20.0
"""The head of a request comes within this time after the connection, or after the answer before."""
READ_S = 30.0
"""A client that takes nothing for so long is cut off."""
CONNECTIONS = 512
"""At once."""
ACCEPTED_AT_ONCE = 4
"""Connections that are accepted before it is looked whether they are too many."""
SPARE_DESCRIPTORS = 24
"""For files, for the process of templates, for what was accepted at once."""


def connections_at_most() -> int:
    """CONNECTIONS, or as many as the system lets this process have descriptors for, beside those it has."""
    if sys.platform == "win32":
        return CONNECTIONS
    import resource

    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return CONNECTIONS
    taken = int(psutil.Process().num_fds()) + SPARE_DESCRIPTORS
    return min(CONNECTIONS, most - taken)


class Connection(H11Protocol):
    """uvicorn's, which waits for ever for both.

    Args:
        most: connections at once.
    """

    _head: asyncio.TimerHandle | None = None
    _reader: asyncio.TimerHandle | None = None

    def __init__(self, *arguments: Any, most: int, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._most = most

    def connection_made(self, transport: Any) -> None:
        """Somebody has connected."""
        super().connection_made(transport)
        self._wait_for_a_head()
        if len(self.connections) > self._most:
            self._make_room()

    def _make_room(self) -> None:
        """Cuts one that waits for a head: the oldest of the address that has most of them."""
        still: list[Any] = [one for one in self.connections if not one.transport.is_closing()]
        if len(still) > self._most:
            waiting = [one for one in still if one.cycle is None or one.cycle.response_complete]
            of = Counter(one.address for one in waiting)
            min(waiting, key=lambda one: (-of[one.address], one.waits_until)).transport.abort()

    @property
    def address(self) -> str:
        """Of the client."""
        return self.client[0] if self.client else ""

    @property
    def waits_until(self) -> float:
        """When it is cut if no head comes, in the event loop's time."""
        return self._head.when() if self._head else 0.0

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there any more."""
        for timer in (self._head, self._reader):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Something has come."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and self._head is not None:
            self._head.cancel()

    def on_response_complete(self) -> None:
        """An answer was sent."""
        self._wait_for_a_head()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """The client does not read as fast as it is written to."""
        super().pause_writing()
        self._reader = self.loop.call_later(READ_S, self.transport.abort)

    def resume_writing(self) -> None:
        """It has read."""
        super().resume_writing()
        if self._reader is not None:
            self._reader.cancel()

    def send_400_response(self, msg: str) -> None:
        """What has come is not HTTP; said in the shape of all errors."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # whoever answers what came before it has nobody to answer
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.close()
                return
        body = json.dumps(ApiError(400, msg).body()).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        try:
            for event in (h11.Response(status_code=400, headers=headers), h11.Data(body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        except h11.LocalProtocolError:
            pass  # an answer has begun meanwhile
        self.transport.close()

    def _wait_for_a_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
        self._head = self.loop.call_later(HEAD_S, self.transport.abort)
