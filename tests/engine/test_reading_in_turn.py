"""Several prompts are read at once: short ones do not wait for long ones, and none waits for ever."""

from typing import Any

import pytest
import torch
from beside import NATIVE

from h2o_chat.base.config import Sampling
from h2o_chat.engine import runner
from h2o_chat.engine.batch import Batch
from h2o_chat.engine.request import BatchReport, Request, RequestPiece
from h2o_chat.engine.row_capacity import READERS
from h2o_chat.engine.runner import Runner
from h2o_chat.events.events import Prompt
from h2o_chat.models.load import Loaded

SAMPLING = Sampling(max_tokens=2, ignore_eos=True)
LONG, SHORT = 750, 20


@pytest.fixture(autouse=True)
def little_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of what a call reads, so that a prompt of some hundred tokens is a long one."""
    monkeypatch.setattr(runner, "CALL_TOKENS_CPU", 32)


def prompt(tokens: int, seed: int = 1) -> Request:
    return Request([RequestPiece([5 + place % 900 for place in range(tokens)])], SAMPLING, seed)


def read(batch: Batch, many: list[Request]) -> list[Request]:
    """Answers all; in the order in which their prompts were read to their end."""
    order = []
    for request in many:
        batch.add(request)
    while batch.busy:
        order += [told.request for told in batch.step() if isinstance(told.event, Prompt)]
    return order


def test_short_prompts_are_read_before_a_long_one_that_came_first(native: Loaded) -> None:
    batch = Batch(native, NATIVE, rows=4)
    long, *short = many = [prompt(LONG), *(prompt(SHORT) for _ in range(5))]
    assert read(batch, many) == [*short, long]


def test_prompts_of_one_length_are_read_in_their_order(native: Loaded) -> None:
    """None is later than it would be if they were read one after the other."""
    batch = Batch(native, NATIVE, rows=4)
    many = [prompt(125) for _ in range(4)]
    assert read(batch, many) == many


def test_the_first_one_gets_every_second_call(native: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    feed = Runner.feed

    def noted(one: Runner, pieces: Any, prompt: bool, **more: Any) -> torch.Tensor:
        nonlocal calls
        calls += prompt
        return feed(one, pieces, prompt, **more)

    monkeypatch.setattr(Runner, "feed", noted)
    needed = []
    for shorts in (0, 2):  # that wait at any time
        batch, long, found, calls = Batch(native, NATIVE, rows=4), prompt(LONG), list[BatchReport](), 0
        batch.add(long)
        while not any(told.request is long and isinstance(told.event, Prompt) for told in found):
            while batch.waiting < shorts:
                batch.add(prompt(SHORT))
            found += batch.step()
        needed.append(calls)
    by_itself, beside = needed
    assert by_itself > 20
    assert 2 * by_itself - 4 <= beside <= 2 * by_itself + 2
    assert sum(isinstance(told.event, Prompt) for told in found) > by_itself / 4, "others were read meanwhile"


def test_no_more_are_read_at_once_than_there_is_memory_for(native: Loaded) -> None:
    batch = Batch(native, NATIVE, rows=READERS + 4)
    for _ in range(READERS + 3):
        batch.add(prompt(LONG))
    batch.step()
    assert batch.waiting == 3
    few = Batch(native, NATIVE, rows=2)
    for _ in range(3):
        few.add(prompt(LONG))
    few.step()
    assert few.waiting == 1, "no more than there are rows for"
