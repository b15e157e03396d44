"""A chat with the bundled model that somebody types into."""

import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from screens import POCKET, Screen, chat_of
from sweep import sweep

from h2o_chat.base.config import Look, Sampling, Settings
from h2o_chat.base.errors import H2OChatError
from h2o_chat.base.progress import Progress
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


@asynccontextmanager
async def talking(
    pocket: Any,
    folder: Path,
    size: tuple[int, int],
    said: tuple[str, ...] = SAID,
    *,
    first: Callable[[], Any] | None = None,
    theme: str = "h2o-dark",
    **others: Any,
) -> AsyncIterator[Screen]:
    """The app with the bundled model when this was said in it; it is stored.

    Args:
        first: what is called before this model is opened, and before any other; nobody waits for it here.
    """
    given = Settings(**({"budget": 64, "threads": 1, "seed": 7} | others), model=str(POCKET))

    def open_chat(_: Progress) -> Any:
        if first:
            first()
        return chat_of(pocket, given, folder / "data")

    sampling = Sampling(max_tokens=12)
    app = ChatApp(open_chat, given, sampling, look=Look(theme=theme), opener_of=lambda *_: open_chat)
    async with app.run_test(size=size) as pilot:
        screen = Screen(app, pilot)
        if not first:
            await screen.opened()
        for text in said:
            app.pane.submit(text)  # type: ignore[attr-defined]  # not typed: `up` finds nothing
            await screen.until(lambda: screen.chat.messages and not app.busy, "it is answered")
        yield screen
