"""The remember strip: a conversation of any length, true to what is held of it."""

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from screens import SESSION, SMALL, WIDE, replayed
from textual.geometry import Size

from h2o_chat.base.glyphs import height
from h2o_chat.chat.memory.cache_view import CacheView
from h2o_chat.events.events import CacheState, Session
from h2o_chat.events.recording import read
from h2o_chat.tui.panel.strip import (
    LARGE_TOKENS,
    RememberStrip,
    by_age,
    cells_of,
    edges_of,
    is_linear,
    linear,
)


@given(st.integers(1, 2_000_000), st.integers(1, 250))
def test_every_token_has_its_cell(seen: int, cells: int) -> None:
    edges = edges_of(seen, cells)
    assert (edges[0], edges[-1]) == (0, seen)
    assert all(first < end for first, end in pairwise(edges))
    assert len(edges) - 1 <= cells
    assert len(edges) - 1 == min(cells, seen) or not is_linear(seen, cells)


@given(st.integers(1, 2_000_000), st.integers(2, 250))
def test_by_age_cells_grow_with_age(seen: int, cells: int) -> None:
    sizes = [end - first for first, end in pairwise(by_age(seen, cells))][::-1]
    assert sizes[0] == 1
    assert all(size <= older + 1 for size, older in pairwise(sizes[:-1]))


def test_the_axis_is_chosen_by_length() -> None:
    assert [is_linear(seen, 116) for seen in (200, 3000, 20_000, 1_000_000)] == [True, True, False, False]


@pytest.mark.parametrize("edges_of", [linear, by_age])
@pytest.mark.parametrize("cells", [250, 40, 1])
def test_a_cell_is_what_its_tokens_are(
    told: Path, edges_of: Callable[[int, int], list[int]], cells: int
) -> None:
    """Each cell of a recording of the real engine is counted again token by token."""
    memory = CacheView()
    for event in read(told):
        if isinstance(event, Session):
            memory.begin(event, None)
        memory.add(event)
        if not isinstance(event, CacheState):
            continue
        edges = edges_of(memory.seen, cells)
        found = cells_of(memory, edges)
        assert [(cell.first, cell.end) for cell in found] == list(pairwise(edges))
        large = any(cell.end - cell.first > LARGE_TOKENS for cell in found)
        for cell in found:
            tokens = range(cell.first, cell.end)
            holds = [memory.hold.get(token, 0.0) for token in tokens]
            kinds = [memory.kind(token) for token in tokens]
            assert cell.hold == pytest.approx(max(holds) if large else sum(holds) / len(holds))
            assert memory.hold.get(cell.held_most, 0.0) == max(holds)
            assert cell.held_most in tokens
            if "S" in kinds or len(tokens) == 1:
                assert cell.kind == ("S" if "S" in kinds else kinds[0])
            elif large:
                assert cell.kind == memory.kind(cell.held_most)
            elif any(holds):
                assert kinds.count(cell.kind) == max(kinds.count(kind) for kind in ("H", "R"))
            else:
                assert cell.kind == "·", "forgotten is what no head holds"
            assert (height(cell.hold) == " ") == (not any(holds))


class Unmounted(RememberStrip):
    """Drawn without an app."""

    size = Size(120, 5)  # type: ignore[assignment]


def long(seen: int, messages: int, budget: int = 512) -> CacheView:
    """The cache after a long conversation: sinks, the recent part, and some of what lies between."""
    session = replace(SESSION, budget=budget, recent=budget // 2, layers=8)
    random, recent_from = Random(1), max(seen - budget // 2, 4)
    old = range(4, recent_from)
    some = random.sample(old, min(len(old), 4 * budget))
    held = [(at, 1.0, 1.0) for at in (*range(4), *range(recent_from, seen))]
    held += [(at, random.randint(1, 31) / 32, 0.5) for at in some]
    memory = CacheView()
    memory.begin(session, None)
    state = CacheState(seen, min(seen, budget), 1, 1, 0, {"S": 4}, [], sorted(held), [[0.5]], True, [(0, 3)])
    memory.add(state)
    firsts = [0, *sorted(random.sample(range(1, seen), messages - 1)), seen]
    for index, (first, end) in enumerate(pairwise(firsts)):
        memory.places.place(index, ("user", "assistant")[index % 2], first, end - 1)
    return memory


@pytest.mark.parametrize(
    ("seen", "messages", "note"),
    [
        (200, 4, "─ 1 cell = 2 tokens ─╮"),
        (20_000, 20, "─ by age · 1 cell = 1 to "),
        (20_000, 300, "─ by age · 1 cell = 1 to 1,"),
        (1_000_000, 4000, "─ by age · 1 cell = 1 to 10"),
    ],
)
def test_it_can_be_read_at_any_length(seen: int, messages: int, note: str) -> None:
    lines = Unmounted(long(seen, messages), "strip").render().plain.split("\n")
    assert [cell_len(line) for line in lines] == [120] * 5
    top, heights, kinds, turns, _ = lines
    assert note in top
    recent = kinds.count("R")
    assert recent == sum(mark == "█" for mark in heights[-2 - recent : -2])
    assert kinds[2] == "S"
    assert recent > 0
    assert len(set(heights)) > 3 or seen == 200  # not one lit cell
    assert "│" in turns[1:-1]
    if messages == 4:  # of older messages some have no room for a number
        named = len(re.findall(r"│#\d+(?= |│)", turns))
        grouped = sum(map(int, re.findall(r"│(\d+) messages", turns)))
        last = turns[2:-2].rpartition("│")[2].strip()  # where it ends there may be no room for a number
        assert named + grouped + (not last.startswith("#")) == messages


async def test_the_keys_move_along_it_and_the_transcript_follows(told: Path) -> None:
    async with replayed(told, (WIDE[0], 30)) as screen:
        app, pilot = screen.app, screen.pilot
        strip, memory = app.query_one(RememberStrip), app._memory
        before = app.transcript.scroll_offset.y
        assert before > 0
        app.set_focus(strip)
        await pilot.press("home")
        assert memory.cursor == strip.cells()[0].held_most
        await pilot.pause()
        assert app.transcript.scroll_offset.y < before
        assert "#1 sys · 100% of heads" in str(strip.render().plain)
        await pilot.press("right", "right")
        assert memory.cursor == strip.cells()[2].held_most
        await pilot.press("down")
        assert memory.cursor == memory.spans[1].first
        await pilot.press("down", "up", "up")
        assert memory.cursor == memory.spans[0].first
        await pilot.press("end")
        assert memory.cursor == memory.seen - 1
        await pilot.pause()
        # What is told of the token may have taken a row of the transcript.
        assert before <= app.transcript.scroll_offset.y == app.transcript.max_scroll_y
        await pilot.click(RememberStrip, offset=(2 + 5, 1))
        assert memory.cursor == strip.cells()[5].held_most


async def test_it_goes_where_there_is_no_room(told: Path) -> None:
    async with replayed(told) as screen:
        app, pilot = screen.app, screen.pilot
        strip = app.query_one(RememberStrip)
        assert (strip.display, strip.size.height) == (True, 5)
        for size, rows in ((SMALL, 3), ((59, 36), 0), ((100, 15), 0), ((250, 60), 5)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            assert strip.display is bool(rows)
            assert not rows or strip.size == (size[0], rows)
            assert screen.lines()
