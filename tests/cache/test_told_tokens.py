"""Events about tokens: their texts and positions, live and in resumed conversations."""

from pathlib import Path
from typing import Any

import opened_models
import pytest

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.keeper import Keeper
from h2o_chat.engine.detokenize import MOST_TEXTS, texts
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import CacheState, Event, Prompt, Said, Token
from h2o_chat.models.load import Loaded
from h2o_chat.store import Store

SAID = ("Hi, my name is Flóra 🦊.", "What is my name?")


@pytest.fixture(scope="module")
def loaded(shared_models: Path) -> Loaded:
    return opened_models.loaded(Settings(model=str(shared_models / "pilot-chat"), threads=1))


def told(events: list[Event]) -> dict[int, str]:
    """The text at each position that has one; special tokens of answers have none."""
    found: dict[int, str] = {}
    for event in events:
        match event:
            case Prompt(first=first, texts=pieces):
                assert len(pieces) == event.tokens
                found |= {at: piece for at, piece in enumerate(pieces, first) if at not in found}
            case Token():
                found[event.position] = event.text
            case Said(first=first, texts=pieces) if first >= 0:
                assert len(pieces) in (0, event.last - first + 1)
                found |= dict(enumerate(pieces, first))
    return found


@pytest.mark.parametrize("system", [None, "You are kind."])
def test_a_resumed_conversation_tells_what_was_told_live(
    loaded: Loaded, tmp_path: Path, system: str | None
) -> None:
    settings = Settings(model="x", budget=48, system=system)

    def chat(conversation: str | None) -> Chat:
        engine = Engine(loaded, settings)
        return Chat(engine, settings, Keeper(Store(tmp_path), conversation, engine.session, {}))

    first = chat(None)
    live: list[Event] = []
    for text in SAID:
        live += first.send(text, Sampling(max_tokens=12))
    assert first.keeper is not None
    first.keeper.close()
    again = chat(first.keeper.conversation)
    assert again.resume(lambda _: None)
    before, after = told(live), told(list(again.opening()))
    answers = [m for m in first.messages if m.role == "assistant"]
    shown = {at for m in answers for at in range(m.first, m.last + 1)}
    # The start of a text is told apart where it follows what was generated.
    assert {at: text.strip() for at, text in after.items()} == {
        at: text.strip() for at, text in before.items()
    }
    for message in again.messages:
        own = "".join(after[at] for at in range(message.first, message.last + 1))
        assert message.text.strip() in own
    assert shown <= after.keys()


def test_the_texts_of_a_prompt_are_all_of_it(loaded: Loaded) -> None:
    tokenizer: Any = loaded.tokenizer
    ids = tokenizer.encode("<|user|>a 🦊 naïve 漢字 day<|end|>", add_special_tokens=False)
    pieces = texts(tokenizer, ids)
    assert "".join(pieces) == tokenizer.decode(ids, skip_special_tokens=False)
    assert len(pieces) == len(ids)
    assert "🦊" in pieces
    assert pieces[0] == "<|user|>"
    assert texts(tokenizer, [ids[0]] * (MOST_TEXTS + 1)) == texts(tokenizer, []) == []


def test_nothing_is_told_where_nobody_looks(loaded: Loaded) -> None:
    engine = Engine(loaded, Settings(model="x", budget=48, events_every=0))
    prompt = next(engine.generate(engine.tokenizer.encode("hello there"), Sampling(max_tokens=2)))
    assert isinstance(prompt, Prompt)
    assert prompt.texts == []


def test_scores_are_told_when_they_double_and_who_is_attended(loaded: Loaded) -> None:
    """The last reported score is never wrong by more than a factor of two."""
    engine = Engine(loaded, Settings(model="x", budget=48, events_every=4))
    known: dict[int, float] = {}
    attended = []
    ids = engine.tokenizer.encode("Once upon a time there was a red key. " * 6)
    for event in engine.generate(ids, Sampling(max_tokens=80, ignore_eos=True)):
        if not isinstance(event, CacheState):
            continue
        for position, hold, score in event.changed:
            known.pop(position, None)
            if hold:
                known[position] = score
        now = engine.observer.score
        assert known.keys() == now.keys()
        for position, score in now.items():
            assert abs(known[position] - score) <= max(abs(known[position]), abs(score)) / 2
        assert set(event.attended) <= now.keys()
        attended.append(len(event.attended))
    assert 0 < max(attended) < 48
