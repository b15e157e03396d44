"""Checks key, host, origin and number of requests in front of the application, and answers its exceptions."""

import contextlib
import ipaddress
import re
from collections import Counter
from collections.abc import Iterator

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from h2o_chat.serve import api_errors
from h2o_chat.serve.api_errors import ApiError, busy
from h2o_chat.serve.api_keys import Keys
from h2o_chat.serve.fair_share import FairShare
from h2o_chat.serve.reply import refuse
from h2o_chat.serve.request_bodies import Bodies

OPEN = ("/health",)
"""Paths that need no key and are not counted."""
ONCE = (b"authorization", b"host", b"origin")
"""Headers that may come only once: a proxy in front might check the other one."""


class Guard:
    """Wraps an application.

    Args:
        loopback: the server listens on this machine only: without keys, other host names are refused (DNS
            rebinding).
        scheme: of the server's public address: https behind a TLS proxy.
        requests: counts requests that wait or are answered.
        bodies: incomplete ones are cut if there is no room for another request.
        statuses: counts responses.
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: Keys,
        loopback: bool,
        scheme: str,
        requests: FairShare,
        bodies: Bodies,
        statuses: Counter[int],
    ) -> None:
        self._app, self._keys, self._loopback, self._scheme = app, keys, loopback, scheme
        self._requests, self._bodies, self._statuses = requests, bodies, statuses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def counted(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self._statuses[message["status"]] += 1
            await send(message)

        try:
            self._let_in(scope)
            with contextlib.nullcontext() if scope["path"] in OPEN else self._counted(scope["owner"]):
                await self._app(scope, receive, counted)
        except Exception as error:
            found = api_errors.of(error)
            if started:
                raise
            await refuse(counted, found)

    @contextlib.contextmanager
    def _counted(self, owner: bytes) -> Iterator[None]:
        """Counts a request of a key while it is answered."""
        if not (self._requests.has_room(owner) or self._bodies.cut_slowest(owner)):
            held = self._requests.held[owner]
            raise busy(503, f"{held:,} requests of this key are answered already. Try again.", "busy")
        self._requests.held[owner] += 1
        try:
            yield
        finally:
            self._requests.give_back(owner)

    def _let_in(self, scope: Scope) -> None:
        """Checks headers and key, and sets `scope["owner"]`."""
        headers, names = dict(scope["headers"]), Counter(name for name, _ in scope["headers"])
        if b"transfer-encoding" in headers and b"content-length" in headers:
            raise _ambiguous("Transfer-Encoding and Content-Length were both sent: send one of them.")
        if twice := [name.decode() for name in ONCE if names[name] > 1]:
            raise _ambiguous(f"{twice[0]} was sent {names[twice[0].encode()]} times: send it once.")
        host = headers.get(b"host", b"").decode("latin-1")
        if self._loopback and not self._keys and not is_loopback(_name(host)):
            raise ApiError(403, "This server answers to 127.0.0.1 and localhost alone.", "host")
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1").lower() != f"{self._scheme}://{host.lower()}":
            raise ApiError(403, "This server does not answer pages of other sites.", "origin")
        key = headers.get(b"x-api-key")  # Anthropic's clients
        owner = self._keys.owner(headers.get(b"authorization") or (key and b"Bearer " + key))
        if owner is None and scope["path"] not in OPEN:
            raise ApiError(
                401,
                "No known key. Send it so: Authorization: Bearer KEY",
                "invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )
        scope["owner"] = owner


def is_loopback(host: str) -> bool:
    """Whether a name or an address is that of this machine's loopback interface."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


def _ambiguous(message: str) -> ApiError:
    return ApiError(400, message, headers={"connection": "close"})


def _name(host: str) -> str:
    """The host without its port and the brackets of IPv6."""
    found = re.fullmatch(r"\[([^\]]*)\](?::\d*)?|([^:]*)(?::\d*)?", host)
    return (found[1] or found[2] or "") if found else ""
