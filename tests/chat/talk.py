"""A long conversation for tests with the bundled model."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.keeper import Keeper
from h2o_chat.engine.engine import Engine
from h2o_chat.store import Store

POCKET = Path(__file__).parents[2] / "assets" / "pocket"
GREEDY = Sampling(temperature=0.0, max_tokens=12)
FACT = "My dog is called Rexo."
TALK = (
    "I went to the market and bought apples, pears, plums and a big bag of rice for the whole week.",
    "Then an old friend told me a long story about his holiday in the mountains with snow and rain.",
    "The weather will be fine tomorrow, with some clouds in the morning and sun in the afternoon.",
)


def chat_of(loaded: Any, store: Store | None = None, conversation: str | None = None, **others: Any) -> Chat:
    """One with other settings, which is new where no conversation is named."""
    settings = replace(Settings(model=str(POCKET), budget=48, seed=0), **others)
    engine = Engine(loaded, settings)
    keeper = Keeper(store, conversation, engine.session, {}) if store else None
    return Chat(engine, settings, keeper)
