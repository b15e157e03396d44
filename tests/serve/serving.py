"""A real server in a process of its own, and clients with real sockets."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from forking import Forked

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.engine.batch import Batch
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import Turn
from h2o_chat.models.load import Loaded
from h2o_chat.serve.chat_request import ChatRequest
from h2o_chat.serve.guard import NOBODY
from h2o_chat.serve.prefixes import Prefixes
from h2o_chat.serve.request_queue import Limits, Ticket
from h2o_chat.serve.service import Service
from h2o_chat.serve.stream import Ended, Item

PROGRAM = [sys.executable, "-m", "h2o_chat", "serve", "--address", "127.0.0.1:0", "--threads", "1"]
TIMEOUT_S = 120
SAMPLING = Sampling(max_tokens=20)


@contextmanager
def begun(
    loaded: Loaded,
    settings: Settings,
    snapshots: int = 8,
    rows: int = 2,
    limits: Limits = Limits(8, 8, 100, 0),  # noqa: B008
) -> Iterator[Service]:
    """A service in this process."""
    service = Service(Batch(loaded, settings, rows), settings, SAMPLING, limits, Prefixes(snapshots))
    try:
        yield service
    finally:
        assert service.close(60)


def submit(
    service: Service,
    messages: str | Sequence[tuple[str, str]],
    owner: bytes = NOBODY,
    stream: bool = False,
    **how: Any,
) -> Ticket:
    """Asks for an answer; a text is a conversation of one message."""
    told = (("user", messages),) if isinstance(messages, str) else tuple(messages)
    ticket = service.ticket(ChatRequest(told, replace(SAMPLING, **how), 0, stream=stream), owner)
    service.submit(ticket)
    return ticket


async def end_of(ticket: Ticket) -> Item:
    while not (items := await ticket.stream.take(60)):
        pass
    return items[-1]


async def answered(service: Service, messages: str | Sequence[tuple[str, str]], **how: Any) -> Ended:
    end = await end_of(submit(service, messages, **how))
    assert isinstance(end, Ended)
    return end


def by_turns(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Messages of the user and, between them, the answers."""
    return [(("user", "assistant")[at % 2], text) for at, text in enumerate(texts)]


def talked(
    loaded: Loaded, settings: Settings, texts: Sequence[str], **sampling: Any
) -> tuple[Chat, list[Turn]]:
    """The conversation in an engine of its own, and how each turn ended."""
    chat, drawn = Chat(Engine(loaded, settings), settings), replace(SAMPLING, **sampling)
    return chat, [event for text in texts for event in chat.send(text, drawn) if isinstance(event, Turn)]


def history(
    texts: Sequence[str], turns: Sequence[Turn], number: int, system: str | None = None
) -> list[tuple[str, str]]:
    """The messages of a client that wants text number `number` answered; the first is 1."""
    told = [one for text, turn in zip(texts, turns, strict=True) for one in (text, turn.text)]
    return [*([] if system is None else [("system", system)]), *by_turns(told[: 2 * number - 1])]


def keys_file(folder: Path, *keys: str) -> Path:
    file = folder / "keys"
    file.write_text("\n".join(keys))
    file.chmod(0o600)
    return file


class Server:
    """`h2o-chat serve FLAGS`, from the moment it listens."""

    def __init__(
        self,
        *flags: object,
        keys: Path | None = None,
        before: Callable[[], object] | None = None,
        **environment: str,
    ) -> None:
        more = [] if keys is None else ["--keys", str(keys)]
        self.process = Forked(
            [*PROGRAM, *more, *map(str, flags)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env=os.environ | environment, preexec_fn=before,
        )  # fmt: skip
        self.said = ""
        assert self.process.stderr is not None
        while found := self.process.stderr.readline():
            self.said += found
            if address := re.search(r"http://127\.0\.0\.1:(\d+)/v1", found):
                self.port = int(address[1])
                return
        raise AssertionError(self.said)

    def client(self, key: str | None = None) -> "Client":
        return Client(self.port, key)

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Its exit code; it has said nothing on stdout."""
        self.process.send_signal(how)
        return self.ended()

    def ended(self) -> int:
        """Once it ends."""
        out, err = self.process.communicate(timeout=TIMEOUT_S)
        self.said += err
        assert out == ""
        return self.process.returncode

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        """Ends it in order, where neither the test has ended it nor an exception has ended the test."""
        try:
            if self.process.returncode is None and not failed:
                assert self.end() == 0, self.said
                assert "Traceback" not in self.said
        finally:
            if self.process.returncode is None:
                self.process.kill()
                self.process.communicate()


@dataclass(frozen=True)
class Answer:
    """The answer to a request."""

    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)

    @property
    def text(self) -> str:
        assert self.status == 200, self.raw
        return str(self.body["choices"][0]["message"]["content"])

    @property
    def cached(self) -> int:
        """Tokens of its prompt that were not read again."""
        return int(self.body["usage"]["prompt_tokens_details"]["cached_tokens"])

    @property
    def error(self) -> dict[str, Any]:
        """In the one shape that all have."""
        error = self.body["error"]
        assert set(error) == {"message", "type", "param", "code"}, error
        assert set(self.body) == {"error"}
        return dict(error)


@dataclass(frozen=True)
class Client:
    """Speaks HTTP on a new connection each time."""

    port: int
    key: str | None = None

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        own = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        connection = self.connect()
        try:
            connection.request(method, path, raw, own | (headers or {}))
            found = connection.getresponse()
            return Answer(found.status, {k.lower(): v for k, v in found.getheaders()}, found.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers=headers)

    def complete(self, messages: Any, session: str | None = None, **more: Any) -> Answer:
        """An answer at once; a text is a conversation of one message."""
        headers = {"x-session-id": session} if session else {}
        return self.ask("POST", "/v1/chat/completions", {"messages": said(messages), **more}, headers)

    def stream(self, messages: Any, **more: Any) -> "Streamed":
        """An answer as it comes; the connection stays open until it is closed."""
        connection = self.connect()
        own = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        body = json.dumps({"messages": said(messages), "stream": True, **more}).encode()
        connection.request("POST", "/v1/chat/completions", body, own)
        return Streamed(connection, connection.getresponse())

    def metric(self, name: str) -> float:
        """One of /metrics."""
        found = re.search(rf"^h2o_chat_{re.escape(name)} (\S+)$", self.get("/metrics").raw.decode(), re.M)
        assert found is not None, name
        return float(found[1])


@dataclass(frozen=True)
class Streamed:
    """An answer that is read as it comes."""

    connection: http.client.HTTPConnection
    response: http.client.HTTPResponse

    def events(self) -> Iterator[Any]:
        """Each `data:`, read as JSON, but for the last, which is text."""
        for line in self.response:
            if line.startswith(b"data: "):
                data = line.removeprefix(b"data: ").strip()
                yield "[DONE]" if data == b"[DONE]" else json.loads(data)

    def close(self) -> None:
        self.connection.close()
        self.response.close()


def said(messages: Any) -> Any:
    """Messages as clients send them: a text is one of the user, texts are the user's and answers in turn."""
    if isinstance(messages, str):
        messages = [messages]
    if all(isinstance(one, str) for one in messages):
        messages = by_turns(messages)
    return [{"role": one[0], "content": one[1]} if isinstance(one, tuple) else one for one in messages]


def talk(
    texts: Sequence[str],
    clients: list[Client],
    session: str | None = None,
    begun: Sequence[dict[str, str]] = (),
) -> list[dict[str, str]]:
    """A conversation after it: what was begun goes on with these texts, and each goes to the next client."""
    told = list(begun)
    for at, text in enumerate(texts):
        told += said(text)
        answer = clients[at % len(clients)].complete(told, session).text
        told.append({"role": "assistant", "content": answer})
    return told


def until(condition: Callable[[], object], why: str) -> None:
    end = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < end, why
        time.sleep(0.01)


def idle(client: Client) -> None:
    """Until nobody waits, is read or is answered."""
    under_way = ("requests_waiting", "requests_reading", "rows_busy")
    until(lambda: not any(map(client.metric, under_way)), "work for a client that is gone goes on")


def text_of(events: list[Any]) -> str:
    """The text of a stream's events."""
    chunks = [event for event in events if isinstance(event, dict) and "choices" in event]
    return "".join(choice["delta"].get("content", "") for chunk in chunks for choice in chunk["choices"])
