"""Holds a conversation with a running server as the users of three clients do: openai, llm, oterm.

    h2o-chat serve -m MODEL                                    # in another terminal
    tools/serve_clients.py [--url http://127.0.0.1:8080/v1] [--turns 30] [--clients openai llm oterm] [--key KEY]

Each client is installed into an environment in a temporary folder (`--folder` keeps it for the next time). openai
streams, as its README does it; `llm chat` and oterm are typed into, in a terminal. Prints for each how long the
first words took in turn 2 and in the last, as the client saw them, and how many tokens were read from before. Ends
with exit code 1 if a conversation did not come to its end, or the last turn took more than 1.2 times turn 2 (mean of
turns 2 to 4, and of the last three).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from statistics import mean

from serve_clients_talk import llm_turns, openai_turns, oterm_turns

PACKAGES = {"openai": ("openai",), "llm": ("llm",), "oterm": ("oterm",)}
TURNS = {"openai": openai_turns, "llm": llm_turns, "oterm": oterm_turns}
SLOWER = 1.2
"""The last turn may take so many times turn 2."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", default="http://127.0.0.1:8080/v1")
    parser.add_argument("--key", default="none")
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--clients", nargs="+", choices=PACKAGES, default=list(PACKAGES))
    parser.add_argument("--folder", type=Path, help="Of the environments; temporary, if none is named.")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        failed = [
            name for name in asked.clients
            if not held(name, asked.folder or Path(temporary), asked.url, asked.key, asked.turns)
        ]  # fmt: skip
    return 1 if failed else 0


def held(name: str, folder: Path, url: str, key: str, turns: int) -> bool:
    """Whether a conversation was held as it should be; says so."""
    python = environment(name, folder)
    with tempfile.TemporaryDirectory() as home:
        own = os.environ | {"HOME": home, "XDG_DATA_HOME": home, "XDG_CONFIG_HOME": home}
        took = TURNS[name](python, Path(home), own, url, key, turns)
    if len(took) < max(4, turns):
        print(f"{name}: {len(took)} turns of {turns}")
        return False
    first, last = mean(took[1:4]), mean(took[-3:])
    print(
        f"{name}: {len(took)} turns; first words after {1000 * took[1]:.0f} ms in turn 2,"
        f" {1000 * took[-1]:.0f} ms in turn {len(took)}; mean of turns 2 to 4 {1000 * first:.0f} ms,"
        f" of the last three {1000 * last:.0f} ms: {last / first:.2f} times"
    )
    return last <= SLOWER * first
