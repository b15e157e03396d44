"""The cache as the screen knows it, against the cache itself, at every step of real conversations."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from screens import POCKET, TOLD, chat_of, held

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.memory.cache_view import CacheView
from h2o_chat.engine.observer import priority
from h2o_chat.events.events import CacheState, Event, Prompt, Said, Token, Turn, from_json, to_json
from h2o_chat.events.recording import _check

SETTINGS = Settings(model=str(POCKET), budget=24, threads=1, seed=3, events_every=3, system="Be kind.")
SHORT = Sampling(max_tokens=24, ignore_eos=True)


@pytest.fixture
def chat(pocket: Any) -> Chat:
    return chat_of(pocket, SETTINGS)


def told(event: Event) -> Event:
    """The event as a recording has it, which its reader takes."""
    again = from_json(to_json(event))
    _check(again, 1000)
    return again


def assert_true(memory: CacheView, chat: Chat) -> None:
    """All that the memory knows, counted again."""
    found, caches = held(chat), chat.session.layers * chat.session.kv_heads
    assert {position: len(by) / caches for position, by in found.items()} == memory.hold
    cache = chat.engine.cache  # type: ignore[attr-defined]
    seen = cache.fed
    recent_from = 0 if chat.session.budget is None else seen - chat.session.recent
    protected = {
        position
        for slots in (arena.slots for arena in cache.current_arenas())
        for position, one in zip(slots.positions.flatten().tolist(), slots.protected.flatten(), strict=True)
        if one and position >= 0
    }
    for position in range(-1, seen + 2):
        which = memory.which(position)
        assert which is not None
        pairs = {(layer, head) for layer, row in enumerate(which) for head, on in enumerate(row) if on}
        assert pairs == found.get(position, set())
        kind = "S" if position in protected else "R" if position >= recent_from else "H"
        assert memory.kind(position) == (kind if position in found else "·")
    assert memory.cache is not None
    assert [rank for rank, _ in memory.cache.ranks][-1] == len(found)
    scores: dict[int, list[float]] = {}
    for arena in cache.current_arenas():
        places = arena.slots.positions.flatten().tolist()
        marks = priority(arena, cache.clocks, 0).flatten().tolist()
        for place, mark in zip(places, marks, strict=True):
            if place >= 0:
                scores.setdefault(place, []).append(mark)
    ranked = sorted((sum(marks) / len(marks) for marks in scores.values()), reverse=True)
    for rank, score in memory.cache.ranks:
        assert score == pytest.approx(ranked[rank - 1], rel=1e-4, abs=1e-6)


def begun(chat: Chat) -> CacheView:
    memory = CacheView()
    memory.begin(chat.session, chat.state, chat.messages)
    return memory


def hears(memory: CacheView, events: Iterable[Event]) -> None:
    for event in events:
        memory.add(event)


@pytest.mark.parametrize("policy", ["h2o", "h2o-paper", "streaming", "full"])
def test_it_is_what_the_cache_keeps_at_every_step(pocket: Any, policy: Any) -> None:
    chat = chat_of(pocket, replace(SETTINGS, policy=policy))
    memory, gone_tokens = begun(chat), 0
    for line in TOLD:
        states = []
        for event in chat.send(line, SHORT):
            memory.add(told(event))
            if isinstance(event, CacheState):
                assert_true(memory, chat)
                states.append(event)
        assert len(states) == 8  # the last one at the end
        gone_tokens += sum(state.gone_tokens for state in states)
        spans = [(span.index, span.role, span.first, span.last) for span in memory.spans]
        assert spans == [
            (at, message.role, message.first, message.last) for at, message in enumerate(chat.messages)
        ]
    gone = set(range(memory.seen)) - held(chat).keys()
    assert bool(gone) is (policy != "full")
    assert gone_tokens == len(gone)
    assert {went.token.position for went in memory.evictions} <= gone
    for went in memory.evictions:
        assert went.token.position < went.seen <= memory.seen


def test_the_log_has_the_words_that_went(chat: Chat) -> None:
    memory = begun(chat)
    hears(memory, chat.send(TOLD[0], SHORT))
    observer = chat.engine.observer  # type: ignore[attr-defined]
    before = {position: observer.text_of(position) for position in memory.hold}
    hears(memory, chat.send(TOLD[1], SHORT))
    after = [went.token for went in memory.evictions if went.token.position in before]
    assert after
    assert all(one.text == before[one.position] and one.hold > 0 for one in after)


def test_a_stopped_prompt_changes_nothing_in_what_went_before_it(chat: Chat) -> None:
    memory = begun(chat)
    for line in TOLD[:2]:
        for event in chat.send(line, SHORT):
            memory.add(event)
            if isinstance(event, Prompt):
                read = len(memory.evictions)
    before = list(memory.evictions)
    assert len(before) > read, "the answer evicts, too"
    hears(memory, chat.send(TOLD[2], SHORT, lambda: True))
    assert list(memory.evictions) == before


def test_nothing_is_collected_while_nobody_looks(chat: Chat) -> None:
    memory = begun(chat)
    for number, line in enumerate(TOLD):
        chat.engine.watch(number != 1)
        for event in chat.send(line, SHORT):
            memory.add(event)
            if isinstance(event, CacheState):
                found, caches = held(chat), memory.caches
                assert memory.hold == {position: len(by) / caches for position, by in found.items()}
                if number == 1:
                    assert [event.holders, event.heads, event.heaviest, event.gone, event.ranks] == [[]] * 5
                    assert any(memory.which(position) is None for position in memory.hold)
                else:
                    assert_true(memory, chat)


def test_what_went_before_does_not_count_once_all_is_told_anew(chat: Chat) -> None:
    """An edit does so: the memory is brought back by an engine that has told nothing."""
    memory = begun(chat)
    hears(memory, chat.send(TOLD[0], SHORT))
    chat.clear()
    for event in chat.send(TOLD[1], SHORT):
        if isinstance(event, Said):
            event = replace(event, index=1)
        memory.add(event)
        if isinstance(event, CacheState):
            assert_true(memory, chat)


def test_a_turn_that_failed_was_never_said() -> None:
    memory = CacheView()
    for event in (
        Said(1, "user", "a"), Prompt(9, 0, 8, 1, 0.0, 4), Token(1, "x", 9, 0.0),
        Turn("x", "eos", 9, 1, 0, 0, 9, 9, 0, 0), Said(3, "user", "b"), Prompt(4, 9, 12, 1, 0.0),
    ):  # fmt: skip
        memory.add(event)
    assert [(span.index, span.first, span.last) for span in memory.spans] == [
        *((0, 0, 3), (1, 4, 8), (2, 9, 9)),
        (3, 10, 12),  # the answer's last token was fed in front of it
    ]
    memory.add(Turn("", "error", 4, 0, 0, 0, 9, 9, 0, 0))
    assert [span.index for span in memory.spans] == [0, 1, 2]
    found = [memory.span(position) for position in (0, 8, 9, 10)]
    assert [span.index if span else None for span in found] == [0, 1, 2, None]
