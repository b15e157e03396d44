"""Stored conversations with a real chat model."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import opened_models
import pytest

from h2o_chat.base.config import EngineName, Sampling, Settings
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.keeper import Keeper
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import Event, Token
from h2o_chat.models.load import Loaded
from h2o_chat.store import Store

SETTINGS = Settings(budget=48, seed=7, threads=1)
SHORT = Sampling(max_tokens=24, ignore_eos=True)
SAID = (
    "Hi, my name is Flora.",
    "My locker code is K7Q2.",
    "Do you like films?",
    "What is my locker code?",
    "I want to book a table for two tonight.",
    "I moved to Tarsenburg last year with my dog Rex.",
    "What is my name?",
    "Tell me a story about a baker.",
    "Thanks!",
)


@pytest.fixture(scope="module")
def loaded(shared_models: Path, step: EngineName) -> Loaded:
    return opened_models.loaded(replace(SETTINGS, model=str(shared_models / "pilot-chat"), engine=step))


def open_chat(
    loaded: Loaded, store: Store | None, conversation: str | None = None, settings: Settings = SETTINGS
) -> Chat:
    engine = Engine(loaded, settings)
    keeper = Keeper(store, conversation, engine.session, asdict(settings)) if store else None
    return Chat(engine, settings, keeper)


def resumed(loaded: Loaded, store: Store, conversation: str, settings: Settings = SETTINGS) -> Chat:
    chat = open_chat(loaded, store, conversation, settings)
    assert chat.resume(lambda _: None)
    return chat


def conversation_of(chat: Chat) -> str:
    assert chat.keeper is not None
    assert chat.keeper.conversation is not None
    return chat.keeper.conversation


def say(chat: Chat, text: str, sampling: Sampling = SHORT) -> list[int]:
    return answer(chat.send(text, sampling))


def talked(loaded: Loaded, store: Store | None, messages: int, settings: Settings = SETTINGS) -> Chat:
    """A chat in which the first messages of `SAID` were answered."""
    chat = open_chat(loaded, store, settings=settings)
    for text in SAID[:messages]:
        say(chat, text)
    return chat


def answer(events: Iterator[Event]) -> list[int]:
    return [event.id for event in events if isinstance(event, Token)]


def codes(chat: Chat) -> list[str]:
    assert chat.keeper is not None
    return [note.code for note in chat.keeper.notes]


def close(chat: Chat) -> str:
    assert chat.keeper is not None
    assert chat.keeper.conversation is not None
    chat.keeper.close()
    return chat.keeper.conversation


def newest(store: Store, conversation: str) -> Path:
    return max(store.caches(conversation).glob("*.safetensors"), key=lambda file: int(file.stem))
