"""What tests of the screen share: the running app and what a person does with it, its sizes, its models."""

import time
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import asdict
from pathlib import Path
from typing import Any

from opened_models import loaded
from rich.cells import cell_len
from textual.pilot import Pilot

from h2o_chat.base.config import Settings
from h2o_chat.base.progress import Progress
from h2o_chat.chat.commands.surface import ChatLike
from h2o_chat.tui.chat_app import ChatApp
from h2o_chat.tui.pane.jobs import OpenChat
from h2o_chat.tui.transcript.turn import TurnView

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


def unfolded(view: TurnView) -> str:
    """The text that would be shown if nothing were folded, as it is read."""
    view = copy(view)
    view.folded = view.raw = False
    view.changed()
    return view.plain


def opener(settings: Settings) -> OpenChat:
    """What the command line hands to the screen."""

    def open_chat(progress: Progress) -> ChatLike:
        from h2o_chat.chat.conversation.chat import Chat
        from h2o_chat.engine.engine import Engine

        return Chat(Engine(loaded(settings, progress), settings), settings)

    return open_chat


def stored(models: Path, folder: Path, **others: Any) -> OpenChat:
    """The same for a conversation that is kept in a folder, with other settings."""
    settings = Settings(model=str(models / "pilot-chat"), budget=48, threads=1, seed=7, **others)

    def open_chat(progress: Progress) -> ChatLike:
        from h2o_chat.chat.conversation.chat import Chat
        from h2o_chat.chat.conversation.keeper import Keeper
        from h2o_chat.engine.engine import Engine
        from h2o_chat.store import Store

        engine = Engine(loaded(settings, progress), settings)
        return Chat(engine, settings, Keeper(Store(folder), None, engine.session, asdict(settings)))

    return open_chat


def slowly(open_chat: OpenChat) -> OpenChat:
    """The same with an engine that, 60 tokens after it began, makes 50 a second.

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

    async def answered(self) -> None:
        await self.until(lambda: not self.app.busy, "the answer is finished")

    async def streaming(self) -> None:
        """Until some of the answer is on the screen."""
        await self.until(lambda: len(self.bodies()[-1]) > 20, "the answer streams")

    def bodies(self) -> list[str]:
        """The texts of the transcript from top to bottom: messages, notes, errors, the end being written."""
        return [unfolded(view) for view in self.app.transcript.messages.views]

    def lines(self) -> list[str]:
        """The screen as a person sees it, row by row."""
        width, height = self.app.size
        strips = self.app.screen._compositor.render_strips()
        rows = ["".join(segment.text for segment in strip) for strip in strips]
        assert len(rows) == height
        assert all(cell_len(row) <= width for row in rows)  # some characters take no cell
        return rows


POCKET = Path(__file__).parents[2] / "assets" / "pocket"
TOLD = ("Hi, my name is Flora and my locker code is K7Q2.", "Do you like films?", "What is my locker code?")
