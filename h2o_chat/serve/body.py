"""The body of a request, within limits of size and time; who sends slowly gives way first."""

import asyncio

from starlette.requests import Request

from h2o_chat.serve.errors import ApiError, busy
from h2o_chat.serve.shares import Share

BODY_BYTES = 16 << 20
"""Of one request at most."""
BODIES_BYTES = 128 << 20
"""Of all that are read, wait or are answered."""
BODY_S = 30.0
"""A body comes within this time."""


class Bodies:
    """Counts what bodies hold, key by key.

    Args:
        keys: how many there are; 0: everybody is one.
    """

    def __init__(self, keys: int) -> None:
        self.bytes = Share(BODIES_BYTES, keys)
        self._coming: dict[asyncio.Timeout, tuple[bytes, bytearray]] = {}
        """Those that are not whole yet, the oldest first: whose it is, and what has come."""

    async def read(self, request: Request, most_bytes: int = BODY_BYTES) -> bytes:
        """The body; whoever has it gives it back with `free`.

        Raises:
            ApiError: it is too large, too slow, or there is no room for it now.
            ClientDisconnect: the client is gone.
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
                raise (_too_slow() if limit in self._coming else _no_room()) from error
            raise
        finally:
            self._coming.pop(limit, None)
        return bytes(body)

    def cut_slowest(self, owner: bytes) -> bool:
        """Ends the body of a key that has been coming for longest; whether there was one."""
        slow = next((limit for limit, (whose, _) in self._coming.items() if whose == owner), None)
        if slow is None:
            return False
        _, body = self._coming.pop(slow)
        self.free(owner, len(body))
        body.clear()
        slow.reschedule(asyncio.get_running_loop().time())
        return True

    def free(self, owner: bytes, count: int) -> None:
        """So many bytes are held no longer."""
        self.bytes.give_back(owner, count)


def _too_large(most_bytes: int) -> ApiError:
    return ApiError(413, f"The body is larger than {most_bytes:,} bytes.", "too_large")


def _too_slow() -> ApiError:
    what = f"The body took longer than {BODY_S:g} s."
    return ApiError(408, what, "timeout", headers={"connection": "close"})


def _no_room() -> ApiError:
    error = busy(503, "There is no room for more: the body that had been coming for longest was cut.", "busy")
    error.headers["connection"] = "close"
    return error
