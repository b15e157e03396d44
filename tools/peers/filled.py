"""Common part of the `..._rows.py`: many conversations at once, of given lengths, for `speed.py --kv-gib`.

Each reads one prompt, fills all rows to each length in turn, makes a few tokens of all of them there, and
writes one line of JSON, its last on stdout:

    {"given": "what it was given, in words", "prompt_ms": of one, "step_ms": [[of each step], at each length]}

Nothing of h2o_chat is imported: they run in environments of their own.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Protocol

from orders import ms_since, parser

__all__ = ["Rows", "ms_since", "rows_parser", "tell"]

WARM = 1
"""Steps at each length that are not timed: memory is touched for the first time."""


class Rows(Protocol):
    """A program with room for all rows."""

    def about(self) -> str:
        """How it was set up, in words."""

    def read(self, tokens: int) -> float:
        """One prompt of so many random tokens; ms."""

    def fill(self, tokens: int) -> None:
        """All rows have so many tokens."""

    def step(self) -> float:
        """A token more in each of them, the likeliest; ms."""


def rows_parser() -> argparse.ArgumentParser:
    """Parser of the arguments; `--contexts` are the lengths."""
    found = parser()
    found.add_argument("--rows", type=int, required=True)
    found.add_argument("--prompt", type=int, required=True, help="tokens that are read first")
    found.add_argument("--steps", type=int, required=True, help="timed at each length")
    return found


def tell(start: Callable[[], Rows], prompt: int, lengths: Sequence[int], steps: int) -> None:
    """Times one, and writes what was found."""
    rows = start()
    prompt_ms, step_ms = rows.read(prompt), []
    for tokens in lengths:
        rows.fill(tokens)
        step_ms.append([rows.step() for _ in range(WARM + steps)][WARM:])
    found = {"given": rows.about(), "prompt_ms": prompt_ms, "step_ms": step_ms}
    sys.stdout.write(f"{json.dumps(found)}\n")
