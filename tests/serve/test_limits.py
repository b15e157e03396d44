"""Requests that are too large, too slow or wrong are refused with the right status; others go on."""

import asyncio
import contextlib
import json
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from serving import Client, Server, idle, said, text_of, until

from h2o_chat.serve import protocol
from h2o_chat.serve.protocol import Connection
from h2o_chat.serve.request_bodies import BODY_BYTES

pytestmark = pytest.mark.loopback

ENDLESS = {"ignore_eos": True, "max_tokens": 10**9}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    flags = ("-b", 48, "--rows", 1, "--queue", 2, "--max-tokens", 20, "--no-store", "--grace", 0)
    with Server(*flags) as server:
        yield server
        assert "was forgotten is recalled (--recall off: not)" in server.said


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    client = server.client()
    yield client
    idle(client)


def stand(client: Client, reading: int, waiting: int) -> bool:
    return (client.metric("requests_reading"), client.metric("requests_waiting")) == (reading, waiting)


def test_no_more_choices_than_may_wait(client: Client) -> None:
    found = client.complete("Hello", n=3, max_tokens=1)
    assert (found.status, found.error["param"]) == (400, "n")


def test_a_client_that_goes_away_frees_its_row(client: Client) -> None:
    stream = client.stream("Tell me a story", **ENDLESS)
    events = stream.events()
    for _ in range(5):
        next(events)
    assert client.metric("rows_busy") == 1
    stream.close()
    idle(client)
    whole = client.connect()  # one that waits for the whole of it
    whole.request("POST", "/v1/chat/completions", json.dumps({"messages": said("a"), **ENDLESS}))
    until(lambda: client.metric("rows_busy") == 1, "it is not answered")
    whole.close()
    idle(client)
    assert client.complete("Hello").status == 200


def test_who_finds_the_queue_full_is_told_when_to_come_again(client: Client) -> None:
    answered = client.stream("Tell me a story", **ENDLESS)
    reads = threading.Thread(target=lambda: [None for _ in answered.events()])
    reads.start()  # else it would be cut as one that does not read, and its row be another's
    waiting = []
    for under_way in ((1, 0), (1, 1), (1, 2)):  # one is read, two wait
        connection = client.connect()
        asked = {"messages": said("Hi"), "stream": True, **ENDLESS}
        connection.request("POST", "/v1/chat/completions", json.dumps(asked))
        waiting.append(connection)
        until(partial(stand, client, *under_way), f"{under_way} are not read and wait")
    found = client.complete("Hello")
    assert (found.status, found.headers["retry-after"]) == (429, "5")
    assert (found.error["code"], found.error["type"]) == ("queue_full", "rate_limit_error")
    assert client.get("/health").status == 200
    assert client.metric("rows_busy") == 1
    for connection in waiting:
        connection.close()
    until(partial(stand, client, 0, 0), "who waits is not let go")
    answered.connection.sock.shutdown(socket.SHUT_RDWR)
    reads.join()
    answered.close()
    idle(client)
    assert client.complete("Hello").status == 200


@pytest.fixture(scope="module")
def hasty() -> Iterator[Server]:
    flags = ("-b", 48, "--rows", 2, "--timeout", 2, "--no-store", "--grace", 0, "--recall", "off")
    with Server(*flags) as server:
        yield server
        assert "is recalled" not in server.said


def test_what_takes_too_long_ends_with_504(hasty: Server) -> None:
    client = hasty.client()
    with ThreadPoolExecutor(1) as beside:
        whole = beside.submit(client.complete, "Tell me a story", **ENDLESS)
        *chunks, last = client.stream("Tell me a story", **ENDLESS).events()
    assert last["error"]["code"] == "timeout"
    assert text_of(chunks)
    assert (whole.result().status, whole.result().error["code"]) == (504, "timeout")
    idle(client)
    assert client.complete("Hello").status == 200


def raw(client: Client, sent: bytes) -> bytes:
    """All that comes back, until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", client.port), timeout=60) as connection:
        connection.sendall(sent)
        told = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := connection.recv(1 << 16):
                told += piece
        return told


def test_bodies_that_are_too_large_are_refused(client: Client) -> None:
    connection = client.connect()
    connection.putrequest("POST", "/v1/chat/completions")
    connection.putheader("Content-Length", str(10**15))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()
    found = client.ask("POST", "/v1/chat/completions", b" " * (BODY_BYTES + (1 << 20)))
    assert (found.status, found.error["code"]) == (413, "too_large")
    assert client.complete("a" * ((4 << 20) + 1)).status == 413


USER = {"role": "user", "content": "a"}


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "assistant", "content": "a"}]}, "messages[0].role"),
        ({"messages": [USER, {"role": "tool", "content": "b"}]}, "messages[1].role"),
        ({"messages": [{"role": "user", "content": ""}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages[0].role"),
        ({"messages": [USER, {"role": "assistant", "content": "b"}]}, "messages"),
        ({"messages": [USER | {"tool_calls": [1]}]}, "messages[0].tool_calls"),
        ({"tools": [{"type": "function"}]}, "tools[0]"),
        ({"tools": [{"type": "function", "function": {"name": "a", "description": "<|end|>"}}]}, "tools"),
        ({"tool_choice": {"type": "function", "function": {"name": "a"}}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"logit_bias": {"99999": 1}}, "logit_bias"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"repetition_penalty": 1e-300}, "repetition_penalty"),
        ({"repetition_penalty": 11}, "repetition_penalty"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 5, "max_completion_tokens": 5}, "max_tokens"),
        ({"top_p": float("nan")}, "top_p"),
        ({"stop": [""]}, "stop"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"stop": "a" * 257}, "stop"),
        ({"seed": 2**63}, "seed"),
        ({"stream": 1}, "stream"),
        ({"stream": True, "stream_options": [1]}, "stream_options"),
        ({"stream": True, "stream_options": []}, "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "include_usage"),
        ({"repeat_penalty": 1.1}, "repeat_penalty"),
        ({"web_search_options": {}}, "web_search_options"),
    ],
)
def test_what_is_wrong_is_named(client: Client, changes: dict[str, Any], param: str) -> None:
    found = client.ask("POST", "/v1/chat/completions", {"messages": said("Hello")} | changes)
    assert found.status == 400, found.raw
    assert found.error["param"] == param
    assert found.error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/chat/completions", b"", 400),
        ("POST", "/v1/chat/completions", b"{", 400),
        ("POST", "/v1/chat/completions", b"\xff", 400),
        ("POST", "/v1/chat/completions", b"[" * 100_000, 400),
        ("POST", "/v1/chat/completions", b'{"seed": ' + b"1" * 5000 + b"}", 400),
        ("POST", "/v1/chat/completions", b"[]", 400),
        ("POST", "/v1/chat/completions", json.dumps(dict.fromkeys(map(str, range(101)))).encode(), 400),
        ("POST", "/v1/chat/completions", b'{"model": "gpt-4", "messages": []}', 404),
        ("GET", "/v1/chat/completions", None, 405),
        ("POST", "/health", b"", 405),
        ("DELETE", "/v1/models/pocket", None, 405),
        ("GET", "/", None, 404),
        ("GET", "/v1/models/../../etc/passwd", None, 404),
        ("GET", "/v1/models/%2e%2e%2fpasswd", None, 404),
        ("POST", "/v1/embeddings", b"{}", 404),
    ],
)
def test_what_is_not_there_is_said(
    client: Client, method: str, path: str, body: bytes | None, status: int
) -> None:
    found = client.ask(method, path, body)
    assert found.status == status, found.raw
    assert found.error["message"]
    assert (status != 405) or found.headers["allow"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": "localhost.evil.example:80"}, 403),
        ({"Host": ""}, 403),
        ({"Host": "[::1]:80"}, 200),
        ({"Host": "localhost"}, 200),
        ({"Host": "LOCALHOST:1"}, 200),
        ({"Host": "localhost", "Origin": "http://evil.example"}, 403),
        ({"Host": "localhost", "Origin": "null"}, 403),
        ({"Host": "localhost:80", "Origin": "http://localhost:81"}, 403),
        ({"Host": "localhost:80", "Origin": "http://localhost:80"}, 200),
        ({"Host": "localhost:80", "Origin": "https://localhost:80"}, 403),
        ({"Host": "localhost:80", "Origin": "localhost:80"}, 403),
    ],
)
def test_pages_of_others_do_not_reach_it(client: Client, headers: dict[str, str], status: int) -> None:
    """By another name for this machine (DNS rebinding), or across sites."""
    found = client.get("/v1/models", **headers)
    assert found.status == status
    assert not [name for name in found.headers if name.startswith("access-control")]


def test_what_two_servers_may_understand_otherwise_is_refused(client: Client) -> None:
    """One of them may be a proxy in front."""
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
    both = b"Connection: close\r\nContent-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b'32\r\n{"messages": [{"role": "user", "content": "hi" }]}\r\n0\r\n\r\n'
    told = raw(client, head + both % len(body) + body)
    assert told.startswith(b"HTTP/1.1 400 ")
    assert b"Transfer-Encoding and Content-Length" in told
    for name in (b"Origin: http://localhost\r\n", b"Authorization: Bearer x\r\n", b"Host: localhost\r\n"):
        told = raw(client, b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n" + 2 * name + b"\r\n")
        assert told.startswith(b"HTTP/1.1 400 "), name


def test_pages_have_https_where_a_proxy_with_tls_stands_in_front() -> None:
    with Server("-b", 48, "--no-store", "--tls-proxy") as server:
        for scheme, status in (("https", 200), ("http", 403)):
            found = server.client().get("/v1/models", Host="localhost:80", Origin=f"{scheme}://localhost:80")
            assert found.status == status, found.raw


def test_what_is_no_http_is_refused_in_the_same_shape(client: Client) -> None:
    told = raw(client, b"nonsense\r\n\r\n")
    head, _, body = told.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}
    torn = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
    assert raw(client, torn).count(b"HTTP/1.1 400 ") == 1, "and nobody answers a second time"


async def test_connections_without_a_request_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who sends half a head, and who does not read: neither is waited for."""
    import uvicorn

    monkeypatch.setattr(protocol, "HEAD_S", 0.05)
    monkeypatch.setattr(protocol, "READ_S", 0.05)
    gone = asyncio.Event()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        assert (await receive())["type"] == "http.request"
        left = asyncio.create_task(receive())
        while not left.done():
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
            await asyncio.sleep(0)
        assert left.result()["type"] == "http.disconnect"
        gone.set()

    at = socket.create_server(("127.0.0.1", 0))
    http: Any = partial(Connection, most=8)
    config = uvicorn.Config(endless, http=http, ws="none", lifespan="off", log_config=None)
    running = uvicorn.Server(config)
    task = asyncio.create_task(running.serve([at]))
    address = at.getsockname()
    half, half_writer = await asyncio.open_connection(*address)
    half_writer.write(b"GET / HTTP/1.1\r\nHost: a")
    async with asyncio.timeout(60):
        with contextlib.suppress(ConnectionResetError):  # closed in order, or reset: both end it
            assert await half.read() == b""
    slow = socket.create_connection(address)
    slow.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    async with asyncio.timeout(60):
        await gone.wait()
    slow.close()
    half_writer.close()
    running.should_exit = True
    await task


KEY = "a key of more than sixteen characters".replace(" ", "-")


def test_only_who_has_a_key_is_answered_and_none_is_ever_written_down(tmp_path: Path) -> None:
    with Server("-b", 48, "--data", tmp_path, H2O_CHAT_KEY=KEY) as server:
        assert server.client().get("/health").status == 200
        for path in ("/v1/models", "/metrics", "/props", "/slots", "/nothing"):
            found = server.client().get(path)
            assert (found.status, found.headers["www-authenticate"]) == (401, "Bearer")
        for wrong in (f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", f"Basic {KEY}", KEY, "Bearer", "Bearer \xff"):
            found = server.client().get("/v1/models", Authorization=wrong)
            assert (found.status, found.error["code"]) == (401, "invalid_api_key")
        assert server.client(KEY).complete("My name is Ada.").status == 200
        assert KEY.encode() not in Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
    assert KEY not in server.said
    assert "Ada" not in server.said
    for file in tmp_path.rglob("*"):
        assert KEY not in file.name
        assert not file.is_file() or KEY.encode() not in file.read_bytes()


def test_what_goes_on_at_the_end_has_its_time() -> None:
    with Server("-b", 48, "--grace", 600, "--no-store") as server:
        stream = server.client().stream("Hello", max_tokens=400, ignore_eos=True)
        events = stream.events()
        next(events)
        server.process.send_signal(signal.SIGTERM)
        *chunks, last, done = events
        assert (last["choices"][0]["finish_reason"], done) == ("length", "[DONE]")
        assert text_of(chunks)
        assert server.ended() == 0, server.said


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_waits_for_nothing(tmp_path: Path, second: signal.Signals) -> None:
    with Server("-b", 48, "--grace", 600, "--data", tmp_path) as server:
        events = server.client().stream("Hi", **ENDLESS).events()
        next(events)
        server.process.send_signal(signal.SIGINT)
        until(lambda: server.client().get("/health").status == 503, "it does not hear")
        server.process.send_signal(second)
        assert server.ended() == 128 + second
    assert not list(tmp_path.rglob("row-*"))


def test_what_takes_longer_is_cut_and_kept(tmp_path: Path) -> None:
    with Server("-b", 48, "--grace", 0, "--data", tmp_path) as server:
        endless = server.client().stream("Hi", **ENDLESS).events()
        first = [next(endless) for _ in range(9)]
        server.process.send_signal(signal.SIGTERM)
        *chunks, last = endless
        assert (last["error"]["code"], last["error"]["type"]) == ("ending", "server_error")
        assert server.ended() == 0, server.said
    assert len(list(tmp_path.rglob("row-*.safetensors"))) == 1
    with Server("-b", 48, "--data", tmp_path) as server:
        found = server.client().complete(["Hi", text_of([*first, *chunks]), "Go on."])
        assert found.cached > 0
