"""A long prompt is seen while it is read: the real app with the bundled model."""

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from screens import POCKET, Screen
from sweep import sweep

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.progress import TELL_S
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.events.events import CacheState, Prompt, ReadSoFar, Turn

ONE_SIZE = [(80, 24), *sweep(((120, 36),), ((60, 20),))]
"""Where the screen is as wide as most; `make test-all` has the others."""
TEXT = "Once there was a bird that lived in a garden with a red key and a blue door. " * 150
PART = TEXT[: len(TEXT) // 3]
"""Of which some is still seen to be read."""
FAR = re.compile(r"reading ([\d,]+) of ([\d,]+) · (\d+)%(?: · about \d+ s)? · [\d,]+ tok/s · esc stops")


def number(text: str) -> int:
    return int(text.replace(",", ""))


def remark(screen: Screen) -> re.Match[str] | None:
    """What stands on the line, as it is drawn: it may be on two rows."""
    assert screen.app.divider.remark in said(screen)
    return FAR.fullmatch(screen.app.divider.remark)


def said(screen: Screen) -> str:
    """The remark of the line on the screen, its rows joined."""
    divider = screen.app.divider
    rows = screen.lines()[divider.region.y : divider.region.bottom]
    return " · ".join(row[2 : divider.region.width - 2].strip(" ─") for row in rows)


def until_stopped(screen: Screen) -> None:
    """From its 17th call on the model reads nothing more, until somebody stops it."""
    engine, forward, stopped = screen.chat.engine, screen.chat.engine.forward, screen.app.jobs._cancel
    calls: list[object] = []

    def waits(*args: Any) -> Any:
        calls.append(args)
        assert len(calls) < 17 or stopped.wait(60), "nobody stopped it"
        return forward(*args)

    engine.forward = waits


def no_faster_than(screen: Screen, call_s: float) -> None:
    """Every call of the model takes at least so long: a fast machine leaves no time to look."""
    engine, forward = screen.chat.engine, screen.chat.engine.forward

    def takes(*args: Any) -> Any:
        time.sleep(call_s)
        return forward(*args)

    engine.forward = takes


@pytest.mark.parametrize("size", [(60, 20), *sweep(((120, 36),), ((80, 24),))])
async def test_reading_is_seen_from_its_beginning_to_100_per_cent(
    drive: Callable[..., Any], size: tuple[int, int]
) -> None:
    async with drive(str(POCKET), size, budget=128, sampling=Sampling(max_tokens=4)) as screen:
        await screen.opened()
        no_faster_than(screen, call_s=0.02)
        seen: list[tuple[int, int, int]] = []
        statuses, strips = set(), set()
        drawn: list[Any] = []
        doing = screen.app.divider.doing

        def told(text: str) -> None:
            if found := FAR.fullmatch(text):
                seen.append((number(found[1]), number(found[2]), int(found[3])))
            doing(text)

        def look() -> None:
            divider = screen.app.divider
            laid_out = divider.region.height == divider.styles.height.value  # not between two of its heights
            if screen.app.pane.is_reading and laid_out:
                drawn.append(remark(screen))
                lines = screen.lines()
                statuses.add(lines[0])
                strips.add("\n".join(lines[-8:]))

        screen.app.divider.doing = told
        screen.app.set_interval(0.05, look)
        await screen.ask(TEXT)
        await screen.answered()
        assert drawn
        assert all(drawn)
        assert len(seen) >= 3
        assert [far for far, _, _ in seen] == sorted({far for far, _, _ in seen}), "it moves"
        assert seen[-1][0] == seen[-1][1]
        assert seen[-1][2] == 100
        assert len(statuses) >= 3, "what was seen moves with it"
        assert len(strips) >= 2
        note = next(body for body in screen.bodies() if "128 slots" in body)
        assert f"{seen[-1][1]:,} tokens, 128 slots: it is read once" in note


@pytest.mark.parametrize("size", ONE_SIZE)
async def test_what_will_happen_is_said_before(drive: Callable[..., Any], size: tuple[int, int]) -> None:
    """In words, while it is read, and not as an error."""
    async with drive(str(POCKET), size, budget=128) as screen:
        await screen.opened()
        until_stopped(screen)
        await screen.ask(TEXT)
        await screen.until(lambda: screen.app.pane.is_reading, "it is read")
        (told,) = [body for body in screen.bodies() if "128 slots" in body]
        assert "newest 56 tokens and the most important words stay" in told
        assert [view.kind for view in screen.app.transcript.messages.views].count("error") == 0
        assert remark(screen)
        await screen.pilot.press("escape")
        await screen.answered()


@pytest.mark.parametrize("size", ONE_SIZE)
async def test_stopping_in_the_middle_leaves_the_conversation_as_it_was(
    drive: Callable[..., Any], size: tuple[int, int]
) -> None:
    async with drive(str(POCKET), size, budget=128, sampling=Sampling(max_tokens=8)) as screen:
        await screen.opened()
        await screen.ask("My name is Priya.")
        await screen.answered()
        memory = screen.app._memory
        before = (list(screen.bodies()), screen.chat.engine.seen, dict(memory.hold), list(memory.evictions))
        until_stopped(screen)
        await screen.ask(TEXT)
        await screen.until(lambda: memory.seen > before[1], "the memory moves")
        await screen.pilot.press("escape")
        await screen.answered()
        after = (list(screen.bodies()), screen.chat.engine.seen, dict(memory.hold), list(memory.evictions))
        assert after == before
        assert screen.app.prompt.text == TEXT
        assert screen.chat.engine.look().seen == before[1]


async def test_a_memory_that_is_built_again_tells_the_same(
    drive: Callable[..., Any], pocket: Any, tmp_path: Any
) -> None:
    from dataclasses import asdict

    from h2o_chat.chat.conversation.keeper import Keeper
    from h2o_chat.engine.engine import Engine
    from h2o_chat.store import Store

    settings = Settings(model=str(POCKET), budget=128, threads=1, seed=7, events_every=16)

    def open_chat(_: Any) -> Chat:
        engine = Engine(pocket, settings)
        keeper = Keeper(Store(tmp_path), None, engine.session, asdict(settings))
        return Chat(engine, settings, keeper)

    async with drive(str(POCKET), open_chat=open_chat, sampling=Sampling(max_tokens=4)) as screen:
        await screen.opened()
        await screen.ask(PART)
        await screen.answered()
        told: list[str] = []
        doing = screen.app.divider.doing

        def says(text: str) -> None:
            told.append(text)
            doing(text)

        screen.app.divider.doing = says
        await screen.ask("/budget 96")
        await screen.answered()
        again = [text for text in told if FAR.fullmatch(text.replace("reading again", "reading"))]
        assert len(again) >= 2
        assert "· 100% ·" in again[-1]


def test_the_engine_tells_seldom_and_looks_cost_little(pocket: Any) -> None:
    """At most eight a second; a look at the cache follows, but none where nobody asks for events."""
    from h2o_chat.engine.engine import Engine

    for every in (16, 0):
        engine = Engine(pocket, Settings(model=str(POCKET), budget=128, threads=1, events_every=every))
        ids = engine.tokenizer(PART)["input_ids"]
        events = list(engine.generate(ids, Sampling(max_tokens=1)))
        read = [event for event in events if isinstance(event, ReadSoFar)]
        (prompt,) = [event for event in events if isinstance(event, Prompt)]
        assert len(read) >= 2
        assert read[-1].tokens == read[-1].of == prompt.tokens == len(ids)
        assert len(read) <= prompt.ms / 1000 / TELL_S + 2
        looked = [event for event in events[: events.index(prompt)] if isinstance(event, CacheState)]
        assert bool(looked) == bool(every)
        assert isinstance(events[0], ReadSoFar)
        short = list(
            engine.generate(ids[:30], Sampling(max_tokens=1))
        )  # one call of the model: 128 / 4 tokens
        assert [event for event in short if isinstance(event, ReadSoFar)] == []
        assert isinstance(short[-1], Turn)


def test_looking_while_it_is_read_changes_no_token(pocket: Any) -> None:
    from h2o_chat.engine.engine import Engine

    answers = []
    for every in (16, 0):
        engine = Engine(
            pocket, Settings(model=str(POCKET), budget=128, threads=1, events_every=every, seed=5)
        )
        ids = engine.tokenizer(PART)["input_ids"]
        turn = list(engine.generate(ids, Sampling(max_tokens=12, ignore_eos=True)))[-1]
        assert isinstance(turn, Turn)
        answers.append(turn.text)
    assert answers[0] == answers[1]


def test_a_reader_who_leaves_in_the_middle_of_reading_leaves_nothing_read(pocket: Any) -> None:
    from h2o_chat.engine.engine import Engine

    engine = Engine(pocket, Settings(model=str(POCKET), budget=128, threads=1))
    events = engine.generate(engine.tokenizer(TEXT)["input_ids"], Sampling(max_tokens=1))
    assert isinstance(next(iter(events)), ReadSoFar)
    assert engine.seen > 0
    events.close()
    assert engine.seen == 0
