"""Keys, pastes and the mouse on the real app: nothing is lost, what is left is stopped."""

import asyncio

from screens import LONG, SMALL, Drive
from textual import events


async def test_several_lines_are_typed_and_pasted(drive: Drive) -> None:
    async with drive("stories3m") as screen:
        await screen.ask("  \n ")
        assert not screen.chat.messages
        screen.app.prompt.clear()
        await screen.pilot.press("a", "ctrl+j", "b", "shift+enter", "c")
        assert screen.app.prompt.text == "a\nb\nc"
        assert screen.app.prompt.size.height == 3
        screen.app.post_message(events.Paste("one\rtwo\r\nthree\nfour \x1b[31m"))
        await screen.until(lambda: "four" in screen.app.prompt.text, "the paste has arrived")
        assert screen.app.prompt.text == "a\nb\ncone\ntwo\nthree\nfour ␛[31m"


async def test_a_burst_of_keys_loses_nothing(drive: Drive) -> None:
    """Keys ahead of enter are sent, those behind it are the next text."""
    async with drive("stories3m") as screen:
        for key in ("O", "n", "c", "e", "enter", "t", "h", "e", "n"):
            screen.app.post_message(events.Key(key, None if key == "enter" else key))
        await screen.until(lambda: screen.app.prompt.text == "then", "all keys have arrived")
        await screen.answered()
        assert screen.chat.messages[0].text == "Once"


async def test_ctrl_c_stops_first_and_leaves_second(drive: Drive) -> None:
    async with drive("stories3m", sampling=LONG) as screen:
        await screen.ask("Once upon a time")
        await screen.streaming()
        await screen.pilot.press("ctrl+c")
        assert "ctrl+c again leaves" in screen.app.divider.remark
        await screen.answered()
        assert screen.chat.messages[-1].finish == "stopped"
        assert screen.app.is_running
        await screen.pilot.press("ctrl+c", "ctrl+c")
        await screen.until(lambda: not screen.app.is_running, "the app leaves")


async def test_ctrl_c_copies_what_is_selected(drive: Drive) -> None:
    async with drive("pilot-chat") as screen:
        await screen.say("What is the capital of France?")
        x, y = screen.where("What is")
        await screen.pilot.mouse_down(offset=(x, y))
        await screen.pilot.hover(offset=(x + 12, y))
        await screen.pilot.mouse_up(offset=(x + 30, y))
        await screen.pilot.press("ctrl+c")  # the transcript has the keyboard now
        assert screen.app.clipboard == "What is the capital of France?"
        assert "copied" in screen.app.divider.remark


async def test_leaving_stops_the_answer(drive: Drive) -> None:
    async with drive("stories3m", sampling=LONG) as screen:
        await screen.ask("Once upon a time")
        await screen.streaming()
        await screen.pilot.press("ctrl+q")
    for _ in range(6000):
        if screen.chat.messages[-1].finish:
            break
        await asyncio.sleep(0.01)
    assert screen.chat.messages[-1].finish == "stopped"


async def test_pages_scroll_the_conversation_unless_the_text_needs_them(drive: Drive) -> None:
    async with drive("stories3m", SMALL) as screen:
        await screen.say("one\n" * 20, "two\n" * 20)
        prompt, transcript = screen.app.prompt, screen.app.transcript
        at = transcript.scroll_y
        await screen.pilot.press("a", "pageup")
        await screen.until(lambda: transcript.scroll_y < at, "it is scrolled")
        await screen.pilot.press("pagedown", "pagedown")
        await screen.until(lambda: transcript.scroll_y == at, "and back")
        prompt.put("b\n" * 40)
        await screen.pilot.pause()
        row = prompt.cursor_location[0]
        await screen.pilot.press("pageup")
        assert prompt.cursor_location[0] < row
        assert transcript.scroll_y >= at
