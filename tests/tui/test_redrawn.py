"""Only what has changed is drawn again, and what is no longer so is no longer marked."""

from pathlib import Path

import pytest
from screens import Screen
from test_replay import ended, replaying
from textual.content import Content

from h2o_chat.tui.widgets.divider import Divider

RECORDING = Path(__file__).parent / "recordings" / "chat.jsonl"


async def test_the_line_is_drawn_again_only_where_its_remark_is_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app, drawn = replaying(RECORDING), list[str]()
    async with app.run_test() as pilot:
        screen, divider = Screen(app, pilot), app.divider
        await ended(screen)
        render = Divider.render

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
    app = replaying(RECORDING)
    async with app.run_test() as pilot:
        messages = app.transcript.messages
        while not messages.by_index:
            await pilot.pause(0.02)
        last = max(messages.by_index)
        messages.show_pin(last, True)
        messages.show_marks([])
        assert not messages.by_index[last].pinned
