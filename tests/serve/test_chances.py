"""The chances of tokens at the server: their texts are the answer."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from serving import begun, said
from tiny_models import tiny
from transformers import AutoTokenizer

from h2o_chat.base.config import Settings
from h2o_chat.models.load import Loaded
from h2o_chat.serve.chat_request import asked_for
from h2o_chat.serve.chat_response import ChatDialect
from h2o_chat.serve.guard import NOBODY
from h2o_chat.serve.reply import Reply
from h2o_chat.serve.request_queue import Ticket
from h2o_chat.serve.service import Service

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
SETTINGS = Settings(budget=256, threads=1, seed=0, events_every=0)


@contextmanager
def served_with(folder: Path) -> Iterator[Service]:
    """A model of random weights with the tokenizer of another."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = tiny("llama", "h2o", torch.float32, vocab_size=len(tokenizer))
    with begun(Loaded(model, tokenizer, "tiny", None, "none", "float32", "cpu"), SETTINGS) as service:
        yield service


@pytest.fixture(params=["stories3m", "pilot-chat"])
async def service(request: pytest.FixtureRequest, shared_models: Path) -> AsyncIterator[Service]:
    """SentencePiece's tokens, and those of bytes."""
    with served_with(shared_models / request.param) as service:
        yield service


def asked(service: Service, answer: str, **more: Any) -> Ticket:
    """A request whose answer is forced."""
    body = {"messages": said("Hello"), "grammar": f"start: {json.dumps(answer)}", "logprobs": True} | more
    ticket = service.ticket(asked_for(body | {"top_logprobs": 2, "max_tokens": 200}, service.served), NOBODY)
    service.submit(ticket)
    return ticket


def joined(told: list[Any]) -> tuple[str, str]:
    """The texts of the tokens, and their bytes."""
    return "".join(one["token"] for one in told), b"".join(bytes(one["bytes"]) for one in told).decode()


@pytest.mark.parametrize("answer", ["Hello there you", " Hello , you", "é in it"])
async def test_the_texts_of_tokens_are_the_answer(service: Service, answer: str) -> None:
    (choice,) = (await Reply(service, asked(service, answer), ChatDialect("tiny")).whole())["choices"]
    content, told = choice["message"]["content"], choice["logprobs"]["content"]
    assert content.strip() == answer.strip()
    assert joined(told)[1] == content
    assert joined(told)[0] == content or "é" in answer


@pytest.mark.parametrize(
    "answer", ['{"a": 1} is it', "[1, 2]", "```\nx\n```", "it is <tool", "Hello there you"]
)
async def test_a_stream_tells_them_too_where_a_call_might_begin(service: Service, answer: str) -> None:
    """The texts of such an answer wait for its end."""
    ticket = asked(service, answer, tools=[TOOL], stream=True)
    chunks = b"".join([chunk async for chunk in Reply(service, ticket, ChatDialect("tiny")).chunks([])])
    lines = [line.removeprefix("data: ") for line in chunks.decode().split("\n\n") if line]
    choices = [json.loads(line)["choices"][0] for line in lines]
    content = "".join(one["delta"].get("content", "") for one in choices)
    assert content == answer
    assert (
        joined([told for one in choices for told in (one["logprobs"] or {}).get("content", [])])[1] == content
    )
