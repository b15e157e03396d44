"""A chat with the bundled model that somebody types into."""

import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from screens import POCKET, Screen
from sweep import sweep
from textual.events import Key
from textual.geometry import Offset

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import H2OChatError
from h2o_chat.tui.chat_app import ChatApp

SIZES = [(120, 36), (80, 24), (60, 20)]
ONE_SIZE = [(80, 24), *sweep(((120, 36),), ((60, 20),))]
"""Where the screen is as wide as most; `make test-all` has the others."""
SAID = ("Hi, my name is Flora.", "Do you like films?")


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

        def generate(*asked: Any) -> Iterator[Any]:
            events, seen = real(*asked), 0
            while seen < tokens:
                event = next(events)
                seen += type(event).__name__ == "Token"
                yield event
            give_up = time.monotonic() + 100
            while not self.go_on.is_set() and not asked[2]():
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
            app.pane.submit(text)  # type: ignore[attr-defined]  # not typed: `up` finds nothing
            await screen.until(lambda: screen.chat.messages and not app.busy, "it is answered")
        yield screen


def chat_with(pocket: Any, given: Settings, folder: Path) -> Any:
    from h2o_chat.chat.conversation.chat import Chat
    from h2o_chat.chat.conversation.keeper import Keeper
    from h2o_chat.engine.engine import Engine
    from h2o_chat.store import Store

    engine = Engine(pocket, given)
    return Chat(engine, given, Keeper(Store(folder / "data"), None, engine.session, asdict(given)))


def own(screen: Screen) -> list[str]:
    return [message.text for message in screen.chat.messages if message.role == "user"]


def page(screen: Screen) -> str:
    return "\n".join(screen.lines())


def at_once(screen: Screen, *keys: str) -> None:
    for key in keys:
        screen.app.post_message(Key(key, key if len(key) == 1 else None))


def where(screen: Screen, text: str) -> Offset:
    return next(Offset(line.index(text), row) for row, line in enumerate(screen.lines()) if text in line)
