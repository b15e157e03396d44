"""Errors in OpenAI's format: a status, and a body of one shape."""

import sys
import traceback
from typing import Any

from h2o_chat.base.errors import (
    BudgetError,
    H2OChatError,
    ModelError,
    OutOfMemoryError,
    UsageError,
    written_out,
)

RETRY_S = 5
"""Seconds after which a refused client may try again (Retry-After)."""


class ApiError(Exception):
    """An error response; `param` is the key of the body that is wrong, `code` a short stable name."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str = "invalid_request",
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        kind = "invalid_request_error" if self.status < 500 and self.status != 429 else "server_error"
        if self.status == 429:
            kind = "rate_limit_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def wrong(param: str | None, message: str, status: int = 400) -> ApiError:
    return ApiError(status, message, param=param)


def busy(status: int, message: str, code: str) -> ApiError:
    """The error for a lack of room, with Retry-After."""
    return ApiError(status, message, code, headers={"retry-after": str(RETRY_S)})


def of(error: Exception) -> ApiError:
    """The response for any exception; a bug is also printed on stderr."""
    match error:
        case ApiError():
            return error
        case OutOfMemoryError():
            return busy(503, str(error), error.code)
        case UsageError() | BudgetError() | ModelError():  # also where the template refuses the text
            return ApiError(400, str(error), error.code)
        case H2OChatError():
            return ApiError(500, str(error), error.code)
    sys.stderr.write(written_out("".join(traceback.format_exception(error))))
    return ApiError(500, f"{type(error).__name__}. This is a bug of h2o-chat: please report it.", "bug")
