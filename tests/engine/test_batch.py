"""Many conversations at once: each is answered as it is alone, whatever becomes of those beside it."""

from collections import defaultdict
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
import torch
from beside import EXACT, NATIVE, Heard, alone, hold, requests, same
from sweep import sweep
from test_runner import kept

from h2o_chat.base.config import Sampling
from h2o_chat.base.errors import BudgetError, UsageError
from h2o_chat.engine.answer import Answer
from h2o_chat.engine.batch import Batch
from h2o_chat.engine.engine import Engine
from h2o_chat.engine.request import BatchReport, Request, RequestPiece
from h2o_chat.engine.row_capacity import BESIDE, ROWS, row_bytes, snapshots_for
from h2o_chat.engine.runner import Runner
from h2o_chat.engine.sampling import Sampler
from h2o_chat.events.events import CacheState, Event, Prompt, Token, Turn
from h2o_chat.models.fits import HEADROOM_BYTES
from h2o_chat.models.load import Loaded


@pytest.fixture
def chosen_from(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[bytes]]:
    """The bits of all logits that tokens were chosen from, by seed."""
    found: dict[int, list[bytes]] = defaultdict(list)
    choose = Sampler.choose

    def noted(sampler: Sampler, logits: torch.Tensor, *how: Any) -> int:
        found[sampler.random.initial_seed()].append(sha256(logits.numpy().tobytes()).digest())
        return choose(sampler, logits, *how)

    monkeypatch.setattr(Sampler, "choose", noted)
    return found


@pytest.mark.parametrize(
    ("count", "changes"),
    [
        (36, {}),
        *sweep(
            (64, {}),
            (64, {"kv_dtype": "int8"}),
            (64, {"policy": "full"}),
            (64, {"policy": "h2o-paper"}),
            (64, {"prefill": "full"}),
        ),
    ],
    ids=lambda one: ",".join(map(str, one.values())) if isinstance(one, dict) else str(one),
)
def test_every_row_is_answered_as_it_is_alone(
    native: Loaded, count: int, changes: dict[str, Any], chosen_from: dict[int, list[bytes]]
) -> None:
    """Many conversations in 7 rows, refilled as they end; one is cancelled, one fails: nothing goes over.

    The native step gives each the same bits.
    """
    settings = replace(NATIVE, **changes)
    many, batch = requests(count, seed=6), Batch(native, settings, rows=7)
    stopped, broken = many[20], many[33]
    talking = set()

    def meanwhile(told: BatchReport) -> None:
        talking.add(batch.talking)
        if isinstance(told.event, Token) and told.request is stopped:
            batch.cancel(stopped)

    many[20] = stopped = replace(stopped, sampling=Sampling(max_tokens=50, ignore_eos=True))
    many[33] = broken = replace(broken, pieces=[RequestPiece([5, 10**6, 7])])
    heard = hold(batch, many, meanwhile)
    assert max(talking) == 7, "all rows answered at once"
    for request, one in zip(many, heard, strict=True):
        if request is stopped:
            assert one.turn.finish == "stopped"
            assert 1 <= len(one.ids) <= 2
            assert one.ids == alone(native, settings, request).ids[: len(one.ids)]
        elif request is broken:
            assert (one.turn.finish, one.ids) == ("error", [])
            assert isinstance(one.error, UsageError)
        else:
            together, chosen_from[request.seed] = chosen_from[request.seed], []
            same(one, alone(native, settings, request))
            assert together == chosen_from[request.seed], "bit for bit"
    arenas = batch.runner.cache.current_arenas()
    assert all(bool((arena.slots.positions == -1).all()) for arena in arenas), "every row is empty again"
    assert len({tuple(one.ids) for one in heard}) > 0.75 * count, "they said different things"


@pytest.mark.parametrize(
    "changes",
    [{}, {"policy": "full"}, *sweep({"policy": "h2o-paper"}, {"kv_dtype": "int8"}, {"prefill": "full"})],
    ids=lambda changes: ",".join(map(str, changes.values())),
)
def test_in_the_transformers_step_every_row_keeps_what_it_keeps_alone(
    loaded: Loaded, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of different age, with system prompts and pins; one that ends gives its row to the next."""
    settings, held, ended = replace(EXACT, **changes), defaultdict[int, list[Any]](list), Answer.ended

    def noted(answer: Answer, finish: Any) -> Turn:
        held[answer.row.seed].append(kept(answer.row))
        return ended(answer, finish)

    monkeypatch.setattr(Answer, "ended", noted)
    many = requests(12, seed=3, most=70)
    heard = hold(Batch(loaded, settings, rows=4), many)
    for request, one in zip(many, heard, strict=True):
        same(one, alone(loaded, settings, request))
        together, by_itself = held[request.seed]
        assert together == by_itself
    assert sum(one.turn.evicted > 0 for one in heard) > 6 or settings.policy == "full"


def test_one_call_of_a_prompt_comes_between_two_tokens(
    native: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the prompts are that wait, who is answered gets a token after each call for them."""
    monkeypatch.setattr("h2o_chat.engine.runner.CALL_TOKENS_CPU", 32)
    batch, calls = Batch(native, NATIVE, rows=3), []
    feed = Runner.feed

    def noted(runner: Runner, pieces: Any, prompt: bool, **more: Any) -> torch.Tensor:
        calls.append("answers" if runner is batch.runner else "reads")
        return feed(runner, pieces, prompt, **more)

    monkeypatch.setattr(Runner, "feed", noted)
    batch.add(Request([RequestPiece(range(9, 20))], Sampling(max_tokens=20, ignore_eos=True), 1))
    for _ in range(2):
        batch.add(Request([RequestPiece(range(9, 380))], Sampling(max_tokens=2), 1))
    while batch.busy:
        batch.step()
    first, last = calls.index("answers"), len(calls) - 1 - calls[::-1].index("answers")
    assert "reads reads" not in " ".join(calls[first : first + 19])
    assert calls[:last].count("reads") > 20


def test_the_first_token_is_told_before_the_next_one_is_computed(native: Loaded) -> None:
    """Which may take as long as several; and before it is chosen who of a prompt stays."""
    batch = Batch(native, NATIVE, rows=2)
    batch.add(Request([RequestPiece(range(9, 300))], Sampling(max_tokens=5, ignore_eos=True), 1))
    told = list[BatchReport]()
    while not told:
        told = batch.step()
    assert [type(one.event) for one in told] == [Prompt, Token]
    assert any(arena.waiting for arena in batch.reader.cache.arenas_as_they_are)
    assert batch.runner.clock(0).seen == 0
    assert [type(one.event) for one in batch.step()] == [Token]
    assert batch.runner.clock(0).seen == 292


def test_a_conversation_goes_on_from_what_was_taken_of_it(native: Loaded) -> None:
    """Two turns in one batch and the next one in another beside others, as in an engine of its own."""
    first, other, third = requests(3, seed=9)
    engine = Engine(native, replace(NATIVE, seed=first.seed))
    engine.protect(first.system_tokens)
    engine.pin(first.pins)
    drawn = Sampling(temperature=0.8, max_tokens=20, ignore_eos=True)
    list(engine.generate(first.pieces[0].ids, drawn))
    begin, seen = engine.snapshot(), engine.seen
    later = Request([RequestPiece(range(40, 70))], drawn, 77, begin=begin)
    later.keep = True
    ended: list[BatchReport] = []
    heard = hold(Batch(native, NATIVE, rows=2), [other, later, third], ended.append)
    assert later.begin is None, "others may need its memory"
    engine.reseed(77)
    expected = Heard(list(engine.generate(range(40, 70), drawn)))
    same(heard[1], expected)
    (prompt,) = (event for event in heard[1].events if isinstance(event, Prompt))
    assert (prompt.first, prompt.tokens) == (seen, 31), "the last token of the answer was not fed yet"
    same(heard[0], alone(native, NATIVE, other))
    (told,) = (one for one in ended if one.state is not None)
    assert (told.request, told.row) == (later, 0), "nobody else has asked for it"
    assert isinstance(told.event, Turn)
    engine.restore(told.state)
    assert engine.seen == told.event.seen
    foreign = Engine(native, replace(NATIVE, budget=40))
    foreign.forward([5], prompt=True)
    wrong = replace(later, begin=foreign.snapshot())
    failed, fine = hold(Batch(native, NATIVE, rows=2), [wrong, third])
    assert isinstance(failed.error, UsageError)
    assert failed.turn.finish == "error"
    same(fine, alone(native, NATIVE, third))


def test_the_full_cache_ends_each_row_at_the_window(native: Loaded) -> None:
    settings = replace(NATIVE, policy="full")
    window = Batch(native, settings, 1).runner.trained.window
    near = [
        Request(
            [RequestPiece([5 + n % 900 for n in range(window - left)])],
            Sampling(max_tokens=40, ignore_eos=True),
            1,
        )
        for left in (10, 25)
    ]
    heard = hold(Batch(native, settings, rows=2), near)
    assert [one.turn.finish for one in heard] == ["length", "length"]
    assert [len(one.ids) for one in heard] == [11, 26], "the last one is chosen, and not fed"


def untimed(events: list[Event]) -> tuple[list[Event], list[float]]:
    """Events without times, and what was lost, which is a sum in another order."""
    found, lost = list[Event](), list[float]()
    for event in events:
        if isinstance(event, Prompt | Token):
            event = replace(event, ms=0.0)
        elif isinstance(event, Turn | CacheState):
            lost.append(event.lost)
            event = replace(event, lost=0.0)
        found.append(replace(event, ttft_ms=0.0, tok_s=0.0) if isinstance(event, Turn) else event)
    return found, lost


def test_events_are_those_of_an_engine(native: Loaded) -> None:
    settings = replace(NATIVE, events_every=8)
    sampling = Sampling(temperature=0.8, repetition_penalty=1.1, max_tokens=40, ignore_eos=True)
    many = [replace(one, sampling=sampling) for one in requests(4, seed=4) if len(one.pieces) == 1]
    for request, one in zip(many, hold(Batch(native, settings, rows=2), many), strict=True):
        assert any(isinstance(event, CacheState) for event in one.events)
        mine, lost = untimed(one.events)
        expected, lost_alone = untimed(alone(native, settings, request).events)
        assert mine == expected
        assert lost == pytest.approx(lost_alone, abs=1e-9)


@pytest.mark.parametrize("kv", ["auto", "int8"])
def test_rows_are_admitted_by_what_they_take(
    native: Loaded, kv: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(NATIVE, kv_dtype=kv)
    batch = Batch(native, settings, rows=3)
    hold(batch, requests(3, seed=1))
    each = row_bytes(batch.reader)
    states = [
        state for a in batch.runner.cache.current_arenas() for state in (*a.slots.states.values(), a.order)
    ]
    logits = 8 * native.sizes.vocabulary
    assert sum(tensor.nbytes for tensor in states) == 3 * (each - logits)
    for rows in (1, 9):
        free = HEADROOM_BYTES + native.packed.bytes + (rows + BESIDE) * each  # type: ignore[attr-defined]
        monkeypatch.setattr("h2o_chat.engine.row_capacity.free_bytes", lambda device, free=free: free)
        assert Batch(native, settings).runner.rows == rows
        assert Batch(native, settings, most=4).runner.rows == min(rows, 4)
        assert Batch(native, settings, rows + 1, most=rows).runner.rows == rows
        with pytest.raises(BudgetError, match=f"{rows + 1} rows do not fit: each takes"):
            Batch(native, settings, rows + 1)
        monkeypatch.setattr("h2o_chat.engine.row_capacity.free_bytes", lambda device, free=free: free - 1)
        with pytest.raises(BudgetError, match="9 rows do not fit" if rows > 1 else "Not one row fits"):
            Batch(native, settings, rows)
    monkeypatch.setattr("h2o_chat.engine.row_capacity.free_bytes", lambda device: 1 << 50)
    assert Batch(native, settings).runner.rows == ROWS


@pytest.mark.parametrize(("mib", "rows", "most"), [(1, 3, 64), (100, 3, 20), (100, 40, 40), (4000, 3, 3)])
def test_snapshots_have_a_limit_of_bytes(
    native: Loaded, mib: int, rows: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long memories are kept in a smaller number, but one for each row."""
    batch = Batch(native, NATIVE, rows=3)
    monkeypatch.setattr("h2o_chat.engine.row_capacity.free_bytes", lambda device: 1 << 50)
    monkeypatch.setattr("h2o_chat.engine.row_capacity.snapshot_bytes", lambda runner: mib << 20)
    assert snapshots_for(batch.reader, rows, None) == most
    assert snapshots_for(batch.reader, rows, 64) == 64, "who asks for more gets more"
