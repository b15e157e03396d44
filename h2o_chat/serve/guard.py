"""In front of everything: who may ask, from where, how much at once. Whatever fails behind it is answered."""

import ipaddress
import re
from collections import Counter
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from h2o_chat.serve import errors
from h2o_chat.serve.errors import ApiError, busy
from h2o_chat.serve.keys import Keys
from h2o_chat.serve.reply import refuse

OPEN = ("/health",)
"""Paths that need no key."""
AT_ONCE = 256
"""Requests that are answered at once, those that wait with them."""


class Guard:
    """An application behind a door.

    Args:
        loopback: it is served to this machine alone: then, without keys, no page may reach it by another name
            (DNS rebinding).
        statuses: counts answers.
    """

    def __init__(self, app: ASGIApp, keys: Keys, loopback: bool, statuses: Counter[int]) -> None:
        self._app, self._keys, self._loopback, self._statuses = app, keys, loopback, statuses
        self._at_once = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def counted(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self._statuses[message["status"]] += 1
            await send(message)

        self._at_once += 1
        try:
            self._let_in(scope)
            await self._app(scope, receive, counted)
        except Exception as error:
            found = errors.of(error)
            if started:
                raise
            await refuse(counted, found)
        finally:
            self._at_once -= 1

    def _let_in(self, scope: Scope) -> None:
        """
        Raises:
            ApiError: it may not come in.
        """
        if self._at_once > AT_ONCE:
            raise busy(503, f"{AT_ONCE} requests are answered already. Try again.", "busy")
        headers = dict(reversed(scope["headers"]))  # the first of each counts
        host = headers.get(b"host", b"").decode("latin-1")
        if self._loopback and not self._keys and not is_loopback(_name(host)):
            raise ApiError(403, "This server answers to 127.0.0.1 and localhost alone.", "host")
        origin = headers.get(b"origin")
        if origin is not None and urlsplit_host(origin.decode("latin-1")) != host.lower():
            raise ApiError(403, "This server does not answer pages of other sites.", "origin")
        owner = self._keys.owner(headers.get(b"authorization"))
        if owner is None and scope["path"] not in OPEN:
            raise ApiError(
                401,
                "No known key. Send it so: Authorization: Bearer KEY",
                "invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )
        scope["owner"] = owner


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine's own, for itself alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


def urlsplit_host(origin: str) -> str | None:
    """Host and port of an origin; None where it has none."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


def _name(host: str) -> str:
    """Without the port and the brackets of IPv6."""
    found = re.fullmatch(r"\[([^\]]*)\](?::\d*)?|([^:]*)(?::\d*)?", host)
    return (found[1] or found[2] or "") if found else ""
