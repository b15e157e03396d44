"""Things a person does and sees, on the real app with a real small model."""

import re
from collections import Counter
from typing import Any

from screens import LONG, SMALL, WIDE, Drive, Screen

from h2o_chat.base.errors import ExitCode
from h2o_chat.tui.panel.panel import TABS, MemoryPanel
from h2o_chat.tui.side_panels import MemoryLine, StatusLine
from h2o_chat.tui.transcript.message_body import CARET
from h2o_chat.tui.transcript.message_view import FINISHES


async def test_a_question_and_a_second_one(drive: Drive) -> None:
    async with drive("stories3m") as screen:
        await screen.say("Once upon a time there was a red key")
        _assert_panel_is_true(screen)
        assert screen.chat.messages[1].text
        assert screen.app.prompt.text == ""
        await screen.say("Then the bird said")
        _assert_panel_is_true(screen)
        assert re.search("6[34] of", _panel(screen)), "two slots are given up at once"
        note, *shown = screen.bodies()
        assert "continues what you write" in note
        assert len(shown) == len(screen.chat.messages) == 4
        for body, message in zip(shown, screen.chat.messages, strict=True):
            said = _words(message.text)
            assert _words(body)[: len(said)] == said
            assert (FINISHES["length"] in body) is (message.finish == "length")


async def test_a_chat_model_with_a_system_prompt(drive: Drive) -> None:
    async with drive("pilot-chat", system="You are a concise assistant.") as screen:
        await screen.say("What is the capital of France?", "My name is Priya and the code is 4821.")
        _assert_panel_is_true(screen)
        assert " pinned " in _details(screen)
        roles = [message.role for message in screen.chat.messages]
        assert roles == ["system", *("user", "assistant") * 2]
        gauges = [view.hold for view in screen.app.transcript.messages.views]
        assert gauges.pop(0) is None  # the note is no message
        assert gauges == [message.hold for message in screen.chat.messages]


async def test_stopped_answer_is_kept_and_marked(drive: Drive) -> None:
    async with drive("stories3m", sampling=LONG) as screen:
        await screen.ask("Once upon a time")
        await screen.streaming()
        live = _words(" ".join(screen.bodies()[2:]).replace(CARET, ""))
        await screen.pilot.press("escape")
        await screen.answered()
        answer = screen.chat.messages[-1]
        assert live[:-1] == _words(answer.text)[: len(live) - 1]  # the last word was still growing
        assert answer.finish == "stopped"
        assert len(answer.text) > 20
        shown = _words(" ".join(screen.bodies()[2:]))  # a long answer has several parts
        assert shown[: len(_words(answer.text))] == _words(answer.text)
        assert FINISHES["stopped"] in screen.bodies()[-1]
        await screen.ask("The next day")  # and it goes on
        await screen.until(lambda: screen.app._memory.seen > 64, "something was let go")
        await screen.streaming()
        await screen.pilot.press("escape")
        await screen.answered()
        assert len(screen.chat.messages) == 4
        _assert_panel_is_true(screen)


async def test_a_short_conversation_is_not_said_to_save_memory(drive: Drive) -> None:
    async with drive("stories3m", budget=1024) as screen:
        await screen.say("Once upon a time")
        assert " allocated, full: " in _details(screen)
        assert "KiB" not in _panel(screen)
        assert " less" not in _panel(screen)


def _assert_panel_is_true(screen: Screen) -> None:
    """Every number of the panel, counted again from the cache itself."""
    cache = screen.chat.engine.cache
    layers = range(screen.chat.session.layers)
    kept = [[[p for p in head if p >= 0] for head in cache.kept(layer)[0].tolist()] for layer in layers]
    holders = Counter(position for layer in kept for head in layer for position in head)
    seen, most = screen.chat.engine.seen, max(len(head) for layer in kept for head in layer)
    recent_from = seen - screen.chat.session.recent
    old = {position: count for position, count in holders.items() if position < recent_from}

    assert f"─ {most:,} of {seen:,} tokens kept ─╮" in _panel(screen)
    kinds = dict(re.findall(r"[█▓░] (\w+) (\d+)", _panel(screen)))
    assert sum(map(int, kinds.values())) == most
    assert int(kinds["newest"]) == sum(1 for position in kept[0][0] if position >= recent_from)
    panel = _details(screen)
    rows = [(int(p), int(n), bool(pin)) for p, n, pin in re.findall(r"@(\d+) +(\d+) .*?( pin)? *│\n", panel)]
    assert rows, panel
    assert all(old[position] == count for position, count, _ in rows)
    layer = cache.layers[0].slots
    protected = set(layer.positions[layer.protected].tolist())
    assert all(pin is (position in protected) for position, _, pin in rows)
    assert sum(pin for *_, pin in rows) <= 2
    heavy = [count for position, count in old.items() if position not in protected]
    shown = [count for _, count, pin in rows if not pin]
    assert shown
    assert shown == sorted(heavy, reverse=True)[: len(shown)]
    assert f"remembers {most:,} of {seen:,} tokens" in _text(screen, StatusLine)


async def test_a_number_is_never_cut(drive: Drive) -> None:
    async with drive("stories3m", (40, 12)) as screen:
        await screen.say("Once upon a time", "there was a cat")
        numbers = StatusLine._numbers(screen.app.query_one(StatusLine), False)
        for width in (60, 48, 40, len(numbers) + 6):
            await screen.pilot.resize_terminal(width, 12)
            assert _text(screen, StatusLine).rstrip().endswith(numbers)


async def test_a_terminal_of_no_size_breaks_nothing(drive: Drive) -> None:
    """A window that is made, dragged or left by its manager may say any size for a moment."""
    async with drive("stories3m") as screen:
        for size in ((20, 8), (5, 3), (4, 24), (2, 2), (1, 1), (1, 24), (80, 1), WIDE):
            await screen.pilot.resize_terminal(*size)
            await screen.pilot.press("a")
        assert screen.app.prompt.text == 8 * "a"


async def test_the_panel_folds_while_the_terminal_changes(drive: Drive) -> None:
    async with drive("stories3m") as screen:
        await screen.pilot.resize_terminal(*SMALL)
        assert screen.app.query_one(MemoryLine).display
        await screen.pilot.resize_terminal(*WIDE)
        assert screen.app.query_one(MemoryPanel).display
        narrow = screen.app.query_one(MemoryPanel).size.width
        await screen.pilot.press("ctrl+b")
        await screen.pilot.pause()
        assert screen.app.query_one(MemoryPanel).size.width > narrow
        await screen.pilot.press("ctrl+b")
        assert not screen.app.query_one(MemoryPanel).display
        await screen.pilot.press("tab", "ctrl+b")
        assert screen.app.query_one(MemoryPanel).size.width == narrow


async def test_a_model_that_does_not_exist(drive: Drive) -> None:
    async with drive("no-such-model", opens=False) as screen:
        await screen.until(lambda: screen.app.exit_code, "the failure is shown")
        await screen.until(lambda: "no-such-model" in screen.bodies()[-1], "the error names the model")
        assert "→ " in screen.bodies()[-1]
        assert screen.app.exit_code == ExitCode.MODEL
        await screen.ask("hello")  # the app stays, and the text too
        assert screen.app.is_running
        assert screen.app.prompt.text == "hello"
        assert "no model is open" in screen.app.divider.remark


async def test_our_own_bug_is_shown_with_its_traceback(drive: Drive, tmp_path: Any) -> None:
    def broken(progress: Any) -> Any:
        raise ZeroDivisionError("[/b] \x1b[31mred")

    async with drive("stories3m", open_chat=broken, opens=False) as screen:
        await screen.until(lambda: screen.app.exit_code, "the bug is shown")
        assert screen.app.exit_code == ExitCode.BUG
        body = screen.bodies()[-1]
        assert "ZeroDivisionError: [/b] ␛[31mred" in body
        [log] = tmp_path.rglob("h2o-chat-bug-*.log")
        assert log.name in body.replace("\n", "")
        assert "Traceback" in log.read_text()


def _words(text: str) -> list[str]:
    return re.findall(r"\S+", text)


def _panel(screen: Screen) -> str:
    return _text(screen, MemoryPanel)


def _details(screen: Screen) -> str:
    """The third tab of the panel."""
    panel = screen.app.query_one(MemoryPanel)
    panel.tab = TABS.index("details")
    text = _panel(screen)
    panel.tab = 0
    return text


def _text(screen: Screen, kind: type[Any]) -> str:
    return str(screen.app.query_one(kind).render().plain)
