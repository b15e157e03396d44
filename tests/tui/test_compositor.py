"""Drawing only what has changed gives what drawing everything gives."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from screens import WIDE
from test_replay import replaying
from textual._compositor import Compositor
from textual.geometry import Region

from h2o_chat.tui.chat_app import PartialCompositor

RECORDING = sorted((Path(__file__).parent / "recordings").glob("*.jsonl"))[0]
CROPS = [
    *(Region(0, 0, *WIDE), Region(0, 0, WIDE[0], 1), Region(1, 9, 40, 1), Region(3, 4, 1, 30)),
    *(Region(70, 2, 40, 9), Region(5, 33, 30, 3), Region(WIDE[0] - 1, 0, 1, WIDE[1])),
]


@pytest.mark.parametrize("crop", CROPS, ids=str)
async def test_a_part_is_drawn_as_in_the_whole(crop: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    app = replaying(RECORDING)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.pause()
        compositor = app.screen._compositor
        assert isinstance(compositor, PartialCompositor)
        ours = drawn(compositor, crop)
        monkeypatch.setattr(PartialCompositor, "_get_renders", Compositor._get_renders)
        theirs = drawn(compositor, crop)
    assert ours == theirs
    assert len(ours) == crop.height


def drawn(compositor: Any, crop: Region) -> list[dict[int, str]]:
    """What would be written in the rows of a region: by column, each part that touches it."""
    rows = compositor._render_chops(crop, crop.line_range.__contains__)
    return [
        {x: row[x].text for x, end in pairwise(cuts) if x < crop.right and end > crop.x}
        for row, cuts in list(zip(rows, compositor.cuts, strict=True))[crop.y : crop.bottom]
    ]
