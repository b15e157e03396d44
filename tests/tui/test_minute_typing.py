"""Whatever is typed arrives: in the prompt, in what waits, or in the conversation; and is no command.

Rows 1, 3 and 9 of what a new user met.
"""

import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from screens import POCKET, Screen
from textual.events import Key, Paste
from textual.geometry import Offset
from textual.widget import Widget

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import H2OChatError
from h2o_chat.tui.app import ChatApp
from h2o_chat.tui.panel.strip import RememberStrip
from h2o_chat.tui.transcript.transcript import Transcript

SIZES = [(120, 36), (80, 24), (60, 20)]
SAID = ("Hi, my name is Flora.", "Do you like films?")
FOR_COMMANDS = "ebckpzti"
"""Letters that are commands while a message is chosen."""


class Held:
    """The engine, which goes no further than it is let: until then it waits, or is stopped."""

    def __init__(self, screen: Screen, monkeypatch: pytest.MonkeyPatch, *, tokens: int) -> None:
        """
        Args:
            tokens: of each answer after which it waits; 0: before the prompt is read.
        """
        self.go_on = threading.Event()
        self.fails: H2OChatError | None = None
        engine, real = screen.chat.engine, screen.chat.engine.generate

        def generate(ids: list[int], sampling: Sampling, cancel: Callable[[], bool]) -> Iterator[Any]:
            events, seen = real(ids, sampling, cancel), 0
            while seen < tokens:
                event = next(events)
                seen += type(event).__name__ == "Token"
                yield event
            give_up = time.monotonic() + 100
            while not self.go_on.is_set() and not cancel():
                assert time.monotonic() < give_up, "nobody went on"
                time.sleep(0.005)
            if self.fails:
                raise self.fails
            yield from events

        monkeypatch.setattr(engine, "generate", generate)


@pytest.fixture
def talk(pocket: Any, tmp_path: Path) -> Callable[..., Any]:
    """The app with the bundled model and two turns said, stored: `async with talk((80, 24)) as screen`."""
    return lambda size, said=SAID: talking(pocket, tmp_path, size, said)


@asynccontextmanager
async def talking(
    pocket: Any, folder: Path, size: tuple[int, int], said: tuple[str, ...] = SAID, **options: Any
) -> AsyncIterator[Screen]:
    given = Settings(model=str(POCKET), budget=64, threads=1, seed=7)
    opened = options.pop("opened", None) or (lambda: chat_with(pocket, given, folder))
    app = ChatApp(lambda _: opened(), given, Sampling(max_tokens=12, temperature=0.0), **options)
    async with app.run_test(size=size) as pilot:
        screen = Screen(app, pilot)
        if said:
            await screen.opened()
        for text in said:
            app.pane.send(text)  # type: ignore[attr-defined]  # not typed: `up` finds nothing
            await screen.until(lambda: screen.chat.messages and not app.busy, "it is answered")
        yield screen


def chat_with(pocket: Any, given: Settings, folder: Path) -> Any:
    from h2o_chat.chat.chat import Chat
    from h2o_chat.chat.keeping import Keeper
    from h2o_chat.engine.engine import Engine
    from h2o_chat.store import Store

    engine = Engine(pocket, given)
    return Chat(engine, given, Keeper(Store(folder / "data"), None, engine.session, asdict(given)))


def own(screen: Screen) -> list[str]:
    return [message.text for message in screen.chat.messages if message.role == "user"]


def page(screen: Screen) -> str:
    return "\n".join(screen.lines())


def panes(screen: Screen) -> list[Widget]:
    """All beside the prompt that can have the keyboard at this size."""
    return [one for one in screen.app.screen.focus_chain if one is not screen.app.prompt]


# The prompt is home


@pytest.mark.parametrize("size", SIZES)
async def test_what_is_typed_beside_the_prompt_is_text(talk: Any, size: tuple[int, int]) -> None:
    async with talk(size) as screen:
        app, before = screen.app, own(screen)
        assert {type(pane) for pane in panes(screen)} >= {Transcript, RememberStrip}
        for pane in panes(screen):
            for text in ("Where is the bee?", "/branch", "[x] w m 1234 ]", "zip tick"):
                app.screen.set_focus(pane)
                await screen.pilot.press(*text)
                assert app.prompt.text == text
                assert app.focused is app.prompt
                app.prompt.clear()
            app.screen.set_focus(pane)
            app.post_message(Paste("e b\rc"))
            await screen.until(lambda: app.prompt.text == "e b\nc", "it is pasted")
            app.prompt.clear()
            app.screen.set_focus(pane)
            await screen.pilot.press("escape")
            assert app.focused is app.prompt
        assert own(screen) == before
        assert app.clipboard == ""
        assert len(app.screen_stack) == 1


@pytest.mark.parametrize("size", SIZES)
async def test_letters_are_commands_while_a_message_is_chosen(talk: Any, size: tuple[int, int]) -> None:
    async with talk(size) as screen:
        app, press = screen.app, screen.pilot.press
        await press("tab")
        assert "chosen" not in page(screen)
        assert "#" not in app.divider.remark
        await press("up", "up")
        assert "▸ #3 you" in page(screen)
        assert "├─ #3" in page(screen)
        assert "e edit · c copy · p pin · b branch" in page(screen)
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
        assert "├─ #" not in page(screen)
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
        await screen.until(lambda: len(own(screen)) == 3 and not app.busy, "it is answered")
        await press("tab", "e")
        assert app.prompt.text == "e", "what was sent has ended the choice"


@pytest.mark.parametrize("size", SIZES)
async def test_a_message_is_chosen_with_the_mouse(talk: Any, size: tuple[int, int]) -> None:
    async with talk(size) as screen:
        app = screen.app
        await screen.pilot.click(offset=where(screen, SAID[1]))
        await screen.until(lambda: "├─ #3" in page(screen), "it is chosen")
        assert "▸ #3 you" in page(screen)
        await screen.pilot.click(offset=where(screen, "c copy"))
        await screen.until(lambda: app.clipboard == SAID[1], "it is copied")
        app.divider.say("", 0.01)  # what was said of it goes
        await screen.until(lambda: "e edit" in page(screen), "the keys are there again")
        await screen.pilot.click(offset=where(screen, "e edit"))
        await screen.until(lambda: app.prompt.text == SAID[1], "it is edited")
        await screen.pilot.press("escape")
        await screen.pilot.click(offset=where(screen, SAID[1]))
        await screen.pilot.press("b")
        assert app.prompt.text == "", "b is a command again"
        await screen.pilot.press("escape", "b")
        assert app.prompt.text == "b"


async def test_keys_that_come_at_once_find_what_the_one_before_has_done(talk: Any) -> None:
    async with talk((80, 24)) as screen:
        app = screen.app
        for keys, text in [
            (("up", "escape", *"beck"), "beck"),
            (("up", "h", *"ebck"), "hebck"),
            (("up", "up", "c", "/", *"tik"), "/tik"),
            (tuple("Where is the bee?"), "Where is the bee?"),
        ]:
            app.screen.set_focus(app.transcript)
            at_once(screen, *keys)
            await screen.until(lambda text=text: app.prompt.text == text, f"{text} has arrived")
            app.prompt.clear()
        assert app.clipboard == SAID[1]
        app.screen.set_focus(app.transcript)
        at_once(screen, "up", "up", "e", *"bck")
        await screen.until(
            lambda: app.prompt.text == f"{SAID[1]}bck", "what is typed ahead is in the message"
        )


def at_once(screen: Screen, *keys: str) -> None:
    for key in keys:
        screen.app.post_message(Key(key, key if len(key) == 1 else None))


def where(screen: Screen, text: str) -> Offset:
    return next(Offset(line.index(text), row) for row, line in enumerate(screen.lines()) if text in line)


@pytest.mark.parametrize("size", [*SIZES, (20, 8)])
async def test_it_is_seen_where_the_keyboard_is(talk: Any, size: tuple[int, int]) -> None:
    async with talk(size) as screen:
        chain = screen.app.screen.focus_chain
        pages = []
        for pane in chain:
            screen.app.screen.set_focus(pane)
            await screen.pilot.pause()
            pages.append(page(screen).replace("❯", ""))
            if pane is not screen.app.prompt:
                marked = [line for line in screen.lines() if line.startswith("▸") or "─ ▸ " in line]
                assert len(marked) == 1, "without any colour"
        assert len(set(pages)) == len(chain) >= 2


async def test_the_panel_is_shown_wide_and_hidden_by_one_key(talk: Any) -> None:
    async with talk((120, 36)) as screen:
        widths = []
        for _ in range(4):
            panel = screen.app.query_one("#panel")
            widths.append(panel.size.width if panel.display else 0)
            await screen.pilot.press("ctrl+b")
            await screen.pilot.pause()
        narrow, wide, hidden, again = widths
        assert hidden == 0 < narrow == again < wide


# Stopping and clearing


@pytest.mark.parametrize("size", SIZES)
async def test_what_is_stopped_comes_back_as_it_was_typed(
    talk: Any, size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("book.md").write_text("Trains run. " * 50)
    async with talk(size) as screen:
        app = screen.app
        Held(screen, monkeypatch, tokens=0)
        for key in ("escape", "ctrl+c"):
            for typed in ("read @book.md ", "//etc is a folder"):
                await screen.ask(typed)
                await screen.until(lambda: app.busy, "it is read")
                await screen.pilot.press(*"more")
                await screen.pilot.press(key)
                await screen.answered()
                assert app.prompt.text == f"{typed}\nmore"
                assert own(screen) == list(SAID)
                app.prompt.clear()
                app._interrupted = float("-inf")


@pytest.mark.parametrize("size", SIZES)
async def test_text_typed_into_the_help_goes_to_the_prompt(talk: Any, size: tuple[int, int]) -> None:
    async with talk(size) as screen:
        app = screen.app
        for typed in ("q", "/", "hello"):
            await screen.pilot.press("f1")
            assert len(app.screen_stack) == 2
            at_once(screen, *typed)
            await screen.until(lambda: len(app.screen_stack) == 1, "the help is closed")
        await screen.pilot.press("f1")
        app.post_message(Paste(" there"))
        await screen.until(lambda: len(app.screen_stack) == 1, "the help is closed")
        await screen.until(lambda: app.prompt.text == "q/hello there", "all has arrived")
        for key in ("escape", "enter", "f1"):
            await screen.pilot.press("f1", key)
            assert len(app.screen_stack) == 1
        assert own(screen) == list(SAID)


@pytest.mark.parametrize("size", SIZES)
async def test_ctrl_c_clears_the_prompt_before_it_leaves(talk: Any, size: tuple[int, int]) -> None:
    async with talk(size) as screen:
        app, press = screen.app, screen.pilot.press
        await press(*"a long text", "ctrl+c")
        assert app.prompt.text == ""
        await press("ctrl+c")
        assert "ctrl+c again leaves" in app.divider.remark
        assert app.is_running
        app._interrupted = float("-inf")
        await press("up")
        assert app.prompt.text == "a long text"
        await press("tab", "ctrl+c")
        assert app.prompt.text == "", "from anywhere"
        await press("ctrl+c")
        app.prompt.put("typed at the last moment")
        await press("ctrl+c")
        await screen.until(lambda: not app.is_running, "it leaves, as it has said")
        assert app.prompt._history.older("") == "typed at the last moment"


async def test_a_selection_is_copied_while_an_answer_is_made(
    talk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with talk((80, 24)) as screen:
        app, held = screen.app, Held(screen, monkeypatch, tokens=1)
        await screen.ask("What is my name?")
        await screen.until(lambda: app.busy, "it is answered")
        await screen.pilot.press(*"flower", "shift+left", "shift+left", "ctrl+c")
        assert app.clipboard == "er"
        assert app.busy
        held.go_on.set()
        await screen.answered()


# Commands that fail


@pytest.mark.parametrize("size", SIZES)
async def test_a_command_that_failed_is_replaced_by_typing(talk: Any, size: tuple[int, int]) -> None:
    async with talk(size) as screen:
        app, press = screen.app, screen.pilot.press
        for wrong in ("/polcy window", "/budget many", "/copy 99"):
            await press(*wrong, "enter")
            assert app.prompt.selected_text == wrong
            await press(*"/stats", "enter")
            assert app.prompt.text == ""
            assert "KV heads" in screen.bodies()[-1]
            await press("up", "up")
            assert app.prompt.text == wrong, "and it is not lost"
            await press("ctrl+c")
        await press(*"/polcy", "enter", "ctrl+c")
        assert app.prompt.text == "", "nobody has selected it"
        assert app.clipboard == ""


@pytest.mark.parametrize("size", SIZES)
async def test_a_file_that_is_typed_out_is_sent(
    talk: Any, size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    Path("notes.md").write_text("Trains run.")
    Path("notes.md.old").write_text("They do not.")
    async with talk(size) as screen:
        await screen.pilot.press(*"read @notes.md", "enter")
        await screen.until(lambda: len(own(screen)) == 3 and not screen.app.busy, "it is answered")
        assert "Trains run." in own(screen)[-1]
        await screen.pilot.press(*"read @notes.md", "down", "enter")
        assert screen.app.prompt.text == "read @notes.md.old ", "another one was chosen"


# Waiting


@pytest.mark.parametrize("size", SIZES)
async def test_what_is_sent_meanwhile_waits_its_turn(
    talk: Any, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with talk(size) as screen:
        app, press = screen.app, screen.pilot.press
        held = Held(screen, monkeypatch, tokens=1)
        await screen.ask("one")
        await screen.until(lambda: app.busy, "it is answered")
        await press(*"two", "enter", *"three", "enter", *"four", "enter")
        assert app.prompt.text == ""
        lines = [line for line in screen.lines() if "waits" in line]
        assert [line.split("“")[1].split("”")[0] for line in lines] == ["two", "three", "four"]
        assert "up takes it back" in lines[-1]
        await press("up")
        assert app.prompt.text == "four"
        await press("!", "enter")
        await screen.pilot.click(offset=where(screen, "“four!”"))
        assert app.prompt.text == "four!", "or with a click"
        await press("enter")
        held.go_on.set()
        await screen.until(lambda: len(own(screen)) == 6 and not app.busy, "all are answered")
        assert own(screen)[2:] == ["one", "two", "three", "four!"]
        assert "waits" not in page(screen)


@pytest.mark.parametrize("size", SIZES)
async def test_what_waits_comes_back_when_the_answer_is_stopped_or_fails(
    talk: Any, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with talk(size) as screen:
        app = screen.app
        held = Held(screen, monkeypatch, tokens=1)
        for how in ("stopped", "failed"):
            await screen.ask("one")
            await screen.until(lambda: app.busy, "it is answered")
            await screen.pilot.press(*"two", "enter", *"three", "enter", *"fo")
            if how == "stopped":
                await screen.pilot.press("escape")
            else:
                held.fails = H2OChatError("The machine is tired.")
                held.go_on.set()
            await screen.answered()
            await screen.until(lambda: app.prompt.text == "two\nthree\nfo", f"what waited is back: {how}")
            assert "waits" not in page(screen)
            await screen.pilot.press("u", "r")
            assert app.prompt.text == "two\nthree\nfour", "what was being typed goes on"
            app.prompt.clear()


@pytest.mark.parametrize("size", SIZES)
async def test_what_is_sent_while_a_model_loads_waits(
    pocket: Any, tmp_path: Path, size: tuple[int, int]
) -> None:
    given = Settings(model=str(POCKET), budget=64, threads=1, seed=7)
    opens = threading.Event()

    def late() -> Any:
        opens.wait(100)
        return chat_with(pocket, given, tmp_path)

    options = {"opener_of": lambda name: lambda _: late()}
    async with talking(pocket, tmp_path, size, (), opened=late, **options) as screen:
        app, press = screen.app, screen.pilot.press
        for count in (1, 2):
            await press(*"one", "enter", *"two", "enter")
            assert page(screen).count("waits") == 2
            opens.set()
            await screen.opened()
            await screen.until(lambda: own(screen) == ["one", "two"] and not app.busy, "both are answered")
            if count == 1:
                opens.clear()
                await screen.ask("/model another")
                await screen.until(lambda: app.busy, "another model is opened")


async def test_what_is_sent_while_files_are_read_or_it_goes_back_waits(
    talk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.md").write_text("Trains run.")
    async with talk((80, 24)) as screen:
        app, answers = screen.app, threading.Event()
        read = Path.open

        def late(path: Path, *args: Any, **kwargs: Any) -> Any:
            if path.name == "notes.md":
                answers.wait(100)
            return read(path, *args, **kwargs)

        monkeypatch.setattr(Path, "open", late)
        await screen.ask("read @notes.md ")
        await screen.until(lambda: "reading files" in app.divider.remark, "files are read")
        await screen.pilot.press(*"two", "enter")
        assert "“two”" in page(screen)
        answers.set()
        await screen.until(lambda: len(own(screen)) == 4 and not app.busy, "both are answered")
        assert own(screen)[3] == "two"
        answers.clear()
        await screen.ask("read @notes.md ")
        await screen.pilot.press(*"two", "enter", "escape")
        assert app.prompt.text == "read @notes.md \ntwo"
        answers.set()
        app.prompt.clear()

        held = Held(screen, monkeypatch, tokens=0)
        await screen.pilot.press("ctrl+e", *" now", "enter")
        await screen.until(lambda: app.busy, "it goes back")
        await screen.pilot.press(*"three", "enter")
        held.go_on.set()
        await screen.until(lambda: len(own(screen)) == 5 and not app.busy, "both are answered")
        assert own(screen)[3:] == ["two now", "three"]


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
            said = own(screen)
            if busy:
                app.pane.send("And now?")  # type: ignore[attr-defined]
                said.append("And now?")
                await screen.until(lambda: len(own(screen)) == 3, "it is said")
            for what, value in steps:
                marked = any(view.marked for view in app.transcript.messages.views)
                chosen = marked and app.focused is app.transcript
                match what:
                    case "type" if not (chosen and value in FOR_COMMANDS):
                        await screen.pilot.press(value)
                        typed[value] += 1
                    case "at once":
                        at_once(screen, "escape", *value)
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
            assert own(screen) == said
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
