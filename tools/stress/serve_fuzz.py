"""Sends a server what no client should: never a 500, never a hang, and afterwards it answers as before.

    tools/stress/serve_fuzz.py [--requests 10000] [--seed 1]

Starts one with the bundled model and two keys. Paths, methods, headers, keys and bodies are mutated, some
requests are cut off. Prints how many were answered with which status. Ends with exit code 1 at the first
status that does not stand in docs/SERVE.md, an error in another shape, a request that is not answered
within 60 s, an answer to whoever has no key, or another answer than before.
"""

import argparse
import http.client
import json
import random
import re
import socket
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from served import Server, key_flags

from h2o_chat.base.progress import progress_bar

KEY, OTHER = "0123456789abcdef-one", "0123456789abcdef-two"
LONGEST_S = 60
ALLOWED = {200, 400, 401, 403, 404, 405, 408, 409, 413, 429, 501, 507}
KEYS = (
    *("messages", "stream", "stream_options", "temperature", "top_p", "top_k", "min_p", "stop", "seed", "n"),
    *("max_tokens", "max_completion_tokens", "tools", "tool_choice", "model", "response_format", "logprobs"),
    *("cache_prompt", "id_slot", "repetition_penalty", "ignore_eos", "logit_bias", "user", "filename"),
    *("grammar", "json_schema", "top_logprobs", "presence_penalty", "frequency_penalty", "system", "prompt"),
    *("input", "instructions", "previous_response_id", "max_output_tokens", "text", "stop_sequences"),
    *("store", "include", "metadata", "suffix", "echo"),
)
POSTS = ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/completions")
PATHS = (
    *POSTS * 4,
    *("/v1/models", "/v1/models/pocket", "/health", "/metrics", "/props", "/slots"),
    *("/slots/0?action=save", "/slots/1?action=restore", "/slots/0?action=erase", "/slots/99?action=save"),
    *("/", "/slots/../../etc/passwd", "/v1/models/%2e%2e/%00", "//", "/v1/chat/completions/"),
    *("/v1/conversations/chatcmpl-1/memory", "/v1/conversations/%00/memory", "/v1/conversations//memory"),
)
TEXTS = (
    *("Hello", "My name is Ada.", "", "\0", "\ud800", "<|end|><|system|>", "../.."),
    *("a" * 3000, "\U0001f600" * 50),
)


def value(rng: random.Random, depth: int = 0) -> Any:
    """Any JSON."""
    kind = rng.randrange(9 if depth < 4 else 7)
    if kind == 7:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 8:
        return {rng.choice([*KEYS, *TEXTS]): value(rng, depth + 1) for _ in range(rng.randrange(4))}
    return [
        None, rng.random() < 0.5, rng.randrange(-5, 50), rng.choice([2**31, 2**63, -(2**64), 10**30]),
        rng.choice([0.5, 1e308, -1.0, float("nan"), float("inf")]), rng.choice(TEXTS), "",
    ][kind]  # fmt: skip


def called(rng: random.Random) -> list[Any]:
    """Mostly a call and its result, in one of the three dialects."""
    given = rng.choice(['{"city": "Oslo"}', "{", "[]", "", {"city": "Oslo"}, value(rng)])
    function = {"name": rng.choice(TEXTS), "arguments": given}
    result, use = value(rng), {"type": "tool_use", "id": "c", "name": "w", "input": given}
    chat = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": function}]}
    blocks = {"type": "tool_result", "tool_use_id": "c", "content": result}
    return rng.choice(
        [
            [chat, {"role": "tool", "tool_call_id": "c", "content": result}],
            [{"role": "assistant", "content": [use]}, {"role": "user", "content": [blocks]}],
            [
                {"type": "function_call", "call_id": "c", **function},
                {"type": "function_call_output", "call_id": "c", "output": result},
            ],
        ]
    )


def messages(rng: random.Random) -> Any:
    """Mostly a conversation."""
    if rng.random() < 0.2:
        return value(rng)
    said: list[Any] = [{"role": "system", "content": rng.choice(TEXTS)}] if rng.random() < 0.3 else []
    for place in range(2 * rng.randrange(3) + 1):
        role = ("user", "assistant")[place % 2] if rng.random() < 0.95 else rng.choice(["tool", 5, None])
        content = rng.choice(TEXTS) if rng.random() < 0.9 else value(rng)
        said.append({"role": role, "content": content})
        if rng.random() < 0.1:
            said += called(rng)
    return said


def schema(rng: random.Random) -> Any:
    """Mostly a schema."""
    kind = rng.choice(["object", "string", "integer", "array", "boolean"])
    of = value(rng) if rng.random() < 0.2 else {"type": kind, "properties": {rng.choice(TEXTS): {}}}
    return rng.choice([of, {"enum": [value(rng)]}, {"anyOf": [of, {"$ref": "#"}]}, value(rng)])


def tool(rng: random.Random) -> Any:
    """Mostly a tool, in one of the three dialects."""
    name = {"name": rng.choice(["weather", "w", *TEXTS]), "description": rng.choice(TEXTS)}
    flat = {"type": "function", **name, "parameters": schema(rng)}
    nested = {"type": "function", "function": {**name, "parameters": schema(rng)}}
    return rng.choice([flat, nested, nested, {**name, "input_schema": schema(rng)}, value(rng)])


def asks(rng: random.Random) -> dict[str, Any]:
    """Tools, formats and grammars, mostly as one of the dialects has them."""
    wanted = {"type": rng.choice(["json_schema", "json_object", "text"]), "schema": schema(rng)}
    made = {
        "tools": [tool(rng) for _ in range(rng.randrange(3))],
        "tool_choice": rng.choice(
            ["auto", "required", "none", {"type": "any"}, {"type": "tool", "name": "w"}, value(rng)]
        ),
        "response_format": rng.choice([wanted, {"type": "json_schema", "json_schema": wanted}]),
        "text": {"format": rng.choice([wanted, value(rng)])},
        "grammar": rng.choice(["root ::= [a-z]+", "start: /a+/", "root ::= root", *TEXTS]),
        "json_schema": schema(rng),
        "input": rng.choice([rng.choice(TEXTS), messages(rng)]),
        "prompt": rng.choice([*TEXTS, ["Hello"]]),
        "logprobs": rng.choice([True, False, 3]),
        "logit_bias": {rng.choice(["5", "99999999", "x"]): rng.choice([-100, 3.5, 1e9])},
        "previous_response_id": rng.choice(["resp_1", value(rng)]),
    }
    return {key: made[key] for key in rng.sample(sorted(made), rng.randrange(4))}


def body(rng: random.Random) -> bytes:
    """Mostly JSON, mostly with messages."""
    if rng.random() < 0.1:
        return rng.randbytes(rng.randrange(300))
    made = {rng.choice(KEYS): value(rng) for _ in range(rng.randrange(4))} | asks(rng)
    if rng.random() < 0.9:
        made["messages"] = messages(rng)
    if rng.random() < 0.5:
        made["stream"] = rng.random() < 0.7
    if rng.random() < 0.2:
        made["filename"] = rng.choice(TEXTS)
    made["max_tokens"] = made["max_output_tokens"] = rng.choice([1, 3, 8])  # what is allowed may be long
    made.pop("max_completion_tokens", None)
    raw = json.dumps(made).encode()
    return raw[: rng.randrange(len(raw))] if rng.random() < 0.05 else raw


def headers(rng: random.Random) -> dict[str, str]:
    """Mostly with a key."""
    made = {"Authorization": f"Bearer {rng.choice([KEY, KEY, KEY, OTHER])}"}
    if rng.random() < 0.1:
        made["Authorization"] = rng.choice(
            ["", "Bearer", f"Basic {KEY}", f"Bearer {KEY[:-1]}", "Bearer " + "x" * 9000]
        )
    if rng.random() < 0.1:
        made["Host"] = rng.choice(["localhost", "evil.example", "", "[::1", "a" * 500])
    if rng.random() < 0.05:
        made["Origin"] = rng.choice(["http://evil.example", "null", "http://[", "file://"])
    if rng.random() < 0.1:
        made[rng.choice(["Content-Type", "Accept", "X-Forwarded-For", "Connection", "Range"])] = rng.choice(
            ["text/plain", "upgrade", "a" * 5000, "bytes=0-5"]
        )
    return made


def request(port: int, rng: random.Random) -> int:
    """One; its status.

    Raises:
        AssertionError: the server has not answered as it should.
    """
    path, sent, raw = rng.choice(PATHS), headers(rng), body(rng)
    method = "POST" if path in POSTS else "GET"
    if rng.random() < 0.1:
        method = rng.choice(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONGEST_S)
    about = f"{method} {path} {sent} {raw[:500]!r}"
    try:
        connection.request(method, path, raw, sent)
        found = connection.getresponse()
        told = found.read()
    except (TimeoutError, http.client.HTTPException, ConnectionError) as error:
        raise AssertionError(f"{type(error).__name__}: {error}: {about}") from error
    finally:
        connection.close()
    assert found.status in ALLOWED, f"{found.status}: {about}: {told[:500]!r}"
    known = sent["Authorization"] in (f"Bearer {KEY}", f"Bearer {OTHER}")
    assert known or found.status in (401, 403) or path == "/health", f"{found.status}: {about}"
    if found.status != 200 and told:
        assert set(json.loads(told)) == {"error"}, f"{told[:500]!r}: {about}"
    return found.status


def torn(port: int, rng: random.Random) -> int:
    """Bytes as they come: cut off, or nothing like HTTP. The status, 0 where there is none."""
    raw = body(rng)
    head = f"POST {rng.choice(PATHS)} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
    how = rng.randrange(4)
    if how == 0:
        sent = head.encode() + b"Content-Length: %d\r\n\r\n" % (len(raw) + 50) + raw
    elif how == 1:
        sent = head.encode()[: rng.randrange(len(head))]
    elif how == 2:
        sent = head.encode() + b"Transfer-Encoding: chunked\r\n\r\n"
        sent += rng.choice([b"zz\r\n", b"-5\r\n", b"5\r\nabc"])
    else:
        sent = rng.randbytes(rng.randrange(500)) + b"\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=LONGEST_S) as one:
        one.sendall(sent)
        one.shutdown(socket.SHUT_WR)
        try:
            told = one.recv(1 << 16)
        except ConnectionResetError:
            return 0
    found = re.match(rb"HTTP/1.1 (\d+) ", told)
    status = int(found[1]) if found else 0
    assert status in ALLOWED | {0}, f"{status}: {sent[:500]!r}"
    return status


def answer(server: Server) -> str:
    """To what is asked before and after."""
    asked = {"messages": [{"role": "user", "content": "My name is Ada."}], "cache_prompt": False}
    _, found = server.chat(asked, LONGEST_S, KEY)
    return str(found["choices"][0]["message"]["content"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        flags = ["-m", "pocket", *key_flags(Path(name), KEY, OTHER), "-b", "48", "--max-tokens", "8"]
        with Server(flags, Path(name) / "data") as server:
            return fuzz(server, asked.requests, random.Random(asked.seed))


def fuzz(server: Server, requests: int, rng: random.Random) -> int:
    """Sends all requests; returns the exit code."""
    port, statuses = server.port, Counter[int]()
    before = answer(server)
    with progress_bar() as progress:
        for number in range(requests):
            try:
                statuses[(torn if number % 20 == 0 else request)(port, rng)] += 1
            except AssertionError as error:
                print(f"request {number}: {error}")
                return 1
            progress("requests", number / requests)
    after = answer(server)
    wrong = server.end()
    print(f"{requests:,} requests, by status (0: closed without one): {dict(sorted(statuses.items()))}")
    if before != after:
        wrong.append(f"before it answered {before!r}, after {after!r}")
    print(*wrong, end="")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
