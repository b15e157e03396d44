"""Sends an answer, as a stream or as a whole. A client that hangs up ends its request."""

import asyncio
import time
from collections.abc import Iterator

from starlette.types import Receive, Scope, Send

from h2o_chat.serve.api_errors import ApiError
from h2o_chat.serve.chat_response import WAITING, Head, failed, sent, to_json
from h2o_chat.serve.request_queue import Ticket
from h2o_chat.serve.service import Service
from h2o_chat.serve.stream import Ended, Item

QUIET_S = 10.0
"""Silence of a stream after which a comment is sent. The status of a stream is sent after at most this
time."""
STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",  # nginx would buffer it
}


class Reply:
    """The answer to a ticket, as an ASGI application."""

    def __init__(self, service: Service, ticket: Ticket, model: str) -> None:
        self._service, self._ticket, self._head = service, ticket, Head(model)
        self._end = time.monotonic() + service.limits.time_s
        self._sent = 0
        """Characters of the answer that were sent."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.create_task(_gone(receive))
        work = asyncio.create_task(self._stream(send) if self._ticket.asked.stream else self._whole(send))
        try:
            await asyncio.wait((gone, work), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                return
            await work
        finally:
            self._service.leave(self._ticket)
            for task in (gone, work):
                task.cancel()
            await asyncio.gather(gone, work, return_exceptions=True)

    async def _whole(self, send: Send) -> None:
        items: list[Item] = []
        while not items:
            items = await self._take(self._service.limits.time_s)
        (item,) = items
        error = item.error if isinstance(item, Ended) else item
        if isinstance(item, Ended) and error is None:
            await respond(send, 200, {}, to_json(self._head.whole(item)))
        else:
            assert isinstance(error, ApiError)
            await refuse(send, error)

    async def _stream(self, send: Send) -> None:
        items = await self._take(QUIET_S)
        if len(items) == 1 and isinstance(error := items[0], ApiError):
            return await refuse(send, error)
        headers = [(name.encode(), value.encode()) for name, value in STREAM_HEADERS.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        begins = self._head.chunk({"role": "assistant", "content": ""}, self._ticket.asked.tells_usage)
        await send({"type": "http.response.body", "body": sent(begins), "more_body": True})
        while True:
            over = bool(items) and not isinstance(items[-1], str)
            body = b"".join(self._pieces(items)) or WAITING
            await send({"type": "http.response.body", "body": body, "more_body": not over})
            if over:
                return
            items = await self._take(QUIET_S)

    def _pieces(self, items: list[Item]) -> Iterator[bytes]:
        """The bytes to send for some items."""
        for item in items:
            match item:
                case str(text):
                    yield self._text(text)
                case Ended(turn=turn, error=error):
                    yield self._text(turn.text[self._sent :])
                    yield failed(error) if error else self._head.last(item, self._ticket.asked.tells_usage)
                case error:
                    yield failed(error)

    def _text(self, text: str) -> bytes:
        self._sent += len(text)
        return sent(self._head.chunk({"content": text}, self._ticket.asked.tells_usage)) if text else b""

    async def _take(self, longest_s: float) -> list[Item]:
        """The items that came within `longest_s`; an error when the request's time is over."""
        left = self._end - time.monotonic()
        items = await self._ticket.stream.take(max(0.0, min(longest_s, left)))
        if items or time.monotonic() < self._end:
            return items
        limit = self._service.limits.time_s
        return [
            ApiError(504, f"The answer took longer than {limit:g} s: --timeout of the server.", "timeout")
        ]


async def _gone(receive: Receive) -> None:
    """Returns when the client has hung up."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def refuse(send: Send, error: ApiError) -> None:
    """Sends an error response."""
    await respond(send, error.status, error.headers, to_json(error.body()))


async def respond(send: Send, status: int, headers: dict[str, str], body: bytes) -> None:
    """Sends a whole JSON response."""
    headers = {"content-type": "application/json", "content-length": str(len(body)), **headers}
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body, "more_body": False})
