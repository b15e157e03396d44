"""Sends several answers to one request (`n`)."""

import asyncio
from collections.abc import Sequence

from starlette.types import Receive, Scope, Send

from h2o_chat.serve.api_errors import ApiError
from h2o_chat.serve.chat_response import ChatDialect, to_json, usage
from h2o_chat.serve.reply import Reply, begin_stream, refuse, respond, while_connected


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
        await respond(send, 200, {}, to_json({**whole[0], "choices": choices, "usage": counted}))

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
