"""The words and what is held of them, on the real app with a real small model."""

from collections import Counter
from math import ceil

import pytest
from screens import Drive, Screen, held

from h2o_chat.base.config import Sampling
from h2o_chat.tui.transcript.heat import GONE
from h2o_chat.tui.transcript.message_view import MessageView

TOLD = "Hi, my name is Flóra 🦊 and my locker code is K7Q2. " * 4
SHORT = Sampling(max_tokens=40)
LASTING = Sampling(max_tokens=40, ignore_eos=True)


def kept(screen: Screen) -> dict[int, float]:
    """Hold by position, counted from the cache itself."""
    session = screen.chat.session
    return {p: len(by) / (session.layers * session.kv_heads) for p, by in held(screen.chat).items()}


def warm(screen: Screen) -> list[MessageView]:
    """The messages of which the tokens are shown."""
    return [view for view in screen.app.transcript.messages.views if view.tokens is not None]


def styles(screen: Screen, view: MessageView) -> dict[int, str]:
    """How each character of the text of its tokens is drawn."""
    found: dict[int, str] = {}
    for piece in view.pieces:
        if piece.start >= 0:
            content = screen.app.transcript.canvas.dress(view, piece, 0)
            for span in content.spans:
                found |= dict.fromkeys(
                    range(piece.start + span.start, piece.start + span.end), str(span.style)
                )
    return found


async def test_the_heat_is_what_the_cache_keeps(drive: Drive) -> None:
    async with drive("pilot-chat", system="You are kind.", sampling=SHORT, budget=48) as screen:
        await screen.say(TOLD, "What is my name?")
        await screen.pilot.press("ctrl+t")
        transcript, engine = screen.app.transcript, screen.chat.engine
        assert transcript.heat.on
        hold, checked = kept(screen), Counter[str]()
        recent_from = engine.seen - screen.chat.session.recent
        assert [view.index for view in warm(screen)] == [0, 1, 2, 3, 4]
        for view, message in zip(warm(screen), screen.chat.messages, strict=True):
            assert view.tokens is not None
            assert message.text.strip() in view.plain
            drawn = styles(screen, view)
            own = view.tokens.own(view.source)
            start, end = own.start, own.stop
            assert view.tokens.text[start:end] == view.source
            for first, last, positions in view.tokens.groups(start, end):
                share = max(hold.get(p, 0.0) for p in positions)
                style = {drawn.get(at, "") for at in range(first, last)}
                assert len(style) == 1, "a token looks the same all over"
                [look] = style
                if positions[-1] >= engine.seen:
                    assert look == ""
                elif share == 0:
                    assert look == GONE
                elif share == 1 and positions[0] >= recent_from:
                    assert look == ""
                else:
                    assert f"$heat-ground-{ceil(share * 8 - 1e-9)}" in look
                    assert "bold" in look
                checked[look[-6:]] += 1
            for position in range(message.first, message.last + 1):
                assert transcript.heat.memory.hold.get(position, 0.0) == hold.get(position, 0.0)
        assert len(checked) > 4  # gone, recent, and heavy of several kinds
        assert checked["strike"]


async def test_gauges_are_live_and_those_of_the_conversation(drive: Drive) -> None:
    async with drive(
        "pilot-chat", system="You are kind.", sampling=LASTING, budget=48, events_every=4
    ) as screen:
        seen: list[float] = []
        real = screen.app.transcript.messages.remembered

        def remembered() -> None:
            real()
            answers = [view for view in screen.app.transcript.messages.views if view.kind == "assistant"]
            seen.append(answers[-1].hold)

        screen.app.transcript.messages.remembered = remembered  # type: ignore[method-assign]
        await screen.say(TOLD)
        assert len(set(seen)) > 3, "it moves while the answer streams"
        hold = kept(screen)
        said = [view for view in screen.app.transcript.messages.views if view.kind != "note"]
        for view, message in zip(said, screen.chat.messages, strict=True):
            read = range(message.first, min(message.last + 1, screen.chat.engine.seen))
            assert view.hold == pytest.approx(sum(hold.get(p, 0.0) for p in read) / len(read))
            assert view.hold == message.hold
        assert seen[-1] == pytest.approx(screen.chat.messages[2].hold)


async def test_a_resumed_conversation_is_as_warm_as_it_was(stored: Drive) -> None:
    async with stored(sampling=SHORT) as screen:
        await screen.say(TOLD)
        await screen.pilot.press("ctrl+t")
        before = [(view.tokens.first, view.plain, styles(screen, view)) for view in warm(screen)]
        await screen.another()
        await screen.pilot.press("ctrl+o")
        await screen.pilot.pause(0.2)
        await screen.pilot.press("enter")
        await screen.until(lambda: len(warm(screen)) == 2, "it is open again")
        await screen.answered()
        after = [(view.tokens.first, view.plain, styles(screen, view)) for view in warm(screen)]
        assert [text for _, text, _ in after] == [text for _, text, _ in before]
        assert [set(look.values()) for *_, look in after] == [set(look.values()) for *_, look in before]


async def test_heat_and_no_colour(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with drive("pilot-chat", sampling=SHORT, budget=48) as screen:
        await screen.say(TOLD)
        for on in (True, False):
            await screen.pilot.press("ctrl+t")
            assert screen.app.transcript.heat.on is on
            assert ("heat: hold" if on else "heat off") in screen.app.divider.remark
            looks = screen.looks()
            colours = [color for look in looks for color in (look.color, look.bgcolor) if color]
            assert all(len(set(color.get_truecolor())) == 1 for color in colours)
            assert any(look.strike for look in looks) is on


async def test_a_token_is_looked_at(drive: Drive) -> None:
    async with drive("pilot-chat", sampling=SHORT, budget=48) as screen:
        await screen.say(TOLD)
        memory, transcript = screen.app._memory, screen.app.transcript
        await screen.pilot.press("tab", "up", "i")
        await screen.until(lambda: memory.cursor is not None, "there is a cursor")
        answer = screen.chat.messages[1]
        assert answer.first <= memory.cursor <= answer.last
        start = memory.cursor
        await screen.pilot.press("left")
        assert memory.cursor == start - 1
        for _ in range(200):
            await screen.pilot.press("up")
            if memory.cursor <= screen.chat.messages[0].last:
                break
        position = memory.cursor
        row, column = transcript.inspector.place(position)
        assert transcript.inspector.token_at(row, column) == position
        remark = screen.app.divider.remark
        assert f"@{position}" in remark
        held_now, word = kept(screen), memory.word(position)
        hold = min(held_now.get(at, 0.0) for at in (word.tokens if word else [position]))
        if hold:
            assert f"{round(hold * memory.caches)} of {memory.caches} heads" in remark
        else:
            assert "forgotten" in remark
        await screen.pilot.press("escape")
        await screen.until(lambda: memory.cursor is None, "it is left")
        assert screen.app.divider.remark == ""
        x, y = screen.where("K7Q2")  # the mouse picks as well
        await screen.pilot.click(offset=(x, y))
        await screen.until(lambda: memory.cursor is not None, "a token was clicked")
        view = transcript.inspector.view_of(memory.cursor)
        assert view.tokens.own_text(memory.cursor).strip().startswith("K")
