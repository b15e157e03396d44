"""The real app with the real engine on a real small model, driven through Pilot."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from textual.pilot import Pilot

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.events.events import to_json
from h2o_chat.events.recorder import Recorder
from h2o_chat.tui.app import ChatApp
from h2o_chat.tui.work import ChatLike, OpenChat, Progress

WAIT_STEPS = 3000
STEP_SECONDS = 0.02

WIDE = (120, 36)
SMALL = (60, 24)


async def until(pilot: Pilot[None], met: Callable[[], Any], what: str) -> None:
    """Lets the app run until a condition holds; fails, saying what was awaited, when it never does."""
    for _ in range(WAIT_STEPS):
        if met():
            await pilot.pause()
            return
        await pilot.pause(STEP_SECONDS)
    raise AssertionError(f"waited in vain: {what}")


def opener(settings: Settings) -> OpenChat:
    """What the command line hands to the screen."""

    def open_chat(progress: Progress) -> ChatLike:
        from h2o_chat.chat.chat import Chat
        from h2o_chat.engine.engine import Engine
        from h2o_chat.models.load import load

        return Chat(Engine(load(settings, progress), settings), settings)

    return open_chat


def stored(models: Path, folder: Path) -> OpenChat:
    """The same for a conversation that is kept in a folder."""
    settings = Settings(model=str(models / "pilot-chat"), budget=48, threads=1, seed=7)

    def open_chat(progress: Progress) -> ChatLike:
        from h2o_chat.chat.chat import Chat
        from h2o_chat.chat.keeping import Keeper
        from h2o_chat.engine.engine import Engine
        from h2o_chat.models.load import load
        from h2o_chat.store import Store

        engine = Engine(load(settings, progress), settings)
        return Chat(engine, settings, Keeper(Store(folder), None, engine.session, asdict(settings)))

    return open_chat


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
        return [view.whole.plain for view in self.app.transcript.messages.views]

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


@pytest.fixture(scope="session")
def pocket() -> Any:
    """The model that comes with the program, loaded."""
    from h2o_chat.models.load import load

    return load(Settings(model=str(POCKET), threads=1), lambda *_: None)


@pytest.fixture(scope="session")
def told(pocket: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of three turns with it, 24 slots in each of its 12 caches."""
    from h2o_chat.chat.chat import Chat
    from h2o_chat.engine.engine import Engine

    settings = Settings(
        model=str(POCKET), policy="h2o-paper", budget=24, threads=1, seed=3, events_every=3, system="Be kind."
    )
    chat = Chat(Engine(pocket, settings), settings)
    path = tmp_path_factory.mktemp("told") / "told.jsonl"
    lines = [to_json(event) for event in chat.opening()]
    for text in TOLD:
        lines += [to_json(event) for event in chat.send(text, Sampling(max_tokens=24, ignore_eos=True))]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture
def drive(shared_models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Opens the app on a model of the shared folder: `async with drive("stories3m", WIDE) as screen`."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # where tracebacks of our own bugs go

    @asynccontextmanager
    async def driving(
        model: str,
        size: tuple[int, int] = WIDE,
        *,
        sampling: Sampling | None = None,
        open_chat: OpenChat | None = None,
        recorder: Recorder | None = None,
        opener_of: Callable[[str], OpenChat] | None = None,
        **options: Any,
    ) -> AsyncIterator[Screen]:
        settings = Settings(
            **({"budget": 64, "threads": 1, "seed": 7} | options), model=str(shared_models / model)
        )
        sampling = sampling or Sampling(max_tokens=60)
        app = ChatApp(open_chat or opener(settings), settings, sampling, recorder, opener_of=opener_of)
        async with app.run_test(size=size) as pilot:
            yield Screen(app, pilot)

    return driving
