"""One hostile key beside a good one: what the good one waits for. Used by `serve_storm.py --hostile`.

The good key holds a stream, asks for a few words twice a second and looks at /health four times a second, in
a process of its own; each attack runs in another one.
"""

import http.client
import json
import multiprocessing
import queue
import re
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from served import Server, get, key_flags, posted

GOOD, BAD = "the-key-of-the-good-client", "the-key-of-the-bad-client"
GAP_S, WAIT_S, MEMORY_BYTES = 0.25, 2.0, 10**9
"""The good key's longest gap in a stream, its longest wait for an answer; the server's memory: at most."""
BODY_BYTES = 16 << 20
PATH = "/v1/chat/completions"
CONNECTIONS = 64
"""Descriptors of a server that has few."""


class Good:
    """Waits of the good key so far, in its own process."""

    def __init__(self, port: int) -> None:
        self._port, self.gap_s, self.wait_s = port, 0.0, 0.0
        self.counts: Counter[str] = Counter()
        self._until = 0.0

    def hold_on(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        jobs = ("stream", 0.01, self._stream), ("answer", 0.5, self._ask), ("health", 0.25, self._look)
        threads = [threading.Thread(target=self._over_and_over, args=job) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _over_and_over(self, what: str, pause_s: float, once: Callable[[], object]) -> None:
        while time.monotonic() < self._until:
            began = time.monotonic()
            try:
                status = str(once())
            except (OSError, http.client.HTTPException) as error:
                status = type(error).__name__
            self.counts[f"{what}: {status}"] += 1
            if what != "stream":
                self.wait_s = max(self.wait_s, time.monotonic() - began)
            time.sleep(pause_s)

    def _asked(self, **more: Any) -> AbstractContextManager[http.client.HTTPResponse]:
        body = {"messages": [{"role": "user", "content": "hi"}], "ignore_eos": True, **more}
        return posted(self._port, body, 60, Authorization=f"Bearer {GOOD}")

    def _stream(self) -> int:
        began, last = time.monotonic(), 0.0
        with self._asked(stream=True, max_tokens=400) as reply:
            for line in reply:
                if line.startswith(b'data: {"id"') and b'"content": ""' not in line:
                    now = time.monotonic()
                    if last:
                        self.gap_s = max(self.gap_s, now - last)
                    else:
                        self.wait_s = max(self.wait_s, now - began)
                    last = now
                elif line.startswith(b'data: {"error"'):
                    self.counts["stream: broken"] += 1
            return reply.status

    def _ask(self) -> int:
        with self._asked(max_tokens=4) as reply:
            reply.read()
            return reply.status

    def _look(self) -> int:
        return get(self._port, "/health")[0]


def good(port: int, seconds: float, found: "multiprocessing.Queue[Any]") -> None:
    client = Good(port)
    client.hold_on(seconds)
    found.put((client.gap_s, client.wait_s, client.counts))


# -- attacks: each goes on until its process is killed ------------------------------------------------------


def head(length: int, more: str = "") -> bytes:
    lines = [f"POST {PATH} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {BAD}"]
    return "\r\n".join([*lines, f"Content-Length: {length}{more}", "", ""]).encode()


def send(port: int, raw: bytes, waits_s: float) -> None:
    """Sends, and hangs up after so long or once it is answered."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=60) as one:
        one.sendall(raw)
        one.settimeout(waits_s)
        while one.recv(1 << 16):
            pass


def said(text: str, **more: Any) -> bytes:
    messages = [{"role": "user", "content": text}]
    return json.dumps({"messages": messages, **more}, ensure_ascii=False).encode()


def at_once(port: int, times: int, attack: Callable[[int, int], None]) -> None:
    """The attack, over and over, so many times at once."""

    def over_and_over(number: int) -> None:
        while True:
            attack(port, number)

    threads = [threading.Thread(target=over_and_over, args=(number,)) for number in range(times)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def long_texts(port: int) -> None:
    """16 MiB that is refused, and as many tokens as are let in; who sent them hangs up."""
    bodies = [said("\U0001f600" * 4_190_000), said("\U0001f600" * 240_000), said("a b " * 240_000)]
    at_once(port, 3, lambda port, number: send(port, head(len(bodies[number])) + bodies[number], 1.5))


def many_values(port: int) -> None:
    """Five million empty arrays, and almost as many values as are let in."""
    names = ",".join(f'"{number}":[0]' for number in range(33_000))
    bodies = [
        b'{"metadata": [' + b"[]," * 5_000_000 + b"[]]}",
        b'{"metadata": {' + names.encode() + b'}, "messages": []}',
        said("\\n" * 4_000_000),
    ]
    at_once(port, 3, lambda port, number: send(port, head(len(bodies[number])) + bodies[number], 60))


def held_open(port: int, count: int, raw: bytes) -> None:
    """Holds so many connections, each opened again once it is cut."""
    at_once(port, count, lambda port, _: send(port, raw, 60))


def slow_bodies(port: int) -> None:
    """257 requests of which a byte has come."""
    held_open(port, 257, head(1000) + b"{")


def large_bodies(port: int) -> None:
    """Nine of 16 MiB without their last byte."""
    held_open(port, 9, head(BODY_BYTES) + b" " * (BODY_BYTES - 1))


def idle(port: int) -> None:
    """512 connections that say nothing, without a key."""
    held_open(port, 512, b"")


def streams(port: int) -> None:
    """150 at once, of a server that has 64 descriptors."""
    body = said("Tell me a story", stream=True, max_tokens=100, ignore_eos=True)
    held_open(port, 150, head(len(body)) + body)


def endless(port: int) -> None:
    """40 answers without an end, all of them read."""
    body = said("Tell me a story", stream=True, max_tokens=10**9, ignore_eos=True)
    held_open(port, 40, head(len(body)) + body)


def ambiguous(port: int) -> None:
    """Headers and numbers that are refused."""
    body = said("hi", repetition_penalty=1e-300)
    raws = [
        head(5, "\r\nTransfer-Encoding: chunked") + b"0\r\n\r\n",
        head(0, "\r\nOrigin: https://localhost"),
        head(len(body)) + body,
    ]

    at_once(port, 3, lambda port, number: send(port, raws[number], 0.1))


def quiet(port: int) -> None:
    """No attack."""
    threading.Event().wait()


ATTACKS: tuple[Callable[[int], None], ...] = (
    *(quiet, long_texts, many_values, slow_bodies, large_bodies, idle, streams, endless, ambiguous),
)


def raged(seconds: float, flags: list[str], which: list[str]) -> list[str]:
    """Each attack for so long; what was wrong."""
    wrong = []
    with tempfile.TemporaryDirectory() as name:
        flags = [*flags, *key_flags(Path(name), GOOD, BAD), "--no-store"]
        for attack in ATTACKS:
            what = attack.__name__
            if which and what not in which:
                continue
            few = ["sh", "-c", f'ulimit -n {CONNECTIONS}; exec "$0" "$@"'] if attack is streams else []
            server = Server(flags, Path(name) / "data", few)
            told = measured(server, attack, seconds) + server.end()
            if len(output := server.said()) > 10_000:
                told.append(f"the server has said too much: {output[-2000:]}")
            wrong += [f"{what}: {one}" for one in told]
    return wrong


def measured(server: Server, attack: Callable[[int], None], seconds: float) -> list[str]:
    """Waits of the good key beside an attack, and what of it is wrong."""
    fork = multiprocessing.get_context("fork")
    found: multiprocessing.Queue[Any] = fork.Queue()
    good(server.port, 1, found)  # so that all is loaded
    found.get()
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")  # the highest memory counts from here on
    bad = fork.Process(target=attack, args=(server.port,), daemon=True)
    bad.start()
    time.sleep(1)
    nice = fork.Process(target=good, args=(server.port, seconds, found), daemon=True)
    nice.start()
    try:
        gap_s, wait_s, counts = found.get(timeout=seconds + 120)
    except queue.Empty:
        return ["the good key was never answered"]
    finally:
        bad.kill()
        bad.join()
    highest = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{server.process.pid}/status").read_text())
    memory = int(highest[1]) << 10 if highest else 0
    print(
        f"{attack.__name__}: longest gap {gap_s:.3f} s, longest wait {wait_s:.2f} s,"
        f" memory at most {memory / 1e6:,.0f} MB; {dict(sorted(counts.items()))}. {attack.__doc__}",
        flush=True,
    )
    told = [f"{what}, {count} times" for what, count in counts.items() if not what.endswith(": 200")]
    if gap_s > GAP_S:
        told.append(f"a stream had a gap of {gap_s:.3f} s: {GAP_S} is the most")
    if wait_s > WAIT_S:
        told.append(f"an answer took {wait_s:.2f} s: {WAIT_S} is the most")
    if memory > MEMORY_BYTES:
        told.append(f"the server took {memory / 1e6:,.0f} MB: {MEMORY_BYTES / 1e6:,.0f} is the most")
    return told
