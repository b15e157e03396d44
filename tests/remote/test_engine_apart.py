"""An engine in another process does what one here does, and fails as loudly."""

import gc
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from apart import ENDLESS, IDS, SAMPLING, SETTINGS, WAIT_S, pid_of, timeless, tokens, until

from h2o_chat.base.errors import BudgetError
from h2o_chat.events.events import CacheState, Event, Prompt, Token
from h2o_chat.remote.engine_apart import EngineApart


def test_does_what_an_engine_here_does(apart: EngineApart, here: Any, tmp_path: Path) -> None:
    assert (apart.session, apart.eos) == (here.session, here.eos)
    for number, engine in enumerate((apart, here)):
        assert engine.protect(5) == 5
        assert engine.pin(range(7, 10)) == 3
        told = [timeless(engine.generate(IDS, SAMPLING))]
        engine.save(tmp_path / f"{number}.safetensors")
        told.append(timeless(engine.generate(IDS[:9], SAMPLING)))
        engine.unpin()
        assert engine.feed_again(IDS, answer=False, exact=True, cancel=lambda: False)
        told.append([engine.cache_state()])
        if number == 0:
            first, state = told, (engine.seen, engine.pending, engine.protection(), engine.budget_for(40))
    assert told == first
    assert (here.seen, here.pending, here.protection(), here.budget_for(40)) == state
    assert any(isinstance(event, CacheState) for event in told[0])
    apart.load(tmp_path / "1.safetensors")
    here.load(tmp_path / "0.safetensors")
    assert apart.inspect(8) == here.inspect(8)
    assert timeless(apart.generate(IDS, SAMPLING)) == timeless(here.generate(IDS, SAMPLING))


def test_goes_back_and_begins_anew_with_another_seed(apart: EngineApart, here: Any) -> None:
    for engine in (apart, here):
        list(engine.generate(IDS, SAMPLING))
    before, other = apart.snapshot(), apart.remade(replace(SETTINGS, budget=32))
    first = tokens(apart.generate(IDS, SAMPLING))
    assert apart.seen == here.seen + len(IDS) + SAMPLING.max_tokens
    apart.restore(before)
    assert (apart.seen, apart.pending) == (here.seen, here.pending)
    assert tokens(apart.generate(IDS, SAMPLING)) == first == tokens(here.generate(IDS, SAMPLING))
    assert (other.session.budget, other.seen) == (32, 0)
    for engine in (apart, here):
        engine.reset()
        engine.reseed(8)
    assert apart.session.seed == 8
    assert timeless(apart.generate(IDS, SAMPLING)) == timeless(here.generate(IDS, SAMPLING))


def test_can_be_asked_in_the_middle_of_an_answer(apart: EngineApart, here: Any) -> None:
    told: list[Event] = []
    for event in apart.generate(IDS, SAMPLING):
        told.append(event)
        if isinstance(event, Prompt):
            assert apart.protection() == here.protection()
            apart.watch(True)
    assert timeless(iter(told)) == timeless(here.generate(IDS, SAMPLING))


def test_what_nobody_looks_at_is_not_collected(apart: EngineApart) -> None:
    apart.watch(False)
    list(apart.generate(IDS, SAMPLING))
    assert apart.cache_state().heaviest == []
    apart.watch(True)
    assert apart.cache_state().heaviest


def test_stops_between_two_tokens_and_goes_on(apart: EngineApart) -> None:
    told: list[Event] = []
    for event in apart.generate(IDS, ENDLESS, cancel=lambda: len(told) > 30):
        told.append(event)
    assert told[-1].finish == "stopped"
    tokens = [event for event in told if isinstance(event, Token)]
    assert len(tokens) == told[-1].new_tokens < 2000
    assert apart.pending == (tokens[-1].id,)
    assert apart.seen == len(IDS) + len(tokens) - 1
    assert list(apart.generate(IDS, SAMPLING))[-1].finish == "length"


def test_a_prompt_that_is_stopped_was_never_read(apart: EngineApart) -> None:
    events = list(apart.generate(IDS * 20, SAMPLING, cancel=lambda: True))
    assert [event.finish for event in events] == ["stopped"]
    assert (apart.seen, apart.pending) == (0, ())


def test_a_reader_who_leaves_stops_it(apart: EngineApart) -> None:
    answer = apart.generate(IDS, ENDLESS)
    for _ in range(5):
        next(answer)
    answer.close()
    began = time.monotonic()
    apart.reset()
    assert time.monotonic() - began < WAIT_S
    assert apart.seen == 0
    assert list(apart.generate(IDS, SAMPLING))[-1].new_tokens == SAMPLING.max_tokens


def test_a_reader_who_fails_stops_it(apart: EngineApart) -> None:
    """Between two chunks of a prompt, of which nothing is left."""
    asked: list[int] = []

    def cancel() -> bool:
        asked.append(1)
        if len(asked) == 3:
            raise ZeroDivisionError
        return False

    with pytest.raises(ZeroDivisionError):
        list(apart.generate(IDS * 50, SAMPLING, cancel))
    assert apart.seen == 0
    apart.reset()
    time.sleep(0.5)
    assert apart.protection() is not None
    assert apart.seen == 0


def test_two_threads_do_not_take_each_others_replies(apart: EngineApart) -> None:
    answer = apart.generate(IDS, ENDLESS)
    next(answer)
    waiting = Thread(target=lambda: list(answer))
    waiting.start()
    until(apart._process._reading.locked)

    def ask_too() -> None:
        while True:
            apart.cache_state()

    with pytest.raises(RuntimeError, match="Two threads"):
        ask_too()
    os.kill(pid_of(apart), 0)
    apart._process.cancel(next(iter(apart._process._unread)))
    waiting.join(WAIT_S)
    assert not waiting.is_alive()


def test_whoever_ends_a_session_does_not_end_it(apart: EngineApart) -> None:
    """SIGTERM to all of a session is the screen's to understand: it stops the answer and saves the memory."""
    told: list[Event] = []
    for event in apart.generate(IDS, SAMPLING):
        told.append(event)
        if len(told) == 5:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                os.kill(pid_of(apart), number)
    assert told[-1].finish == "length"


def test_errors_are_those_of_an_engine_here(apart: EngineApart, here: Any, tmp_path: Path) -> None:
    list(apart.generate(IDS, SAMPLING))
    list(here.generate(IDS, SAMPLING))
    for engine in (apart, here):
        with pytest.raises(BudgetError, match="would protect") as caught:
            engine.pin(range(100))
        assert "fit into a budget of" in caught.value.hint
        with pytest.raises(FileNotFoundError):
            engine.save(tmp_path / "nowhere" / "x")
    with pytest.raises(RuntimeError, match="TypeError") as strange:
        apart._ask("pin", "x", "y")
    assert "engine_process.py" in strange.value.__notes__[0]
    assert timeless(apart.generate(IDS, SAMPLING)) == timeless(here.generate(IDS, SAMPLING))


def test_a_snapshot_that_nobody_holds_is_told_with_the_next_call(apart: EngineApart) -> None:
    gc.collect()
    apart.cache_state()  # what tests before have left is told
    snapshot = apart.snapshot()
    number = snapshot.number
    del snapshot
    gc.collect()
    assert apart._process.dropped == [number]
    apart.cache_state()
    assert apart._process.dropped == []
