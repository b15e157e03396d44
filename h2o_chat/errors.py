"""What can go wrong, and the exit code it ends with.

Every error that a user can cause or meet says what was wrong, the value seen and, in `hint`, what to do.
Anything else that escapes is our own bug and ends with `ExitCode.BUG` and a traceback.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of the program; the same table stands in the README."""

    OK = 0
    FAILED = 1
    """Generation failed, a file could not be written, or the doctor found what prevents chatting."""
    USAGE = 2
    """Wrong usage or configuration."""
    MODEL = 3
    """The model was not found, is gated, is not supported, or cannot be had offline."""
    MEMORY = 4
    """Out of memory, or a budget that cannot work."""
    BUG = 70
    """Our own bug."""
    INTERRUPTED = 130
    """Interrupted; the partial output was kept."""


class H2OChatError(Exception):
    """Base of all errors this program raises on purpose.

    Attributes:
        message: What was wrong, with the value seen.
        hint: What to do about it; may be empty.
        code: A short stable name for scripts, as printed in the `error` event.
        exit_code: What the process ends with if nobody handles it.
    """

    code = "failed"
    exit_code = ExitCode.FAILED

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message} {hint}".strip())
        self.message = message
        self.hint = hint


class UsageError(H2OChatError):
    """A flag, a script or a configuration value that cannot be used."""

    code = "usage"
    exit_code = ExitCode.USAGE


class ModelError(H2OChatError):
    """A model that was not found, is not supported or cannot be loaded."""

    code = "model"
    exit_code = ExitCode.MODEL


class BudgetError(H2OChatError, ValueError):
    """A budget that cannot hold what was asked of it."""

    code = "budget"
    exit_code = ExitCode.MEMORY


class OutOfMemoryError(H2OChatError):
    """The device ran out of memory."""

    code = "memory"
    exit_code = ExitCode.MEMORY


class GenerationError(H2OChatError):
    """The model produced something that cannot be sampled from (NaN, overflow)."""

    code = "generation"


class WindowFullError(H2OChatError):
    """The `full` cache reached the window the model was trained for."""

    code = "window"


class StoreError(H2OChatError):
    """A conversation could not be read from disk or written to it."""

    code = "store"


class BusyError(StoreError):
    """The conversation is open in another process."""

    code = "busy"


class SavedCacheError(H2OChatError):
    """A saved cache that is not there, damaged, or of another model or memory; it can be rebuilt."""

    code = "saved-cache"
