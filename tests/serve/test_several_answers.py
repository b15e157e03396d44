"""Several answers to one request, what is told of a conversation's memory, and calls that were cut."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from serving import Client, Server, keys_file, said

from h2o_chat.serve.chat_request import CHOICES
from h2o_chat.serve.reply import QUIET_S

pytestmark = pytest.mark.loopback

KEYS = ("a" * 24, "b" * 24)
WARM = {"temperature": 1.2, "seed": 7, "max_tokens": 12, "ignore_eos": True}
LONG = "I went to the market and bought apples, pears, plums and rice. " * 8
CALL = {
    "tools": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}],
    "tool_choice": "required",
    "max_tokens": 4,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    keys = keys_file(tmp_path_factory.mktemp("keys"), *KEYS)
    with Server("-b", 64, "--rows", 2, "--no-store", keys=keys) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Client:
    return server.client(KEYS[0])


def texts(choices: list[Any]) -> list[str]:
    return [one["message"]["content"] for one in choices]


def test_each_choice_is_the_answer_with_the_next_seed(client: Client) -> None:
    found = client.complete("Hello!", n=3, **WARM).body
    assert [one["index"] for one in found["choices"]] == [0, 1, 2]
    alone = [client.complete("Hello!", **WARM | {"seed": 7 + at}) for at in range(3)]
    assert texts(found["choices"]) == [one.text for one in alone]
    assert len({*texts(found["choices"])}) > 1
    assert found["usage"]["completion_tokens"] == 36
    assert found["usage"]["prompt_tokens"] == alone[0].body["usage"]["prompt_tokens"]


def test_a_stream_brings_them_by_index_and_ends_once(client: Client) -> None:
    whole = client.complete("Hello!", n=3, **WARM).body["choices"]
    told, finished, usage = ["", "", ""], [], []
    *events, last = client.stream("Hello!", n=3, stream_options={"include_usage": True}, **WARM).events()
    assert last == "[DONE]"
    for event in events:
        usage += [event["usage"]] if event["usage"] else []
        for choice in event["choices"]:
            told[choice["index"]] += choice["delta"].get("content") or ""
            finished += [choice["index"]] if choice["finish_reason"] else []
    assert told == texts(whole)
    assert sorted(finished) == [0, 1, 2]
    assert [one["completion_tokens"] for one in usage] == [36]


def test_a_stream_of_several_begins_before_there_is_a_row(client: Client) -> None:
    endless = WARM | {"max_tokens": 10**6}
    busy = [client.stream("Hello!", **endless) for _ in range(2)]
    for one in busy:
        assert [next(one.events()) for _ in range(2)], "it has a row"
    began = time.monotonic()
    several = client.stream("Hello!", n=2, **WARM)
    events = several.events()
    begun = [next(events)["choices"][0] for _ in range(2)]
    assert time.monotonic() - began < QUIET_S / 2
    assert [(one["index"], one["delta"].get("role")) for one in begun] == [(0, "assistant"), (1, "assistant")]
    for one in (*busy, several):
        one.close()


def test_each_choice_goes_on_and_a_kept_prefix_is_not_read_again(client: Client) -> None:
    first = client.complete(LONG, **WARM)
    asked = said([LONG, first.text, "And?"])
    found = client.complete(asked, n=2, **WARM)
    assert found.cached > 100
    for choice in found.body["choices"]:
        longer = [*asked, choice["message"] | {"refusal": None}, {"role": "user", "content": "Then?"}]
        after = client.complete(longer, **WARM)
        assert after.body["usage"]["prompt_tokens"] - after.cached < 30


def test_more_choices_than_may_be_are_refused_and_a_bad_one_fails_once(client: Client) -> None:
    for wrong in (0, -1, CHOICES + 1, 1.0, True, "2"):
        assert client.complete("Hello!", n=wrong).error["param"] == "n"
    bad = {"response_format": {"type": "json_schema", "json_schema": {"schema": {"$ref": "#/none"}}}}
    assert client.complete("Hello!", n=2, **bad).status == 400
    events = list(client.stream("Hello!", n=2, **bad).events())
    assert any("error" in event for event in events)
    assert all("error" in event for event in events if not event.get("choices")), events
    assert client.complete("Hello!", **WARM).status == 200


def test_the_memory_of_a_conversation_adds_up(client: Client) -> None:
    first = client.complete([{"role": "system", "content": "Be kind."}, *said(LONG)], **WARM)
    told = client.get(f"/v1/conversations/{first.body['id']}/memory").body
    assert told["policy"] == "h2o"
    assert told["budget"] == 64
    assert told["seen"] == told["held"] + told["evicted"]
    assert 0 < told["held"] <= 64
    assert [one["index"] for one in told["messages"]] == [0, 1, 2]
    assert sum(one["held"] for one in told["messages"]) == pytest.approx(told["held"], abs=1)
    used = first.body["usage"]
    assert sum(one["tokens"] for one in told["messages"]) == used["prompt_tokens"] + used["completion_tokens"]
    system, user, _ = told["messages"]
    assert system["held"] == system["tokens"], "it is protected"
    assert user["held"] < user["tokens"]


def test_recalled_words_are_told(client: Client) -> None:
    words = ["My locker code is K7Q2 and my dog is called Rexo."]
    for text in (LONG, "What is my locker code?"):
        found = client.complete(words, **WARM)
        assert "notes" not in found.body
        words += [found.text, text]
    last = client.complete(words, **WARM).body
    (note,) = last["notes"]
    assert (note["code"], note["about"]) == ("recalled", 0)
    assert "K7Q2" in note["message"]
    told = client.get(f"/v1/conversations/{last['id']}/memory").body["messages"]
    (recalled,) = told[4]["recalled"]
    assert recalled["index"] == 0
    assert "K7Q2" in recalled["words"]


def test_a_memory_is_its_keys_own_and_gone_where_it_is_not_kept(server: Server, client: Client) -> None:
    response = client.ask("POST", "/v1/responses", {"input": "Hello!"}).body
    path = f"/v1/conversations/{response['id']}/memory"
    assert client.get(path).status == 200
    assert server.client(KEYS[1]).get(path).status == 404
    assert server.client(None).get(path).status == 401
    assert client.get("/v1/conversations/resp_none/memory").error["code"] == "not_found"
    streamed = list(client.stream("Hi!", **WARM).events())
    assert client.get(f"/v1/conversations/{streamed[0]['id']}/memory").status == 200


def test_a_call_that_was_cut_says_so(client: Client) -> None:
    choice = client.complete("Hi!", **CALL).body["choices"][0]
    assert (choice["finish_reason"], choice["message"].get("tool_calls")) == ("length", None)
    streamed = [one["choices"][0] for one in client.stream("Hi!", **CALL).events() if one != "[DONE]"]
    assert streamed[-1]["finish_reason"] == "length"
    tools = [{"name": "weather", "input_schema": {"type": "object"}}]
    body: dict[str, Any] = {"max_tokens": 4, "messages": [{"role": "user", "content": "Hi!"}]}
    message = client.ask("POST", "/v1/messages", body | {"tools": tools, "tool_choice": {"type": "any"}}).body
    assert message["stop_reason"] == "max_tokens"
    asked = {"input": "Hi!", "max_output_tokens": 4, "tool_choice": "required"}
    asked["tools"] = [{"type": "function", "name": "weather", "parameters": {"type": "object"}}]
    assert client.ask("POST", "/v1/responses", asked).body["status"] == "incomplete"
