"""The body of a request, within limits of size and time."""

import asyncio

from starlette.requests import Request

from h2o_chat.serve.errors import ApiError, busy

BODY_BYTES = 16 << 20
"""Of one request at most."""
BODIES_BYTES = 128 << 20
"""Of all that are read, wait or are answered."""
BODY_S = 30.0
"""A body comes within this time."""


class Bodies:
    """Counts what bodies hold."""

    def __init__(self) -> None:
        self.held_bytes = 0

    async def read(self, request: Request) -> bytes:
        """The body; whoever has it gives it back with `free`.

        Raises:
            ApiError: it is too large, too slow, or there is no room for it now.
            ClientDisconnect: the client is gone.
        """
        said = request.headers.get("content-length", "0")
        if said.isdecimal() and int(said[:20]) > BODY_BYTES:
            raise _too_large()
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_S):
                async for piece in request.stream():
                    body += piece
                    self.held_bytes += len(piece)
                    if len(body) > BODY_BYTES:
                        raise _too_large()
                    if self.held_bytes > BODIES_BYTES:
                        raise busy(503, f"All requests together are over {BODIES_BYTES >> 20} MiB.", "busy")
        except BaseException as error:
            self.free(len(body))
            if isinstance(error, TimeoutError):
                raise ApiError(
                    408,
                    f"The body took longer than {BODY_S:g} s.",
                    "timeout",
                    headers={"connection": "close"},
                ) from error
            raise
        return bytes(body)

    def free(self, count: int) -> None:
        """So many bytes are held no longer."""
        self.held_bytes -= count


def _too_large() -> ApiError:
    return ApiError(413, f"The body is larger than {BODY_BYTES >> 20} MiB.", "too_large")
