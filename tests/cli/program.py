"""A run of the real program, and what it leaves behind."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

from h2o_chat.events.events import Event, from_json

PROGRAM = [sys.executable, "-m", "h2o_chat"]


@dataclass(frozen=True)
class Ended:
    """What a run of the program left behind."""

    code: int
    out: str
    err: str

    @property
    def events(self) -> list[Event]:
        """Every line of stdout as an event: one that is none is an error."""
        return [from_json(line) for line in self.out.splitlines()]


Program = Callable[..., Ended]
