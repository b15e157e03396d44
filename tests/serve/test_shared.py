"""Conversations in shared storage: servers that go on where another stopped, and never fork one."""

import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import Answer, Client, Server, said, until

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


def talk(clients: list[Client], session: str) -> list[dict[str, str]]:
    """The conversation of TEXTS; each turn goes to the next client."""
    texts: list[str] = []
    for at, text in enumerate(TEXTS):
        texts.append(text)
        texts.append(clients[at % len(clients)].complete(texts, session).text)
    return list(said(texts))


def shared_total(client: Client, what: str) -> float:
    found = re.search(rf'shared_total{{what="{what}"}} (\d+)', client.get("/metrics").raw.decode())
    return float(found[1]) if found else 0


def test_a_conversation_moves_without_being_read_again(servers: tuple[Server, Server], place: Path) -> None:
    one, other = (server.client() for server in servers)
    alone = talk([one], "stays")
    assert talk([one, other], "moves") == alone, "token for token"
    assert shared_total(other, "read") > 0
    assert other.complete([*alone, *said("And?")], "moves").cached > 0
    found = one.get("/v1/conversations/moves").body
    assert found["epoch"] == len(TEXTS) + 1
    assert found["messages"][: len(alone)] == alone
    assert one.get("/v1/conversations/unknown").status == 404


def test_a_killed_server_loses_nothing(place: Path, servers: tuple[Server, Server]) -> None:
    alone = talk([servers[0].client()], "alone")
    with Server(*FLAGS, "--state", place) as first:
        for turns in (1, 2):
            answer = first.client().complete(alone[: 2 * turns - 1], "killed")
            assert answer.text == alone[2 * turns - 1]["content"]
        first.end(signal.SIGKILL)
    for turns in range(3, len(TEXTS) + 1):
        answer = servers[1].client().complete(alone[: 2 * turns - 1], "killed")
        assert answer.text == alone[2 * turns - 1]["content"]


def test_of_two_writers_the_stale_one_is_refused(servers: tuple[Server, Server]) -> None:
    one, other = (server.client() for server in servers)
    begun = [TEXTS[0], one.complete(TEXTS[0], "two").text]
    found: dict[str, Answer] = {}

    def write(client: Client, text: str) -> None:
        found[text] = client.complete([*begun, text], "two")

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
    history = [*begun, won, answer.text]
    for client in (one, other):
        assert client.get("/v1/conversations/two").body["messages"] == said(history)
        assert client.complete([*begun, lost], "two").status == 409, "still stale"
    assert other.complete([*history, lost], "two").status == 200


def test_a_stream_that_is_refused_says_so(servers: tuple[Server, Server]) -> None:
    one, other = (server.client() for server in servers)
    one.complete(TEXTS[0], "stream")
    assert other.complete("Another beginning", "stream", stream=True).status == 409, "before it begins"


def test_storage_that_fails(tmp_path: Path) -> None:
    place = tmp_path / "shared"
    with Server(*FLAGS, "--state", place) as server:
        client = server.client()
        begun = [TEXTS[0], client.complete(TEXTS[0], "fails").text]
        place.rename(tmp_path / "away")
        place.write_text("no directory")
        new = []
        for text in TEXTS[1:3]:
            begun.append(text)
            begun.append(client.complete(begun, "fails").text)
            new.append(text)
            new.append(client.complete(new, "new").text)
        assert client.metric("shared_failing") == 1
        assert client.metric("shared_waiting") == 4
        place.unlink()
        (tmp_path / "away").rename(place)
        until(lambda: not client.metric("shared_waiting"), "what waits is not written")
        assert client.metric("shared_failing") == 0
        assert client.get("/v1/conversations/fails").body["messages"] == said(begun)
        assert client.get("/v1/conversations/new").body["messages"] == said(new)
    assert "the shared storage fails; answers go on" in server.said
    assert "works again" in server.said
