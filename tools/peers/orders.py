"""Orders that every program here obeys, by lines on stdin; each is answered by one line of JSON.

    about       -> {"given": "what it was given, in words"}
    read N      a conversation of N tokens, read anew     -> {"ms": [of all of them]}
    decode N M  goes on in the conversation of N tokens:
                M tokens one by one, each the likeliest;
                then they are forgotten                   -> {"ms": [of each]}

Several conversations share one program and its weights: a program for each would not fit into the memory.
It ends with stdin. Nothing of h2o_chat is imported by these scripts: they run in environments of their own.
"""

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Callable
from typing import Protocol

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


def parser() -> argparse.ArgumentParser:
    """Parser of the arguments that all of them have."""
    found = argparse.ArgumentParser()
    found.add_argument("weights", help="as its ..._file.py wrote them, or a model folder")
    found.add_argument("--contexts", type=int, nargs="+", required=True, help="tokens of each conversation")
    found.add_argument("--threads", type=int, required=True)
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


def random_ids(tokens: int, vocabulary: int) -> list[int]:
    """Random tokens, equal for every program."""
    return random.Random(0).choices(range(3, vocabulary), k=tokens)


def ms_since(clock: float) -> float:
    """Milliseconds since `time.perf_counter()` said this."""
    return 1000 * (time.perf_counter() - clock)
