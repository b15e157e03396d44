"""Sends an answer, as a stream or as a whole. A client that hangs up ends its request."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from h2o_chat.chat.templates.tool_form import Splitter
from h2o_chat.engine.detokenize import bytes_of
from h2o_chat.engine.request import Chance
from h2o_chat.models.tokenizer_calls import text_of
from h2o_chat.serve.api_errors import ApiError
from h2o_chat.serve.chat_response import WAITING, ChatDialect, TextDialect, to_json, usage
from h2o_chat.serve.messages_dialect import MessagesDialect
from h2o_chat.serve.request_queue import Ticket
from h2o_chat.serve.responses_dialect import ResponsesDialect
from h2o_chat.serve.service import Service
from h2o_chat.serve.stream import Ended, Item

QUIET_S = 10.0
"""Silence of a stream after which a comment is sent. The status of a stream is sent after at most this
time."""
LEAST_LOG = -9999.0
"""Told for a token that had no chance: JSON knows no infinity."""
Dialect = ChatDialect | TextDialect | MessagesDialect | ResponsesDialect
STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",  # nginx would buffer it
}


class Reply:
    """The answer to a ticket, as an ASGI application."""

    def __init__(self, service: Service, ticket: Ticket, dialect: Dialect) -> None:
        self._service, self._ticket, self._dialect = service, ticket, dialect
        self._end = time.monotonic() + service.limits.time_s
        self._taken = 0
        """Characters of the answer that were taken from the stream."""
        self._tools = bool(ticket.asked.tools.tools)
        self._splitter = Splitter(ticket.form, self._tools)
        self._told = 0
        """Tokens whose chances were told."""
        self.ended: Ended | None = None
        """The end of the answer, once it is complete."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        work = self._stream(send) if self._ticket.asked.stream else self._whole(send)
        await while_connected(receive, work, self.leave)

    def leave(self) -> None:
        """Ends the request, where it has not ended."""
        self._service.leave(self._ticket)

    async def _whole(self, send: Send) -> None:
        found = await self.whole()
        if isinstance(found, ApiError):
            return await refuse(send, found)
        await respond(send, found)

    async def whole(self) -> dict[str, Any] | ApiError:
        """The whole answer as JSON, or why there is none."""
        items: list[Item] = []
        while not items:
            items = await self._take(self._service.limits.time_s)
        (item,) = items
        if isinstance(item, Ended) and item.error is None:
            self.ended = item
            parts = self._ticket.form.read(item.turn.text, self._tools)
            chances = self._chances()
            if item.turn.finish == "eos":  # the end has no text
                chances = chances[:-1]
            return self._dialect.whole(item, parts, chances)
        error = item.error if isinstance(item, Ended) else item
        assert isinstance(error, ApiError)
        if isinstance(item, Ended) and error.code == "ending" and item.turn.text:
            error.message += f" So far it was: {item.turn.text}"
        return error

    async def _stream(self, send: Send) -> None:
        items = await self.first()
        if len(items) == 1 and isinstance(error := items[0], ApiError):
            return await refuse(send, error)
        await begin_stream(send)
        async for body in self.chunks(items):
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def first(self) -> list[Item]:
        """The first items for `chunks`; perhaps none yet."""
        return await self._take(QUIET_S)

    async def chunks(self, items: list[Item]) -> AsyncIterator[bytes]:
        """The stream, from its beginning to its end."""
        yield self._dialect.begins()
        told = time.monotonic()
        while True:
            body = b"".join(self._pieces(items))
            if not body and time.monotonic() >= told + QUIET_S:  # text of a call is held back until its end
                body = WAITING
            if body:
                yield body
                told = time.monotonic()
            if items and not isinstance(items[-1], str):
                return
            items = await self._take(told + QUIET_S - time.monotonic())

    def _pieces(self, items: list[Item]) -> Iterator[bytes]:
        for item in items:
            match item:
                case str(text):
                    yield self._text(text)
                case Ended(turn=turn, error=None):
                    self.ended = item
                    yield self._text(turn.text[self._taken :])
                    parts = self._ticket.form.read(turn.text, self._tools)
                    for kind, text in self._splitter.end(parts):
                        yield self._dialect.piece(kind, text)
                    if parts.calls:
                        yield self._dialect.calls(parts.calls)
                    yield self._dialect.last(item, parts)
                case Ended(turn=turn, error=ApiError() as error):
                    yield self._text(turn.text[self._taken :])
                    yield self._dialect.failed(error)
                case ApiError() as error:
                    yield self._dialect.failed(error)

    def _text(self, text: str) -> bytes:
        self._taken += len(text)
        pieces = self._splitter.add(text)
        return b"".join(self._dialect.piece(kind, new, self._chances()) for kind, new in pieces)

    def _chances(self) -> list[dict[str, Any]]:
        """The chances of tokens, as OpenAI's API has them, that were not told yet."""
        new = self._ticket.chances[self._told :]
        self._told += len(new)
        return [
            self._chance(chosen) | {"top_logprobs": [self._chance(one) for one in likeliest]}
            for chosen, *likeliest in new
        ]

    def _chance(self, one: Chance) -> dict[str, Any]:
        token = text_of(self._service.tokenizer, [one.id])
        spelt = list(bytes_of(self._service.tokenizer, one.id))
        return {"token": token, "logprob": max(one.log, LEAST_LOG), "bytes": spelt}

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


async def while_connected(
    receive: Receive, working: Coroutine[Any, Any, None], leave: Callable[[], None]
) -> None:
    """Answers while the client is there; `leave` is called at the end."""
    gone, work = asyncio.create_task(_gone(receive)), asyncio.create_task(working)
    try:
        await asyncio.wait((gone, work), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            await work
    finally:
        leave()
        for task in (gone, work):
            task.cancel()
        await asyncio.gather(gone, work, return_exceptions=True)


async def begin_stream(send: Send) -> None:
    headers = [(name.encode(), value.encode()) for name, value in STREAM_HEADERS.items()]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def _gone(receive: Receive) -> None:
    """Returns when the client has hung up."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def refuse(send: Send, error: ApiError) -> None:
    await respond(send, error.body(), error.status, error.headers)


async def respond(
    send: Send, value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> None:
    """Sends a whole JSON response."""
    response = Response(to_json(value), status, headers, media_type="application/json")
    await send({"type": "http.response.start", "status": status, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": False})


class Choices:
    """The answers, as an ASGI application."""

    def __init__(self, replies: Sequence[Reply], dialect: ChatDialect, stream: bool) -> None:
        self._replies, self._dialect, self._is_stream = replies, dialect, stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        work = self._stream(send) if self._is_stream else self._whole(send)
        await while_connected(receive, work, self._leave)

    def _leave(self) -> None:
        for one in self._replies:
            one.leave()

    async def _whole(self, send: Send) -> None:
        found = await asyncio.gather(*(one.whole() for one in self._replies))
        if failed := [one for one in found if isinstance(one, ApiError)]:
            return await refuse(send, failed[0])
        whole = [one for one in found if not isinstance(one, ApiError)]
        choices = [one["choices"][0] for one in whole]
        counted = usage(*(one.ended for one in self._replies if one.ended))
        await respond(send, {**whole[0], "choices": choices, "usage": counted})

    async def _stream(self, send: Send) -> None:
        sending = asyncio.Lock()

        async def passed(reply: Reply) -> None:
            async for body in reply.chunks(await reply.first()):
                async with sending:
                    await send({"type": "http.response.body", "body": body, "more_body": True})

        await begin_stream(send)
        await asyncio.gather(*map(passed, self._replies))
        ended = [one.ended for one in self._replies if one.ended]
        body = self._dialect.end(ended) if len(ended) == len(self._replies) else b""
        await send({"type": "http.response.body", "body": body, "more_body": False})
