"""The running app and what a person does with it, its sizes, its models: shared by tests of the screen."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import asdict
from pathlib import Path
from typing import Any

from opened_models import loaded
from rich.cells import cell_len
from textual.app import App
from textual.events import Key
from textual.geometry import Offset
from textual.pilot import Pilot
from textual.widgets import Static

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.progress import Progress
from h2o_chat.chat.commands.surface import ChatLike
from h2o_chat.events.events import Session
from h2o_chat.events.recording import read
from h2o_chat.tui.chat_app import ChatApp
from h2o_chat.tui.pane.jobs import Jobs, OpenChat
from h2o_chat.tui.replay import Pace, Player, ReplayPane
from h2o_chat.tui.transcript.message_view import MessageView

Drive = Callable[..., Any]
"""The type of the fixtures `drive`, `stored` and `talk`: each opens the app, and gives its screen."""

WAIT_STEPS = 3000
STEP_SECONDS = 0.02

WIDE = (120, 36)
SMALL = (60, 24)


async def until(pilot: Pilot[None], met: Callable[[], Any], what: str) -> None:
    """Lets the app run until a condition holds; fails, saying what was awaited, when it never does."""
    with pilot.app._context():  # a pause draws what is due, and a scroll bar asks which app it belongs to
        for _ in range(WAIT_STEPS):
            if met():
                await pilot.pause()
                return
            await pilot.pause(STEP_SECONDS)
    raise AssertionError(f"waited in vain: {what}")


def unfolded(view: MessageView) -> str:
    """The text that would be shown if nothing were folded, as it is read."""
    view = copy(view)
    view.folded = view.raw = False
    view.changed()
    return view.plain


def chat_of(model: Any, settings: Settings, folder: Path | None = None) -> Any:
    """A chat with an opened model; it is stored where there is a folder."""
    from h2o_chat.chat.conversation.chat import Chat
    from h2o_chat.chat.conversation.keeper import Keeper
    from h2o_chat.engine.engine import Engine
    from h2o_chat.store import Store

    engine = Engine(model, settings)
    keeper = Keeper(Store(folder), None, engine.session, asdict(settings)) if folder else None
    return Chat(engine, settings, keeper)


def opener(settings: Settings, folder: Path | None = None) -> OpenChat:
    """Opens a chat with a model, as the command line has the screen do it."""
    return lambda progress: chat_of(loaded(settings, progress), settings, folder)


def replaying(path: Path, speed: float = float("inf"), name: str = "", **options: Any) -> ChatApp:
    """A recording on the screen, as a file of this name, and of a model named so."""
    player, name = Player(read(path), Pace(speed)), name or path.name
    pane = ReplayPane(Jobs(), player, name)
    return ChatApp(player.open, Settings(model=name), Sampling(), pane=pane, **options)


@asynccontextmanager
async def replayed(path: Path, size: tuple[int, int] = WIDE, **options: Any) -> AsyncIterator["Screen"]:
    """A recording on the screen that has ended."""
    app = replaying(path, **options)
    async with app.run_test(size=size) as pilot:
        screen = Screen(app, pilot)
        await screen.until(lambda: "it has ended" in screen.replay_line(), "the recording has ended")
        yield screen


def slowly(open_chat: OpenChat) -> OpenChat:
    """Opens a chat whose engine, 60 tokens after it began, makes 50 a second.

    Pilot waits after each key until nothing is computed, for up to two seconds: so long an answer without an
    end would be made at full speed.
    """

    def open_slowly(progress: Progress) -> ChatLike:
        chat: Any = open_chat(progress)
        real = chat.engine.generate

        def generate(ids: Any, sampling: Any, cancel: Callable[[], bool], *others: Any) -> Iterator[Any]:
            for number, event in enumerate(real(ids, sampling, cancel, *others)):
                if number > 60 and not cancel():  # an engine apart is ahead: what it has made is thrown away
                    time.sleep(0.02)
                yield event

        chat.engine.generate = generate
        return chat

    return open_slowly


def held(chat: Any) -> dict[int, set[tuple[int, int]]]:
    """By position, the (layer, KV head) pairs that hold it, counted from the cache itself."""
    found: dict[int, set[tuple[int, int]]] = {}
    for layer in range(chat.session.layers):
        for head, slots in enumerate(chat.engine.cache.kept(layer)[0].tolist()):
            for position in slots:
                if position >= 0:
                    found.setdefault(position, set()).add((layer, head))
    return found


def rows(app: App[None]) -> list[str]:
    return ["".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips()]


class Screen:
    """The running app and what a person does with it."""

    def __init__(self, app: ChatApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    @property
    def chat(self) -> Any:
        assert self.app.chat is not None
        return self.app.chat

    async def until(self, met: Callable[[], Any], what: str) -> None:
        await until(self.pilot, met, what)

    async def opened(self) -> None:
        await self.until(lambda: self.app.chat, "the model is open")

    async def ask(self, text: str) -> None:
        """Types a prompt and sends it."""
        self.app.prompt.text = text
        await self.pilot.press("enter")

    async def start(self, text: str) -> None:
        """Sends it, and waits until something is done with it."""
        await self.ask(text)
        await self.until(lambda: self.app.busy, "something is done")

    async def answered(self) -> None:
        await self.until(lambda: not self.app.busy, "the answer is finished")

    async def say(self, *texts: str) -> str:
        """Sends each when the one before is answered; what stands last in the transcript then."""
        for text in texts:
            await self.ask(text)
            await self.answered()
        return self.bodies()[-1]

    def at_once(self, *keys: str) -> None:
        """Keys that come in one piece, as a terminal sends them when the machine is busy."""
        for key in keys:
            self.app.post_message(Key(key, key if len(key) == 1 else None))

    async def streaming(self) -> None:
        """Until some of the answer is on the screen."""
        await self.until(lambda: len(self.bodies()[-1]) > 20, "the answer streams")

    def bodies(self) -> list[str]:
        """The texts of the transcript from top to bottom: messages, notes, errors, the end being written."""
        return [unfolded(view) for view in self.app.transcript.messages.views]

    def own(self) -> list[str]:
        """The messages of the person."""
        return [message.text for message in self.chat.messages if message.role == "user"]

    def replay_line(self) -> str:
        """The text that a recording has in the place of the prompt."""
        return str(self.app.query_one("#replaying", Static).content)

    async def another(self) -> None:
        """Begins another conversation."""
        await self.pilot.press("ctrl+n")
        await self.until(lambda: not self.chat.messages, "another has begun")
        await self.answered()

    def said(self, what: str) -> bool:
        """Whether something in the transcript says this."""
        return any(what in body for body in self.bodies())

    def lines(self) -> list[str]:
        """The screen as a person sees it, row by row."""
        width, height = self.app.size
        found = rows(self.app)
        assert len(found) == height
        assert all(cell_len(row) <= width for row in found)  # some characters take no cell
        return found

    def page(self) -> str:
        return "\n".join(self.lines())

    def where(self, text: str) -> Offset:
        return next(Offset(line.index(text), row) for row, line in enumerate(self.lines()) if text in line)

    def looks(self) -> list[Any]:
        """The styles in which something is drawn."""
        strips = self.app.screen._compositor.render_strips()
        return [segment.style for strip in strips for segment in strip if segment.style]


POCKET = Path(__file__).parents[2] / "assets" / "pocket"
TOLD = ("Hi, my name is Flora and my locker code is K7Q2.", "Do you like films?", "What is my locker code?")
RECORDING = Path(__file__).parent / "recordings" / "chat.jsonl"
"""The real engine, recorded by tools/make/make_recordings.py."""
LONG = Sampling(max_tokens=None, ignore_eos=True)  # an answer that only a person ends
SESSION = Session(
    *("m", None, "plain", "h2o", 64, 4, 32, 16, "chunked", "none", "float32", "float32", "cpu"),
    *("transformers", 1, 7, 2, 4, 256),
)
