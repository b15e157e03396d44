"""The endpoints of the server."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

import h2o_chat
from h2o_chat.serve import messages_dialect, responses_dialect
from h2o_chat.serve.api_errors import ApiError, wrong
from h2o_chat.serve.chat_request import ChatRequest, asked_for, object_of, text_asked_for
from h2o_chat.serve.chat_response import ChatDialect, Json, TextDialect
from h2o_chat.serve.epochs import HEADER
from h2o_chat.serve.memory_routes import SlotRoutes, memory_of
from h2o_chat.serve.metrics import metrics
from h2o_chat.serve.reply import Answer, Dialect
from h2o_chat.serve.request_bodies import Bodies
from h2o_chat.serve.request_queue import Ticket
from h2o_chat.serve.saved_memories import Saved
from h2o_chat.serve.service import Service

Body = dict[str, Any]
Asked = tuple[ChatRequest, Dialect]
METRICS = "text/plain; version=0.0.4; charset=utf-8"


class Routes:
    """The application behind the guard; `saved` is None: nothing is saved on disk."""

    def __init__(self, service: Service, saved: Saved | None, bodies: Bodies) -> None:
        self.service, self.bodies = service, bodies
        self.model = service.session.model
        self.began = int(time.time())
        self.checking = ThreadPoolExecutor(2, "check")
        """Parses bodies outside of the event loop: many MiB take a while."""
        self._turn: defaultdict[bytes, asyncio.Lock] = defaultdict(asyncio.Lock)
        """One body of each key is parsed at a time."""
        self._conversations = responses_dialect.Conversations()
        slots = SlotRoutes(service, saved, self.bodies)
        routes = [
            Route("/health", self.health),
            Route("/metrics", self.metrics),
            Route("/props", self.props),
            Route("/v1/models", self.models),
            Route("/v1/models/{name:path}", self.one_model),
            Route("/v1/conversations/{id}", self.conversation),
            Route("/v1/conversations/{id}/memory", self.memory),
            Route("/v1/chat/completions", partial(self._answered, asked=self._chat), methods=["POST"]),
            Route("/v1/completions", partial(self._answered, asked=self._completion), methods=["POST"]),
            Route("/v1/messages", partial(self._answered, asked=self._message), methods=["POST"]),
            Route("/v1/responses", partial(self._answered, asked=self._response), methods=["POST"]),
            Route("/slots", slots.all),
            Route("/slots/{id}", slots.act, methods=["POST"]),
        ]
        self._router = Router(routes, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self  # makes the router raise 404 and 405
        try:
            await self._router(scope, receive, send)
        except HTTPException as error:
            asked = f"{scope['method']} {scope['path']}"[:200]
            what = f"{asked}: {error.detail}. See docs/SERVE.md."
            code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "invalid_request")
            raise ApiError(error.status_code, what, code, headers=dict(error.headers or {})) from error
        except ClientDisconnect:
            return  # before its request was complete

    def _chat(self, body: Body, owner: bytes) -> Asked:
        found = asked_for(body, self.service.served)
        return found, ChatDialect(self.model, found.tells_usage)

    def _completion(self, body: Body, owner: bytes) -> Asked:
        found = text_asked_for(body, self.service.served)
        return found, TextDialect(self.model, found.tells_usage)

    def _message(self, body: Body, owner: bytes) -> Asked:
        found = asked_for(messages_dialect.chat_body(body), self.service.served)
        return found, messages_dialect.MessagesDialect(self.model, found.sampling.stop)

    def _response(self, body: Body, owner: bytes) -> Asked:
        held = self._conversations
        before = held.find(owner, id_) if (id_ := body.get("previous_response_id")) else []
        chat = responses_dialect.chat_body(body, before)
        said = chat["messages"][bool(body.get("instructions")) :]  # they are of this answer alone

        def hold(id_: str, items: list[Any]) -> None:
            if body.get("store") is not False:
                held.add(owner, id_, [*said, *responses_dialect.messages_of(items)])

        found = asked_for(chat, self.service.served)
        return found, responses_dialect.ResponsesDialect(self.model, body, hold)

    async def _answered(self, request: Request, asked: Callable[[Body, bytes], Asked]) -> Response:
        """The answer to a request; `asked` makes a chat request of its body, in a thread."""
        service, loop, owner = self.service, asyncio.get_running_loop(), request.scope["owner"]

        def parsed(raw: bytes) -> tuple[list[Ticket], Dialect]:
            found, dialect = asked(object_of(raw), owner)
            if found.choices > 1 and type(dialect) is not ChatDialect:
                raise wrong("n", "Here n is 1 at most: /v1/chat/completions gives several answers.")
            if found.choices > (most := min(service.limits.waiting, service.limits.waiting_of_key)):
                raise wrong("n", f"n is {found.choices}: {most} requests of a key may wait here (--queue).")
            first, *others = [replace(found, seed=(found.seed + at) % 2**63) for at in range(found.choices)]
            made = [service.ticket(first, owner, dialect.id), *(service.ticket(one, owner) for one in others)]
            return made, dialect

        tickets = list[Ticket]()
        raw = await self.bodies.read(request)

        def over() -> None:
            for ticket in tickets:
                service.leave(ticket)
            self.bodies.free(owner, len(raw))

        try:
            async with self._turn[owner]:
                tickets, dialect = await loop.run_in_executor(self.checking, parsed, raw)
            if service.shared and len(tickets) == 1 and (session := request.headers.get(HEADER)):
                await service.shared.begin(tickets[0], session)
            for ticket in tickets:
                service.submit(ticket)
        except BaseException:
            over()
            raise
        return Answer(service, tickets, dialect, over)

    async def health(self, request: Request) -> Response:
        return Json({"status": "ending"}, 503) if self.service.ending else Json({"status": "ok"})

    async def memory(self, request: Request) -> Response:
        asked = self.service, request.scope["owner"], request.path_params["id"]
        return Json(await asyncio.get_running_loop().run_in_executor(self.checking, memory_of, *asked))

    async def conversation(self, request: Request) -> Response:
        """GET /v1/conversations/{id}: all messages of a conversation in the shared storage."""
        if self.service.shared is None:
            raise ApiError(501, "This server shares no conversations: h2o-chat cluster up.", "not_shared")
        id_ = request.path_params["id"]
        found = await self.service.shared.newest(request.scope["owner"], id_)
        messages = [{"role": role, "content": text} for role, text in found.messages]
        return Json({"id": id_, "object": "conversation", "epoch": found.number, "messages": messages})

    async def metrics(self, request: Request) -> Response:
        return Response(metrics(self.service), media_type=METRICS)

    async def models(self, request: Request) -> Response:
        return Json({"object": "list", "data": [self._model()]})

    async def one_model(self, request: Request) -> Response:
        if (name := request.path_params["name"]) not in (self.service.served.names or (name,)):
            raise ApiError(404, f"No model {name[:60]!a}: {self.model!r} is served.", "model_not_found")
        return Json(self._model())

    def _model(self) -> dict[str, Any]:
        return {"id": self.model, "object": "model", "created": self.began, "owned_by": "h2o-chat"}

    async def props(self, request: Request) -> Response:
        """GET /props: the model, its settings and the template."""
        service = self.service
        sampling = {**asdict(service.sampling), "stop": list(service.sampling.stop)}
        return Json(
            {
                "default_generation_settings": sampling,
                "total_slots": len(service.seated),
                "model": self.model,
                "session": asdict(service.session) | {"template": service.template.name},
                "chat_template": str(service.tokenizer.chat_template or ""),
                "build_info": f"h2o-chat {h2o_chat.__version__}",
            }
        )
