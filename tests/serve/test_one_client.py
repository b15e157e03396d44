"""One client, or one key, takes nothing that another one needs: room, time, memory, descriptors.

How long others wait beside it is measured by tools/stress/serve_storm.py --hostile.
"""

import contextlib
import json
import re
import resource
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from serving import Client, Server, idle, keys_file, said

pytestmark = [
    pytest.mark.loopback,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and connects from 127.0.0.2"),
]

GOOD, BAD = "the-key-of-the-good-client", "the-key-of-the-bad-client"
PATIENCE_S = 10  # a client that is not held up is answered in a tenth of it, on a busy machine too
BODY_BYTES = 16 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    keys = keys_file(tmp_path_factory.mktemp("keys"), GOOD, BAD)
    with Server("-b", 48, "--rows", 4, "--max-tokens", 4, "--no-store", "--grace", 0, keys=keys) as server:
        yield server


@pytest.fixture
def bad(server: Server) -> Client:
    return server.client(BAD)


@pytest.fixture
def good(server: Server) -> Iterator[Client]:
    client = server.client(GOOD)
    yield client
    idle(client)


def answered(client: Client) -> None:
    """Whoever asks for little has it at once."""
    began = time.monotonic()
    assert client.get("/health").status == 200
    found = client.complete("hi")
    assert (found.status, time.monotonic() - began < PATIENCE_S) == (200, True), found.raw


def opened(client: Client, length: int, body: bytes = b"", address: str = "127.0.0.1") -> socket.socket:
    """A request of which so many bytes are promised, and less has come."""
    one = socket.create_connection(("127.0.0.1", client.port), timeout=60, source_address=(address, 0))
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n"
    one.sendall(f"{head}Authorization: Bearer {client.key}\r\n\r\n".encode())
    with contextlib.suppress(ConnectionError):  # it may be cut while it is sent
        one.sendall(body)
    return one


@contextlib.contextmanager
def closing(sockets: list[socket.socket]) -> Iterator[list[socket.socket]]:
    try:
        yield sockets
    finally:
        for one in sockets:
            one.close()


def highest_bytes(server: Server) -> int:
    """Most memory that the server has had at once."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{server.process.pid}/status").read_text())
    assert found
    return int(found[1]) << 10


def test_a_text_of_millions_of_tokens_is_refused_and_takes_no_memory(
    server: Server, bad: Client, good: Client
) -> None:
    body = json.dumps({"messages": said("\U0001f600" * 4_190_000)}, ensure_ascii=False).encode()
    answered(good)
    before = highest_bytes(server)
    found = bad.ask("POST", "/v1/chat/completions", body)
    assert (found.status, found.error["param"]) == (400, "messages")
    assert "1,000,000 is the most" in found.error["message"]
    longest_token_bytes = 16  # of pocket's vocabulary
    tokens = 4 * 4_190_000 // longest_token_bytes
    assert f"at least {tokens:,} tokens" in found.error["message"], "its bytes show it: it is not tokenised"
    assert highest_bytes(server) - before < 8 * len(body)


LONG = {
    "emoji": json.dumps("\U0001f600" * 900_000),
    "a whole body of emoji": json.dumps("\U0001f600" * 4_190_000, ensure_ascii=False),
    "words": json.dumps("a b " * 700_000),
    "a word": json.dumps("TheuserwordQ" + "Q" * 3_000_000),
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_a_long_text_of_one_key_holds_up_no_other(bad: Client, good: Client, text: str) -> None:
    """Nor does it once its client has hung up: the fixture waits for its end."""
    body = b'{"messages": [{"role": "user", "content": %s}]}' % text.encode()
    with closing([opened(bad, len(body), body) for _ in range(3)]):
        time.sleep(0.5)
        answered(good)


def test_a_body_of_many_values_is_refused_before_they_are_made(bad: Client, good: Client) -> None:
    body = b'{"messages": [{"role": "user", "content": "hi"}], "metadata": [' + b"[]," * 5_000_000 + b"0]}"
    with ThreadPoolExecutor(1) as beside:
        found = beside.submit(bad.ask, "POST", "/v1/chat/completions", body)
        time.sleep(0.3)
        answered(good)
    assert found.result().status == 400
    assert "100,000 is the most" in found.result().error["message"]


def test_many_slow_senders_of_one_key_leave_room_for_another(bad: Client, good: Client) -> None:
    with closing([opened(bad, 1000, b"{") for _ in range(257)]):
        answered(good)
        answered(bad)  # the one that sends slowly is cut, not the one that asks


def test_large_bodies_of_one_key_leave_room_for_another(bad: Client, good: Client) -> None:
    most = b" " * (BODY_BYTES - 1)
    with closing([opened(bad, BODY_BYTES, most) for _ in range(16)]):  # what is refused leaves room
        answered(good)
        answered(bad)


def test_connections_that_say_nothing_leave_room_for_others() -> None:
    """Without keys, and from the same address."""
    with Server("-b", 48, "--rows", 1, "--max-tokens", 4, "--no-store") as server:
        client = server.client()
        stream = client.stream("Tell me a story", max_tokens=300, ignore_eos=True)
        events = stream.events()
        next(events)
        idle = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(600)]
        with closing(idle):
            for _ in range(3):
                assert client.get("/health").status == 200
                assert client.get("/v1/models").status == 200
        assert list(events)[-1] == "[DONE]", "who is answered is not cut"
        stream.close()
        with closing([opened(client, 1000, b"{") for _ in range(300)]):
            answered(client)


def test_an_address_with_many_connections_loses_its_own() -> None:
    with Server("-b", 48, "--rows", 1, "--no-store") as server:
        other = ("127.0.0.2", 0)
        waits = socket.create_connection(("127.0.0.1", server.port), timeout=60, source_address=other)
        with closing([socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(600)]):
            assert server.client().get("/health").status == 200
            waits.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert waits.recv(100).startswith(b"HTTP/1.1 200 ")
        waits.close()


def test_there_are_as_many_connections_as_descriptors_allow() -> None:
    limit = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (64, 64))
    with Server("-b", 48, "--rows", 2, "--no-store", before=limit) as server:

        def ask(_: int) -> object:
            try:
                stream = server.client().stream("Tell me a story", max_tokens=40, ignore_eos=True)
                status = stream.response.status
                end = list(stream.events())[-1] if status == 200 else status
                stream.close()
            except ConnectionError:  # cut before it was let in
                return 503
            return end

        with ThreadPoolExecutor(150) as pool:
            ends = set(pool.map(ask, range(150)))
        assert {"[DONE]"} <= ends <= {"[DONE]", 503}, "what was let in is answered to its end"
        assert server.client().complete("hi").status == 200
    assert server.said.count("connections at once") == 1
    assert len(server.said) < 5000
