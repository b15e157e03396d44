"""Conversations in shared storage: servers that go on where another stopped, and never fork one."""

import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import Answer, Client, Server

pytestmark = pytest.mark.loopback

FLAGS = ("-b", 48, "--max-tokens", 24, "--temperature", 0, "--no-store")
TEXTS = ("My name is Ada.", "My cat is Tom. I like tea.", "What is my name?", "What is my cat?", "Thank you.")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def servers(place: Path) -> Iterator[tuple[Server, Server]]:
    with Server(*FLAGS, "--state", place) as one, Server(*FLAGS, "--state", place) as other:
        yield one, other
        for server in (one, other):
            assert server.end() == 0, server.said
            assert "Traceback" not in server.said


def ask(client: Client, session: str, messages: list[dict[str, str]], **more: Any) -> Answer:
    body = {"messages": messages, **more}
    return client.ask("POST", "/v1/chat/completions", body, {"x-session-id": session})


def talk(clients: list[Client], session: str) -> list[dict[str, str]]:
    """The conversation of TEXTS; each turn goes to the next client."""
    messages: list[dict[str, str]] = []
    for at, text in enumerate(TEXTS):
        messages.append({"role": "user", "content": text})
        answer = ask(clients[at % len(clients)], session, messages)
        messages.append({"role": "assistant", "content": answer.text})
    return messages


def shared_total(client: Client, what: str) -> float:
    found = re.search(rf'shared_total{{what="{what}"}} (\d+)', client.get("/metrics").raw.decode())
    return float(found[1]) if found else 0


def test_a_conversation_moves_without_being_read_again(servers: tuple[Server, Server], place: Path) -> None:
    one, other = (server.client() for server in servers)
    alone = talk([one], "stays")
    assert talk([one, other], "moves") == alone, "token for token"
    assert shared_total(other, "read") > 0
    cached = ask(other, "moves", [*alone, {"role": "user", "content": "And?"}]).body["usage"]
    assert cached["prompt_tokens_details"]["cached_tokens"] > 0
    found = one.get("/v1/conversations/moves").body
    assert found["epoch"] == len(TEXTS) + 1
    assert found["messages"][: len(alone)] == alone
    assert one.get("/v1/conversations/unknown").status == 404


def test_a_killed_server_loses_nothing(place: Path, servers: tuple[Server, Server]) -> None:
    alone = talk([servers[0].client()], "alone")
    with Server(*FLAGS, "--state", place) as first:
        for turns in (1, 2):
            answer = ask(first.client(), "killed", alone[: 2 * turns - 1])
            assert answer.text == alone[2 * turns - 1]["content"]
        first.process.send_signal(signal.SIGKILL)
    for turns in range(3, len(TEXTS) + 1):
        answer = ask(servers[1].client(), "killed", alone[: 2 * turns - 1])
        assert answer.text == alone[2 * turns - 1]["content"]


def test_of_two_writers_the_stale_one_is_refused(servers: tuple[Server, Server]) -> None:
    one, other = (server.client() for server in servers)
    begun = [{"role": "user", "content": TEXTS[0]}]
    begun.append({"role": "assistant", "content": ask(one, "two", begun).text})
    found: dict[str, Answer] = {}

    def write(client: Client, text: str) -> None:
        found[text] = ask(client, "two", [*begun, {"role": "user", "content": text}])

    threads = [
        threading.Thread(target=write, args=pair) for pair in ((one, "I am one."), (other, "I am two."))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer.status for answer in found.values()) == [200, 409]
    stale = next(answer for answer in found.values() if answer.status == 409)
    assert stale.error["code"] == "conflict"
    assert "retry-after" in stale.headers
    won, answer = next((text, one) for text, one in found.items() if one.status == 200)
    lost = next(text for text in found if text != won)
    history = [
        *begun, {"role": "user", "content": won}, {"role": "assistant", "content": answer.text},
    ]  # fmt: skip
    for client in (one, other):
        assert client.get("/v1/conversations/two").body["messages"] == history
        assert ask(client, "two", [*begun, {"role": "user", "content": lost}]).status == 409, "still stale"
    assert ask(other, "two", [*history, {"role": "user", "content": lost}]).status == 200


def test_another_answer_to_the_same_message(servers: tuple[Server, Server]) -> None:
    one, other = (server.client() for server in servers)
    messages = talk([one], "again")
    for client in (one, other, one):
        assert ask(client, "again", messages[:-1]).text == messages[-1]["content"]
    assert one.get("/v1/conversations/again").body["messages"] == messages


def test_a_stream_that_is_refused_says_so(servers: tuple[Server, Server]) -> None:
    one, other = (server.client() for server in servers)
    begun = [{"role": "user", "content": TEXTS[0]}]
    ask(one, "stream", begun)
    answer = ask(other, "stream", [{"role": "user", "content": "Another beginning"}], stream=True)
    assert answer.status == 409, "before it begins"


def test_only_what_nobody_needs_is_removed(servers: tuple[Server, Server], place: Path) -> None:
    before = {path for path in place.rglob("*") if path.is_file()}
    talk([servers[0].client()], "few")
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        new = sorted(path.name for path in place.rglob("*") if path.is_file() and path not in before)
        if [name[:8] for name in new] == ["00000004", "00000004", "00000005", "00000005"]:
            return
        time.sleep(0.05)
    raise AssertionError(new)


def test_storage_that_fails(tmp_path: Path) -> None:
    place = tmp_path / "shared"
    with Server(*FLAGS, "--state", place) as server:
        client, messages = server.client(), [{"role": "user", "content": TEXTS[0]}]
        messages.append({"role": "assistant", "content": ask(client, "fails", messages).text})
        place.rename(tmp_path / "away")
        place.write_text("no directory")
        for text in TEXTS[1:3]:
            messages.append({"role": "user", "content": text})
            messages.append({"role": "assistant", "content": ask(client, "fails", messages).text})
        new = messages[:1]
        for text in TEXTS[1:3]:
            new.append({"role": "assistant", "content": ask(client, "new", new).text})
            new.append({"role": "user", "content": text})
        assert client.metric("shared_failing") == 1
        assert client.metric("shared_waiting") == 4
        place.unlink()
        (tmp_path / "away").rename(place)
        deadline = time.monotonic() + 20
        while client.metric("shared_waiting"):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert client.metric("shared_failing") == 0
        assert client.get("/v1/conversations/fails").body["messages"] == messages
        assert client.get("/v1/conversations/new").body["messages"] == new[:-1]
        assert server.end() == 0
        assert "the shared storage fails; answers go on" in server.said
        assert "works again" in server.said
        assert "Traceback" not in server.said
