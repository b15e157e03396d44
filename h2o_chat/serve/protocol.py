"""Connections with timeouts: for the head of a request, and for clients that do not read."""

import asyncio
import sys
from collections import Counter
from typing import Any

import h11
import psutil
from uvicorn.protocols.http.h11_impl import H11Protocol

from h2o_chat.base.errors import UsageError
from h2o_chat.serve.api_errors import ApiError
from h2o_chat.serve.chat_response import Json

HEAD_S = 20.0
"""Longest time until the head of a request, from the connection or the answer before."""
READ_S = 30.0
"""A client that reads nothing for this time is cut off."""
CONNECTIONS = 512
ACCEPT_S = 0.001
"""Pause after each connection while there are as many as may be: who is refused comes again at once, and
refusals take the interpreter from those who are answered.
"""
SPARE_DESCRIPTORS = 24
"""Descriptors left for files, and the process of templates."""


def connections_at_most() -> int:
    """CONNECTIONS, or fewer, said on stderr, as descriptors allow; raises UsageError for hardly any."""
    if sys.platform == "win32":
        return CONNECTIONS
    import resource

    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return CONNECTIONS
    taken = int(psutil.Process().num_fds()) + SPARE_DESCRIPTORS
    if most - taken < 2:
        raise UsageError("This process may open too few files to have connections.", "ulimit -n 1024")
    if (most := most - taken) < CONNECTIONS:
        sys.stderr.write(f"h2o-chat: {most} connections at once, not {CONNECTIONS} (ulimit -n 1024: all)\n")
    return min(CONNECTIONS, most)


class Connection(H11Protocol):
    """uvicorn's connection, with timeouts that it lacks."""

    _head: asyncio.TimerHandle
    _reader: asyncio.TimerHandle | None = None

    def __init__(self, *arguments: Any, most: int, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._most = most

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._head = self.loop.call_later(HEAD_S, self.transport.abort)
        if len(self.connections) > self._most:
            self._make_room()

    def _make_room(self) -> None:
        """Cuts a connection without a request: the oldest one of the address with most of them."""
        still: list[Any] = [one for one in self.connections if not one.transport.is_closing()]
        if len(still) > self._most:
            waiting = [one for one in still if one.cycle is None or one.cycle.response_complete]
            addresses = {one: one.client and one.client[0] for one in waiting}
            of = Counter(addresses.values())
            min(waiting, key=lambda one: (-of[addresses[one]], one._head.when())).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head.cancel()
        if self._reader is not None:
            self._reader.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._head.cancel()

    def on_response_complete(self) -> None:
        self._head.cancel()
        self._head = self.loop.call_later(HEAD_S, self.transport.abort)
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reader = self.loop.call_later(READ_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reader is not None:
            self._reader.cancel()

    def send_400_response(self, msg: str) -> None:
        """Answers data that is not HTTP, in the format of all errors."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # ends the answer to the request before
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.close()
                return
        answer = Json(ApiError(400, msg).body(), 400, {"connection": "close"})
        head, body = h11.Response(status_code=400, headers=answer.raw_headers), h11.Data(bytes(answer.body))
        try:
            for event in (head, body, h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        except h11.LocalProtocolError:
            pass  # a response has begun already
        self.transport.close()
