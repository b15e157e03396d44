"""Sends the answers to a request, as a stream or as a whole. A client that hangs up ends its request."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from h2o_chat.chat.templates.tool_form import Splitter
from h2o_chat.engine.detokenize import spelling
from h2o_chat.engine.request import Chance
from h2o_chat.serve.api_errors import ApiError
from h2o_chat.serve.chat_response import WAITING, ChatDialect, Json, TextDialect, usage
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
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx would buffer it
]


class Reply:
    """The answer to one ticket."""

    def __init__(self, service: Service, ticket: Ticket, dialect: Dialect) -> None:
        self._service, self._ticket, self._dialect = service, ticket, dialect
        self._end = time.monotonic() + service.limits.time_s
        self._taken = 0  # characters of the answer that were taken from the stream
        self._tools = bool(ticket.asked.tools.tools)
        self._splitter = Splitter(ticket.form, self._tools)
        self._ends = service.batch.runner.eos
        self._told = 0  # tokens whose chances were told
        self._spaced = False  # whether the answer begins with a space
        self.ended: Ended | None = None
        """The end of the answer, once it is complete."""

    async def whole(self) -> dict[str, Any]:
        """The whole answer as JSON; raises ApiError where there is none."""
        items: list[Item] = []
        while not items:
            items = await self.take(self._service.limits.time_s)
        match items[0]:
            case Ended(turn=turn, error=None) as ended:
                self.ended = ended
                self._spaced = turn.text.startswith(" ")
                parts = self._ticket.form.read(turn.text, self._tools)
                return self._dialect.whole(ended, parts, self._chances())
            case Ended(turn=turn, error=ApiError() as error):
                if error.code == "ending" and turn.text:
                    error.message += f" So far it was: {turn.text}"
                raise error
            case error:
                assert isinstance(error, ApiError)
                raise error

    async def chunks(self, items: list[Item]) -> AsyncIterator[bytes]:
        """The stream, from its beginning to its end; `items` are its first ones, perhaps none yet."""
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
            items = await self.take(told + QUIET_S - time.monotonic())

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
                        yield self._dialect.piece(kind, text, self._chances())
                    if parts.calls:
                        yield self._dialect.calls(parts.calls)
                    yield self._dialect.last(item, parts)
                case Ended(turn=turn, error=ApiError() as error):
                    yield self._text(turn.text[self._taken :])
                    yield self._dialect.failed(error)
                case ApiError() as error:
                    yield self._dialect.failed(error)

    def _text(self, text: str) -> bytes:
        if not self._taken:
            self._spaced = text.startswith(" ")
        self._taken += len(text)
        pieces = self._splitter.add(text)
        return b"".join(self._dialect.piece(kind, new, self._chances()) for kind, new in pieces)

    def _chances(self) -> list[dict[str, Any]]:
        """The chances of tokens, as OpenAI's API has them, that were not told yet; the end has no text."""
        new = self._ticket.chances[self._told :]
        if new and not self._ticket.asked.sampling.ignore_eos and new[-1][0].id in self._ends:
            del new[-1]
        bare = [not self._told and not self._spaced] + [False] * len(new)
        self._told += len(new)
        return [
            self._chance(chosen, first) | {"top_logprobs": [self._chance(one, first) for one in likeliest]}
            for (chosen, *likeliest), first in zip(new, bare, strict=False)
        ]

    def _chance(self, one: Chance, bare: bool) -> dict[str, Any]:
        """A chance; `bare`: without the space that SentencePiece's first token has in its name alone."""
        token, spelt = spelling(self._service.tokenizer, one.id)
        if bare:
            token, spelt = token.removeprefix(" "), spelt.removeprefix(b" ")
        return {"token": token, "logprob": max(one.log, LEAST_LOG), "bytes": list(spelt)}

    async def take(self, longest_s: float) -> list[Item]:
        """The items that came within `longest_s`; an error when the request's time is over."""
        left = self._end - time.monotonic()
        items = await self._ticket.stream.take(max(0.0, min(longest_s, left)))
        if items or time.monotonic() < self._end:
            return items
        what = f"The answer took longer than {self._service.limits.time_s:g} s: --timeout of the server."
        return [ApiError(504, what, "timeout")]


class Answer(Response):
    """The response to a request, one answer or several choices; `over` is called at its end."""

    def __init__(
        self, service: Service, tickets: Sequence[Ticket], dialect: Dialect, over: Callable[[], None]
    ) -> None:
        self._dialect, self._over, self._is_stream = dialect, over, tickets[0].asked.stream
        each: list[Dialect] = [dialect]
        if len(tickets) > 1:
            assert isinstance(dialect, ChatDialect)
            each = [replace(dialect, index=at) for at in range(len(tickets))]
        self._replies = [Reply(service, *one) for one in zip(tickets, each, strict=True)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def hung_up() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        sent = self._stream(send) if self._is_stream else self._whole(scope, receive, send)
        work, gone = asyncio.create_task(sent), asyncio.create_task(hung_up())
        try:
            await asyncio.wait((gone, work), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                await work
        finally:
            self._over()
            for task in (gone, work):
                task.cancel()
            await asyncio.gather(gone, work, return_exceptions=True)

    async def _whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        all_whole = [await one.whole() for one in self._replies]
        whole = all_whole[0]
        if len(all_whole) > 1:
            choices = [one["choices"][0] for one in all_whole]
            whole |= {"choices": choices, "usage": usage(*self._ended())}
        await Json(whole)(scope, receive, send)

    async def _stream(self, send: Send) -> None:
        async def pass_on(reply: Reply, items: list[Item]) -> None:
            async for body in reply.chunks(items):
                await send({"type": "http.response.body", "body": body, "more_body": True})

        first, *others = self._replies
        items = [] if others else await first.take(QUIET_S)  # several do not wait for each other
        if len(items) == 1 and isinstance(error := items[0], ApiError):
            raise error  # in time for a status
        await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
        await asyncio.gather(pass_on(first, items), *(pass_on(one, []) for one in others))
        ended = self._ended()
        body = self._dialect.end(ended) if len(ended) == len(self._replies) else b""
        await send({"type": "http.response.body", "body": body, "more_body": False})

    def _ended(self) -> list[Ended]:
        return [one.ended for one in self._replies if one.ended]
