"""A quotation that `pocket` makes up of words that it has half forgotten is called so, behind the answer."""

from pathlib import Path

import pytest

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.chat.chat import Chat
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import Event, Note, Turn
from h2o_chat.models.load import Loaded, load

POCKET = Path(__file__).parents[2] / "assets" / "pocket"
SAID = [
    "I am allergic to walnuts.",
    "Hello, how are you?",
    "I watched a very long film yesterday with a lot of people in it.",
    "Can you recommend a good film?",
]
ASKED = "What must I not eat?"
SHORT = Sampling(max_tokens=40)


@pytest.fixture(scope="module")
def exact() -> Loaded:
    """In float32 by transformers: what is made up hangs on little."""
    return load(Settings(model=str(POCKET), threads=1), lambda *_: None)


def answered(exact: Loaded, budget: int, before: list[str]) -> list[Event]:
    settings = Settings(model=str(POCKET), budget=budget, threads=1)
    chat = Chat(Engine(exact, settings), settings)
    for text in before:
        assert "never-said" not in [getattr(one, "code", "") for one in chat.send(text, SHORT)]
    events = list(chat.send(ASKED, SHORT))
    chat.close()
    return events


def test_what_it_makes_up_is_called_so_behind_the_answer(exact: Loaded) -> None:
    *events, note = answered(exact, 64, SAID)
    (turn,) = [one for one in events if isinstance(one, Turn)]
    assert turn.text.startswith("You said: ")
    assert isinstance(note, Note)
    assert (note.code, note.about) == ("never-said", 2 * len(SAID) + 1)


def test_what_it_remembers_is_not(exact: Loaded) -> None:
    events = answered(exact, 512, SAID[:1])
    assert isinstance(events[-1], Turn)
    assert events[-1].text == f'You said: "{SAID[0]}"'
