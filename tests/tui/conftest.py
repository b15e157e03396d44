"""The real app with the real engine on a real small model, driven through Pilot."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from screens import POCKET, TOLD, WIDE, Drive, Screen, chat_of, loaded, opener, slowly
from typed import SAID, talking

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.chat.conversation import opening
from h2o_chat.chat.conversation.opening import ConversationPlace
from h2o_chat.chat.memory.cache_view import CacheView
from h2o_chat.events.events import Session, to_json
from h2o_chat.events.recording import Recorder, read
from h2o_chat.tui.chat_app import ChatApp
from h2o_chat.tui.pane.jobs import OpenChat

FIVE = Sampling(max_tokens=5)


@pytest.fixture(scope="session")
def pocket() -> Any:
    """The model that comes with the program, as the program opens it."""
    return loaded(Settings(model=str(POCKET), threads=1))


@pytest.fixture(scope="session")
def exact() -> Any:
    """This model, computed alike on every machine: for what is compared with what was recorded."""
    from h2o_chat.models.load import load

    return load(Settings(model=str(POCKET), threads=1), lambda *_: None)


@pytest.fixture(scope="session")
def told(exact: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of three turns with it, 24 slots in each of its 12 caches."""
    settings = Settings(
        model=str(POCKET), policy="h2o-paper", budget=24, threads=1, seed=3, events_every=3, system="Be kind."
    )
    chat = chat_of(exact, settings)
    path = tmp_path_factory.mktemp("told") / "told.jsonl"
    lines = [to_json(event) for event in chat.opening()]
    for text in TOLD:
        lines += [to_json(event) for event in chat.send(text, Sampling(max_tokens=24, ignore_eos=True))]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture
def memory(told: Path) -> CacheView:
    """The cache, as the screen knows it when that recording has ended."""
    found = CacheView()
    for event in read(told):
        if isinstance(event, Session):
            found.begin(event, None)
        found.add(event)
    return found


@pytest.fixture
def drive(shared_models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Drive:
    """The app with a model of the shared folder: `async with drive("stories3m") as screen`.

    `opens=False` does not wait until the model is open; where a folder is named, the conversation is stored.
    """
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # where tracebacks of our own bugs go

    @asynccontextmanager
    async def driving(
        model: str,
        size: tuple[int, int] = WIDE,
        *,
        sampling: Sampling | None = None,
        open_chat: OpenChat | None = None,
        recorder: Recorder | None = None,
        opener_of: Callable[[str, str | None], OpenChat] | None = None,
        opens: bool = True,
        folder: Path | None = None,
        **options: Any,
    ) -> AsyncIterator[Screen]:
        settings = Settings(
            **({"budget": 64, "threads": 1, "seed": 7} | options), model=str(shared_models / model)
        )
        sampling = sampling or Sampling(max_tokens=60)
        opened = open_chat or opener(settings, folder)
        if sampling.max_tokens is None:  # somebody will stop it
            opened = slowly(opened)
        app = ChatApp(opened, settings, sampling, recorder, opener_of=opener_of)
        async with app.run_test(size=size) as pilot:
            screen = Screen(app, pilot)
            if opens:
                await screen.opened()
            yield screen

    return driving


@pytest.fixture
def stored(drive: Drive, tmp_path: Path) -> Drive:
    """The app with a stored conversation of a small chat model: `async with stored(SMALL) as screen`."""
    return partial(drive, "pilot-chat", folder=tmp_path / "data", sampling=Sampling(max_tokens=24), budget=48)


@pytest.fixture
def switching(tmp_path: Path) -> Drive:
    """The app as the command line opens it, which opens other models: `async with switching("pocket")`.

    `stores=False` keeps all of it in memory.
    """

    @asynccontextmanager
    async def switched(
        model: str, sampling: Sampling = FIVE, *, stores: bool = True, system: str | None = None, **how: Any
    ) -> AsyncIterator[Screen]:
        settings = Settings(model=model, budget=64, threads=1, seed=7, system=system)
        kept = ConversationPlace(tmp_path / "data" if stores else None)
        first, others = opening.opener(settings, kept, **how), opening.opener_of(settings, kept, **how)
        app = ChatApp(first, settings, sampling, opener_of=others)
        async with app.run_test(size=WIDE) as pilot:
            yield Screen(app, pilot)

    return switched


@pytest.fixture
def talk(pocket: Any, tmp_path: Path) -> Drive:
    """The bundled model and two turns said, stored: `async with talk((80, 24)) as screen`."""
    return lambda size, said=SAID, **options: talking(pocket, tmp_path, size, said, **options)
