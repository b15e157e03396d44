"""Answers are given up in a loop, and the next does not go on as they did: on real models and steps."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from beside import hold
from hypothesis import given
from hypothesis import strategies as st
from opened_models import loaded

from h2o_chat.base.config import EngineName, Sampling, Settings
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.loops import BEGIN, tokenized
from h2o_chat.engine.batch import Batch
from h2o_chat.engine.engine import Engine
from h2o_chat.engine.request import OWN_TOKENS, AnswersToAvoid, EarlierAnswer, Request, RequestPiece, Wishes
from h2o_chat.events.events import Event, Note, Token, Turn

SETTINGS = Settings(budget=64, seed=7, threads=1)
LONG = Sampling(max_tokens=40, ignore_eos=True)
SHORT = Sampling(max_tokens=12)
ASKED = ("I like tea.", "What is the moon?", "Play a song.", "Where is Rome?", "It rains.", "Good night.")
LOOP = "I'm doing great, thank you for asking, and I hope you are well too."


@pytest.fixture
def make(shared_models: Path, step: EngineName) -> Callable[..., Engine]:
    settings = replace(SETTINGS, model=str(shared_models / "pilot-chat"), engine=step)
    return lambda **changes: Engine(loaded(settings), replace(settings, **changes))


def prompt(engine: Engine, text: str) -> list[int]:
    ids: list[int] = engine.tokenizer.encode(text, add_special_tokens=False)
    return ids


def ids(events: list[Event]) -> list[int]:
    return [event.id for event in events if isinstance(event, Token)]


def held(engine: Engine) -> list[list[set[int]]]:
    """By layer and KV head: the positions held."""
    kept = [engine.cache.kept(layer)[0] for layer in range(len(engine.cache.layers))]
    return [[{at for at in head.tolist() if at >= 0} for head in layer] for layer in kept]


def test_what_was_generated_goes_and_what_was_told_stays(make: Callable[..., Engine]) -> None:
    engine = make()
    generated: set[int] = set()
    for text in ASKED[:3]:
        events = list(engine.generate(prompt(engine, text), LONG))
        generated |= {event.position for event in events if isinstance(event, Token)} & set(
            range(engine.seen)
        )
    engine.pin(range(engine.seen - 4, engine.seen))  # of the last answer
    generated -= set(range(engine.seen - 4, engine.seen))
    before = held(engine)
    assert any(head & generated for layer in before for head in layer)
    engine.evict_generated()
    assert held(engine) == [[head - generated for head in layer] for layer in before]
    assert engine.kept == max(len(head) for layer in held(engine) for head in layer)


@pytest.mark.parametrize("policy", ["h2o", "h2o-paper", "window"])
def test_it_goes_on_within_its_budget_and_as_after_a_restart(
    make: Callable[..., Engine], policy: str, tmp_path: Path
) -> None:
    engine = make(policy=policy)
    list(engine.generate(prompt(engine, ASKED[0]), replace(LONG, max_tokens=100)))
    engine.evict_generated()
    state, file = engine.snapshot(), tmp_path / "saved"
    engine.save(file)
    said = ids(list(engine.generate(prompt(engine, ASKED[1]), replace(LONG, max_tokens=150))))
    assert max(len(head) for layer in held(engine) for head in layer) <= 64
    engine.restore(state)
    assert ids(list(engine.generate(prompt(engine, ASKED[1]), replace(LONG, max_tokens=150)))) == said
    other = make(policy=policy)
    other.load(file)
    assert ids(list(other.generate(prompt(other, ASKED[1]), replace(LONG, max_tokens=150)))) == said


def test_both_steps_go_on_alike(shared_models: Path) -> None:
    """In fp32 through transformers and in the native step's int8 the same is held."""
    found = []
    for step in ("auto", "transformers"):
        settings = replace(SETTINGS, model=str(shared_models / "pilot-chat"), engine=step)
        engine = Engine(loaded(settings), settings)
        engine.feed(prompt(engine, " ".join(ASKED)))
        engine.feed(prompt(engine, LOOP), prompt=False)
        engine.evict_generated()
        found.append(held(engine))
    assert found[0] == found[1]


def test_nothing_goes_where_nothing_may(make: Callable[..., Engine]) -> None:
    engine = make()
    engine.evict_generated()  # nothing was fed yet
    assert not engine.cache.evict_generated(0)
    engine.feed(prompt(engine, ASKED[0]))
    before, clock = held(engine), replace(engine.cache.clocks[0])
    assert not engine.cache.evict_generated(0)
    assert not engine.cache.give_up(0, range(2, 4), at_once=False)
    assert (held(engine), engine.cache.clocks[0]) == (before, clock)
    assert engine.cache.give_up(0, range(2, 4))
    assert all({2, 3} & head == set() for layer in held(engine) for head in layer)
    full = make(policy="full")
    list(full.generate(prompt(full, ASKED[0]), SHORT))
    before = held(full)
    full.evict_generated()
    assert held(full) == before


def test_an_answer_leaves_the_way_of_others(make: Callable[..., Engine]) -> None:
    engine = make()
    asked = prompt(engine, ASKED[0])
    state = engine.snapshot()
    greedy = ids(list(engine.generate(asked, LONG)))
    for free in (0, 5):
        engine.restore(state)
        found = ids(list(engine.generate(asked, LONG, others=[EarlierAnswer(tuple(greedy), free)])))
        assert found[:free] == greedy[:free]
        assert found[free] != greedy[free]
    engine.restore(state)
    elsewhere = [EarlierAnswer((greedy[0] + 1, *greedy[1:]), 0), EarlierAnswer(tuple(greedy[:5]), 5)]
    assert ids(list(engine.generate(asked, LONG, others=elsewhere))) == greedy, "they begin otherwise, or end"


@given(st.lists(st.integers(0, 2), max_size=60), st.sampled_from([0, 2]))
def test_in_a_loop_an_answer_does_not_repeat_itself(wanted: list[int], free: int) -> None:
    """Whatever the model wants: another token comes where OWN_TOKENS and the next one stood before."""
    avoided, said = AnswersToAvoid([EarlierAnswer((9, 9, 9), free)]), list[int]()
    for token in wanted:
        if token in avoided.refused():
            token = 3 + len(said)
        avoided.note_token(token)
        said.append(token)
    size = OWN_TOKENS + 1
    runs = [tuple(said[at : at + size]) for at in range(len(said) - size + 1)]
    if free:
        assert len(set(runs)) == len(runs)
    else:
        assert said == wanted, "only its first word is barred: code and tables repeat themselves"


def test_many_at_once_are_each_as_alone(make: Callable[..., Engine], shared_models: Path) -> None:
    engine = make()
    first, answer, last = (prompt(engine, text) for text in (ASKED[0], LOOP, ASKED[1]))
    engine.feed(first)
    engine.feed_again(answer, answer=True, exact=False, cancel=lambda: False)
    engine.evict_generated()
    greedy = ids(list(engine.generate(last, LONG)))
    others = [EarlierAnswer(tuple(greedy), 3)]
    pieces = [RequestPiece(first), RequestPiece(answer, True), RequestPiece(last)]
    settings = replace(SETTINGS, model=str(shared_models / "pilot-chat"))
    batch = Batch(loaded(settings), settings, 2)
    requests = [
        Request(pieces, LONG, 7, evicts_generated=True),
        Request(pieces, LONG, 7, evicts_generated=True, others=others),
        Request(pieces, LONG, 7),
    ]
    heard = hold(batch, requests)
    assert not any(one.error for one in heard)
    alone, apart, remembers = (one.ids for one in heard)
    assert apart[:3] == alone[:3]
    assert apart[3] != alone[3]
    if isinstance(engine.runner.native, type(batch.runner.native)):
        assert alone == greedy
    assert len(remembers) == len(alone)


@pytest.mark.parametrize("breaks", [True, False])  # the lab can switch it off
def test_a_chat_gives_up_its_answers_and_says_so_once(make: Callable[..., Engine], breaks: bool) -> None:
    """Its answers are replaced by one sentence in the transcript: that says what it repeats."""
    engine = make(budget=200)
    chat = Chat(engine, engine.settings)
    chat.breaks_loops = breaks
    notes, told = [], [*ASKED, "And now?", "And then?"]
    for number, text in enumerate(told):
        mine = [
            at
            for one in chat.messages
            if one.role == "assistant"
            for at in range(one.first - chat.template.opening_tokens, one.last)
        ]
        for event in chat.send(text, SHORT):
            if isinstance(event, Note) and event.code == "stuck":
                notes.append(number)
            if breaks and isinstance(event, Turn) and number > BEGIN:
                assert not any(head & set(mine) for layer in held(engine) for head in layer)
        chat.messages[-1].text = LOOP
    assert chat.template.opening_tokens > 0
    assert notes == ([BEGIN + 1] if breaks else [])
    assert chat.messages[1].text == LOOP, "the transcript keeps it"


def test_a_chat_in_a_loop_does_not_say_it_again(make: Callable[..., Engine]) -> None:
    engine = make(budget=200)
    chat = Chat(engine, engine.settings)
    for text in ASKED:
        list(chat.send(text, SHORT))
        chat.messages[-1].text = LOOP
    state = engine.snapshot()
    list(chat.send("And now?", SHORT))
    greedy = chat.messages[-1].text
    engine.restore(state)
    del chat.messages[-2:]
    for message in chat.messages[1::2]:
        message.text = greedy
    list(chat.send("And now?", SHORT))
    again, before = (prompt(engine, text) for text in (chat.messages[-1].text, greedy))
    assert again[:3] == before[:3]
    assert again[: len(before)] != before


def test_after_silence_an_answer_does_not_end_at_once(shared_models: Path) -> None:
    """The end is by far the likeliest token here."""
    settings = replace(SETTINGS, model=str(shared_models / "pilot-chat"))
    batch = Batch(loaded(settings), settings, 2)
    tokenizer, eos = batch.runner.loaded.tokenizer, batch.runner.eos
    ends = Wishes(bias=dict.fromkeys(eos, 1e6))
    first = {}
    for answers in (("Good.",), ("\n", "Good.")):
        asked = RequestPiece(tokenizer.encode(ASKED[0], add_special_tokens=False))
        others = tokenized(tokenizer, eos, answers)
        batch.add(Request([asked], SHORT, 7, others=others, wishes=ends))
        told = [one.event for _ in range(9) if batch.busy for one in batch.step()]
        first[answers] = next(event.id for event in told if isinstance(event, Token))
    assert {answers: token in eos for answers, token in first.items()} == {
        ("Good.",): True,
        ("\n", "Good."): False,
    }
