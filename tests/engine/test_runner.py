"""Several conversations in one runner are held as each is alone, in float64; one costs what it did."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from beside import EXACT as SETTINGS
from beside import broken
from reads import reads
from sweep import sweep
from torch import Tensor

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import OutOfMemoryError
from h2o_chat.base.progress import never
from h2o_chat.engine.engine import Engine
from h2o_chat.engine.generation import generate
from h2o_chat.engine.row import Row
from h2o_chat.engine.runner import Runner, cache_for
from h2o_chat.events.events import CacheState, Event, Prompt, Token, Turn
from h2o_chat.models.load import Loaded, load

Kept = list[list[list[int]]]
"""Positions that are held, by layer and KV head."""


@pytest.fixture
def loaded(random_exact: Loaded) -> Loaded:
    return random_exact


def noise(tokens: int, seed: int) -> list[int]:
    return torch.randint(3, 4000, (tokens,), generator=torch.Generator().manual_seed(seed)).tolist()


@dataclass
class Talk:
    """A conversation: tokens to read and how many to answer, turn by turn."""

    turns: list[tuple[list[int], int]]
    system: int = 0
    """First tokens that are protected."""
    pins: tuple[int, ...] = ()
    said: list[int] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    """After each turn."""


def talks() -> list[Talk]:
    """Read and answered past 48 slots, at different lengths; some tokens are pinned before they are fed."""
    return [
        Talk([(noise(70, 1), 40), (noise(9, 2), 30)], system=6, pins=(20, 21, 90)),
        Talk([(noise(5, 3), 25)], pins=(2,)),
        Talk([(noise(33, 4), 12), (noise(50, 5), 3), (noise(1, 6), 60)], system=11),
        Talk([(noise(130, 7), 50)], pins=(*range(13, 20), 40, 120)),
        Talk([(noise(20, 8), 45), (noise(60, 9), 20)], system=4, pins=(10, *range(30, 36))),
    ]


def kept(row: Row) -> Kept:
    layers = (row.cache.kept(layer)[row.number].tolist() for layer in range(row.session.layers))
    return [[sorted(at for at in head if at >= 0) for head in heads] for heads in layers]


def begin(row: Row, talk: Talk) -> None:
    row.protect(talk.system)
    row.pin(talk.pins)  # type: ignore[arg-type]


def alone(loaded: Loaded, talk: Talk, settings: Settings = SETTINGS) -> Talk:
    """As an engine of its own holds it."""
    engine, done = Engine(loaded, settings), Talk(talk.turns, talk.system, talk.pins)
    begin(engine, talk)
    for ids, tokens in talk.turns:
        sampling = Sampling(max_tokens=tokens, ignore_eos=True)
        done.said += [event.id for event in engine.generate(ids, sampling) if isinstance(event, Token)]
        done.kept.append(kept(engine))
    return done


def speak(row: Row, talk: Talk) -> Generator[tuple[list[int], bool], Tensor, None]:
    """What it wants to be fed next, and whether that is a prompt; it is sent the logits."""
    begin(row, talk)
    pending: list[int] = []
    for ids, tokens in talk.turns:
        wanted = [*pending, *ids], True
        for _ in range(tokens):
            logits = yield wanted
            pending = [int(logits.argmax())]
            talk.said += pending
            wanted = pending, False
        talk.kept.append(kept(row))


def hold_together(runner: Runner, settings: Settings, waiting: list[Talk]) -> set[tuple[int, ...]]:
    """As a server would: prompts and answers by turns, each time of all rows that want it; a row that is done
    is emptied and gets the next conversation. Returns the ages at which rows were fed together."""
    rows = [Row(runner, settings, number) for number in range(runner.rows)]
    speaking: dict[int, Generator[tuple[list[int], bool], Tensor, None]] = {}
    wanted: dict[int, tuple[list[int], bool]] = {}
    ages = set()

    def fill(row: Row) -> None:
        wanted.pop(row.number, None)
        row.reset()
        assert not any(any(heads) for heads in kept(row)) if runner.cache.absorbed_arenas() else True
        if waiting:
            speaking[row.number] = speak(row, waiting.pop(0))
            wanted[row.number] = next(speaking[row.number])

    for row in rows:
        fill(row)
    prompt = True
    while wanted:
        now = {number: ids for number, (ids, asks) in wanted.items() if asks == prompt}
        if now:
            ages.add(tuple(rows[number].seen for number in now))
            logits = runner.feed([now.get(row.number, []) for row in rows], prompt)
            for number in now:
                try:
                    wanted[number] = speaking[number].send(logits[number, -1])
                except StopIteration:
                    fill(rows[number])
        prompt = not prompt
    return ages


@pytest.mark.parametrize(
    "changes",
    [{}, {"policy": "full"}, *sweep({"policy": "h2o-paper"}, {"kv_dtype": "int8"}, {"prefill": "full"})],
    ids=lambda changes: ",".join(map(str, changes.values())),
)
def test_rows_are_held_as_each_is_alone(loaded: Loaded, changes: dict[str, Any]) -> None:
    settings, spoken = replace(SETTINGS, **changes), talks()
    runner = Runner(loaded, cache_for(loaded, settings), rows=3)
    ages = hold_together(runner, settings, list(spoken))
    assert any(len(set(together)) == 3 for together in ages), "rows of different age went through together"
    for talk in spoken:
        expected = alone(loaded, talk, settings)
        assert talk.said == expected.said
        assert talk.kept == expected.kept
    assert len({tuple(talk.said[:20]) for talk in spoken}) == len(spoken), "they said different things"


def untimed(event: Event) -> Event:
    match event:
        case Prompt() | Token():
            return replace(event, ms=0.0)
        case Turn():
            return replace(event, ttft_ms=0.0, tok_s=0.0, lost=round(event.lost, 9))
        case CacheState():
            return replace(event, lost=round(event.lost, 9))
    return event


def test_events_of_a_row_are_those_of_an_engine(loaded: Loaded) -> None:
    """Two rows generate in turn, token by token; the panel sees each as if it had a cache of its own."""
    settings = replace(SETTINGS, events_every=8)
    sampling = Sampling(max_tokens=60, ignore_eos=True, temperature=0.8, repetition_penalty=1.1)
    runner = Runner(loaded, cache_for(loaded, settings), rows=2)
    rows = [Row(runner, replace(settings, seed=number), number) for number in range(2)]
    prompts = [noise(90, 1), noise(17, 2)]
    streams = [generate(row, ids, sampling, never) for row, ids in zip(rows, prompts, strict=True)]
    told: list[list[Event]] = [[], []]
    for events in zip(*streams, strict=True):
        for heard, event in zip(told, events, strict=True):
            heard.append(untimed(event))
    for number, ids in enumerate(prompts):
        engine = Engine(loaded, replace(settings, seed=number))
        expected = [untimed(event) for event in engine.generate(ids, sampling)]
        for event, other in zip(told[number], expected, strict=True):
            if isinstance(event, CacheState) and isinstance(other, CacheState):
                same_state(event, other)
            else:
                assert event == other
        assert rows[number].protection() == engine.protection()
        assert rows[number].inspect(3) == engine.inspect(3)


def same_state(one: CacheState, other: CacheState) -> None:
    """But for the last digits of scores."""
    scored: dict[str, Any] = {"changed": [], "heaviest": [], "ranks": [], "gone": []}
    assert replace(one, **scored) == replace(other, **scored)
    assert [(gone.position, gone.hold) for gone in one.gone] == [
        (gone.position, gone.hold) for gone in other.gone
    ]
    assert [(at, hold) for at, hold, _ in one.changed] == [(at, hold) for at, hold, _ in other.changed]
    assert [score for *_, score in one.changed] == pytest.approx([score for *_, score in other.changed])
    assert [heavy.position for heavy in one.heaviest] == [heavy.position for heavy in other.heaviest]
    assert [score for _, score in one.ranks] == pytest.approx([score for _, score in other.ranks])


def test_a_row_goes_on_in_another_runner(loaded: Loaded, tmp_path: Path) -> None:
    """Taken of three rows, put into two of which none was fed yet, saved there, resumed alone."""
    three = Runner(loaded, cache_for(loaded, SETTINGS), rows=3)
    sampling = Sampling(max_tokens=30, ignore_eos=True)
    here, other = Row(three, SETTINGS, 1), Row(three, SETTINGS, 2)
    list(generate(other, noise(80, 5), sampling, never))
    here.pin(range(3, 5))
    list(generate(here, noise(60, 1), sampling, never))
    expected, before = Engine(loaded, SETTINGS), kept(other)
    expected.pin(range(3, 5))
    list(expected.generate(noise(60, 1), sampling))
    two = Runner(loaded, cache_for(loaded, SETTINGS), rows=2)
    beside = Row(two, SETTINGS, 1)
    beside.protect(7)
    there = Row(two, SETTINGS, 0)
    there.restore(here.snapshot())
    assert beside.protection()[0] == 7, "what was said of the other row before is still true"
    there.save(tmp_path / "1.safetensors")
    resumed = Engine(loaded, SETTINGS)
    resumed.load(tmp_path / "1.safetensors")
    answers = []
    for row in (here, there, resumed, expected):
        assert kept(row) == kept(expected)
        assert row.protection() == expected.protection()
    for row in (here, there, resumed, expected):
        events = generate(row, noise(5, 9), sampling, never)
        answers.append([event.id for event in events if isinstance(event, Token)])
    assert answers == [answers[-1]] * 4
    assert kept(other) == before


def test_a_row_that_fails_takes_no_other_with_it(loaded: Loaded) -> None:
    runner = Runner(loaded, cache_for(loaded, SETTINGS), rows=2)
    failing, other = Row(runner, SETTINGS, 0), Row(runner, SETTINGS, 1)
    sampling = Sampling(max_tokens=40, ignore_eos=True)
    for row in (failing, other):
        list(generate(row, noise(60, row.number), sampling, never))
    before = [kept(failing), kept(other)]
    with (
        broken(loaded.model.model.layers[1], after=3),
        pytest.raises(OutOfMemoryError, match="there is no more"),
    ):
        list(generate(failing, [5, 6], sampling, never))
    assert [kept(failing), kept(other)] == before
    engine = Engine(loaded, SETTINGS)
    for ids in (noise(60, 1), noise(4, 3)):
        expected = [event.id for event in engine.generate(ids, sampling) if isinstance(event, Token)]
    events = generate(other, noise(4, 3), sampling, never)
    assert [event.id for event in events if isinstance(event, Token)] == expected
    assert kept(other) == kept(engine)


@contextmanager
def calls(model: Any) -> Iterator[list[dict[str, Any]]]:
    """The keywords of every call of the model."""
    found: list[dict[str, Any]] = []
    hook = model.register_forward_pre_hook(lambda _, __, how: found.append(how), with_kwargs=True)
    try:
        yield found
    finally:
        hook.remove()


def test_one_row_costs_what_an_engine_did(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call of the model for a short prompt and for each token after the first, no mask, no padding;
    read are the tokens, and at the end of the turn what was lost."""
    engine, prompt = Engine(loaded, SETTINGS), noise(100, 1)
    engine.sampler.on_cpu = False  # as on a GPU, where a read waits for all that was asked before
    with calls(loaded.model) as made, reads(monkeypatch) as read:
        events = list(engine.generate(prompt, Sampling(max_tokens=40, ignore_eos=True)))
    assert len([event for event in events if isinstance(event, Token)]) == 40
    assert [tuple(how["input_ids"].shape) for how in made] == [(1, 100)] + [(1, 1)] * 39
    assert not any("attention_mask" in how for how in made)
    assert read == {"_local_scalar_dense": 41}


def test_a_look_copies_once(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(loaded, SETTINGS)
    list(engine.generate(noise(100, 1), Sampling(max_tokens=3, ignore_eos=True)))
    assert len(engine.cache.absorbed_arenas()) == 1
    with reads(monkeypatch) as read:
        engine.look()
    assert read == {"cpu": 1, "numpy": 1, "_local_scalar_dense": 1}, "slots once, and what was lost"


def test_a_session_says_what_a_slot_takes() -> None:
    settings = replace(SETTINGS, dtype="float32", budget=64)
    engine = Engine(load(settings, lambda *_: None), settings)
    engine.forward([5])
    tensors = [state for a in engine.cache.absorbed_arenas() for state in (*a.slots.states.values(), a.order)]
    assert engine.session.slot_bytes * 65 == sum(tensor.nbytes for tensor in tensors)
    assert engine.session.stride == engine.cache.plan.stride == 2
