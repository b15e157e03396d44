"""Many conversations at once: each is answered as it is alone, whatever becomes of those beside it."""

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from sweep import sweep

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import BudgetError, GenerationError, OutOfMemoryError, UsageError
from h2o_chat.base.progress import never
from h2o_chat.cache.arena import Arena
from h2o_chat.engine.answer import Answer
from h2o_chat.engine.batch import Batch
from h2o_chat.engine.engine import Engine
from h2o_chat.engine.request import Piece, Request, Told
from h2o_chat.engine.rows import BESIDE, ROWS, row_bytes
from h2o_chat.engine.runner import Runner
from h2o_chat.engine.sampling import Sampler
from h2o_chat.events.events import CacheState, Event, Prompt, Token, Turn
from h2o_chat.models.fits import HEADROOM_BYTES
from h2o_chat.models.load import Loaded, load
from h2o_chat.native.loading import open_model

POCKET = Path(__file__).parents[2] / "assets" / "pocket"
NATIVE = Settings(model=str(POCKET), budget=48, threads=1, seed=1, events_every=0)
EXACT = replace(NATIVE, dtype="float64")


@pytest.fixture(scope="module")
def native() -> Loaded:
    return open_model(NATIVE, lambda *_: None)


@pytest.fixture(scope="module")
def exact() -> Loaded:
    return load(EXACT, lambda *_: None)


def noise(tokens: int, rng: random.Random) -> list[int]:
    return [rng.randrange(3, 4000) for _ in range(tokens)]


def requests(count: int, seed: int, most: int = 60) -> list[Request]:
    """Of random length, some with an answer of before, a system prompt, pins; greedy or drawn."""
    rng, made = random.Random(seed), []
    for number in range(count):
        pieces = [Piece(noise(rng.randint(1, 90), rng))]
        if number % 3 == 1:
            pieces += [
                Piece(noise(rng.randint(1, 40), rng), answer=True),
                Piece(noise(rng.randint(1, 9), rng)),
            ]
        sampling = Sampling(
            temperature=rng.choice([0.0, 0.8, 1.3]),
            top_p=rng.choice([1.0, 0.9]),
            repetition_penalty=rng.choice([1.0, 1.2]),
            max_tokens=rng.randint(1, most),
            stop=rng.choice([(), ("e", "the ")]),
            ignore_eos=bool(number % 2),
        )
        pins = range(3, 3 + rng.choice([0, 0, 4]))
        made.append(Request(pieces, sampling, rng.randrange(2**32), rng.choice([0, 5]), pins))
    return made


@dataclass
class Heard:
    """What was told of a request."""

    events: list[Event] = field(default_factory=list)
    error: Exception | None = None

    @property
    def ids(self) -> list[int]:
        return [event.id for event in self.events if isinstance(event, Token)]

    @property
    def turn(self) -> Turn:
        (turn,) = (event for event in self.events if isinstance(event, Turn))
        assert self.events[-1] is turn, "nothing comes behind it"
        return turn


def hold(
    batch: Batch, many: list[Request], meanwhile: Callable[[Told], None] = lambda told: None
) -> list[Heard]:
    """Adds them by and by, and answers them all."""
    heard, coming = {request: Heard() for request in many}, list(many)
    rng = random.Random(len(many))
    while coming or batch.busy:
        for _ in range(min(len(coming), rng.choice([0, 0, 1, 5]))):
            batch.add(coming.pop(0))
        for told in batch.step():
            heard[told.request].events.append(told.event)
            heard[told.request].error = heard[told.request].error or told.error
            meanwhile(told)
    return [heard[request] for request in many]


def alone(loaded: Loaded, settings: Settings, request: Request) -> Heard:
    """As an engine of its own answers it."""
    engine = Engine(loaded, replace(settings, seed=request.seed))
    engine.protect(request.system_tokens)
    engine.pin(request.pins)
    for piece in request.pieces[:-1]:
        engine.relive(piece.ids, answer=piece.answer, exact=False, cancel=never)
    return Heard(list(engine.generate(request.pieces[-1].ids, request.sampling)))


def same(one: Heard, other: Heard) -> None:
    """The same tokens, and as much evicted; times differ, and what was lost before the last prompt."""
    assert one.ids == other.ids
    assert one.error is None
    for turn in (one.turn, other.turn):
        assert turn.new_tokens == len(one.ids)
    for of in ("text", "finish", "seen", "kept", "evicted"):
        assert getattr(one.turn, of) == getattr(other.turn, of)
    if one.turn.prompt_tokens == other.turn.prompt_tokens:
        assert one.turn.lost == pytest.approx(other.turn.lost)


@pytest.fixture
def chosen_from(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[bytes]]:
    """The bits of all logits that tokens were chosen from, by seed."""
    found: dict[int, list[bytes]] = defaultdict(list)
    choose = Sampler.choose

    def noted(sampler: Sampler, logits: torch.Tensor, sampling: Sampling) -> int:
        found[sampler.random.initial_seed()].append(sha256(logits.numpy().tobytes()).digest())
        return choose(sampler, logits, sampling)

    monkeypatch.setattr(Sampler, "choose", noted)
    return found


def slots(batch: Batch) -> list[Any]:
    """Positions held by any row."""
    return [set(arena.slots.positions.unique().tolist()) for arena in batch.runner.cache.arenas]


@pytest.mark.parametrize(
    "changes",
    [{}, *sweep({"kv_dtype": "int8"}, {"policy": "full"}, {"policy": "h2o-paper"}, {"prefill": "full"})],
    ids=lambda changes: ",".join(map(str, changes.values())),
)
def test_every_row_is_answered_as_it_is_alone(
    native: Loaded, changes: dict[str, Any], chosen_from: dict[int, list[bytes]]
) -> None:
    """64 conversations in 7 rows, refilled as they end; one is cancelled, one fails: nothing goes over.

    The native step gives each the same bits.
    """
    settings = replace(NATIVE, **changes)
    many, batch = requests(64, seed=5), Batch(native, settings, rows=7)
    stopped, broken = many[20], many[33]
    talking = set()

    def meanwhile(told: Told) -> None:
        talking.add(batch.talking)
        if isinstance(told.event, Token) and told.request is stopped:
            batch.cancel(stopped)

    many[20] = stopped = replace(stopped, sampling=Sampling(max_tokens=50, ignore_eos=True))
    many[33] = broken = replace(broken, pieces=[Piece([5, 10**6, 7])])
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
    assert not any(held - {-1} for held in slots(batch)), "every row is empty again"
    assert len({tuple(one.ids) for one in heard}) > 50, "they said different things"


def test_in_the_transformers_step_every_row_keeps_what_it_keeps_alone(
    exact: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: dict[int, list[Any]] = defaultdict(list)
    ended = Answer.ended

    def noted(answer: Answer, finish: Any) -> Turn:
        row = answer.row
        layers = (row.cache.kept(layer)[row.number].tolist() for layer in range(row.session.layers))
        kept[row.seed].append([[sorted(at for at in head if at >= 0) for head in heads] for heads in layers])
        return ended(answer, finish)

    monkeypatch.setattr(Answer, "ended", noted)
    many = requests(12, seed=3, most=70)
    heard = hold(Batch(exact, EXACT, rows=4), many)
    for request, one in zip(many, heard, strict=True):
        same(one, alone(exact, EXACT, request))
        together, by_itself = kept[request.seed]
        assert together == by_itself
    assert sum(one.turn.evicted > 0 for one in heard) > 6


def row_of(batch: Batch, request: Request) -> int:
    """The row that answers it."""
    (number,) = (n for n, talk in enumerate(batch._rows) if talk is not None and talk.request is request)
    return number


def test_a_row_of_no_numbers_fails_alone_and_leaves_none_behind(native: Loaded) -> None:
    """NaN in the keys and values of a row: it says so, and who comes into its row next is not told."""
    many = [replace(request, sampling=Sampling(max_tokens=20, ignore_eos=True)) for request in requests(9, 8)]
    batch, broken = Batch(native, NATIVE, rows=3), many[1]

    def breaks(told: Told) -> None:
        if told.request is broken and isinstance(told.event, Token) and told.event.position > 20:
            for arena in batch.runner.cache.arenas:
                arena.slots.values[:, row_of(batch, broken)] = torch.nan

    many[1] = broken = replace(broken, pieces=[Piece(range(20, 40))])
    heard = hold(batch, many, breaks)
    assert isinstance(heard[1].error, GenerationError)
    assert heard[1].turn.finish == "error"
    for request, one in zip(many, heard, strict=True):
        if request is not broken:
            same(one, alone(native, NATIVE, request))


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
    for request, one in zip(many, heard, strict=True):
        expected = alone(native, NATIVE, request)
        if request is many[2]:
            assert 0 < len(one.ids) < 30
            assert one.ids == expected.ids[: len(one.ids)]
        else:
            same(one, expected)


def test_a_call_that_raises_after_slots_have_changed_ends_those_that_it_fed(
    exact: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with its own error; who is read meanwhile, and who comes then, is answered as ever."""
    many = [replace(request, sampling=Sampling(max_tokens=12, ignore_eos=True)) for request in requests(5, 6)]
    batch, heard = Batch(exact, EXACT, rows=2), defaultdict[Request, Heard](Heard)
    finish, calls = Arena.finish, 0

    def fails(arena: Arena, now: Any) -> None:
        nonlocal calls
        calls += len(now.count) == 2
        finish(arena, now)
        if calls == 5:
            raise MemoryError("there is no more")

    monkeypatch.setattr(Arena, "finish", fails)
    for request in many:
        batch.add(request)
    while batch.busy:
        for told in batch.step():
            heard[told.request].events.append(told.event)
            heard[told.request].error = told.error
    failed = [request for request in many if heard[request].error is not None]
    assert 1 <= len(failed) <= 2
    for request in many:
        if request in failed:
            assert isinstance(heard[request].error, OutOfMemoryError)
        else:
            same(heard[request], alone(exact, EXACT, request))


def test_who_is_cancelled_before_its_answer_is_told_so(native: Loaded) -> None:
    """While it waits, and while it is read."""
    batch = Batch(native, NATIVE, rows=1)
    first, read, waits = (Request([Piece(range(9, 600))], Sampling(max_tokens=5), 1) for _ in range(3))
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


def test_one_call_of_a_prompt_comes_between_two_tokens(
    native: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the prompts are that wait, who is answered gets a token after each call for them."""
    batch, calls = Batch(native, NATIVE, rows=3), []
    feed = Runner.feed

    def noted(runner: Runner, pieces: Any, prompt: bool) -> torch.Tensor:
        calls.append("reads" if runner is batch.reader else "answers")
        return feed(runner, pieces, prompt)

    monkeypatch.setattr(Runner, "feed", noted)
    batch.add(Request([Piece(range(9, 20))], Sampling(max_tokens=20, ignore_eos=True), 1))
    for _ in range(2):
        batch.add(Request([Piece(range(9, 1500))], Sampling(max_tokens=2), 1))
    while batch.busy:
        batch.step()
    first, last = calls.index("answers"), len(calls) - 1 - calls[::-1].index("answers")
    assert "reads reads" not in " ".join(calls[first : first + 19])
    assert calls[:last].count("reads") > 20


def test_a_conversation_goes_on_from_what_was_taken_of_it(native: Loaded) -> None:
    """Two turns in one batch and the next one in another beside others, as in an engine of its own."""
    first, other, third = requests(3, seed=9)
    engine = Engine(native, replace(NATIVE, seed=first.seed))
    engine.protect(first.system_tokens)
    engine.pin(first.pins)
    drawn = Sampling(temperature=0.8, max_tokens=20, ignore_eos=True)
    list(engine.generate(first.pieces[0].ids, drawn))
    begin, seen = engine.snapshot(), engine.seen
    later = Request([Piece(range(40, 70))], drawn, 77, begin=begin)
    later.keep = True
    ended: list[Told] = []
    heard = hold(Batch(native, NATIVE, rows=2), [other, later, third], ended.append)
    assert later.begin is None, "others may need its memory"
    engine.reseed(77)
    expected = Heard(list(engine.generate(range(40, 70), drawn)))
    same(heard[1], expected)
    (prompt,) = (event for event in heard[1].events if isinstance(event, Prompt))
    assert (prompt.first, prompt.tokens) == (seen, 31), "the last token of the answer was not fed yet"
    same(heard[0], alone(native, NATIVE, other))
    (told,) = (one for one in ended if one.state is not None)
    assert (told.request, told.row) == (later, 1), "nobody else has asked for it"
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
            [Piece([5 + n % 900 for n in range(window - left)])], Sampling(max_tokens=40, ignore_eos=True), 1
        )
        for left in (10, 25)
    ]
    heard = hold(Batch(native, settings, rows=2), near)
    assert [one.turn.finish for one in heard] == ["length", "length"]
    assert [len(one.ids) for one in heard] == [11, 26], "the last one is chosen, and not fed"


def test_events_are_those_of_an_engine(native: Loaded) -> None:
    """With what the cache holds, every few tokens and at the end."""
    settings = replace(NATIVE, events_every=8)
    (request,) = requests(1, seed=4)
    request = replace(request, sampling=Sampling(max_tokens=40, ignore_eos=True))
    heard = hold(Batch(native, settings, rows=2), [request])[0].events
    expected = alone(native, settings, request).events
    assert [type(event) for event in heard] == [type(event) for event in expected]
    for event, other in zip(heard, expected, strict=True):
        if isinstance(event, CacheState) and isinstance(other, CacheState):
            assert (event.seen, event.kept, event.changed) == (other.seen, other.kept, other.changed)
        if isinstance(event, Prompt) and isinstance(other, Prompt):
            assert replace(event, ms=0.0) == replace(other, ms=0.0)


@pytest.mark.parametrize("kv", ["auto", "int8"])
def test_rows_are_admitted_by_what_they_take(
    native: Loaded, kv: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every byte of a row is known before: so many rows as fit, and not one more."""
    settings = replace(NATIVE, kv_dtype=kv)
    batch = Batch(native, settings, rows=3)
    hold(batch, requests(3, seed=1))
    each = row_bytes(batch.reader)
    states = [state for a in batch.runner.cache.arenas for state in (*a.slots.states.values(), a.order)]
    logits = 8 * native.model.config.vocab_size
    assert sum(tensor.nbytes for tensor in states) == 3 * (each - logits)
    for rows in (1, 9):
        free = HEADROOM_BYTES + native.packed.bytes + (rows + BESIDE) * each  # type: ignore[attr-defined]
        monkeypatch.setattr("h2o_chat.engine.rows.free_bytes", lambda device, free=free: free)
        assert Batch(native, settings).runner.rows == rows
        assert Batch(native, settings, most=4).runner.rows == min(rows, 4)
        assert Batch(native, settings, rows + 1, most=rows).runner.rows == rows
        with pytest.raises(BudgetError, match=f"{rows + 1} rows do not fit: each takes"):
            Batch(native, settings, rows + 1)
        monkeypatch.setattr("h2o_chat.engine.rows.free_bytes", lambda device, free=free: free - 1)
        with pytest.raises(BudgetError, match="9 rows do not fit" if rows > 1 else "Not one row fits"):
            Batch(native, settings, rows)
    monkeypatch.setattr("h2o_chat.engine.rows.free_bytes", lambda device: 1 << 50)
    assert Batch(native, settings).runner.rows == ROWS


def test_nothing_to_read_is_refused(native: Loaded) -> None:
    batch = Batch(native, NATIVE, rows=1)
    for pieces in ([], [Piece([])], [Piece([5]), Piece([6], answer=True)]):
        with pytest.raises(UsageError, match="nothing to read"):
            batch.add(Request(pieces, Sampling(), 1))
    assert not batch.busy
