"""Compares the server's answers with the OpenAPI document of OpenAI's API; `clients.py` runs it.

    python openapi_check.py DOCUMENT URL MODEL      # openapi.json of github.com/openai/openai-openapi

Every reply and every chunk of a stream must be valid. Prints how many were checked, or the first that is not.
"""

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
WEATHER = {"name": "weather", "description": "Tells the weather", "parameters": PERSON}
TOOL = {"type": "function", "function": WEATHER}
FLAT = {"type": "function", "strict": False, **WEATHER}
SAID = {"messages": [{"role": "user", "content": "What is the weather?"}]}
CHAT: list[dict[str, Any]] = [
    SAID,
    SAID | {"logprobs": True, "top_logprobs": 3},
    SAID | {"tools": [TOOL], "tool_choice": "required"},
    SAID | {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": PERSON}}},
    SAID | {"max_tokens": 1, "stream_options": {"include_usage": True}},
    SAID | {"stop": ["e", "a"]},
]
RESPONSES: list[dict[str, Any]] = [
    {"input": "What is the weather?"},
    {"input": "What is the weather?", "instructions": "Be brief.", "temperature": 0.5, "top_p": 0.9},
    {"input": "Hello", "max_output_tokens": 16, "metadata": {"a": "b"}},
    {"input": "What is the weather?", "tools": [FLAT], "tool_choice": "required"},
    {
        "input": "What is the weather?",
        "tools": [FLAT],
        "tool_choice": {"type": "function", "name": "weather"},
    },
    {"input": "Ada", "text": {"format": {"type": "json_schema", "name": "x", "schema": PERSON}}},
    {"input": "Hello", "include": ["message.output_text.logprobs"], "top_logprobs": 2},
]
ASKED = {
    "/chat/completions": (CHAT, "CreateChatCompletionResponse", "CreateChatCompletionStreamResponse"),
    "/completions": ([{"prompt": "Hello"}], "CreateCompletionResponse", "CreateCompletionResponse"),
    "/responses": (RESPONSES, "Response", "ResponseStreamEvent"),
}


def with_null(node: Any) -> Any:
    """A schema in which `nullable`, a word of OpenAPI 3.0 that the document still uses, allows null."""
    if isinstance(node, list):
        return [with_null(one) for one in node]
    if not isinstance(node, dict):
        return node
    made = {key: with_null(value) for key, value in node.items()}
    return {"anyOf": [made, {"type": "null"}]} if made.pop("nullable", None) is True else made


def reasons(validator: Draft202012Validator, value: Any) -> Iterator[str]:
    """Why a value is not valid: the deepest reasons of the likeliest alternative."""
    for error in validator.iter_errors(value):
        while error.context:
            error = max(error.context, key=lambda one: (len(one.path), -one.validator.count("const")))
        yield f"{error.json_path}: {error.message[:300]}"


def main() -> int:
    document, url, model = sys.argv[1:]
    whole = with_null(json.loads(Path(document).read_text("utf-8")))
    registry = Registry().with_resource("urn:openapi", DRAFT202012.create_resource(whole))
    counted = [0, 0]
    for path, (bodies, whole_name, chunk_name) in ASKED.items():
        for stream, name in ((False, whole_name), (True, chunk_name)):
            reference = {"$ref": f"urn:openapi#/components/schemas/{name}"}
            validator = Draft202012Validator(reference, registry=registry)
            for body in bodies:
                limit = {"max_output_tokens" if path == "/responses" else "max_tokens": 40}
                sent = {"model": model, "temperature": 0.0, **limit, **body, "stream": stream}
                if not stream:
                    sent.pop("stream_options", None)
                for found in told(f"{url}/v1{path}", sent):
                    if path == "/completions" and stream:  # the document forgets null, which OpenAI sends
                        found["choices"][0]["finish_reason"] = found["choices"][0]["finish_reason"] or "stop"
                    if why := list(reasons(validator, found)):
                        print(f"{name}: {why[0]} in {json.dumps(found)[:600]}; asked {json.dumps(body)}")
                        return 1
                    counted[stream] += 1
    print(f"works: {counted[0]} replies and {counted[1]} chunks of streams are valid")
    return 0


def told(url: str, body: Any) -> Iterator[Any]:
    """The JSON values of a reply: one, or one for each event."""
    raw = json.dumps(body).encode()
    request = urllib.request.Request(url, raw, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=1800) as reply:
            lines = reply.read().decode().splitlines()
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{error.code}: {error.read()[:300]!r}: {body}") from error
    if not body["stream"]:
        yield json.loads("\n".join(lines))
        return
    for line in lines:
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


if __name__ == "__main__":
    sys.exit(main())
