"""All errors, and the exit code that each ends with.

Every error that a user can cause or meet says what was wrong, the value seen and, in `hint`, what to do.
Anything else that escapes is our own bug and ends with `ExitCode.BUG` and a traceback.

Errors quote names and files of strangers and are printed on terminals: control characters are escaped.
"""

import json
import os
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of the program; the same table stands in the README."""

    OK = 0
    FAILED = 1
    """Generation failed, a file could not be written, not all was stored, or the doctor found what prevents
    chatting."""
    USAGE = 2  # wrong usage or configuration
    MODEL = 3  # the model was not found, is gated, is not supported, or cannot be had offline
    MEMORY = 4  # out of memory, or a budget that cannot work
    BUG = 70  # our own bug
    HUNG_UP = 129  # the terminal went away (SIGHUP); the partial output was kept
    INTERRUPTED = 130  # interrupted; the partial output was kept
    TERMINATED = 143  # told to end (SIGTERM); the partial output was kept


LONGEST_CHARACTERS = 1200  # longest message, and longest hint; the middle of a longer one is left out

UNSEEN = (
    *(*range(0x80, 0xA0), 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)),
    *range(0xD800, 0xE000),  # surrogates: from a name that is not UTF-8; no stream takes them
)
"""C1, overrides of direction, exotic line breaks, lone surrogates: each could reorder or crash a terminal."""
_OBEYED = (*range(9), *range(11, 32), 0x7F, *UNSEEN)
_WRITTEN_OUT = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _OBEYED}


class H2OChatError(Exception):
    """Base of all errors this program raises on purpose.

    The message says what was wrong, with the value seen, the hint what to do about it; it may be empty.
    """

    code = "failed"  # a short stable name for scripts, as printed in the `error` event
    exit_code = ExitCode.FAILED  # what the process ends with if nobody handles it

    def __init__(self, message: str, hint: str = "") -> None:
        self.message, self.hint = _shown(message), _shown(hint)
        super().__init__(f"{self.message} {self.hint}".strip())


def written_out(text: str) -> str:
    r"""Escapes control characters, so that a terminal does not obey them: ESC becomes `\x1b`."""
    return text.translate(_WRITTEN_OUT)


def name_of(text: object) -> str:
    """A name or a path on one line, with control characters escaped."""
    return written_out(str(text)).replace("\n", "\\n").replace("\t", "\\t")


def refusal(error: Exception) -> str:
    """Why a file or an address cannot be used: the end of a sentence, without the full stop."""
    if isinstance(error, H2OChatError):
        return error.message.removesuffix(".")
    if isinstance(error, OSError) and error.errno is not None:
        # Not `strerror`: sockets write the address there. An address that is not known has a negative number.
        return os.strerror(error.errno) if error.errno > 0 else str(error.strerror)
    return str(error)


def _shown(text: str) -> str:
    """`text` on one line, escaped and cut in the middle to LONGEST_CHARACTERS."""
    if len(text) > LONGEST_CHARACTERS:
        text = f"{text[: LONGEST_CHARACTERS // 2]} … {text[-LONGEST_CHARACTERS // 2 :]}"
    return name_of(text)


class UsageError(H2OChatError):
    """A flag, a script or a configuration value that cannot be used."""

    code = "usage"
    exit_code = ExitCode.USAGE


class ModelError(H2OChatError):
    """A model that was not found, is not supported or cannot be loaded."""

    code = "model"
    exit_code = ExitCode.MODEL


class BudgetError(H2OChatError, ValueError):
    """A budget that is too small for the policy or the prompt."""

    code = "budget"
    exit_code = ExitCode.MEMORY


class OutOfMemoryError(H2OChatError):
    """The device ran out of memory."""

    code = "memory"
    exit_code = ExitCode.MEMORY


class GenerationError(H2OChatError):
    """The model produced something that cannot be sampled from (NaN, overflow)."""

    code = "generation"


class EngineError(H2OChatError):
    """The process of the engine was killed or has crashed."""

    code = "engine"


class WindowFullError(H2OChatError):
    """The `full` cache reached the window the model was trained for."""

    code = "window"


class StoreError(H2OChatError):
    """A conversation could not be read from disk or written to it."""

    code = "store"


class StoreBusyError(StoreError):
    """Another process is writing to the store; try again."""


class DiskError(StoreError):
    """The disk is full, cannot be written, or failed; a later try may succeed."""


class StoreLostError(StoreError):
    """The files of the store were removed, moved, replaced or written over while they were open."""


class BusyError(StoreError):
    """The conversation is open in another process."""

    code = "busy"


class SavedCacheError(H2OChatError):
    """A saved cache is missing, damaged, or of another model or settings; it can be rebuilt."""

    code = "saved-cache"


def why_no_json(error: ValueError | RecursionError) -> str:
    """The words behind `FILE` that say why it, or a line of it, is no JSON."""
    match error:
        case UnicodeDecodeError():
            return f"is not UTF-8 text ({error.reason} at byte {error.start})"
        case json.JSONDecodeError():
            return f"is not JSON: {error.msg} at column {error.colno}"
        case RecursionError():
            return "is nested too deeply"
    return "has a number that is too long"
