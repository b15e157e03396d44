"""`h2o-chat serve` in a process of its own, for tools that talk to it."""

import http.client
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

GRACE_S = 60
"""Seconds that answers under way have when the server is told to end."""


class Server:
    """`h2o-chat serve`, from the moment it listens until it has ended; as a context manager it is killed."""

    def __init__(self, flags: list[str], data: Path, shell: Sequence[str] = ()) -> None:
        """`shell`: what begins the command, such as one that sets a limit."""
        command = [*shell, sys.executable, "-m", "h2o_chat", "serve"]
        command += ["--address", "127.0.0.1:0", "--data", str(data)]
        self._err = data.with_suffix(f".{time.monotonic_ns()}.err")
        with self._err.open("w") as err:
            self.process = subprocess.Popen([*command, *flags], stderr=err)
        while not (found := re.search(r"http://127\.0\.0\.1:(\d+)/v1", self.said())):
            if self.process.poll() is not None:
                sys.exit(self.said())
            time.sleep(0.05)
        self.port = int(found[1])

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def said(self) -> str:
        return self._err.read_text()

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(GRACE_S + 60)

    def chat(self, body: Any, longest_s: float, key: str = "none") -> tuple[int, Any]:
        """(status, reply) of a chat completion."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=longest_s)
        headers = {"Authorization": f"Bearer {key}"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        reply = connection.getresponse()
        found = json.loads(reply.read())
        connection.close()
        return reply.status, found

    def anonymous_bytes(self) -> int:
        """Memory that is no file: the weights are one."""
        rollup = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text()
        return sum(int(kb) << 10 for kb in re.findall(r"^(?:Anonymous|Swap): +(\d+) kB", rollup, re.M))

    def metric(self, name: str) -> int:
        """One of /metrics; 0 where it is not told yet."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/metrics")
        found = re.search(
            rf"^h2o_chat_{re.escape(name)} (\d+)", connection.getresponse().read().decode(), re.M
        )
        connection.close()
        return int(found[1]) if found else 0
