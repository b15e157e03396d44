"""Whatever is typed arrives in the prompt, and is no command; rows 1, 3 and 9 of what a new user met."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from screens import Drive, Screen
from sweep import sweep
from textual.events import Paste
from textual.widget import Widget
from typed import ONE_SIZE, SAID, SIZES, Held, talking

from h2o_chat.tui.panel.strip import RememberStrip
from h2o_chat.tui.transcript.transcript import Transcript

FOR_COMMANDS = "ebckpzti"  # letters that are commands while a message is chosen


def panes(screen: Screen) -> list[Widget]:
    """All beside the prompt that can have the keyboard at this size."""
    return [one for one in screen.app.screen.focus_chain if one is not screen.app.prompt]


# The prompt is home


@pytest.mark.parametrize("size", [(120, 36), *sweep(((80, 24),), ((60, 20),))])
async def test_what_is_typed_beside_the_prompt_is_text(talk: Drive, size: tuple[int, int]) -> None:
    async with talk(size) as screen:
        app, before = screen.app, screen.own()
        assert {type(pane) for pane in panes(screen)} >= {Transcript, RememberStrip}
        for pane in panes(screen):
            for text in ("Where is the bee?", "/branch", "[x] w m 1234 ]", "zip tick"):
                app.screen.set_focus(pane)
                await screen.pilot.press(text[0])
                screen.at_once(*text[1:])
                await screen.until(lambda text=text: app.prompt.text == text, "it is typed")
                assert app.focused is app.prompt
                app.prompt.clear()
            app.screen.set_focus(pane)
            app.post_message(Paste("e b\rc"))
            await screen.until(lambda: app.prompt.text == "e b\nc", "it is pasted")
            app.prompt.clear()
            app.screen.set_focus(pane)
            await screen.pilot.press("escape")
            assert app.focused is app.prompt
        assert screen.own() == before
        assert app.clipboard == ""
        assert len(app.screen_stack) == 1


@pytest.mark.parametrize("size", ONE_SIZE)
async def test_letters_are_commands_while_a_message_is_chosen(talk: Drive, size: tuple[int, int]) -> None:
    async with talk(size) as screen:
        app, press = screen.app, screen.pilot.press
        await press("tab")
        assert "chosen" not in screen.page()
        assert "#" not in app.divider.remark
        await press("up", "up")
        assert "▸ #3 you" in screen.page()
        assert "├─ #3" in screen.page()
        assert "e edit · c copy · p pin · b branch" in screen.page()
        await press("c")
        assert app.clipboard == SAID[1]
        await press("p")
        await screen.until(lambda: screen.chat.messages[2].pinned and not app.busy, "it is pinned")
        await press("p")
        await screen.until(lambda: not screen.chat.messages[2].pinned and not app.busy, "and no more")
        await press("e")
        assert app.prompt.text == SAID[1]
        await press("escape")
        assert app.prompt.text == ""
        await press("tab", "up", "W", *"hat e")  # no letter of a command ends it
        assert app.prompt.text == "What e"
        assert "├─ #" not in screen.page()
        app.prompt.clear()
        await press("tab", "up", "escape", *"be")
        assert app.prompt.text == "be"
        app.prompt.clear()
        await press("tab", "up", "/")
        assert app.prompt.text == "/"
        app.prompt.clear()
        await press("tab", "up")
        app.prompt.put("more")
        app.screen.set_focus(app.prompt)
        await press("enter")
        await screen.until(lambda: len(screen.own()) == 3 and not app.busy, "it is answered")
        await press("tab", "e")
        assert app.prompt.text == "e", "what was sent has ended the choice"


@pytest.mark.parametrize("size", ONE_SIZE)
async def test_a_message_is_chosen_with_the_mouse(talk: Drive, size: tuple[int, int]) -> None:
    async with talk(size) as screen:
        app = screen.app
        await screen.pilot.click(offset=screen.where(SAID[1]))
        await screen.until(lambda: "├─ #3" in screen.page(), "it is chosen")
        assert "▸ #3 you" in screen.page()
        await screen.pilot.click(offset=screen.where("c copy"))
        await screen.until(lambda: app.clipboard == SAID[1], "it is copied")
        app.divider.say("", 0.01)  # what was said of it goes
        await screen.until(lambda: "e edit" in screen.page(), "the keys are there again")
        await screen.pilot.click(offset=screen.where("e edit"))
        await screen.until(lambda: app.prompt.text == SAID[1], "it is edited")
        await screen.pilot.press("escape")
        await screen.pilot.click(offset=screen.where(SAID[1]))
        await screen.pilot.press("b")
        assert app.prompt.text == "", "b is a command again"
        await screen.pilot.press("escape", "b")
        assert app.prompt.text == "b"


async def test_keys_that_come_at_once_find_what_the_one_before_has_done(talk: Drive) -> None:
    async with talk((80, 24)) as screen:
        app = screen.app
        for keys, text in [
            (("up", "escape", *"beck"), "beck"),
            (("up", "h", *"ebck"), "hebck"),
            (("up", "up", "c", "/", *"tik"), "/tik"),
            (tuple("Where is the bee?"), "Where is the bee?"),
        ]:
            app.screen.set_focus(app.transcript)
            screen.at_once(*keys)
            await screen.until(lambda text=text: app.prompt.text == text, f"{text} has arrived")
            app.prompt.clear()
        assert app.clipboard == SAID[1]
        app.screen.set_focus(app.transcript)
        screen.at_once("up", "up", "e", *"bck")
        await screen.until(
            lambda: app.prompt.text == f"{SAID[1]}bck", "what is typed ahead is in the message"
        )


async def test_it_is_seen_where_the_keyboard_is(talk: Drive) -> None:
    async with talk((120, 36)) as screen:
        for size in (*SIZES, (20, 8)):
            await screen.pilot.resize_terminal(*size)
            await screen.pilot.pause()
            chain = screen.app.screen.focus_chain
            pages = []
            for pane in chain:
                screen.app.screen.set_focus(pane)
                await screen.pilot.pause()
                pages.append(screen.page().replace("❯", ""))
                if pane is not screen.app.prompt:
                    marked = [line for line in screen.lines() if line.startswith("▸") or "─ ▸ " in line]
                    assert len(marked) == 1, "without any colour"
            assert len(set(pages)) == len(chain) >= 2


# Anything, in any order

TYPED = st.sampled_from("ebckpzti/[]wxm1234? Hq.")
KEYS = "tab shift+tab up down left right pageup pagedown home end escape ctrl+b ctrl+t f1"
GOES = st.sampled_from(KEYS.split())
STEPS = st.one_of(
    TYPED.map(lambda text: ("type", text)),
    st.text("ebck /Wt", min_size=1, max_size=6).map(lambda text: ("at once", text)),
    st.text("ebc /", min_size=1, max_size=4).map(lambda text: ("paste", text)),
    GOES.map(lambda key: ("press", key)),
    GOES.map(lambda key: ("press", key)),
    st.sampled_from([*SIZES, (20, 8), (140, 44)]).map(lambda size: ("resize", size)),
    st.tuples(st.floats(0, 0.999), st.floats(0, 0.999)).map(lambda place: ("click", place)),
)


@settings(
    max_examples=max(settings.default.max_examples // 4, 1),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(STEPS, min_size=5, max_size=30), busy=st.booleans())
async def test_no_character_is_lost_or_obeyed_unless_something_is_chosen(
    pocket: Any, tmp_path_factory: pytest.TempPathFactory, steps: list[Any], busy: bool
) -> None:
    """Where the chat has the keyboard and a message is marked, letters may be commands; else all are text."""
    typed: Counter[str] = Counter()
    with pytest.MonkeyPatch.context() as monkeypatch:
        async with talking(pocket, tmp_path_factory.mktemp("any"), (80, 24)) as screen:
            app = screen.app
            held = Held(screen, monkeypatch, tokens=1)
            said = screen.own()
            if busy:
                app.pane.submit("And now?")  # type: ignore[attr-defined]
                said.append("And now?")
                await screen.until(lambda: len(screen.own()) == 3, "it is said")
            for what, value in steps:
                marked = any(view.marked for view in app.transcript.messages.views)
                chosen = marked and app.focused is app.transcript
                match what:
                    case "type" if not (chosen and value in FOR_COMMANDS):
                        await screen.pilot.press(value)
                        typed[value] += 1
                    case "at once":
                        screen.at_once("escape", *value)
                        typed.update(value)
                        await screen.until(lambda: True, "they have arrived")
                    case "paste":
                        app.post_message(Paste(value))
                        typed.update(value)
                        await screen.pilot.pause()
                    case "press":
                        await screen.pilot.press(value)
                        if value == "f1":
                            await screen.pilot.press("escape")
                    case "resize":
                        await screen.pilot.resize_terminal(*value)
                    case "click":
                        await click(screen, *value)
                assert len(app.screen_stack) == 1
            arrived = Counter(app.prompt.text)
            assert typed <= arrived, (typed, app.prompt.text)
            assert screen.own() == said
            assert not any(message.pinned for message in screen.chat.messages)
            assert app.pane.editing.index is None  # type: ignore[attr-defined]
            assert app.clipboard == ""
            held.go_on.set()
            await screen.answered()


async def click(screen: Screen, across: float, down: float) -> None:
    """Somewhere, but on no key that is shown, and not in the prompt, where two clicks select a word."""
    width, height = screen.app.size
    x, y = int(across * width), int(down * height)
    line = screen.lines()[y]
    entry = screen.app.query_one("#entry").region
    if y < height - 1 and not line.startswith("├─ #") and y not in range(entry.y, entry.bottom):
        await screen.pilot.click(offset=(x, y))
