"""Many conversations at once: whoever fails or is cancelled ends alone."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from beside import EXACT, NATIVE, alone, hold, requests, same, same_as_alone

from h2o_chat.base.config import Sampling
from h2o_chat.base.errors import GenerationError, OutOfMemoryError, UsageError
from h2o_chat.cache import absorb
from h2o_chat.cache.arena import Arena
from h2o_chat.engine.batch import Batch
from h2o_chat.engine.observer import Observer
from h2o_chat.engine.request import BatchReport, Request, RequestPiece
from h2o_chat.events.events import Token, Turn
from h2o_chat.models.load import Loaded


def row_of(batch: Batch, request: Request) -> int:
    """The row that answers it."""
    (number,) = (n for n, talk in enumerate(batch._rows) if talk is not None and talk.request is request)
    return number


def test_a_row_of_no_numbers_fails_alone_and_leaves_none_behind(native: Loaded) -> None:
    """NaN in the keys and values of a row: it says so, and who comes into its row next is not told."""
    many = [replace(request, sampling=Sampling(max_tokens=20, ignore_eos=True)) for request in requests(9, 8)]
    batch, broken = Batch(native, NATIVE, rows=3), many[1]

    def breaks(told: BatchReport) -> None:
        if told.request is broken and isinstance(told.event, Token) and told.event.position > 20:
            for arena in batch.runner.cache.current_arenas():
                arena.slots.values[:, row_of(batch, broken)] = torch.nan

    many[1] = broken = replace(broken, pieces=[RequestPiece(range(20, 40))])
    heard = hold(batch, many, breaks)
    assert isinstance(heard[1].error, GenerationError)
    assert heard[1].turn.finish == "error"
    same_as_alone(native, NATIVE, many, heard, but=broken)


def test_who_makes_the_call_of_all_rows_fail_ends_alone(
    native: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call is made again row by row."""
    many = [replace(request, sampling=Sampling(max_tokens=30, ignore_eos=True)) for request in requests(6, 2)]
    batch, fed = Batch(native, NATIVE, rows=3), []
    assert batch.runner.native is not None
    decode = batch.runner.native._decode

    def fails(cache: Any, ids: torch.Tensor) -> torch.Tensor:
        rows = [row for row, count in enumerate(cache.step.passes[0].count) if count]
        fed.append(len(rows))
        talk = next((talk for talk in batch._rows if talk and talk.request is many[2]), None)
        if cache is batch.runner.cache and talk and talk.row.number in rows and talk.answer.new_tokens > 8:
            raise MemoryError("there is no more")
        return decode(cache, ids)

    monkeypatch.setattr(batch.runner.native, "_decode", fails)
    heard = hold(batch, many)
    assert isinstance(heard[2].error, OutOfMemoryError)
    assert 3 in fed
    assert 0 < len(heard[2].ids) < 30
    assert heard[2].ids == alone(native, NATIVE, many[2]).ids[: len(heard[2].ids)]
    same_as_alone(native, NATIVE, many, heard, but=many[2])


def test_a_call_that_raises_after_slots_have_changed_ends_those_that_it_fed(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with its own error; who is read meanwhile, and who comes then, is answered as ever."""
    many = [replace(request, sampling=Sampling(max_tokens=12, ignore_eos=True)) for request in requests(5, 6)]
    batch, finish, calls = Batch(loaded, EXACT, rows=2), Arena.finish, 0

    def fails(arena: Arena, now: Any) -> None:
        nonlocal calls
        calls += len(now.count) == 2
        finish(arena, now)
        if calls == 5:
            raise MemoryError("there is no more")

    monkeypatch.setattr(Arena, "finish", fails)
    heard = dict(zip(many, hold(batch, many), strict=True))
    failed = [request for request in many if heard[request].error is not None]
    assert 1 <= len(failed) <= 2
    for request in many:
        if request in failed:
            assert isinstance(heard[request].error, OutOfMemoryError)
        else:
            same(heard[request], alone(loaded, EXACT, request))


@pytest.mark.parametrize("where", ["absorbs", "looks", "looks last"])
def test_who_fails_between_two_calls_ends_alone(
    where: str, loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While what its prompt has brought is absorbed, and while somebody looks."""
    settings = replace(EXACT, events_every=8)
    sampling = Sampling(max_tokens=20 if where == "looks" else 6, ignore_eos=True)
    many = [replace(request, sampling=sampling) for request in requests(5, 6)]
    batch, failed = Batch(loaded, settings, rows=2), 0
    owner, name = (absorb, "absorb") if where == "absorbs" else (Observer, "state")
    real = getattr(owner, name)

    def fails(*given: Any) -> Any:
        nonlocal failed
        talks = [talk for talk in batch._reading if talk.request is many[1] and talk.chosen]
        talks += [talk for talk in batch._rows if talk and talk.request is many[1]]
        mine = {
            id(part) for talk in talks for part in (talk.row.observer, *talk.row.cache.arenas_as_they_are)
        }
        if id(given[0]) in mine and not failed:
            failed += 1
            raise MemoryError("there is no more")
        return real(*given)

    monkeypatch.setattr(owner, name, fails)
    heard = hold(batch, many)
    assert failed
    assert isinstance(heard[1].error, OutOfMemoryError)
    assert heard[1].turn.finish == "error"
    same_as_alone(loaded, EXACT, many, heard, but=many[1])


def test_who_is_cancelled_before_its_answer_is_told_so(native: Loaded) -> None:
    batch = Batch(native, NATIVE, rows=1)
    first, read, waits = (Request([RequestPiece(range(9, 600))], Sampling(max_tokens=5), 1) for _ in range(3))
    for request in (first, read, waits):
        batch.add(request)
    while not any(isinstance(told.event, Token) for told in batch.step()):
        pass
    batch.cancel(read)
    batch.cancel(waits)
    told = batch.step()
    ended = [one.request for one in told if isinstance(one.event, Turn) and one.event.finish == "stopped"]
    assert set(ended) == {read, waits}
    while batch.busy:
        told += batch.step()
    assert [one.request for one in told if isinstance(one.event, Turn) and one.event.finish == "length"] == [
        first
    ]
    batch.cancel(first)  # it has ended: nothing happens
    assert batch.step() == []
    many = requests(3, seed=8)
    same_as_alone(native, NATIVE, many, hold(batch, many))  # of what was read by half nothing is left


def test_nothing_to_read_is_refused(native: Loaded) -> None:
    batch = Batch(native, NATIVE, rows=1)
    for pieces in ([], [RequestPiece([])], [RequestPiece([5]), RequestPiece([6], answer=True)]):
        with pytest.raises(UsageError, match="nothing to read"):
            batch.add(Request(pieces, Sampling(), 1))
    assert not batch.busy
