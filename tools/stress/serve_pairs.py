"""Plain chat by the servers of two checkouts in turns: first token, and tokens per second.

    tools/stress/serve_pairs.py -m MODEL --before FOLDER [--rounds 20] [--threads 2]

FOLDER is another checkout with a .venv of its own; 30186bb is the last commit without tools. The first token
is that of a short prompt, and of a page; tokens per second are those of 150 behind the page. Nothing else may
run on the machine. Ends with exit code 1 where a median of this checkout is more than 5% worse.
"""

import argparse
import http.client
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from served import Server

APART = 0.05
PAGE = 1800
"""Characters of the long prompt."""
TEXT = (Path(__file__).parents[2] / "docs" / "conversation_300.txt").read_text("utf-8")
WHAT = ("first token of a short prompt, ms", "first token of a page, ms", "tokens per second")


def told_s(port: int, prompt: str, tokens: int) -> list[float]:
    """Seconds from the request to each piece of the answer."""
    body = {"messages": [{"role": "user", "content": prompt}], "stream": True, "max_tokens": tokens}
    connection, times = http.client.HTTPConnection("127.0.0.1", port, timeout=600), list[float]()
    begun = time.perf_counter()
    connection.request("POST", "/v1/chat/completions", json.dumps(body | {"seed": 1, "ignore_eos": True}))
    for line in connection.getresponse():
        if line.startswith(b"data: {") and any(
            one["delta"].get("content") for one in json.loads(line[6:])["choices"]
        ):
            times.append(time.perf_counter() - begun)
    connection.close()
    return times


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", default="2")
    asked = parser.parse_args()
    flags = ["-m", asked.model, "--threads", asked.threads, "--no-store", "--snapshots", "4"]
    pythons = {"before": str(asked.before / ".venv" / "bin" / "python"), "now": sys.executable}
    with tempfile.TemporaryDirectory() as name:
        servers = {side: Server(flags, Path(name) / side, python=one) for side, one in pythons.items()}
        found: dict[str, list[list[float]]] = {side: [[], [], []] for side in servers}
        try:
            for number in range(-1, asked.rounds):  # the first round is not counted
                page = TEXT[2000 * (number + 1) % (len(TEXT) - PAGE) :][:PAGE]
                for side in sorted(servers, reverse=bool(number % 2)):
                    (short,) = told_s(servers[side].port, f"Hello {number}", 1)
                    times = told_s(servers[side].port, f"{page}\nWhat happens?", 150)
                    pace = (len(times) - 1) / (times[-1] - times[0])
                    for one, value in zip(found[side], (1000 * short, 1000 * times[0], pace), strict=True):
                        one.extend([value] if number >= 0 else [])
        finally:
            for server in servers.values():
                server.process.kill()
                server.process.wait()
    well = True
    for what, *both in zip(WHAT, *found.values(), strict=True):
        before, now = map(statistics.median, both)
        ratio = before / now if what == WHAT[-1] else now / before
        spread = " and ".join(f"{min(one):.1f} to {max(one):.1f}" for one in both)
        print(f"{what}: {before:.1f} before, {now:.1f} now ({ratio:.3f} times the time; {spread})")
        well &= ratio <= 1 + APART
    return int(not well)


if __name__ == "__main__":
    sys.exit(main())
