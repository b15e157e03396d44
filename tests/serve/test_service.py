"""Between clients and batch: each conversation as in an engine of its own, whatever fails beside it."""

import asyncio
import copy
import json
import socket
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from serving import answered, begun, by_turns, end_of, history, submit, talked

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import GenerationError
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.engine.answer import Answer
from h2o_chat.engine.batch import Batch
from h2o_chat.engine.engine import Engine
from h2o_chat.engine.row_capacity import OBJECTS_BYTES
from h2o_chat.events.events import Turn
from h2o_chat.models.load import Loaded
from h2o_chat.serve import protocol
from h2o_chat.serve.api_errors import ApiError
from h2o_chat.serve.guard import Keys
from h2o_chat.serve.server import Server, application, listen
from h2o_chat.serve.service import Service
from h2o_chat.serve.stream import MOST_TEXTS, Ended, Stream

SETTINGS = Settings(budget=48, threads=1, seed=0, events_every=0)


@pytest.fixture
async def service(loaded: Loaded) -> AsyncIterator[Service]:
    with begun(loaded, SETTINGS) as service:
        yield service


@pytest.mark.parametrize("template", ["auto", "plain", "alpaca", "vicuna", "chatml", "llama-2"])
async def test_with_any_template_turns_are_those_of_one_conversation(loaded: Loaded, template: Any) -> None:
    """A marker that ends an answer is not fed twice, nor is the model's own end."""
    settings = replace(SETTINGS, template=template)
    texts = ("My name is Ada.", "Tell me more.", "What is my name?")
    _, turns = talked(loaded, settings, texts)
    with begun(loaded, settings) as service:
        for number, turn in enumerate(turns, 1):
            found = await answered(service, history(texts, turns, number))
            assert found.turn.text == turn.text
            assert (found.turn.prompt_tokens, found.turn.seen) == (turn.prompt_tokens, turn.seen)


async def test_a_marker_that_ended_an_answer_is_not_fed_twice(loaded: Loaded) -> None:
    """Here a full stop; but where the client had a stop of its own, nobody knows which of them it was."""
    settings = replace(SETTINGS, template="alpaca")
    chat = Chat(Engine(loaded, settings), settings)
    said: list[str] = []
    with begun(loaded, settings) as service:
        service.template.marker = chat.template.marker = "."
        for text, own in (
            ("Hello there", ()),
            ("Thank you", ("xyz",)),
            ("Hello there", ()),
            ("Then what", ()),
        ):
            said.append(text)
            how: dict[str, Any] = {"max_tokens": 200, "ignore_eos": True, "stop": own}
            (turn,) = (event for event in chat.send(text, Sampling(**how)) if isinstance(event, Turn))
            found = await answered(service, by_turns(said), **how)
            assert (found.turn.text, found.turn.finish) == (turn.text, "stop")
            assert found.turn.seen == turn.seen
            said.append(turn.text)


async def test_who_fails_fails_alone(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    fine = await answered(service, "Hello")
    choose = Answer.choose

    def failing(self: Answer, logits: Any) -> Any:
        if self.sampling.top_k == 7 and self.new_tokens == 3:
            raise GenerationError("The model produced NaN or infinite logits.", "Try another.")
        return choose(self, logits)

    monkeypatch.setattr(Answer, "choose", failing)
    tickets = [submit(service, "Hello"), submit(service, "Hello", top_k=7), submit(service, "Hello")]
    ends = [await end_of(ticket) for ticket in tickets]
    assert [end.error is None for end in ends if isinstance(end, Ended)] == [True, False, True]
    assert [end.turn.text for end in ends if isinstance(end, Ended)][::2] == [fine.turn.text] * 2
    error = ends[1].error  # type: ignore[union-attr]
    assert (error.status, error.code) == (500, "generation")


async def test_a_broken_engine_is_told_to_everybody(
    service: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(self: Batch) -> Any:
        raise RuntimeError("what the batch holds is not known")

    monkeypatch.setattr(Batch, "step", broken)
    end = await end_of(submit(service, "Hello"))
    assert isinstance(end, ApiError)
    assert (end.status, end.code) == (500, "bug")
    assert service.broken
    with pytest.raises(ApiError) as error:
        submit(service, "Hello")
    assert error.value.status == 500
    assert "RuntimeError: what the batch holds" in capsys.readouterr().err


async def test_memory_is_bounded_by_what_is_kept(loaded: Loaded) -> None:
    with begun(loaded, SETTINGS, snapshots=3) as service:
        for number in range(7):
            await answered(service, f"My number is {number}.")
        assert len(service.prefixes) == 3
        each = [one.held_bytes for one in service.prefixes.all()]
        assert service.prefixes.held_bytes == sum(each) <= 3 * service.snapshot_bytes
        slots = service.snapshot_bytes - OBJECTS_BYTES
        assert max(each) <= slots, "what is not slots is counted beside them"
        assert min(each) > 0.95 * slots, "the arithmetic is not far from what is there"
    with begun(loaded, SETTINGS, snapshots=0) as nothing:
        await answered(nothing, "Hello")
        assert len(nothing.prefixes) == 0


async def test_what_a_snapshot_takes_beside_its_slots_is_counted(service: Service) -> None:
    await answered(service, "My name is Ada, and my cat is called Tom.")
    (kept,) = service.prefixes.all()
    assert kept.state is not None
    tracemalloc.start()
    copies = [copy.deepcopy(kept.state) for _ in range(50)]
    taken = tracemalloc.get_traced_memory()[0] / len(copies) + kept.state.random.nbytes
    tracemalloc.stop()
    assert OBJECTS_BYTES / 4 < taken < OBJECTS_BYTES


async def test_who_left_is_neither_answered_nor_kept(service: Service) -> None:
    running = [submit(service, "Hello", ignore_eos=True, max_tokens=None) for _ in range(3)]
    waiting = submit(service, "Hello again")
    service.leave(waiting)
    async with asyncio.timeout(100):
        while None in service.seated:  # until both rows are in use
            await asyncio.sleep(0.01)
    for ticket in running:
        service.leave(ticket)
    await answered(service, "Hello")
    assert not service.busy
    assert service.counts.answers["eos"] == 1, "who waited was never read"
    assert service.counts.answers["stopped"] >= 2
    assert len(service.prefixes) == 1, "what nobody has heard to its end is not kept"


async def test_the_end_is_told_to_who_waits_and_who_comes(service: Service) -> None:
    running = [submit(service, "Hello", ignore_eos=True, max_tokens=None) for _ in range(2)]
    waiting = [submit(service, f"Hello {number}") for number in range(6)]
    service.end()
    with pytest.raises(ApiError) as error:
        submit(service, "Hello")
    assert (error.value.status, error.value.code) == (503, "ending")
    for ticket in running:
        service.leave(ticket)
    ends = [await end_of(ticket) for ticket in waiting]
    told = [end for end in ends if isinstance(end, ApiError)]
    assert told, "some waited"
    assert {(one.status, one.code) for one in told} == {(503, "ending")}
    assert all(isinstance(end, Ended) and end.error is None for end in ends if end not in told)


@pytest.mark.loopback
async def test_a_reader_that_is_too_slow_is_cut_and_nobody_waits_for_it(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the tokens that wait for it, however slow the machine is: the limit of time is a test of its own."""
    monkeypatch.setattr(protocol, "READ_S", 3600)
    loop, at = asyncio.get_running_loop(), listen("127.0.0.1", 0)
    at.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # else thousands of tokens lie on the way
    app = application(service, None, Keys([]), True, "http", 100)
    running = Server(app, 100, service, lambda: None)
    task = asyncio.create_task(running.serve([at]))
    asked = {"messages": [{"role": "user", "content": "Hi"}], "stream": True, "ignore_eos": True}
    body = json.dumps(asked | {"max_tokens": 10**9}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    with socket.socket() as slow:
        slow.setblocking(False)
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # once it is connected it has more
        await loop.sock_connect(slow, at.getsockname())
        await loop.sock_sendall(slow, head + body)
        while not service.counts.slow:
            await asyncio.sleep(0.1)
        assert (await answered(service, "Hello")).turn.new_tokens
        told = b""
        while b"too_slow" not in told and (piece := await loop.sock_recv(slow, 1 << 16)):
            told += piece
    assert b'"code": "too_slow"' in told
    assert b"[DONE]" not in told
    running.leave()
    await task


async def test_first_words_are_sent_before_the_next_step(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without that wait the event loop may get no processor until the system's next tick."""
    steps, step = list[Batch](), Batch.step

    def counted(batch: Batch) -> Any:
        steps.append(batch)
        return step(batch)

    monkeypatch.setattr(Batch, "step", counted)
    monkeypatch.setattr("h2o_chat.serve.service.FIRST_WORDS_S", 60)
    ticket = submit(service, "Hello, who are you?", stream=True)
    assert await ticket.stream.take(60)
    before = len(steps)
    await asyncio.sleep(0.1)
    assert len(steps) == before
    while not isinstance(await end_of(ticket), Ended):
        pass
    assert len(steps) > before + 1


async def test_a_stream_holds_so_much_and_ends_then() -> None:
    stream = Stream(texts=True)
    assert all(stream.put("a") for _ in range(MOST_TEXTS))
    assert not stream.put("b")
    assert stream.put("c"), "it has ended: nobody is told twice"
    *texts, end = await stream.take(1)
    assert texts == ["a"] * MOST_TEXTS
    assert isinstance(end, ApiError)
    assert end.code == "too_slow"
    assert await stream.take(0) == []
    quiet = Stream(texts=False)
    assert all(quiet.put("a") for _ in range(2 * MOST_TEXTS))
    assert await quiet.take(0) == []
