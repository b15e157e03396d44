"""The real app with the real engine on a real small model, driven through Pilot."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from screens import POCKET, TOLD, WIDE, Screen, loaded, opener, slowly

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.events.events import to_json
from h2o_chat.events.recording import Recorder
from h2o_chat.tui.chat_app import ChatApp
from h2o_chat.tui.pane.jobs import OpenChat


@pytest.fixture(scope="session")
def pocket() -> Any:
    """The model that comes with the program, as the program opens it."""
    return loaded(Settings(model=str(POCKET), threads=1))


@pytest.fixture(scope="session")
def exact() -> Any:
    """The same, computed alike on every machine: for what is compared with what was recorded."""
    from h2o_chat.models.load import load

    return load(Settings(model=str(POCKET), threads=1), lambda *_: None)


@pytest.fixture(scope="session")
def told(exact: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of three turns with it, 24 slots in each of its 12 caches."""
    from h2o_chat.chat.conversation.chat import Chat
    from h2o_chat.engine.engine import Engine

    settings = Settings(
        model=str(POCKET), policy="h2o-paper", budget=24, threads=1, seed=3, events_every=3, system="Be kind."
    )
    chat = Chat(Engine(exact, settings), settings)
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
        opener_of: Callable[[str, str | None], OpenChat] | None = None,
        **options: Any,
    ) -> AsyncIterator[Screen]:
        settings = Settings(
            **({"budget": 64, "threads": 1, "seed": 7} | options), model=str(shared_models / model)
        )
        sampling = sampling or Sampling(max_tokens=60)
        opened = open_chat or opener(settings)
        if sampling.max_tokens is None:  # somebody will stop it
            opened = slowly(opened)
        app = ChatApp(opened, settings, sampling, recorder, opener_of=opener_of)
        async with app.run_test(size=size) as pilot:
            yield Screen(app, pilot)

    return driving
