"""A long prompt is seen while it is read: the real app with the bundled model."""

import re
import time
from dataclasses import replace
from typing import Any

import pytest
from screens import POCKET, Drive, Screen, chat_of, held
from sweep import sweep
from typed import ONE_SIZE

from h2o_chat.base import progress
from h2o_chat.base.config import Sampling, Settings
from h2o_chat.events.events import CacheState, Prompt, ReadSoFar, Turn
from h2o_chat.tui.transcript.message_body import CARET

TEXT = "Once there was a bird that lived in a garden with a red key and a blue door. " * 150
PART = TEXT[: len(TEXT) // 3]  # long enough for its reading to be seen
SETTINGS = Settings(model=str(POCKET), budget=128, threads=1)
FAR = re.compile(r"reading ([\d,]+) of ([\d,]+) · (\d+)%(?: · about \d+ s)? · [\d,]+ tok/s · esc stops")


def number(text: str) -> int:
    return int(text.replace(",", ""))


def remark(screen: Screen) -> re.Match[str] | None:
    """The text on the line, as it is drawn: it may be on two rows."""
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
    drive: Drive, size: tuple[int, int]
) -> None:
    async with drive(str(POCKET), size, budget=128, sampling=Sampling(max_tokens=4)) as screen:
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
        await screen.say(TEXT)
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


def known(screen: Screen) -> tuple[Any, ...]:
    """All that is said, and all that the screen knows of the memory."""
    memory, views = screen.app._memory, screen.app.transcript.messages.views
    gauges = [view.hold for view in views]
    return screen.bodies(), gauges, screen.chat.engine.seen, dict(memory.hold), list(memory.evictions)


@pytest.mark.parametrize("size", ONE_SIZE)
async def test_stopping_in_the_middle_leaves_the_conversation_as_it_was(
    drive: Drive, size: tuple[int, int]
) -> None:
    """It is said before, in words and not as an error, what will happen."""
    async with drive(str(POCKET), size, budget=128, sampling=Sampling(max_tokens=8)) as screen:
        await screen.say("My name is Priya.")
        before, seen = known(screen), screen.chat.engine.seen
        until_stopped(screen)
        await screen.ask(TEXT)
        await screen.until(lambda: screen.app.pane.is_reading, "it is read")
        *_, said, told, answer = screen.bodies()
        assert (said, answer) == (TEXT, CARET)
        assert "128 slots: it is read once" in told
        assert "kept: about the newest 56 tokens and the most important words." in told
        assert "error" not in [view.kind for view in screen.app.transcript.messages.views]
        assert remark(screen)
        await screen.until(lambda: screen.app._memory.seen > seen, "the memory moves")
        await screen.pilot.press("escape")
        await screen.answered()
        assert known(screen) == before
        assert screen.app.prompt.text == TEXT
        assert screen.chat.engine.cache_state().seen == seen
        assert "nothing was sent" in screen.app.divider.remark
        del screen.chat.engine.forward  # nothing holds it up any more
        await screen.say("Do you like films?")
        assert len(screen.chat.messages) == 4
        views = [view for view in screen.app.transcript.messages.views if view.index is not None]
        assert [view.hold for view in views] == [message.hold for message in screen.chat.messages]
        assert screen.app._memory.hold.keys() == held(screen.chat).keys(), "as the cache has it"


async def test_a_memory_that_is_built_again_tells_the_same(talk: Drive) -> None:
    async with talk((120, 36), (PART,), budget=128, events_every=16) as screen:
        told: list[str] = []
        doing = screen.app.divider.doing

        def says(text: str) -> None:
            told.append(text)
            doing(text)

        screen.app.divider.doing = says
        await screen.say("/budget 96")
        again = [text for text in told if FAR.fullmatch(text.replace("reading again", "reading"))]
        assert len(again) >= 2
        assert "· 100% ·" in again[-1]


def test_the_engine_tells_seldom_and_looks_cost_little(pocket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most eight a second, here a hundred, as it is read in a blink; a look at the cache follows, but
    none where nobody asks for events.

    Looking changes no token.
    """
    answers = []
    for every in (16, 0):
        engine = chat_of(pocket, replace(SETTINGS, events_every=every)).engine
        ids = engine.tokenizer(PART)["input_ids"]
        with monkeypatch.context() as soon:
            soon.setattr(progress, "TELL_S", 0.01)
            events = list(engine.generate(ids, Sampling(max_tokens=12, ignore_eos=True)))
        answers.append(events[-1].text)
        read = [event for event in events if isinstance(event, ReadSoFar)]
        (prompt,) = [event for event in events if isinstance(event, Prompt)]
        assert len(read) >= 2
        assert read[-1].tokens == read[-1].of == prompt.tokens == len(ids)
        assert len(read) <= prompt.ms / 1000 / 0.01 + 2
        looked = [event for event in events[: events.index(prompt)] if isinstance(event, CacheState)]
        assert bool(looked) == bool(every)
        assert isinstance(events[0], ReadSoFar)
        # One call of the model: 128 / 4 tokens.
        short = list(engine.generate(ids[:30], Sampling(max_tokens=1)))
        assert [event for event in short if isinstance(event, ReadSoFar)] == []
        assert isinstance(short[-1], Turn)
    assert answers[0] == answers[1] != ""


def test_a_reader_who_leaves_in_the_middle_of_reading_leaves_nothing_read(pocket: Any) -> None:
    engine = chat_of(pocket, SETTINGS).engine
    events = engine.generate(engine.tokenizer(TEXT)["input_ids"], Sampling(max_tokens=1))
    assert isinstance(next(iter(events)), ReadSoFar)
    assert engine.seen > 0
    events.close()
    assert engine.seen == 0
