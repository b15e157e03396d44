"""`h2o-chat serve` answers as `run` does: streaming and not, in the words that clients know."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from serving import Client, Server, talked, text_of

from h2o_chat.base.config import Settings
from h2o_chat.models.load import Loaded

pytestmark = pytest.mark.loopback

BUDGET = 48
SETTINGS = Settings(budget=BUDGET, threads=1, seed=0, events_every=0)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server("-b", BUDGET, "--rows", 3, "--max-tokens", 40, "--no-store") as server:
        yield server


@pytest.fixture
def client(server: Server) -> Client:
    return server.client()


def test_the_answer_is_that_of_a_conversation_alone(client: Client, loaded: Loaded) -> None:
    found = client.complete("My name is Ada.")
    _, (turn,) = talked(loaded, SETTINGS, ["My name is Ada."], max_tokens=40)
    assert found.text == turn.text
    choice, usage = found.body["choices"][0], found.body["usage"]
    assert (choice["index"], choice["finish_reason"], choice["message"]["role"]) == (0, "stop", "assistant")
    assert usage == {
        "prompt_tokens": turn.prompt_tokens,
        "completion_tokens": turn.new_tokens,
        "total_tokens": turn.prompt_tokens + turn.new_tokens,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert (found.body["object"], found.body["model"]) == ("chat.completion", "pocket")
    timings = found.body["timings"]
    assert (timings["prompt_n"], timings["predicted_n"]) == (turn.prompt_tokens, turn.new_tokens)
    assert timings["predicted_per_second"] > 0


def test_a_stream_says_the_same_and_ends_as_clients_expect(client: Client) -> None:
    asked = "Tell me a story about a dog"
    stream = client.stream(asked, stream_options={"include_usage": True})
    assert stream.response.getheader("content-type") == "text/event-stream; charset=utf-8"
    *chunks, last, counted, done = stream.events()
    whole = client.complete(asked)
    assert text_of(chunks) == whole.text
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert {chunk["choices"][0]["finish_reason"] for chunk in chunks} == {None}
    assert last["choices"][0]["finish_reason"] == whole.body["choices"][0]["finish_reason"]
    assert {chunk["usage"] for chunk in [*chunks, last]} == {None}
    assert counted["choices"] == []
    assert counted["usage"] == whole.body["usage"]
    assert done == "[DONE]"
    assert len({event["id"] for event in [*chunks, last, counted]}) == 1


def test_without_its_option_a_stream_tells_no_usage(client: Client) -> None:
    *chunks, done = client.stream("Hello").events()
    assert done == "[DONE]"
    assert not any("usage" in chunk for chunk in chunks)


@pytest.mark.parametrize(
    ("more", "finish"),
    [
        ({"max_tokens": 5}, "length"),
        ({"max_completion_tokens": 5}, "length"),
        ({"stop": "a"}, "stop"),
        ({"temperature": 0.9, "seed": 7, "top_p": 0.9, "max_tokens": 20}, None),
    ],
)
def test_what_is_asked_for_holds(
    client: Client, loaded: Loaded, more: dict[str, Any], finish: str | None
) -> None:
    found = client.complete("Tell me a story about a dog", **more)
    sampling = {("max_tokens" if "max" in key else key): value for key, value in more.items()}
    sampling["stop"] = tuple(sampling.pop("stop", ()))
    settings = replace(SETTINGS, seed=sampling.pop("seed", 0))
    drawn = {"max_tokens": 40, "top_p": 0.9, "min_p": 0.05, **sampling}  # the cuts stay
    _, (turn,) = talked(loaded, settings, ["Tell me a story about a dog"], **drawn)
    assert found.text == turn.text
    assert finish is None or found.body["choices"][0]["finish_reason"] == finish


def test_many_at_once_are_each_as_alone(client: Client, loaded: Loaded) -> None:
    """More than there are rows, of different length."""
    asked = [f"My name is Ada. {'My cat is Tom. ' * number}What is my name?" for number in range(9)]
    with ThreadPoolExecutor(len(asked)) as clients:
        found = list(clients.map(lambda text: text_of(list(client.stream(text).events())), asked))
    for text, answer in zip(asked, found, strict=True):
        _, (turn,) = talked(loaded, SETTINGS, [text], max_tokens=40)
        assert answer == turn.text


def test_models_are_listed(client: Client) -> None:
    (model,) = client.get("/v1/models").body["data"]
    assert (model["id"], model["object"]) == ("pocket", "model")
    assert client.get("/v1/models/pocket").body["id"] == "pocket"
    assert client.complete("Hello", model="pocket").status == 200


def test_what_is_served_is_told(client: Client) -> None:
    assert client.get("/health").body == {"status": "ok"}
    props = client.get("/props").body
    assert props["total_slots"] == 3
    assert props["default_generation_settings"]["max_tokens"] == 40
    assert props["session"]["budget"] == BUDGET
    assert len(client.get("/slots").body) == 3
    assert client.metric("rows") == 3


def test_what_clients_send_beside_changes_nothing(client: Client) -> None:
    plain = client.complete("Hello").text
    beside = {
        "model": "pocket", "n": 1, "user": "me", "logprobs": False, "presence_penalty": 0.0, "tools": [],
        "frequency_penalty": 0, "response_format": {"type": "text"}, "metadata": {"a": "b"}, "logit_bias": {},
        "tool_choice": "none", "stop": None, "seed": -5, "max_tokens": None, "stream_options": None,
        "chat_template_kwargs": {"enable_thinking": False}, "made_up": [1], "n_predict": -1,
    }  # fmt: skip
    assert client.complete("Hello", **beside).text == plain
    assert client.complete("Hello", **beside | {"stream_options": [1]}).text == plain, "it is no stream"
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    assert client.complete([{"role": "user", "content": parts}]).text == client.complete("Hel\nlo").text
    empty = [{"role": "system", "content": ""}, {"role": "user", "content": "Hello", "name": "me"}]
    assert client.complete(empty).text == plain
