"""Orders that every program here obeys, by lines on stdin; each is answered by one line of JSON.

    about       -> {"given": "what it was given, in words"}
    read N      a conversation of N tokens, read anew     -> {"ms": [of all of them]}
    decode N M  goes on in the conversation of N tokens:
                M tokens one by one, each the likeliest;
                then they are forgotten                   -> {"ms": [of each]}

Several conversations share one program and its weights: a program for each would not fit into the memory. It
ends with stdin. With `--rows` it obeys no orders: it reads one prompt, fills all rows to each length in turn,
makes a few tokens of all of them there, and writes one line of JSON, its last on stdout:

    {"given": "how it was set up", "prompt_ms": of one, "step_ms": [[of each step], at each length]}

Nothing of h2o_chat is imported by these scripts: they run in environments of their own.
"""

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Protocol

WARM_STEPS = 1
"""Steps at each length that are not timed: memory is touched for the first time."""
ROOM_TOKENS = 64
"""For a turn, beyond what was seen."""


class Peer(Protocol):
    """A program with a model."""

    def about(self) -> dict[str, str | int]:
        """See above; where no file was written for it, also `token_bytes` and `dtype` of its weights."""

    def read(self, tokens: int) -> list[float]:
        """A conversation of so many random tokens, read anew; [ms of all of them]."""

    def decode(self, seen: int, tokens: int) -> list[float]:
        """Goes on in that of `seen` tokens; ms of each. The next turn begins where this one began."""


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


def parser() -> argparse.ArgumentParser:
    """Parser of the arguments that all of them have."""
    found = argparse.ArgumentParser()
    found.add_argument("weights", help="as its ..._file.py wrote them, or a model folder")
    found.add_argument("--contexts", type=int, nargs="+", required=True, help="tokens of each conversation")
    found.add_argument("--threads", type=int, required=True)
    found.add_argument("--rows", type=int, help="conversations at once; --contexts are their lengths")
    found.add_argument("--prompt", type=int, help="with --rows: tokens that are read first")
    found.add_argument("--steps", type=int, help="with --rows: timed at each length")
    return found


def obey(start: Callable[[], Peer]) -> None:
    """Does as it is told, until stdin ends. What the program itself writes to stdout goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    peer = start()
    for line in sys.stdin:
        match line.split():
            case ["about"]:
                answer: object = peer.about()
            case ["read", tokens]:
                answer = {"ms": peer.read(int(tokens))}
            case ["decode", seen, tokens]:
                answer = {"ms": peer.decode(int(seen), int(tokens))}
            case _:
                sys.exit(f"{line!r} is no order.")
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def tell(rows: Rows, prompt: int, lengths: Sequence[int], steps: int) -> None:
    """Times many conversations at once, and writes the figures."""
    prompt_ms, step_ms = rows.read(prompt), []
    for tokens in lengths:
        rows.fill(tokens)
        step_ms.append([rows.step() for _ in range(WARM_STEPS + steps)][WARM_STEPS:])
    found = {"given": rows.about(), "prompt_ms": prompt_ms, "step_ms": step_ms}
    sys.stdout.write(f"{json.dumps(found)}\n")


def random_ids(tokens: int, vocabulary: int) -> list[int]:
    """Random tokens, equal for every program."""
    return random.Random(0).choices(range(3, vocabulary), k=tokens)


def ms_since(clock: float) -> float:
    """Milliseconds since `time.perf_counter()` said this."""
    return 1000 * (time.perf_counter() - clock)
