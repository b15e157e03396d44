"""Reads bodies of requests within limits of size and time; the slowest sender is cut first.

Then checks of single values in a body: what is wrong raises ApiError, which names the key.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from h2o_chat.serve.api_errors import ApiError, busy, wrong
from h2o_chat.serve.fair_share import FairShare

BODY_BYTES = 16 << 20
BODIES_BYTES = 128 << 20
"""Most bytes of all bodies together that are being read, waiting or answered."""
BODY_S = 30.0


class Bodies:
    """Counts the bytes of bodies by key."""

    def __init__(self, keys: int) -> None:
        self.bytes = FairShare(BODIES_BYTES, keys)
        self._coming: dict[asyncio.Timeout, tuple[bytes, bytearray]] = {}
        """Incomplete bodies, the oldest first: (key, bytes so far)."""

    async def read(self, request: Request, most_bytes: int = BODY_BYTES) -> bytes:
        """Reads a body; the caller releases it with `free`.

        Raises:
            ApiError: it is too large, too slow, or there is no room for it now.
            ClientDisconnect: the client has hung up.
        """
        said, owner = request.headers.get("content-length", "0"), request.scope["owner"]
        if said.isdecimal() and int(said[:20]) > most_bytes:
            raise _too_large(most_bytes)
        body, limit = bytearray(), asyncio.timeout(BODY_S)
        self._coming[limit] = owner, body
        try:
            async with limit:
                async for piece in request.stream():
                    if len(body) + len(piece) > most_bytes:
                        raise _too_large(most_bytes)
                    while not self.bytes.has_room(owner, len(piece)) and self.cut_slowest(owner):
                        pass
                    if limit not in self._coming:
                        raise _no_room()
                    body += piece
                    self.bytes.held[owner] += len(piece)
        except BaseException as error:
            self.free(owner, len(body))
            if isinstance(error, TimeoutError):
                if limit not in self._coming:
                    raise _no_room() from error
                slow = f"The body took longer than {BODY_S:g} s."
                raise ApiError(408, slow, "timeout", headers={"connection": "close"}) from error
            raise
        finally:
            self._coming.pop(limit, None)
        return bytes(body)

    def cut_slowest(self, owner: bytes) -> bool:
        """Aborts the incomplete body of a key that began first; returns whether there was one."""
        slow = next((limit for limit, (whose, _) in self._coming.items() if whose == owner), None)
        if slow is None:
            return False
        _, body = self._coming.pop(slow)
        self.free(owner, len(body))
        body.clear()
        slow.reschedule(asyncio.get_running_loop().time())
        return True

    def free(self, owner: bytes, count: int) -> None:
        self.bytes.give_back(owner, count)


def _too_large(most_bytes: int) -> ApiError:
    return ApiError(413, f"The body is larger than {most_bytes:,} bytes.", "too_large")


def _no_room() -> ApiError:
    error = busy(503, "There is no room for more: the body that had been coming for longest was cut.", "busy")
    error.headers["connection"] = "close"
    return error


def seen(value: Any) -> str:
    """A value for an error message, cut."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, str):
        value = value[:60]
    return ascii(value)[:60] if type(value) is not int or abs(value) < 2**63 else "a very long number"


def flag(body: Mapping[str, Any], key: str, usual: bool) -> bool:
    value = usual if body.get(key) is None else body[key]
    if not isinstance(value, bool):
        raise wrong(key, f"{key} is {seen(value)}. It must be true or false.")
    return value


def whole_number(body: Mapping[str, Any], key: str, usual: int, least: int, most: int) -> int:
    value = usual if body.get(key) is None else body[key]
    if type(value) is not int or not least <= value <= most:
        raise wrong(key, f"{key} is {seen(value)}. It must be a whole number from {least:,} to {most:,}.")
    return value


def list_of(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise wrong(where, f"{where} is {seen(value)}. It must be a list.")
    return value
