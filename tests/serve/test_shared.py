"""Conversations in shared storage: servers that go on where another stopped, and never fork one."""

import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from serving import Answer, Client, Server, said, talk, until

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


def shared_total(client: Client, what: str) -> float:
    found = re.search(rf'shared_total{{what="{what}"}} (\d+)', client.get("/metrics").raw.decode())
    return float(found[1]) if found else 0


def test_a_conversation_moves_without_being_read_again(servers: tuple[Server, Server], place: Path) -> None:
    one, other = (server.client() for server in servers)
    alone = talk(TEXTS, [one], "stays")
    assert talk(TEXTS, [one, other], "moves") == alone, "token for token"
    assert shared_total(other, "read") > 0
    assert other.complete([*alone, *said("And?")], "moves").cached > 0
    found = one.get("/v1/conversations/moves").body
    assert found["epoch"] == len(TEXTS) + 1
    assert found["messages"][: len(alone)] == alone
    assert one.get("/v1/conversations/unknown").status == 404
    once = talk(TEXTS[::-1], [one], "again")
    moved, stayed = (client.complete(once[:-1], "again") for client in (other, one))
    assert moved.text == stayed.text == once[-1]["content"]
    assert moved.body["usage"] == stayed.body["usage"], "from the memory before the answer, not behind it"


def test_a_killed_server_loses_nothing(place: Path, servers: tuple[Server, Server]) -> None:
    alone = talk(TEXTS, [servers[0].client()], "alone")
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

    def write(client: Client, text: str) -> tuple[int, str, Answer]:
        answer = client.complete([*begun, text], "two")
        return answer.status, text, answer

    with ThreadPoolExecutor(2) as pool:
        answers = pool.map(write, (one, other), ("I am one.", "I am two."))
    (status, won, answer), (stale_status, lost, stale) = sorted(answers)
    assert (status, stale_status) == (200, 409)
    assert stale.error["code"] == "conflict"
    assert "retry-after" in stale.headers
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
        begun = talk(TEXTS[:1], [client], "fails")
        place.rename(tmp_path / "away")
        place.write_text("no directory")
        new = talk(TEXTS[1:3], [client], "new")
        begun = talk(TEXTS[1:3], [client], "fails", begun)
        assert client.metric("shared_failing") == 1
        assert client.metric("shared_waiting") == 4
        place.unlink()
        (tmp_path / "away").rename(place)
        until(lambda: not client.metric("shared_waiting"), "what waits is not written")
        assert client.metric("shared_failing") == 0
        assert client.get("/v1/conversations/fails").body["messages"] == begun
        assert client.get("/v1/conversations/new").body["messages"] == new
    assert "the shared storage fails; answers go on" in server.said
    assert "works again" in server.said
