"""Has a model call a tool again and again in one conversation, as an agent does.

    tools/stress/agent_loop.py [-m MODEL] [--calls 500] [--budget 2048] [--seed 1]

Starts a server. Every call is forced (`tool_choice`), the schema leaves its text free, and its result is a
random line. The whole history is sent each time. The system prompt demands a mark as one argument of each
call. Prints, for each hundred calls: the time of a call, the server's processor time (others may use the
machine), how many had the mark, and the server's memory. Ends with exit code 1 where the last hundred took
more than 1.1 times the processor time of the first (by answered token), fewer marks, or the memory grew by
more than 10% after the first hundred.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from served import Server

HUNDRED = 100
SLOWER, GROWN = 1.1, 1.1
WORDS = ["red", "green", "blue", "stone", "river", "cloud", "house", "horse", "paper", "glass", "north"]
TOOL = {
    "type": "function",
    "function": {
        "name": "file_line",
        "description": "Files one line of the archive under a job.",
        "parameters": {
            "type": "object",
            "properties": {
                "job": {"type": "string", "maxLength": 6},
                "line": {"type": "integer", "minimum": 0, "maximum": 9999},
            },
            "required": ["job", "line"],
            "additionalProperties": False,
        },
    },
}


def asked(server: Server, messages: list[Any]) -> tuple[Any, Any]:
    """(message with a forced call, usage)."""
    choice = {"type": "function", "function": {"name": "file_line"}}
    body = {"messages": messages, "tools": [TOOL], "tool_choice": choice, "max_tokens": 80, "temperature": 0}
    _, reply = server.chat(body, 600)
    assert "choices" in reply, reply
    return reply["choices"][0]["message"], reply["usage"]


def loop(server: Server, calls: int, rng: random.Random) -> bool:
    """Makes the calls; returns whether all is well."""
    mark = f"{rng.choice('KLMN')}{rng.randrange(10, 99)}"
    system = (
        f"You file lines of an archive. The job is {mark}. In every call the argument job must be {mark}."
    )
    messages: list[Any] = [
        {"role": "system", "content": system},
        {"role": "user", "content": "File the lines that you are given, one by one, until I say stop."},
    ]
    calls_s, token_ms, marked, rss = list[float](), list[float](), list[bool](), list[int]()
    for number in range(1, calls + 1):
        begun, used_s = time.monotonic(), server.cpu_s()
        message, counted = asked(server, messages)
        calls_s.append(time.monotonic() - begun)
        token_ms.append(1000 * (server.cpu_s() - used_s) / counted["completion_tokens"])
        (call,) = message["tool_calls"]
        marked.append(json.loads(call["function"]["arguments"])["job"] == mark)
        line = f"Line {number}: {' '.join(rng.choices(WORDS, k=8))}."
        messages += [message, {"role": "tool", "tool_call_id": call["id"], "content": line}]
        if number % HUNDRED == 0:
            rss.append(server.watched.memory_info().rss)
            call_s, token = (statistics.mean(one[-HUNDRED:]) for one in (calls_s, token_ms))
            print(
                f"calls to {number:,}: {call_s:.2f} s each, {token:.1f} ms of processors a token,"
                f" {sum(marked[-HUNDRED:])} of {HUNDRED} with the mark, {rss[-1] >> 20:,} MiB,"
                f" {counted['prompt_tokens']:,} tokens long, {counted.get('evicted_tokens', 0):,} evicted",
                flush=True,
            )
    slower = statistics.mean(token_ms[-HUNDRED:]) / statistics.mean(token_ms[:HUNDRED])
    grown = rss[-1] / rss[0]
    print(f"last hundred beside first: {slower:.2f} times the time, {grown:.2f} times the memory")
    return slower <= SLOWER and grown <= GROWN and sum(marked[-HUNDRED:]) >= sum(marked[:HUNDRED])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", default="smollm2")
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--budget", type=int, default=2048)
    parser.add_argument("--seed", type=int, default=1)
    asked_for = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        flags = ["-m", asked_for.model, "-b", str(asked_for.budget), "--no-store"]
        with Server([*flags, "--rows", "1", "--snapshots", "2"], Path(name) / "data") as server:
            well = loop(server, max(HUNDRED, asked_for.calls), random.Random(asked_for.seed))
            wrong = server.end()
    print(*wrong, end="")
    return int(not well or bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
