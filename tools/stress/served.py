"""`h2o-chat serve` in a process of its own, for tools that talk to it: its start, its replies, its end."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

GRACE_S = 60
"""Seconds that answers under way have when the server is told to end."""
Program = subprocess.Popen[bytes]


def started(command: Sequence[str], log: Path, ready: str, **env: str) -> tuple[Program, re.Match[str]]:
    """A program that writes to `log`, once that says `ready`, a regular expression; and the match."""
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=os.environ | env)
    while not (found := re.search(ready, log.read_text())):
        if process.poll() is not None:
            sys.exit(log.read_text())
        time.sleep(0.05)
    return process, found


def get(port: int, path: str) -> tuple[int, str]:
    """(status, text) of a page."""
    with _asked(port, "GET", path, "", 60, {}) as reply:
        return reply.status, reply.read().decode()


def page(port: int, path: str) -> str:
    """The text of a page. Raises ValueError if it is refused."""
    status, text = get(port, path)
    if status != 200:
        raise ValueError(f"{path}: {status} {text[:200]}")
    return text


@contextmanager
def posted(port: int, body: Any, longest_s: float, **headers: str) -> Iterator[http.client.HTTPResponse]:
    """The reply to a chat completion."""
    with _asked(port, "POST", "/v1/chat/completions", json.dumps(body), longest_s, headers) as reply:
        yield reply


@contextmanager
def _asked(
    port: int, method: str, path: str, body: str, longest_s: float, headers: dict[str, str]
) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=longest_s)
    try:
        connection.request(method, path, body, headers)
        yield connection.getresponse()
    finally:
        connection.close()


def events(reply: http.client.HTTPResponse) -> Iterator[Any]:
    """The events of a stream. Raises ValueError if it was refused, ended with an error, or broke off."""
    if reply.status != 200:
        raise ValueError(f"{reply.status} {reply.read()[:200]!r}")
    done = False
    for line in reply:
        if line.startswith(b"data: {"):
            event = json.loads(line.removeprefix(b"data: "))
            if "error" in event:
                raise ValueError(f"{event['error']['code']}: {event['error']['message']}")
            yield event
        done = done or line.startswith(b"data: [DONE]")
    if not done:
        raise ValueError("the stream broke off")


def metric(port: int, name: str) -> int:
    """One of /metrics; 0 where it is not told yet."""
    found = re.search(rf"^h2o_chat_{re.escape(name)} (\d+)", page(port, "/metrics"), re.M)
    return int(found[1]) if found else 0


def key_flags(folder: Path, *keys: str) -> list[str]:
    """The flags of a server that has these keys, which are written to a file."""
    file = folder / "keys"
    file.touch(0o600)
    file.write_text("".join(f"{key}\n" for key in keys))
    return ["--keys", str(file)]


class Server:
    """`h2o-chat serve`, from the moment it listens until it has ended; as a context manager it is killed."""

    def __init__(self, flags: list[str], data: Path, shell: Sequence[str] = ()) -> None:
        """`shell`: what begins the command, such as one that sets a limit."""
        command = [*shell, sys.executable, "-m", "h2o_chat", "serve"]
        command += ["--address", "127.0.0.1:0", "--data", str(data), *flags]
        self._log = data.with_suffix(f".{time.monotonic_ns()}.err")
        self.process, found = started(command, self._log, r"http://127\.0\.0\.1:(\d+)/v1")
        self.port, self.watched = int(found[1]), psutil.Process(self.process.pid)

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def said(self) -> str:
        return self._log.read_text()

    def end(self) -> list[str]:
        """Ends it; what was wrong with that, or with what it said."""
        self.process.send_signal(signal.SIGTERM)
        code, said = self.process.wait(GRACE_S + 60), self.said()
        return [f"the server has ended with {code}: {said[-2000:]}"] if code or "Traceback" in said else []

    def chat(self, body: Any, longest_s: float, key: str = "none") -> tuple[int, Any]:
        """(status, reply) of a chat completion."""
        with posted(self.port, body, longest_s, Authorization=f"Bearer {key}") as reply:
            return reply.status, json.loads(reply.read())

    def cpu_s(self) -> float:
        """Seconds that it has computed; others may use the machine."""
        times = self.watched.cpu_times()
        return float(times.user + times.system)

    def anonymous_bytes(self) -> int:
        """Memory that is no file: the weights are one."""
        rollup = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text()
        return sum(int(kb) << 10 for kb in re.findall(r"^(?:Anonymous|Swap): +(\d+) kB", rollup, re.M))
