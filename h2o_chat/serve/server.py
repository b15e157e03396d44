"""The server: listens, answers, and ends in order."""

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from h2o_chat.base.system import handling
from h2o_chat.serve.epochs import Epochs
from h2o_chat.serve.fair_share import FairShare
from h2o_chat.serve.guard import Guard, Keys
from h2o_chat.serve.protocol import ACCEPT_S, Connection, connections_at_most
from h2o_chat.serve.request_bodies import Bodies
from h2o_chat.serve.routes import Routes
from h2o_chat.serve.saved_memories import Saved
from h2o_chat.serve.service import Service
from h2o_chat.serve.shared_memories import Shared
from h2o_chat.serve.shared_storage import Storage

M_MMAP_THRESHOLD = -3
"""A constant of <malloc.h>."""
MAPPED_BYTES = 512 << 10
"""Smallest mapped block: the bundled model's keys of a row are mapped, the logits of a step are not."""


def give_back() -> None:
    """Makes glibc return freed large blocks to the system from now on; does nothing without glibc.

    Each freed block raises the size from which on glibc maps blocks, up to 32 MiB: rows and snapshots then
    leave holes in its heap, 9% of 64 snapshots of the bundled model. New pages take 7% of the processor time
    of its answers of 45 tokens; less with larger models.
    """
    # musl does not have it, and does not need it
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES)


def trim() -> None:
    """Returns unused pages between small blocks to the system, 1 to 3 MB in .4 ms, where there is glibc."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


def application(
    service: Service, saved: Saved | None, keys: Keys, loopback: bool, scheme: str, connections: int
) -> ASGIApp:
    """The guard and what is behind it, for so many connections."""
    bodies = Bodies(len(keys))
    # The other connections are for /health, for refusals, and for incomplete requests.
    requests = FairShare(connections // 2, len(keys))
    app = Routes(service, saved, bodies)
    return Guard(app, keys, loopback, scheme, requests, bodies, service.counts.statuses)


def share(service: Service, url: str) -> None:
    """Keeps the conversations of a service in shared storage. Called in its event loop."""
    from h2o_chat.engine.row import read_for
    from h2o_chat.engine.saved_cache import write

    session = service.batch.session(0)
    service.shared = Shared(
        Epochs(Storage(url), service.context),
        lambda state, file: write(file, state, session),
        partial(read_for, service.batch.reader, session),
        service.prefixes,
    )


SEND_BYTES = 64 << 10
"""The system's send buffer for each client; another 64 KiB are buffered here."""
CUT_S = 5.0
"""Time for cut requests to end their step and send the error."""
BACKLOG = 128
"""Connections that the system queues until they are accepted."""
SWITCH_S = 0.0005
"""Python's interval of switching threads: each token waits for several switches."""
TRIM_TICKS = 50
"""Ticks of a tenth of a second between two calls of `trim`."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free port. Raises OSError if the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.create_server((host, port), family=family, backlog=BACKLOG)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)  # accepted sockets inherit it
    return found


@contextlib.contextmanager
def leaving(leave: Callable[[], object]) -> Iterator[None]:
    """Meanwhile the first signal calls `leave`, and a second one ends the process at once."""
    asked_before = False

    def handle(number: int, _: object) -> None:
        nonlocal asked_before
        if asked_before:
            os._exit(128 + number)
        asked_before = True
        leave()

    with handling(handle):
        yield


class Server(uvicorn.Server):
    """uvicorn's server, which ends when all requests are answered; `most`: connections."""

    def __init__(self, app: ASGIApp, most: int, service: Service, ready: Callable[[], None]) -> None:
        config = uvicorn.Config(
            app,
            http=partial(Connection, most=most),  # type: ignore[arg-type]
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
        # Warnings about requests are off: clients could fill a disk with them.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self._service, self._ready, self._most = service, ready, most
        self._leaves_at: float | None = None
        """End of the grace time, by `time.monotonic`; None: not ending."""
        self._cut = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        self._accepting = [asyncio.create_task(self._accept(at)) for at in sockets or ()]
        self._ready()

    async def _accept(self, at: socket.socket) -> None:
        loop, make = asyncio.get_running_loop(), self.config.http_protocol_class
        at.setblocking(False)
        while True:
            try:
                client, _ = await loop.sock_accept(at)
                await loop.connect_accepted_socket(
                    lambda: make(self.config, self.server_state, {}),  # type: ignore[call-arg]
                    client,
                )
            except OSError:  # it has gone already, or there are no descriptors left for it
                await asyncio.sleep(ACCEPT_S)
                continue
            if len(self.server_state.connections) >= self._most:
                await asyncio.sleep(ACCEPT_S)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._accepting:
            task.cancel()
        await super().shutdown(sockets)

    def capture_signals(self) -> Any:
        loop = asyncio.get_running_loop()
        return leaving(lambda: loop.call_soon_threadsafe(self.leave))

    def leave(self) -> None:
        """Refuses new requests, and gives those in progress the grace time."""
        if self._leaves_at is None:
            grace_s = self._service.limits.grace_s
            self._leaves_at = time.monotonic() + grace_s
            sys.stderr.write(f"h2o-chat: ending; what is answered just now has {grace_s:g} s\n")
            self._service.end()

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second; returns whether the server may end."""
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


async def serve(
    service_of: Callable[[], tuple[Service, Saved | None]],
    keys: Keys,
    loopback: bool,
    scheme: str,
    at: socket.socket,
    ready: Callable[[], None],
) -> tuple[Service, Saved | None]:
    """Serves until a signal; returns the service, which answers no more.

    Args:
        service_of: called in the event loop; makes the service and its folder of saved memories.
        scheme: of the public address, http or https.
    """
    gc.collect()
    gc.freeze()  # excludes loaded objects from garbage collection, for which all threads wait
    sys.setswitchinterval(SWITCH_S)
    service, saved = service_of()
    most = connections_at_most()
    app = application(service, saved, keys, loopback, scheme, most)
    await Server(app, most, service, ready).serve([at])
    return service, saved
