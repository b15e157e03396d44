"""Checks key, host, origin and number of requests in front of the application, and answers its exceptions."""

import contextlib
import hmac
import ipaddress
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from h2o_chat.base.errors import UsageError, refusal
from h2o_chat.base.system import HAS_OWNERS
from h2o_chat.serve import api_errors
from h2o_chat.serve.api_errors import ApiError, busy
from h2o_chat.serve.chat_response import Json
from h2o_chat.serve.fair_share import FairShare
from h2o_chat.serve.request_bodies import Bodies

VARIABLE = "H2O_CHAT_KEY"
"""A key in the environment."""
SHORTEST_CHARACTERS = 16
FILE_BYTES = 1 << 20
NOBODY = b""
"""The owner of requests if there are no keys."""

_HINT = f"A key is a line of at least {SHORTEST_CHARACTERS} printable ASCII characters: openssl rand -hex 24"


class Keys:
    """The known keys; if there are none, requests need no key."""

    def __init__(self, keys: list[str]) -> None:
        self._known = [
            (sha256(key.encode()).digest(), hmac.digest(key.encode(), b"h2o-chat serve", "sha256"))
            for key in keys
        ]
        """(digest, owner) of each."""

    def __len__(self) -> int:
        return len(self._known)

    def owner(self, authorization: bytes | None) -> bytes | None:
        """A digest of the key in this header, None if it is unknown; as fast for all keys, known or not."""
        if not self._known:
            return NOBODY
        kind, _, key = (authorization or b"").partition(b" ")
        given, found = sha256(key.strip()).digest(), None
        for digest, owner in self._known:
            if compare_digest(given, digest):
                found = owner
        return found if kind.lower() == b"bearer" else None


def read_keys(file: Path | None) -> Keys:
    """The keys of a file, one a line, and that of the environment, which is removed from it.

    Raises UsageError if the file cannot be read, others may read it, or a line is no key.
    """
    keys = list[str]()
    if file is not None:
        keys = [
            _checked(line.strip(), f"{file} line {number:,}")
            for number, line in enumerate(_read(file).splitlines(), 1)
            if line.strip() and not line.startswith("#")
        ]
        if not keys:
            raise UsageError(f"{file} has no key.", _HINT)
    if one := os.environ.pop(VARIABLE, ""):
        keys.append(_checked(one, VARIABLE))
    return Keys(list(dict.fromkeys(keys)))


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            if HAS_OWNERS and stat.S_ISREG(mode) and mode & (stat.S_IRGRP | stat.S_IROTH):
                raise UsageError(f"{file}: others may read the keys in it.", f"chmod 600 {file}")
            raw = opened.read(FILE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: there is a NUL in the name
        raise UsageError(
            f"{file} cannot be read: {refusal(error)}.", "Give --keys a file of keys."
        ) from error
    if len(raw) > FILE_BYTES:
        raise UsageError(f"{file} is larger than {FILE_BYTES >> 20} MiB.", "It is no file of keys.")
    return raw.decode("utf-8", "replace")


def _checked(key: str, where: str) -> str:
    if len(key) < SHORTEST_CHARACTERS or not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError(f"{where} is no key.", _HINT)
    return key


OPEN = ("/health",)
"""Paths that need no key and are not counted."""
ONCE = (b"authorization", b"host", b"origin")
"""Headers that may come only once: a proxy in front might check the other one."""


class Guard:
    """Stands in front of an application.

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
            found = api_errors.of(error)  # prints a bug
            if started:
                raise
            await Json(found.body(), found.status, found.headers)(scope, receive, counted)

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
            what = "No known key. Send it so: Authorization: Bearer KEY"
            raise ApiError(401, what, "invalid_api_key", headers={"www-authenticate": "Bearer"})
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
