"""Only what has changed is drawn again, as all would be; what is no longer so is no longer marked."""

from itertools import pairwise
from typing import Any

import pytest
from screens import RECORDING, WIDE, replayed
from textual._compositor import Compositor
from textual.content import Content
from textual.geometry import Region

from h2o_chat.tui.chat_app import PartialCompositor
from h2o_chat.tui.widgets.divider import Divider


async def test_the_line_is_drawn_again_only_where_its_remark_is_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = list[str]()
    async with replayed(RECORDING) as screen:
        pilot, divider, render = screen.pilot, screen.app.divider, Divider.render

        def counted(one: Divider) -> Content:
            drawn.append(one.remark)
            return render(one)

        monkeypatch.setattr(Divider, "render", counted)
        for text in ("a word", "a word"):
            divider.point(text)
            await pilot.pause(0.1)
        divider.point("")
        await pilot.pause(0.1)
        for offered in (["#1"], ["#1"]):
            divider.offer(offered)
            await pilot.pause(0.1)
    assert drawn.count("a word") == 1
    assert drawn.count("#1") == 1


async def test_a_message_that_was_taken_back_is_not_marked_as_pinned() -> None:
    async with replayed(RECORDING) as screen:
        messages = screen.app.transcript.messages
        last = max(messages.by_index)
        messages.show_pin(last, True)
        messages.show_marks([])
        assert not messages.by_index[last].pinned


CROPS = [
    *(Region(0, 0, *WIDE), Region(0, 0, WIDE[0], 1), Region(1, 9, 40, 1), Region(3, 4, 1, 30)),
    *(Region(70, 2, 40, 9), Region(5, 33, 30, 3), Region(WIDE[0] - 1, 0, 1, WIDE[1])),
]


async def test_a_part_is_drawn_as_in_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    async with replayed(RECORDING) as screen:
        compositor = screen.app.screen._compositor
        assert isinstance(compositor, PartialCompositor)
        found = [parts(compositor, crop) for crop in CROPS]
        monkeypatch.setattr(PartialCompositor, "_get_renders", Compositor._get_renders)
        for crop, ours in zip(CROPS, found, strict=True):
            assert ours == parts(compositor, crop), crop
            assert len(ours) == crop.height


def parts(compositor: Any, crop: Region) -> list[dict[int, str]]:
    """The parts that would be written in the rows of a region, by column: each that touches it."""
    rows = compositor._render_chops(crop, crop.line_range.__contains__)
    return [
        {x: row[x].text for x, end in pairwise(cuts) if x < crop.right and end > crop.x}
        for row, cuts in list(zip(rows, compositor.cuts, strict=True))[crop.y : crop.bottom]
    ]
