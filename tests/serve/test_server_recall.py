"""Evicted text is recalled on the server as on the screen; positions of messages survive a restart."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from serving import answered, begun, history, talked

from h2o_chat.base.config import Settings
from h2o_chat.models.load import Loaded
from h2o_chat.serve.saved_memories import Saved
from h2o_chat.serve.server_recall import (
    LOOKED_AT_CHARACTERS,
    HeldTokens,
    LastConversation,
    MessagePositions,
    positions_of_json,
    with_recalled,
)
from h2o_chat.serve.stream import Ended

SETTINGS = Settings(budget=64, threads=1, seed=0, events_every=0)
TEXTS = (
    "My dog is called Rexo.",
    "I like long walks in the rain, and tea with my sister on Sundays.",
    "Tell me something about music and the theatre, please.",
    "The weather was fine on the whole way to the sea and back.",
    "What is my dog called?",
    "What is my dog called?",
    "What is the capital of France?",
)
TOLD, AGAIN, NEVER = 4, 5, 6
"""Which of them asks for what is gone; for what was just recalled; for what was never told."""


def codes(ended: Ended) -> list[tuple[str, int | None]]:
    return [(note.code, note.about) for note in ended.notes]


@pytest.mark.parametrize("system", [None, "You are kind."])
async def test_turns_are_those_of_the_screen(loaded: Loaded, system: str | None) -> None:
    """Token for token: what is recalled, and what is not, because it still holds it, or never heard it."""
    settings = replace(SETTINGS, system=system)
    chat, turns = talked(loaded, settings, TEXTS)
    notes = []
    with begun(loaded, settings) as service:
        for number, turn in enumerate(turns, 1):
            found = await answered(service, history(TEXTS, turns, number, system))
            assert (found.turn.text, found.turn.seen) == (turn.text, turn.seen)
            assert found.turn.prompt_tokens == turn.prompt_tokens
            notes.append(codes(found))
    first = 0 if system is None else 1
    asked = [one for one in chat.messages if one.role == "user"]
    assert [one.words for one in asked[TOLD].recalled] == [TEXTS[0]]
    assert asked[AGAIN].recalled == (), "it was recalled a turn before"
    assert notes[TOLD] == [("recalled", first)]
    assert [one for at, one in enumerate(notes) if at != TOLD] == [[]] * 6


async def test_with_recall_off_nothing_is_recalled(loaded: Loaded) -> None:
    settings = replace(SETTINGS, recall="off")
    _, turns = talked(loaded, settings, TEXTS)
    with begun(loaded, settings) as service:
        for number, turn in enumerate(turns, 1):
            found = await answered(service, history(TEXTS, turns, number))
            assert (found.turn.text, found.notes) == (turn.text, [])


async def test_a_history_that_is_read_as_one_prompt(loaded: Loaded) -> None:
    """No memory of it is there: what lies behind the newest slots is recalled."""
    _, turns = talked(loaded, SETTINGS, TEXTS)
    with begun(loaded, SETTINGS, snapshots=0) as service:
        gone = await answered(service, history(TEXTS, turns, TOLD + 1))
        held = await answered(
            service, [*history(TEXTS, turns, 1), ("assistant", "Yes."), ("user", TEXTS[TOLD])]
        )
    assert codes(gone) == [("recalled", 0)]
    assert codes(held) == []


async def test_a_server_that_begins_again_knows_where_messages_lie(loaded: Loaded, tmp_path: Path) -> None:
    _, turns = talked(loaded, SETTINGS, TEXTS)
    with begun(loaded, SETTINGS) as service:
        await answered(service, history(TEXTS, turns, TOLD))
        (kept,) = service.prefixes.all()
        saved = Saved(tmp_path, service.context, service.batch)
        saved.write_rows([kept])
        service.prefixes.drop(kept)
    with begun(loaded, SETTINGS) as other:
        other.load_memory = saved.read
        for one in saved.rows():
            other.prefixes.add(one)
        found = await answered(other, history(TEXTS, turns, TOLD + 1))
    assert found.cached_tokens > 0
    assert codes(found) == [("recalled", 0)]
    assert found.turn.seen - found.cached_tokens > 0


@pytest.mark.parametrize(
    ("more", "asked", "code"),
    [(0, TEXTS[TOLD], "recalled"), (LOOKED_AT_CHARACTERS, TEXTS[TOLD], ""), (0, TEXTS[NEVER], "")],
)  # fmt: skip
def test_a_very_long_history_is_looked_at_from_its_end(more: int, asked: str, code: str) -> None:
    said = [("user", TEXTS[0]), ("assistant", "Yes."), ("user", "a" * more + "b"), ("assistant", "No.")]
    _, notes = with_recalled(
        [*said, ("user", asked)],
        MessagePositions([9, 12, 15, 18]),
        HeldTokens(None, 50),
        SETTINGS,
        LastConversation(),
        64,
    )
    assert [note.code for note in notes] == ([code] if code else [])


def test_what_is_known_of_the_conversation_before_changes_nothing() -> None:
    """It goes on, is edited, is asked again, is another one, is too long: as if each came first."""
    known, found = LastConversation(), []
    dog, cat = ("My dog is called Rexo.", "My cat is called Tom."), ("My cat is called Rex.", "I like rain.")
    long = "a" * LOOKED_AT_CHARACTERS
    for told in (dog[:1], dog, (*dog, long), dog, dog[:1], cat, dog[::-1], (), (*dog, *cat)):
        for asked in ("What is my dog called?", "What is my cat called?"):
            said = [one for text in told for one in (("user", text), ("assistant", "Well."))]
            ends = [5 * (at + 1) for at in range(len(said))]
            both = [
                with_recalled([*said, ("user", asked)], places, HeldTokens(None, 10**6), SETTINGS, one, 64)
                for one, places in (
                    (known, MessagePositions([*ends])),
                    (LastConversation(), MessagePositions([*ends])),
                )
            ]
            assert both[0] == both[1]
            found.append(both[0])
    assert len({text for text, _ in found}) > 4, "words are recalled"


@pytest.mark.parametrize(
    "kept",
    [
        None, [], 7, [[3, 9]], [[3, 9], 7], [[3], []], [[3, 9, 12], []], [[9, 3], []], [[-1, 9], []],
        [[3, 99], []], [[3, 9.0], []], [[3, True], []], [["3", "9"], []], [[3, 9], [[0, 1, "x"]]],
        [[3, 9], [[2, 0, "x"]]], [[3, 9], [[1, -1, "x"]]], [[3, 9], [[1, 0]]], [[3, 9], [[1, 0, 5]]],
    ],
)  # fmt: skip
def test_what_a_file_says_is_checked(kept: Any) -> None:
    assert positions_of_json(kept, 2, 50) is None


def test_what_a_file_says_comes_back() -> None:
    places = positions_of_json([[3, 9], [[1, 0, "My dog is called Rexo."], [1, 1, "He is old."]]], 2, 50)
    assert places is not None
    assert positions_of_json(places.to_json(), 2, 50) == places
