"""The server: it listens, answers, and ends in order."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

import uvicorn

from h2o_chat.base.errors import UsageError
from h2o_chat.base.system import ENDING
from h2o_chat.serve.app import App
from h2o_chat.serve.body import Bodies
from h2o_chat.serve.guard import Guard
from h2o_chat.serve.keys import Keys
from h2o_chat.serve.malloc import trim
from h2o_chat.serve.protocol import ACCEPTED_AT_ONCE, CONNECTIONS, Connection, connections_at_most
from h2o_chat.serve.saved import Saved
from h2o_chat.serve.service import Service
from h2o_chat.serve.shares import Share

SEND_BYTES = 64 << 10
"""That the system holds for a client that does not read; beside them 64 KiB here."""
CUT_S = 5.0
"""What is cut has so long to be told, and to come to the end of its step."""
BACKLOG = 128
"""Connections that the system holds until they are accepted."""
SWITCH_S = 0.0005
"""A thread that computes in Python lets another go on after so long; a token waits for that many times."""
TRIM_TICKS = 50
"""Of a tenth of a second: so often holes in the heap are given back."""


def listen(host: str, port: int) -> socket.socket:
    """A socket at an address; port 0 takes a free one.

    Raises:
        OSError: it cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.create_server((host, port), family=family, backlog=BACKLOG)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)  # those that it accepts have it, too
    return found


class Server(uvicorn.Server):
    """uvicorn, which ends when all was answered.

    Args:
        service: answers.
        ready: done as soon as it listens.
    """

    def __init__(
        self,
        service: Service,
        saved: Saved | None,
        keys: Keys,
        loopback: bool,
        scheme: str,
        ready: Callable[[], None],
    ) -> None:
        most, bodies = _connections(), Bodies(len(keys))
        # The others are for those who ask for /health, are refused, or have not said what they want.
        requests = Share(most // 2, len(keys))
        app = App(service, saved, bodies)
        guard = Guard(app, keys, loopback, scheme, requests, bodies, service.counts.statuses)
        config = uvicorn.Config(
            guard,
            http=partial(Connection, most=most),  # type: ignore[arg-type]
            backlog=ACCEPTED_AT_ONCE,  # uvicorn's word for it
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=int(CUT_S),
        )
        super().__init__(config)
        # Its warnings tell of what clients send, who could fill a disk with them.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self._service, self._ready = service, ready
        self._leaves_at: float | None = None
        """The end of the time that is left for what goes on."""
        self._cut = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listens."""
        await super().startup(sockets)
        for at in sockets or ():
            at.listen(BACKLOG)
        self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The first signal ends it in order, a second one at once."""
        before = {number: signal.getsignal(number) for number in ENDING}
        loop = asyncio.get_running_loop()

        asked_before = False

        def handle(number: int, _: object) -> None:
            nonlocal asked_before
            if asked_before:
                os._exit(128 + number)
            asked_before = True
            loop.call_soon_threadsafe(self.leave)

        for number, handler in before.items():
            if handler is not signal.SIG_IGN:  # nohup, a job in the background of a shell script
                signal.signal(number, handle)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def leave(self) -> None:
        """Takes no more requests; what goes on has its time."""
        if self._leaves_at is None:
            grace_s = self._service.limits.grace_s
            self._leaves_at = time.monotonic() + grace_s
            sys.stderr.write(f"h2o-chat: ending; what is answered just now has {grace_s:g} s\n")
            self._service.end()

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: whether all has ended."""
        await super().on_tick(counter)
        if counter % TRIM_TICKS == 0:
            trim()
        if self._service.broken:
            return True
        if self._leaves_at is None:
            return False
        late_s = time.monotonic() - self._leaves_at
        if late_s >= 0 and not self._cut:
            self._cut = True
            self._service.cut()
        return not self._service.busy or late_s > CUT_S


def _connections() -> int:
    """How many at once; says where they are few.

    Raises:
        UsageError: there are none.
    """
    most = connections_at_most()
    if most < 2:
        raise UsageError("This process may open too few files to have connections.", "ulimit -n 1024")
    if most < CONNECTIONS:
        sys.stderr.write(f"h2o-chat: {most} connections at once, not {CONNECTIONS} (ulimit -n 1024: all)\n")
    return most


async def serve(
    service_of: Callable[[], tuple[Service, Saved | None]],
    keys: Keys,
    loopback: bool,
    scheme: str,
    at: socket.socket,
    ready: Callable[[], None],
) -> tuple[Service, Saved | None]:
    """Serves until a signal; then nothing is answered any more.

    Args:
        service_of: makes it, in the event loop, and the place where it keeps what it holds.
        scheme: of the address that pages know, http or https.
        at: where; see `listen`.
        ready: done once it listens.
    """
    gc.collect()
    gc.freeze()  # else what was loaded is looked through again and again, and all threads wait for that
    sys.setswitchinterval(SWITCH_S)
    service, saved = service_of()
    await Server(service, saved, keys, loopback, scheme, ready).serve([at])
    return service, saved
