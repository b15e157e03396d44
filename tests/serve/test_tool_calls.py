"""Tools, schemas and the other dialects, on a real server with the bundled model."""

import itertools
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import Answer, Client, Server

from h2o_chat.base.config import Sampling
from h2o_chat.chat.templates.tool_form import THEN
from h2o_chat.serve.api_errors import ApiError
from h2o_chat.serve.chat_request import Served, asked_for
from h2o_chat.serve.responses_dialect import Conversations

pytestmark = pytest.mark.loopback

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "maximum": 9}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}
SCHEMA = {
    "type": "object",
    "properties": {"red": {"type": "boolean"}, "size": {"enum": [1, 2]}},
    "required": ["red", "size"],
    "additionalProperties": False,
}
ASKED = {"role": "user", "content": "What is the weather?"}
GREEDY = {"temperature": 0, "max_tokens": 60}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Server("-b", 512, "--no-store") as server:
        yield server.client()


def choice_of(found: Answer) -> Any:
    assert found.status == 200, found.raw
    return found.body["choices"][0]


def test_a_forced_call_is_one_that_its_schema_allows(client: Client) -> None:
    choice = choice_of(client.complete([ASKED], tools=[WEATHER], tool_choice="required", **GREEDY))
    (call,) = choice["message"]["tool_calls"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", None)
    given = json.loads(call["function"]["arguments"])
    assert call["function"]["name"] == "weather"
    assert given["city"] in ("Oslo", "Rome")
    assert given["days"] <= 9


def test_a_stream_brings_the_same_call(client: Client) -> None:
    asked = {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "weather"}}}
    whole = choice_of(client.complete([ASKED], **asked, **GREEDY))["message"]
    deltas = list[Any]()
    for event in client.stream([ASKED], **asked, **GREEDY).events():
        if event != "[DONE]" and event["choices"]:
            deltas.append(event["choices"][0])
    (call,) = [one for delta in deltas for one in delta["delta"].get("tool_calls", [])]
    assert call["function"] == whole["tool_calls"][0]["function"]
    assert deltas[-1]["finish_reason"] == "tool_calls"
    assert not any(delta["delta"].get("content") for delta in deltas)


def test_who_wants_the_same_form_again_and_again_gets_it(client: Client) -> None:
    """A schema leaves one answer, and answers that repeat each other begin a loop elsewhere."""
    schema = {"const": "The sky over Oslo is grey, and it rains all day."}
    wanted = {"type": "json_schema", "json_schema": {"name": "weather", "schema": schema}}
    said: list[Any] = []
    for city in ("Oslo", "Rome", "Lima", "Bonn", "Kyiv", "Cairo", "Paris"):
        said.append({"role": "user", "content": f"What is the weather in {city}?"})
        message = choice_of(client.complete(said, response_format=wanted, **GREEDY))["message"]
        assert json.loads(message["content"]) == schema["const"]
        said.append(message)


def test_who_gives_the_result_meets_its_prefix(client: Client) -> None:
    asked = {"tools": [WEATHER], **GREEDY}
    message = choice_of(client.complete([ASKED], tool_choice="required", **asked))["message"]
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "Snow, -3 C"}
    found = client.complete([ASKED, message, result], **asked)
    assert choice_of(found)["finish_reason"] in ("stop", "length", "tool_calls")
    assert found.cached > 50
    other = client.complete([ASKED, message, result], **asked | {"tools": [WEATHER, WEATHER]})
    assert other.cached == 0, "other tools: another prompt"


@pytest.mark.parametrize(
    "wanted",
    [
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}},
        {"json_schema": SCHEMA},
        {"grammar": 'root ::= "{\\"red\\": " ("true" | "false") ", \\"size\\": " [12] "}"'},
    ],
)
def test_an_answer_is_what_its_schema_wants(client: Client, wanted: dict[str, Any]) -> None:
    for seed in range(3):
        choice = choice_of(client.complete("Is it red?", seed=seed, temperature=1.5, **wanted))
        found = json.loads(choice["message"]["content"])
        assert choice["finish_reason"] == "stop"
        assert type(found["red"]) is bool
        assert found["size"] in (1, 2)


def test_any_object_may_be_wanted(client: Client) -> None:
    choice = choice_of(client.complete("Hi", response_format={"type": "json_object"}, **GREEDY))
    assert choice["finish_reason"] == "stop"
    assert isinstance(json.loads(choice["message"]["content"]), dict)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "(?=a)b"},
        {"type": "nothing"},
        {"$ref": "https://example.com/schema.json"},
        {"allOf": [{"enum": [1]}, {"enum": [2]}]},
        {"$ref": "#"},
        {"enum": [f"value {number}" for number in range(20_000)]},
    ],
)
def test_a_schema_that_cannot_be_compiled_is_refused(client: Client, schema: Any) -> None:
    found = client.complete("Hi", response_format={"type": "json_schema", "json_schema": {"schema": schema}})
    assert found.status == 400, found.raw
    assert "grammar" in found.error["message"]
    assert client.complete("Hi", max_tokens=2).status == 200


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {f"p{number}": {} for number in range(501)}},
        {"type": "object", "properties": {"large": {"const": 2**53 + 1}}},
        {"type": "array"},
        {"enum": ["\ud800"]},
    ],
)
def test_a_tool_takes_an_object_that_is_no_trap(client: Client, schema: Any) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    assert client.complete("Hi", tools=[tool]).status == 400
    assert client.complete("Hi", model=["pocket"]).status == 404


def test_chances_penalties_and_biases(client: Client) -> None:
    plain = choice_of(client.complete("Hello", logprobs=True, top_logprobs=3, temperature=0, max_tokens=8))
    told = plain["logprobs"]["content"]
    assert "".join(one["token"] for one in told).startswith(plain["message"]["content"])
    assert all(one["logprob"] == max(top["logprob"] for top in one["top_logprobs"]) <= 0 for one in told)
    assert len(told) == 8 or "".join(one["token"] for one in told) == plain["message"]["content"]
    refused = {str(number): -100 for number in range(1000)}
    other = choice_of(client.complete("Hello", logit_bias=refused, temperature=0, max_tokens=8))
    assert other["message"]["content"] != plain["message"]["content"]
    again = {"temperature": 0, "max_tokens": 60, "presence_penalty": 2, "frequency_penalty": 2}
    words = choice_of(client.complete("Hello", **again))["message"]["content"].split()
    assert len(set(words)) >= 0.8 * len(words)


def test_messages_as_anthropic_has_them(client: Client) -> None:
    tool = {"name": "weather", "input_schema": WEATHER["function"]["parameters"]}  # type: ignore[index]
    body: dict[str, Any] = {"model": "pocket", "messages": [ASKED], "tools": [tool], **GREEDY}
    body |= {"system": [{"type": "text", "text": "Be kind."}], "tool_choice": {"type": "any"}}
    found = client.ask("POST", "/v1/messages", body)
    assert (found.status, found.body["stop_reason"]) == (200, "tool_use"), found.raw
    (used,) = found.body["content"]
    assert used["input"]["city"] in ("Oslo", "Rome")
    result = {"type": "tool_result", "tool_use_id": used["id"], "content": [{"type": "text", "text": "Snow"}]}
    body["messages"] += [
        {"role": "assistant", "content": [used]},
        {"role": "user", "content": [result, {"type": "text", "text": "And then?"}]},
    ]
    body["tool_choice"] = {"type": "auto"}
    found = client.ask("POST", "/v1/messages", body)
    assert found.status == 200, found.raw
    assert found.body["usage"]["cache_read_input_tokens"] > 50
    refused = client.ask("POST", "/v1/messages", {"messages": [ASKED]})
    assert (refused.status, refused.error["param"]) == (400, "max_tokens")


def test_a_stop_sequence_is_named(client: Client) -> None:
    body = {"max_tokens": 40, "temperature": 0, "messages": [ASKED]}
    words = client.ask("POST", "/v1/messages", body).body["content"][0]["text"].split()
    asked = body | {"stop_sequences": ["@@", words[2]]}
    found = client.ask("POST", "/v1/messages", asked).body
    assert (found["stop_reason"], found["stop_sequence"]) == ("stop_sequence", words[2])
    streamed = client.ask("POST", "/v1/messages", asked | {"stream": True}).raw.decode()
    (ended,) = [line for line in streamed.splitlines() if "message_delta" in line and "data:" in line]
    assert json.loads(ended.removeprefix("data: "))["delta"]["stop_sequence"] == words[2]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages", {"max_tokens": 12, "messages": [ASKED]}),
        ("/v1/responses", {"max_output_tokens": 12, "input": [ASKED]}),
        ("/v1/completions", {"max_tokens": 12, "prompt": "Once"}),
    ],
)
def test_every_dialect_takes_what_the_chat_takes(client: Client, path: str, body: dict[str, Any]) -> None:
    found = [client.ask("POST", path, body | {"seed": 7, "grammar": 'root ::= "so be it"'}) for _ in range(2)]
    assert all("so be it" in one.raw.decode() for one in found), found[0].raw
    free = [client.ask("POST", path, body | {"seed": 7, "temperature": 2}) for _ in range(2)]
    texts = [re.findall('"text": "[^"]*"', one.raw.decode()) for one in free]
    assert texts[0] == texts[1] != []
    told = client.ask("POST", path, body | {"made_up": 1}).body["notes"]
    assert [one["code"] for one in told] == ["ignored"]
    assert client.ask("POST", path, body | {"n": 2}).error["param"] == "n"


def test_only_allowed_tools_are_called(client: Client) -> None:
    other = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}}
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "weather"}}]}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    found = choice_of(client.complete([ASKED], tools=[other, WEATHER], tool_choice=choice, **GREEDY))
    assert [one["function"]["name"] for one in found["message"]["tool_calls"]] == ["weather"]
    for wrong in ({**allowed, "tools": [other | {"function": {"name": "x"}}]}, {**allowed, "tools": [3]}, 5):
        refused = client.complete([ASKED], tools=[WEATHER], tool_choice=choice | {"allowed_tools": wrong})
        assert (refused.status, refused.error["param"]) == (400, "tool_choice")
    unknown = choice | {"allowed_tools": {**allowed, "mode": {"function": {"name": "clock"}}}}
    refused = client.complete([ASKED], tools=[other, WEATHER], tool_choice=unknown)
    assert refused.error["message"].endswith("tools are weather.")


@pytest.mark.parametrize("function", ["weather", None, 3, ["weather"]])
def test_a_tool_named_in_another_way_is_refused(client: Client, function: Any) -> None:
    refused = client.complete([ASKED], tools=[WEATHER], tool_choice={"function": function})
    assert (refused.status, refused.error["param"]) == (400, "tool_choice")
    assert '{"name": "..."}' in refused.error["message"]


def test_responses_go_on_by_their_id(client: Client) -> None:
    first = client.ask("POST", "/v1/responses", {"input": "My name is Ada.", **RESPONSE})
    assert first.body["status"] in ("completed", "incomplete"), first.raw
    body = {"input": "What is my name?", "previous_response_id": first.body["id"], **RESPONSE}
    second = client.ask("POST", "/v1/responses", body)
    assert second.body["usage"]["input_tokens_details"]["cached_tokens"] > 0
    lost = client.ask("POST", "/v1/responses", body | {"previous_response_id": "resp_none"})
    assert (lost.status, lost.error["param"]) == (404, "previous_response_id")
    unstored = client.ask("POST", "/v1/responses", {"input": "Hi", "store": False, **RESPONSE})
    lost = client.ask("POST", "/v1/responses", body | {"previous_response_id": unstored.body["id"]})
    assert lost.status == 404


@pytest.mark.parametrize("role", ["system", "developer"])
def test_what_input_said_holds_on_and_instructions_do_not(client: Client, role: str) -> None:
    rule, asked = {"role": role, "content": "Answer in Latin."}, {"role": "user", "content": "And then?"}
    first = client.ask("POST", "/v1/responses", {"input": [rule, ASKED], "instructions": "Hm.", **RESPONSE})
    answer = {"role": "assistant", "content": first.body["output"][0]["content"][0]["text"]}
    body = {"input": [asked], "previous_response_id": first.body["id"], **RESPONSE}
    second = client.ask("POST", "/v1/responses", body)
    same = client.complete([rule, ASKED, answer, asked], max_tokens=20, temperature=0)
    assert second.body["usage"]["input_tokens"] == same.body["usage"]["prompt_tokens"]
    assert second.body["output"][0]["content"][0]["text"] == choice_of(same)["message"]["content"]


RESPONSE = {"max_output_tokens": 20, "temperature": 0}


def test_items_of_an_answer_that_speaks_and_calls_come_back(client: Client) -> None:
    """Agents send the whole history as items, where they name no earlier response."""
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]}
    call = {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": "Snow"}
    items = [ASKED, said, call, result]
    found = client.ask("POST", "/v1/responses", {"input": items, "max_output_tokens": 9, "temperature": 0})
    chat = [
        ASKED,
        {"role": "assistant", "content": "I look.", "tool_calls": [calling("c")]},
        result_of("c", "Snow"),
    ]
    same = client.complete(chat, max_tokens=9, temperature=0)
    assert found.body["usage"]["input_tokens"] == same.body["usage"]["prompt_tokens"]
    assert found.body["output"][0]["content"][0]["text"] == choice_of(same)["message"]["content"]


def calling(id_: str) -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": "weather", "arguments": "{}"}}


def result_of(id_: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": text}


def test_results_stand_in_the_order_of_their_calls(client: Client) -> None:
    """Calls made at once end in any order, and what the model reads has no ids."""
    calls = {"role": "assistant", "content": None, "tool_calls": [calling("a"), calling("b"), calling("c")]}
    results = [result_of("a", "Snow"), result_of("b", "Rain"), result_of("c", "Sun, and no wind")]
    answer = choice_of(client.complete([ASKED, calls, *results], **GREEDY))["message"]
    for first, second, third in itertools.permutations(results):
        found = client.complete([ASKED, calls, first, second, third, answer, ASKED], **GREEDY)
        assert found.cached > 50, "it was read in this order"


def test_what_is_said_behind_results_stays_apart() -> None:
    calls = {"role": "assistant", "content": None, "tool_calls": [calling("a")]}
    told = [ASKED, calls, result_of("a", "Snow"), *({"role": "user", "content": text} for text in "AB")]
    found = asked_for({"messages": told}, Served(frozenset(), Sampling(), None))
    assert found.messages[-1] == ("tool", f"Snow{THEN}A\n\nB")


def test_parts_of_a_message_stay_apart() -> None:
    parts = [{"type": "text", "text": text} for text in ("file.txt is attached", "Summarise it")]
    found = asked_for(
        {"messages": [{"role": "user", "content": parts}]}, Served(frozenset(), Sampling(), None)
    )
    assert found.messages == (("user", "file.txt is attached\nSummarise it"),)


def test_a_seed_of_minus_one_is_another_each_time() -> None:
    asked = [
        asked_for({"messages": [ASKED], "seed": -1}, Served(frozenset(), Sampling(), None)) for _ in "abc"
    ]
    assert len({one.seed for one in asked}) > 1


def test_a_text_goes_on(client: Client) -> None:
    found = client.ask(
        "POST", "/v1/completions", {"prompt": "Once upon a", "max_tokens": 5, "temperature": 0}
    )
    assert choice_of(found)["text"]
    assert found.body["object"] == "text_completion"
    asked = {"prompt": "Once upon a", "max_tokens": 5, "stream": True}
    told = {"stream_options": {"include_usage": True}}
    counted = [b'"usage"' in client.ask("POST", "/v1/completions", one).raw for one in (asked, asked | told)]
    assert counted == [False, True]


def test_an_unknown_key_is_noted(client: Client) -> None:
    found = client.complete("Hello", max_tokes=5, max_tokens=2, made_up=[1], service_tier="auto", user="a")
    assert [one["code"] for one in found.body["notes"]] == ["ignored"] * 2
    assert ["max_tokens?" in one["message"] for one in found.body["notes"]] == [True, False]


POCKET = Path(__file__).parents[2] / "assets" / "pocket"
THINKING = """{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>
{%- if m.reasoning_content and loop.last %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""
THINKS = {"grammar": 'root ::= "<think>\\n" [a-z ]{12} "\\n</think>\\n\\nYes, it is."', **GREEDY}


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """The bundled model with a template that knows thoughts; a grammar makes it think."""
    folder = tmp_path_factory.mktemp("models") / "thinker"
    shutil.copytree(POCKET, folder)
    (folder / "chat_template.jinja").write_text(THINKING)
    with Server("-m", folder, "-b", 512, "--no-store") as server:
        yield server.client()


def test_thoughts_are_no_content_and_who_leaves_them_out_meets_its_prefix(thinker: Client) -> None:
    message = choice_of(thinker.complete([ASKED], **THINKS))["message"]
    assert message["content"] == "Yes, it is."
    assert len(message["reasoning_content"]) > 5
    deltas = [
        one["choices"][0]["delta"] for one in thinker.stream([ASKED], **THINKS).events() if one != "[DONE]"
    ]
    for key in ("content", "reasoning_content"):
        assert "".join(delta.get(key) or "" for delta in deltas).strip() == message[key]
    kept = {"role": "assistant", "content": message["content"]}
    found = thinker.complete([ASKED, kept, {"role": "user", "content": "Really?"}], **GREEDY)
    assert found.cached > found.body["usage"]["prompt_tokens"] / 2


def test_what_one_key_has_held_makes_no_other_lose_its_own() -> None:
    """Ten messages of 9 MiB are too many characters, three hundred short ones too many conversations."""
    held = Conversations()
    held.add(b"good", "first", [{"role": "user", "content": "Hello"}])
    for text, last in (("a" * (9 << 20), 9), ("a", 299)):
        for number in range(last + 1):
            held.add(b"hostile", f"{len(text)} {number}", [{"role": "user", "content": text}])
        assert held.find(b"good", "first")
        assert held.find(b"hostile", f"{len(text)} {last}")
        with pytest.raises(ApiError, match="No conversation"):
            held.find(b"hostile", f"{len(text)} 0")
        with pytest.raises(ApiError, match="No conversation"):
            held.find(b"good", f"{len(text)} {last}")
