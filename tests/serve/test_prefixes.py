"""Only what is new is read: conversations that go on, of whom, and where they went."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import Answer, Client, Server

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import Turn
from h2o_chat.models.load import Loaded
from h2o_chat.native.native_model import open_model
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
    file = folder / "keys"
    file.write_text(f"# mine\n{ONE}\n\n{OTHER}\n")
    file.chmod(0o600)
    return file


@pytest.fixture(scope="module")
def server(folder: Path, keys: Path) -> Iterator[Server]:
    with Server(*FLAGS, "--rows", 2, "--data", folder / "a", keys=keys) as server:
        yield server
        assert server.end() == 0, server.said
        assert "Traceback" not in server.said


@pytest.fixture
def one(server: Server) -> Client:
    return server.client(ONE)


@pytest.fixture
def other(server: Server) -> Client:
    return server.client(OTHER)


@pytest.fixture(scope="module")
def turns() -> list[Turn]:
    """The conversation in one engine, from its beginning to its end."""
    loaded: Loaded = open_model(SETTINGS, lambda *_: None)
    chat = Chat(Engine(loaded, SETTINGS), SETTINGS)
    drawn = Sampling(max_tokens=30)
    return [e for text in TEXTS for e in chat.send(text, drawn) if isinstance(e, Turn)]


def history(turns: list[Turn], texts: int, begin: str = "") -> list[dict[str, str]]:
    """The messages of a client that wants text number `texts` answered."""
    system = [{"role": "system", "content": begin}] if begin else []
    said = [
        {"role": role, "content": text}
        for text, turn in zip(TEXTS[:texts], turns, strict=False)
        for role, text in (("user", text), ("assistant", turn.text))
    ]
    return [*system, *said[:-1]]


def cached(answer: Answer) -> int:
    return int(answer.body["usage"]["prompt_tokens_details"]["cached_tokens"])


def test_a_conversation_goes_on_and_only_what_is_new_is_read(one: Client, turns: list[Turn]) -> None:
    for count, turn in enumerate(turns, 1):
        found = one.complete(history(turns, count))
        assert found.text == turn.text
        assert found.body["usage"]["completion_tokens"] == turn.new_tokens
        assert found.body["timings"]["prompt_n"] == turn.prompt_tokens, "the new message alone"
        assert cached(found) == turn.seen - turn.prompt_tokens - (turn.new_tokens - 1)
        assert found.body["usage"].get("evicted_tokens", 0) == turn.evicted
    assert turns[-1].evicted > 0


def test_an_answer_is_made_once_more_from_where_it_began(one: Client, turns: list[Turn]) -> None:
    for count in (4, 2, 4):
        found = one.complete(history(turns, count))
        assert (found.text, cached(found) > 0) == (turns[count - 1].text, True)


@pytest.mark.parametrize("where", [0, 1])
def test_a_changed_message_is_another_beginning(one: Client, turns: list[Turn], where: int) -> None:
    one.complete(history(turns, 1))
    changed = history(turns, 2)
    changed[where] = changed[where] | {"content": changed[where]["content"] + " "}
    assert cached(one.complete(changed)) == 0
    assert cached(one.complete(history(turns, 2))) > 0
    assert cached(one.complete(history(turns, 2, "You are kind."))) == 0
    assert cached(one.complete(history(turns, 2), cache_prompt=False)) == 0


def test_no_key_reaches_what_another_has_said(one: Client, other: Client, turns: list[Turn]) -> None:
    asked = [{"role": "user", "content": "Only one of us says this."}]
    answer = one.complete(asked).text
    asked += [{"role": "assistant", "content": answer}, {"role": "user", "content": "And then?"}]
    assert cached(other.complete(asked)) == 0
    assert cached(one.complete(asked)) > 0
    assert cached(other.complete(asked, cache_prompt=True)) == 0, "the other has not said it to its end yet"


def test_rows_are_saved_at_the_end_and_gone_on_from_token_for_token(
    folder: Path, keys: Path, turns: list[Turn]
) -> None:
    data = folder / "b"
    with Server(*FLAGS, "--data", data, keys=keys) as first:
        client = first.client(ONE)
        for count in (1, 2):
            client.complete(history(turns, count))
        assert first.end() == 0, first.said
    files = list(data.rglob("row-*.safetensors"))
    assert [file.stat().st_mode & 0o077 for file in files] == [0, 0], "for their owner alone"
    with Server(*FLAGS, "--data", data, keys=keys) as second:
        assert cached(second.client(OTHER).complete(history(turns, 3))) == 0
        client = second.client(ONE)
        for count in (3, 4):
            found = client.complete(history(turns, count))
            assert found.text == turns[count - 1].text
            assert found.body["timings"]["prompt_n"] == turns[count - 1].prompt_tokens
        assert client.metric("snapshots") == 5
        assert second.end() == 0, second.said


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
