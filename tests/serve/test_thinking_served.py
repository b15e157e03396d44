"""Thoughts at the server: what a client asks of them, and what becomes of their tokens."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from found_templates import CHANNELS, THINKS, byte_tokenizer
from serving import SAMPLING, begun, end_of, said
from tiny_models import tiny

from h2o_chat.base.config import Settings
from h2o_chat.models.load import Loaded
from h2o_chat.serve.api_errors import ApiError
from h2o_chat.serve.chat_request import Served, asked_for, text_asked_for
from h2o_chat.serve.chat_response import TextDialect
from h2o_chat.serve.guard import NOBODY
from h2o_chat.serve.reply import Reply
from h2o_chat.serve.request_queue import Ticket
from h2o_chat.serve.service import Service
from h2o_chat.serve.stream import Ended

SETTINGS = Settings(budget=256, threads=1, seed=0, events_every=0)
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}]}
THOUGHT = "<think>\\nhm hm hm\\n</think>\\n\\n"


@contextmanager
def served_with(jinja: str) -> Iterator[Service]:
    marks = ("<|im_end|>", "<|im_start|>", "<|start|>", "<|end|>", "<|message|>", "<|channel|>")
    tokenizer = byte_tokenizer(jinja, None, marks[0], marks[1:])
    model = tiny("qwen3", "h2o", torch.float32, vocab_size=len(tokenizer))
    with begun(Loaded(model, tokenizer, "tiny", None, "none", "float32", "cpu"), SETTINGS) as service:
        yield service


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    with served_with(THINKS) as service:
        yield service


@pytest.mark.parametrize(
    ("asked", "switches", "levels"),
    [
        ({}, "auto", "auto"),
        ({"reasoning_effort": "none"}, "off", "auto"),
        ({"reasoning_effort": "minimal"}, "on", "low"),
        ({"reasoning_effort": "high"}, "on", "high"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "off", "auto"),
        ({"chat_template_kwargs": {"enable_thinking": True, "reasoning_effort": "low"}}, "on", "low"),
        ({"chat_template_kwargs": {"thinking": False}, "reasoning_effort": "high"}, "off", "high"),
    ],
)
async def test_what_clients_ask_of_thoughts(
    asked: dict[str, Any], switches: str, levels: str, service: Service
) -> None:
    assert asked_for(HELLO | asked, service.served).think == switches
    with served_with(CHANNELS) as channels:
        assert asked_for(HELLO | asked, channels.served).think == levels
    assert asked_for(HELLO | asked, Served(frozenset(), SAMPLING, None)).think == "auto"


@pytest.mark.parametrize("wrong", [{"reasoning_effort": 3}, {"chat_template_kwargs": "off"}])
async def test_what_is_no_such_wish_is_refused(wrong: dict[str, Any], service: Service) -> None:
    with pytest.raises(ApiError):
        asked_for(HELLO | wrong, service.served)


async def forced(service: Service, *texts: str, answer: str, **more: Any) -> Ticket:
    """A conversation whose answer is forced."""
    body = {"messages": said(texts), "grammar": f'start: "{answer}"', "max_tokens": 200} | more
    ticket = service.ticket(asked_for(body, service.served), NOBODY)
    service.submit(ticket)
    end = await end_of(ticket)
    assert isinstance(end, Ended)
    assert end.error is None
    return ticket


async def test_thoughts_leave_the_slots_with_the_next_message(service: Service) -> None:
    first = await forced(service, "Hello", answer=THOUGHT + "Yes.")
    (kept,) = service.prefixes.all()
    assert first.places is not None
    ((at, tokens),) = first.places.thoughts
    assert tokens > len("hm hm hm")
    assert held(kept.state, range(at, at + tokens)) == 1
    second = await forced(service, "Hello", "Yes.", "Go on", answer="No.")
    assert second.cached_tokens > 0, "the client has sent no thought, and its conversation is found"
    newest = service.prefixes.all()[-1]
    assert held(newest.state, range(at, at + tokens)) == 0
    assert held(newest.state, range(at + tokens, at + tokens + 4)) == 1


async def test_a_switch_changes_the_prompt(service: Service) -> None:
    plain = await forced(service, "Hello", answer="Yes.")
    off = await forced(service, "Hello", answer="Yes.", reasoning_effort="none")
    texts = [
        service.tokenizer.decode(ticket.request.pieces[-1].ids) for ticket in (plain, off) if ticket.request
    ]
    assert texts[1] == f"{texts[0]}<think>\n\n</think>\n\n"


async def test_a_text_that_goes_on_is_streamed_with_its_thoughts(service: Service) -> None:
    body = {"prompt": "Hello", "grammar": f'start: "{THOUGHT}Yes."', "max_tokens": 200, "stream": True}
    ticket = service.ticket(text_asked_for(body, service.served), NOBODY)
    service.submit(ticket)
    chunks = b"".join([chunk async for chunk in Reply(service, ticket, TextDialect("tiny")).chunks([])])
    events = [json.loads(line.removeprefix("data: ")) for line in chunks.decode().split("\n\n") if line]
    assert "".join(one["choices"][0]["text"] for one in events).split() == ["hm", "hm", "hm", "Yes."]


def held(state: Any, positions: range) -> float:
    slots = state.cache.parts[0].states["positions"][:, 0]  # [L, H, S]
    found = (slots >= positions.start) & (slots < positions.stop)
    return float(found.sum()) / (len(positions) * slots.shape[0] * slots.shape[1])
