"""The tabs of the memory panel, drawn from a recording of the real engine."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from screens import POCKET, WIDE, Screen, opener, replayed

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.chat.memory.cache_view import COLUMNS, STEPS, CacheView, Survival
from h2o_chat.events.recording import Recorder
from h2o_chat.tui.chat_app import ChatApp
from h2o_chat.tui.panel import details, loss_history, overview
from h2o_chat.tui.panel.panel import TABS, MemoryPanel

LEGENDS = {"now": overview.LEGEND, "history": loss_history.LEGEND, "details": details.LEGEND}
BITS = st.integers(1, 80).flatmap(
    lambda heads: st.lists(st.lists(st.booleans(), min_size=heads, max_size=heads), min_size=1, max_size=80)
)


@given(BITS, st.integers(1, 40), st.integers(1, 30))
def test_the_head_map_is_the_bits_and_fits(which: list[list[bool]], width: int, rows: int) -> None:
    lines, note = details.head_map(which, width, rows)
    layers, heads = len(which), len(which[0])
    assert len(lines) <= rows
    assert all(len(line) <= width for line in lines)
    assert bool(note) is (layers > 2 * rows or heads > width)
    if note:
        return
    wide = min(4, width // heads)
    cells = [line[::wide] for line in lines]
    upper, lower = ("█▀", "█▄")
    if layers <= rows:
        assert [[mark == "█" for mark in line] for line in cells] == which
    else:
        found = [[mark in half for mark in line] for line in cells for half in (upper, lower)]
        assert found[:layers] == which
        assert not any(map(any, found[layers:]))


def test_pooled_cells_are_lit_from_half_on() -> None:
    which = [[True, False, False, False], [False, False, False, True]]
    assert details.head_map(which, 2, 2) == (["█·", "·█"], "1 = 1×2")
    assert details.head_map([[True], [False], [False], [False]], 1, 1) == (["▀"], "1 = 2×1")


def test_the_facts_are_those_of_the_token_under_the_cursor(memory: CacheView) -> None:
    assert memory.cache is not None
    for rank, heavy in enumerate(memory.cache.heaviest, 1):
        memory.cursor = heavy.position
        which = memory.which(heavy.position)
        assert which is not None
        text = "\n".join(line.plain for line in details.draw_heads(memory, 42, 16))
        assert f"{sum(map(sum, which))} of 12" in text
        assert f"no. {rank} by heads" in text
        assert f"in {sum(map(any, which))}/6 layers" in text
        assert f"seen {memory.seen - heavy.position}" in text
    gone = memory.evictions[-1].token.position
    memory.cursor = gone
    text = "\n".join(line.plain for line in details.draw_heads(memory, 42, 16))
    assert "█" not in text.replace("█ held", "")
    assert "0 of 12" in text
    assert "forgotten" in text


def test_the_last_row_of_the_survival_map_is_what_is_held(memory: CacheView) -> None:
    seen = memory.seen
    lines = [
        line.plain for line in loss_history.survival_map(memory.survival, seen + loss_history.LABEL_CELLS, 40)
    ]
    rows = lines[:-1]
    last = rows[-1][loss_history.LABEL_CELLS :]
    assert len(last) == seen
    assert [mark == "█" for mark in last] == [memory.hold.get(at, 0) > 15 / 16 for at in range(seen)]
    ends = [len(row.rstrip()) for row in rows]
    assert ends == sorted(ends)


def test_a_million_tokens_leave_a_small_history() -> None:
    history = Survival()
    for seen in range(16, 1_000_000, 160):
        history.add(seen, {0: 1.0, seen // 2: 0.5, seen - 1: 1.0})
    assert len(history.steps) <= STEPS + 1
    assert all(len(step.held) <= COLUMNS for step in history.steps)
    assert [step.seen for step in history.steps] == sorted({step.seen for step in history.steps})
    assert history.steps[-1].seen == seen
    assert all(sum(step.held) == pytest.approx(2.5, abs=0.5) for step in history.steps)
    gaps = [after.seen - before.seen for before, after in zip(history.steps, history.steps[1:], strict=False)]
    assert len(set(gaps[:-1])) == 1  # evenly, but for the newest
    assert all(cell_len(line.plain) <= 42 for line in loss_history.survival_map(history, 42, 16))
    history.add(100, {99: 1.0})  # the conversation went back
    assert [step.seen for step in history.steps] == [100]


async def test_keys_and_the_mouse_choose_tabs_and_words(told: Path) -> None:
    async with replayed(told) as screen:
        app, pilot = screen.app, screen.pilot
        panel, memory = app.query_one(MemoryPanel), app._memory
        app.set_focus(panel)
        for name in (*TABS, TABS[0]):
            text = screen.page()
            assert [one for one in LEGENDS if LEGENDS[one] in text] == [name]
            await pilot.press("right")
        await pilot.press("left")
        assert panel.tab == 0
        shown = str(panel.render().plain).split("\n")[panel._tabs_at]
        for number in (1, 2, 0):
            await pilot.click(MemoryPanel, offset=(shown.index(TABS[number]) + 1, panel._tabs_at))
            assert panel.tab == number
        words = [first for first, _ in overview.order(memory)]
        await pilot.press("down")
        assert memory.cursor == words[0]
        await pilot.press("down", "down", "up")
        assert memory.cursor == words[1]
        text = memory.word(words[1]).text  # type: ignore[union-attr]
        assert f"▸ {text}" in screen.page()
        rows = sorted(panel._lines)
        await pilot.click(MemoryPanel, offset=(5, rows[2]))
        assert memory.cursor == words[2]
        await pilot.press("right", "down")
        assert memory.cursor == loss_history.order(memory)[0][0]
        await pilot.press("right")
        assert memory.cache is not None
        heaviest = [heavy.position for heavy in memory.cache.heaviest]
        await pilot.press("down", "down")
        assert memory.cursor == heaviest[1]
        assert f"@{memory.cursor} ──" in screen.page()
        await pilot.press("up", "up")
        assert memory.cursor == heaviest[0]
        width = panel.size.width
        await pilot.press("ctrl+b")
        await pilot.pause()
        assert panel.size.width > width
        assert screen.lines()


ALSO_WIDE = ((250, 60), (100, 16), (100, 24), (101, 9), (100, 5), (160, 28))


async def test_at_every_size_it_is_cut_at_whole_lines_and_keeps_its_legend(told: Path) -> None:
    async with replayed(told) as screen:
        panel = screen.app.query_one(MemoryPanel)
        for size in (*((100, rows) for rows in (36, 20, 15, 9, 6)), *ALSO_WIDE):
            await screen.pilot.resize_terminal(*size)
            for _ in range(3 if size in ALSO_WIDE else 1):  # beside the chat, wide, hidden
                for number, name in enumerate(TABS):
                    panel.tab = number
                    await screen.pilot.pause()
                    assert screen.lines()
                    lines = str(panel.render().plain).split("\n")
                    if panel.display and panel.size.height >= 6:
                        assert len(lines) == panel.size.height
                        assert {cell_len(line) for line in lines} == {panel.size.width}
                        assert lines[-1] == f"╰{'─' * (panel.size.width - 2)}╯"
                        assert LEGENDS[name] in lines[-2]
                        tabs_at = -4 if name == "now" and panel.size.height >= 16 else -3
                        assert "now  history  details" in lines[tabs_at]
                if size in ALSO_WIDE:
                    await screen.pilot.press("ctrl+b")


async def test_a_hidden_panel_is_not_fed(tmp_path: Path, pocket: Any) -> None:
    settings = Settings(model=str(POCKET), budget=24, threads=1, seed=3)
    for recorder in (None, Recorder(tmp_path / "r.jsonl")):
        if recorder:
            recorder.open()
        app = ChatApp(opener(settings), settings, Sampling(max_tokens=20), recorder)
        async with app.run_test(size=WIDE) as pilot:
            screen = Screen(app, pilot)
            await screen.opened()
            await pilot.press("ctrl+b", "ctrl+b")
            await screen.say("Hi, my name is Flora.")
            assert app._memory.hold
            assert app._memory.cache is not None
            assert bool(app._memory.cache.heads) is (recorder is not None)
            await pilot.press("ctrl+b")
            await screen.say("Do you like films?")
            assert app._memory.cache.heads
            assert app._memory.which(app._memory.seen - 1) is not None
