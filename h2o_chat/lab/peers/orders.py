"""What every peer here understands, by lines on stdin; each is answered by one line of JSON.

    about       -> {"given": "what it was given, in words"}
    read N      forgets everything and reads N tokens     -> {"ms": [of all of them]}
    decode N    N tokens one by one, each the likeliest;
                then they are forgotten                   -> {"ms": [of each]}

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


class Peer(Protocol):
    """A program with a model."""

    def about(self) -> dict[str, str | int]:
        """See above; where no file was written for it, also `token_bytes` and `dtype` of its weights."""

    def read(self, tokens: int) -> list[float]:
        """Forgets everything and reads so many random tokens; [ms of all of them]."""

    def decode(self, tokens: int) -> list[float]:
        """Generates so many; ms of each. As many are seen before the next turn as were before this one."""


def parser() -> argparse.ArgumentParser:
    """Of the arguments that all of them have."""
    found = argparse.ArgumentParser()
    found.add_argument("weights", help="as its ..._file.py wrote them, or a model folder")
    found.add_argument("--context", type=int, required=True, help="the most tokens that will be seen")
    found.add_argument("--threads", type=int, required=True)
    return found


def obey(start: Callable[[], Peer]) -> None:
    """Does as it is told, until stdin ends. What the program itself writes to stdout goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    peer = start()
    for line in sys.stdin:
        order, *tokens = line.split()
        if order == "about":
            answer: object = peer.about()
        else:
            answer = {"ms": peer.read(int(tokens[0])) if order == "read" else peer.decode(int(tokens[0]))}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def random_ids(tokens: int, vocabulary: int) -> list[int]:
    """The same for every peer."""
    return random.Random(0).choices(range(3, vocabulary), k=tokens)


def ms_since(clock: float) -> float:
    """Milliseconds since `time.perf_counter()` said this."""
    return 1000 * (time.perf_counter() - clock)
