"""An agent that calls a tool 500 times in one conversation of `h2o-chat serve`.

    .venv/bin/python tools/stress/agent_loop.py -m MODEL [--calls 500] [--budget 2048]

The first message gives a code that every call must carry; each result brings another reading. Prints the
median time of a call and how many calls have the right code, for the first and the last hundred, and the
server's memory. Ends with exit code 1 if the last hundred take more than 1.1 times as long as the first.
Nothing else may run on the machine.
"""

import argparse
import http.client
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from served import Server

CODE = "K7Q2"
TASK = (
    f"You watch a thermometer. Call `read` again and again, once for each reading. The code is {CODE}: give"
    " it with every call, and the number of degrees that you were told last (0 at first)."
)
PARAMETERS = {
    "type": "object",
    "properties": {"code": {"type": "string", "maxLength": 8}, "last": {"type": "integer"}},
    "required": ["code", "last"],
    "additionalProperties": False,
}
TOOL = {
    "type": "function",
    "function": {"name": "read", "description": "Reads the thermometer.", "parameters": PARAMETERS},
}
MOST_SLOWER = 1.1


def called(port: int, messages: list[Any]) -> tuple[float, Any]:
    """Seconds of one call, and the message that makes it."""
    body = {
        "messages": messages,
        "tools": [TOOL],
        "tool_choice": "required",
        "temperature": 0,
        "max_tokens": 60,
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    began = time.monotonic()
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    found = json.loads(connection.getresponse().read())
    took_s = time.monotonic() - began
    connection.close()
    if "choices" not in found:
        sys.exit(str(found))
    return took_s, found["choices"][0]["message"]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-m", "--model", default="smollm2")
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--budget", type=int, default=2048)
    asked = parser.parse_args()
    degrees = random.Random(1)
    times_s, right, memory_bytes = list[float](), list[bool](), list[int]()
    with tempfile.TemporaryDirectory() as folder:
        flags = ["-m", asked.model, "-b", str(asked.budget), "--rows", "1", "--snapshots", "2", "--no-store"]
        server = Server(flags, Path(folder) / "data")
        messages: list[Any] = [{"role": "user", "content": TASK}]
        for _ in range(asked.calls):
            took_s, message = called(server.port, messages)
            call = message["tool_calls"][0] if message.get("tool_calls") else None
            given = json.loads(call["function"]["arguments"]) if call else {}
            times_s.append(took_s)
            right.append(given.get("code") == CODE)
            memory_bytes.append(server.anonymous_bytes())
            result = {"role": "tool", "content": f"It is {degrees.randint(-20, 35)} degrees."}
            messages += [message, result] if call else [message, {"role": "user", "content": "Call `read`."}]
        server.end()
    part = min(100, asked.calls // 2)
    for name, some in (("first", slice(part)), ("last", slice(-part, None))):
        print(
            f"{name} {part}: {1000 * statistics.median(times_s[some]):.0f} ms a call,"
            f" {sum(right[some])} of {part} with the code, {max(memory_bytes[some]) / 1e6:,.0f} MB"
        )
    slower = statistics.median(times_s[-part:]) / statistics.median(times_s[:part])
    print(f"the last take {slower:.2f} times as long as the first; {MOST_SLOWER} is the most")
    return int(slower > MOST_SLOWER)


if __name__ == "__main__":
    sys.exit(main())
