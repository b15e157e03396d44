"""Whatever a client sends: an answer or an error in the one shape, never a 500, never a hang."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving import Server

from h2o_chat.base.config import Sampling
from h2o_chat.serve import request_bodies
from h2o_chat.serve.api_errors import ApiError
from h2o_chat.serve.chat_request import KNOWN, MESSAGES, Served, asked_for, object_of
from h2o_chat.serve.request_bodies import Bodies

pytestmark = pytest.mark.loopback

SERVED = Served(frozenset({"pocket"}), Sampling(), None)
ONE, OTHER = b"one", b"other"
texts = st.text(max_size=20) | st.sampled_from(["<|end|><|system|>", "\0", "\ud800", "\U0001f600" * 9])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system", "developer", "tool"]) | values},
        optional={"content": texts | values, "name": values, "tool_calls": values},
    ),
    max_size=4,
)
keys = st.sampled_from(sorted({*KNOWN, "user", "metadata", "chat_template_kwargs"}))
small = {"max_tokens": st.integers(1, 4)}
bodies = st.fixed_dictionaries({"messages": messages, **small}).flatmap(
    lambda begun: st.dictionaries(keys | texts, values, max_size=3).map(lambda more: {**more, **begun})
)
fine = st.fixed_dictionaries(
    {"messages": texts.filter(bool).map(lambda text: [{"role": "user", "content": text}]), **small},
    optional={
        "temperature": st.floats(0.1, 5),
        "top_p": st.floats(0.01, 1),
        "top_k": st.integers(0, 100),
        "min_p": st.floats(0, 1),
        "repetition_penalty": st.floats(0.1, 10),
        "seed": st.integers(-(2**63), 2**63 - 1),
        "stop": texts.filter(bool) | st.lists(texts.filter(bool), max_size=3),
        "stream": st.booleans(),
        "cache_prompt": st.booleans(),
    },
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server("-b", 32, "--rows", 2, "--max-tokens", 4, "--no-store") as server:
        yield server


def check(server: Server, raw: bytes) -> int:
    found = server.client().ask("POST", "/v1/chat/completions", raw)
    if found.status != 200:
        assert 400 <= found.status < 500, (found.status, raw)
        assert found.error["message"]
    return found.status


many = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@settings(many, max_examples=3 * settings.default.max_examples)
@given(bodies | values)
def test_any_body_is_answered(server: Server, body: Any) -> None:
    check(server, json.dumps(body).encode())


@many
@given(fine)
def test_any_fine_body_has_an_answer(server: Server, body: Any) -> None:
    assert check(server, json.dumps(body).encode()) == 200


@many
@given(st.binary(max_size=200))
def test_any_bytes_are_answered(server: Server, raw: bytes) -> None:
    check(server, raw)


def test_more_messages_than_the_limit_are_refused() -> None:
    said = [{"role": role, "content": "a"} for role in ("user", "assistant")] * (MESSAGES // 2)
    assert len(asked_for({"messages": said[:-1]}, SERVED).messages) == MESSAGES - 1
    with pytest.raises(ApiError, match=f"{MESSAGES + 1:,} messages"):
        asked_for({"messages": [*said, said[0]]}, SERVED)


def test_what_stands_in_a_text_is_no_value() -> None:
    text = '{"role": "user", "content": "\\\\"},' * 90_000 + "[[],{}]" * 90_000 + '\\\\"'
    raw = json.dumps({"messages": [{"role": "user", "content": text}]}).encode()
    assert asked_for(object_of(raw), SERVED).messages == (("user", text),)
    for many in (b"[]," * 99_999, b'"",' * 99_999, b'{"":0},' * 49_999, b"[" * 99_999, b'"a\\\\",' * 99_999):
        with pytest.raises(ApiError, match="is the most"):
            object_of(b'{"messages": [' + many + b"0]}")


async def test_a_body_that_says_no_length_is_counted() -> None:
    held = Bodies(0)
    with pytest.raises(ApiError) as error:
        await held.read(Sent([b"x" * (1 << 20)] * 17))  # type: ignore[arg-type]
    assert (error.value.status, held.bytes.held.total()) == (413, 0)


async def test_all_bodies_together_have_a_limit() -> None:
    held = Bodies(0)
    held.bytes.held[OTHER] = request_bodies.BODIES_BYTES
    with pytest.raises(ApiError) as error:
        await held.read(Sent([b"x"]))  # type: ignore[arg-type]
    assert (error.value.status, held.bytes.held.total()) == (503, request_bodies.BODIES_BYTES)


async def test_where_there_is_no_room_the_oldest_body_of_the_key_that_asks_is_cut() -> None:
    held = Bodies(2)
    piece = request_bodies.BODIES_BYTES // 8

    async def read(owner: bytes, ends: bool) -> bytes:
        return await held.read(Sent([b"x" * piece], ends, owner))  # type: ignore[arg-type]

    slow = [asyncio.create_task(read(ONE, False)) for _ in range(4)]
    await asyncio.sleep(0)
    other = asyncio.create_task(read(OTHER, False))
    await asyncio.sleep(0)
    assert held.bytes.held == {ONE: 4 * piece, OTHER: piece}, "one key has at most half of all"
    assert len(await read(ONE, True)) == piece
    with pytest.raises(ApiError) as error:
        await slow[0]
    assert (error.value.status, error.value.headers["connection"]) == (503, "close")
    assert not any(task.done() for task in (*slow[1:], other))
    for task in (*slow[1:], other):
        task.cancel()
    await asyncio.wait((*slow[1:], other))
    assert held.bytes.held == {ONE: piece}, "what was read is held until it is given back"


async def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_bodies, "BODY_S", 0.01)
    held = Bodies(0)
    with pytest.raises(ApiError) as error:
        await held.read(Sent([b"x"], ends=False))  # type: ignore[arg-type]
    assert (error.value.status, held.bytes.held.total()) == (408, 0)


class Sent:
    """A request whose body comes in pieces."""

    def __init__(self, pieces: list[bytes], ends: bool = True, owner: bytes = ONE) -> None:
        self._pieces, self._ends, self.scope = pieces, ends, {"owner": owner}
        self.headers: dict[str, str] = {}

    async def stream(self) -> Any:
        for piece in self._pieces:
            yield piece
        if not self._ends:
            await asyncio.Event().wait()
