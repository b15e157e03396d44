"""Only what is new is read: conversations that go on, of whom, and where they went."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import Answer, Client, Server, history, keys_file, talked

from h2o_chat.base.config import Settings
from h2o_chat.events.events import Turn
from h2o_chat.models.load import Loaded
from h2o_chat.serve.prefixes import Memory, Prefixes, after, beginning, chain

pytestmark = pytest.mark.loopback

BUDGET = 48
FLAGS = ("-b", BUDGET, "--max-tokens", 30)
SETTINGS = Settings(budget=BUDGET, threads=1, seed=0, events_every=0)
TEXTS = (
    "My name is Ada.",
    "My cat is Tom. I like tea and long walks.",
    "What is my name?",
    "What is my cat?",
)
ONE, OTHER = "the-key-of-one-client", "the-key-of-another-client"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def keys(folder: Path) -> Path:
    return keys_file(folder, ONE, OTHER)


@pytest.fixture(scope="module")
def server(folder: Path, keys: Path) -> Iterator[Server]:
    with Server(*FLAGS, "--rows", 2, "--data", folder / "a", keys=keys) as server:
        yield server


@pytest.fixture
def one(server: Server) -> Client:
    return server.client(ONE)


@pytest.fixture
def other(server: Server) -> Client:
    return server.client(OTHER)


@pytest.fixture(scope="module")
def turns(loaded: Loaded) -> list[Turn]:
    return talked(loaded, SETTINGS, TEXTS, max_tokens=30)[1]


def test_a_conversation_goes_on_and_only_what_is_new_is_read(one: Client, turns: list[Turn]) -> None:
    for count, turn in enumerate(turns, 1):
        found = one.complete(history(TEXTS, turns, count))
        assert found.text == turn.text
        assert found.body["usage"]["completion_tokens"] == turn.new_tokens
        assert found.body["timings"]["prompt_n"] == turn.prompt_tokens, "the new message alone"
        assert found.cached == turn.seen - turn.prompt_tokens - (turn.new_tokens - 1)
        assert found.body["usage"].get("evicted_tokens", 0) == turn.evicted
    assert turns[-1].evicted > 0


def test_an_answer_is_made_once_more_from_where_it_began(one: Client, turns: list[Turn]) -> None:
    for count in range(1, len(TEXTS) + 1):
        one.complete(history(TEXTS, turns, count))
    for count in (4, 2, 4):
        found = one.complete(history(TEXTS, turns, count))
        assert (found.text, found.cached > 0) == (turns[count - 1].text, True)


@pytest.mark.parametrize("where", [0, 1])
def test_a_changed_message_is_another_beginning(one: Client, turns: list[Turn], where: int) -> None:
    one.complete(history(TEXTS, turns, 1))
    changed = history(TEXTS, turns, 2)
    role, text = changed[where]
    changed[where] = (role, f"{text} ")
    assert one.complete(changed).cached == 0
    assert one.complete(history(TEXTS, turns, 2)).cached > 0
    assert one.complete(history(TEXTS, turns, 2, "You are kind.")).cached == 0
    assert one.complete(history(TEXTS, turns, 2), cache_prompt=False).cached == 0


def test_no_key_reaches_what_another_has_said(one: Client, other: Client, turns: list[Turn]) -> None:
    first = "Only one of us says this."
    asked = [first, one.complete(first).text, "And then?"]
    assert other.complete(asked).cached == 0
    assert one.complete(asked).cached > 0
    assert other.complete(asked, cache_prompt=True).cached == 0, "the other has not said it to its end yet"


def slot(client: Client, action: str, number: Any, name: Any = None) -> Answer:
    body = None if name is None else {"filename": name}
    return client.ask("POST", f"/slots/{number}?action={action}", body)


def test_a_slot_is_saved_and_restored_for_its_key_alone(
    one: Client, other: Client, turns: list[Turn], folder: Path
) -> None:
    before = set(folder.rglob("*"))
    name = "../../evil/..\\name\0.bin"
    first = one.complete(history(TEXTS, turns, 1))
    number = first.body["id_slot"]
    written = slot(one, "save", number, name)
    assert written.status == 200, written.raw
    assert written.body["n_saved"] == turns[0].seen
    (file,) = set(folder.rglob("*")) - before
    assert (file.stat().st_size, file.suffix) == (written.body["n_written"], ".safetensors")
    assert file.stat().st_mode & 0o077 == 0

    assert slot(one, "erase", number).body == {"id_slot": number, "n_erased": turns[0].seen}
    assert one.complete(history(TEXTS, turns, 2)).cached == 0
    assert slot(one, "restore", 1, name).body["n_restored"] == turns[0].seen
    found = one.complete(history(TEXTS, turns, 2))
    assert (found.cached, found.text) == (turns[0].seen, turns[1].text)

    assert slot(other, "restore", 1, name).error["code"] == "no_session"
    assert slot(other, "restore", 1, file.name).error["code"] == "no_session"
    assert slot(one, "restore", 1, "another").status == 404


def test_erasing_one_slot_leaves_another_of_the_same_conversation(
    one: Client, turns: list[Turn], folder: Path
) -> None:
    number = one.complete(history(TEXTS, turns, 1)).body["id_slot"]
    assert slot(one, "save", number, "shared").status == 200
    assert all(slot(one, "restore", at, "shared").status == 200 for at in (0, 1))
    assert slot(one, "erase", 0).status == 200
    held = [found["tokens"] for found in one.get("/slots").body]
    assert held == [0, turns[0].seen]
    assert slot(one, "erase", 1).status == 200
    assert one.complete(history(TEXTS, turns, 2)).cached == 0


def test_a_slot_shows_its_key_alone_what_it_holds(one: Client, other: Client) -> None:
    number = one.complete("Hello").body["id_slot"]
    assert one.get("/slots").body[number]["tokens"] > 0
    assert other.get("/slots").body[number]["tokens"] == 0
    for action, name in (("save", "mine"), ("erase", None)):
        assert slot(other, action, number, name).error["code"] == "slot_empty"
    assert one.get("/slots").body[number]["tokens"] > 0


@pytest.mark.parametrize(
    ("number", "action", "name", "status"),
    [
        (2, "save", "x", 404),
        (-1, "save", "x", 404),
        ("9" * 40, "save", "x", 404),
        ("a", "erase", None, 404),
        (0, "load", "x", 400),
        (0, "restore", 5, 400),
        (0, "restore", "x" * 256, 400),
        (0, "restore", None, 400),
    ],
)
def test_slots_that_are_none_are_refused(
    one: Client, number: Any, action: str, name: Any, status: int
) -> None:
    found = slot(one, action, number, name)
    assert found.status == status, found.raw
    assert found.error["message"]


def test_rows_are_saved_at_the_end_and_gone_on_from_token_for_token(
    folder: Path, keys: Path, turns: list[Turn]
) -> None:
    data = folder / "b"
    with Server(*FLAGS, "--data", data, keys=keys) as first:
        for count in (1, 2):
            first.client(ONE).complete(history(TEXTS, turns, count))
    assert len(list(data.rglob("row-*.safetensors"))) == 2
    with Server(*FLAGS, "--data", data, keys=keys) as second:
        assert second.client(OTHER).complete(history(TEXTS, turns, 3)).cached == 0
        client = second.client(ONE)
        for count in (3, 4):
            found = client.complete(history(TEXTS, turns, count))
            assert found.text == turns[count - 1].text
            assert found.body["timings"]["prompt_n"] == turns[count - 1].prompt_tokens
        assert client.metric("snapshots") == 5


def kept(name: str) -> Memory:
    return Memory(name.encode(), False, 1, None)


def test_the_oldest_go_first_but_for_those_from_which_many_went_on() -> None:
    prefixes = Prefixes(3)
    for name in "abc":
        prefixes.add(kept(name))
    assert prefixes.longest([b"a"]) is not None
    prefixes.add(kept("d"))
    assert [one.chain for one in prefixes.all()] == [b"b", b"c", b"d"], "one conversation went on from a"
    assert prefixes.longest([b"b"]) is not None
    assert prefixes.longest([b"b", b"x"]) is not None
    prefixes.add(kept("e"))
    assert [one.chain for one in prefixes.all()] == [b"d", b"b", b"e"]


def test_the_longest_beginning_is_found() -> None:
    prefixes = Prefixes(3)
    messages = [("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d"), ("user", "e")]
    hashes = chain(beginning(b"key", b"model"), messages)
    for place in (1, 3):
        prefixes.add(Memory(hashes[place], False, place, None))
    found = prefixes.longest(hashes)
    assert found is not None
    assert found.tokens == 3
    assert prefixes.longest(hashes[:1]) is None
    for begin in (beginning(b"", b"model"), beginning(b"key", b"another")):
        assert prefixes.longest(chain(begin, messages)) is None


def test_no_two_conversations_are_hashed_alike() -> None:
    begin = beginning(b"", b"")
    one, other = ("user", "a"), ("assistant", "b")
    found = [
        chain(begin, messages)[-1]
        for messages in ([one], [other], [one, other], [("user", "aassistant\0b")], [("user", ""), other])
    ]
    assert len(set(found)) == len(found)
    assert after(begin, one) == found[0]
