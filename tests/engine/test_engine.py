"""The loop on real models: what is fed, what is said, how it ends, and how it goes back."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from opened_models import loaded

from h2o_chat.base.config import EngineName, Sampling, Settings
from h2o_chat.base.errors import GenerationError, UsageError
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import CacheState, Error, Event, Prompt, Token, Turn

SETTINGS = Settings(budget=64, seed=7, threads=1)
LONG = Sampling(max_tokens=150, ignore_eos=True)


@pytest.fixture
def make(shared_models: Path, step: EngineName) -> Callable[..., Engine]:
    settings = replace(SETTINGS, model=str(shared_models / "stories3m"), engine=step)
    return lambda **changes: Engine(loaded(settings), replace(settings, **changes))


@pytest.fixture
def engine(make: Callable[..., Engine]) -> Engine:
    return make()


def story(engine: Engine, text: str = " Once upon a time") -> list[int]:
    return [1, *engine.tokenizer.encode(text, add_special_tokens=False)]


def of(kind: type[Any], events: list[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def ids(events: list[Event]) -> list[int]:
    return [token.id for token in of(Token, events)]


def test_greedy_without_eviction_is_stock_generate(shared_models: Path) -> None:
    from transformers import AutoModelForCausalLM

    folder = shared_models / "stories3m"
    settings = replace(SETTINGS, model=str(folder), engine="transformers", budget=300)
    engine = Engine(loaded(settings), settings)
    stock = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    prompt = torch.tensor([story(engine)])
    expected = stock.generate(prompt, max_new_tokens=150, do_sample=False, eos_token_id=-1, pad_token_id=0)
    assert ids(list(engine.generate(prompt[0].tolist(), LONG))) == expected[0, prompt.shape[1] :].tolist()


def test_events_say_what_happened(engine: Engine) -> None:
    prompt = story(engine)
    events = list(engine.generate(prompt, LONG))
    assert isinstance(events[0], Prompt)
    assert (events[0].tokens, events[0].first, events[0].last) == (len(prompt), 0, len(prompt) - 1)
    tokens, turn = of(Token, events), events[-1]
    assert isinstance(turn, Turn)
    assert len(tokens) == turn.new_tokens == 150
    assert [token.position for token in tokens] == list(range(len(prompt), len(prompt) + 150))
    assert "".join(token.text for token in tokens) == turn.text
    assert turn.finish == "length"
    assert turn.seen == engine.seen == len(prompt) + 149  # the last token waits
    assert engine.pending == (tokens[-1].id,)
    stride = engine.cache.plan.stride  # given up at once, so up to one less may be held
    assert (stride, turn.kept + turn.evicted) == (2, turn.seen)
    assert 64 - stride < turn.kept <= 64
    assert len(of(CacheState, events)) == 150 // 16 + 1
    assert 0 < turn.lost < 1
    assert turn.tok_s > 0


def test_cache_events_equal_what_is_kept(engine: Engine) -> None:
    hold: dict[int, float] = {}
    caches = engine.session.layers * engine.session.kv_heads
    for event in engine.generate(story(engine), LONG):
        if not isinstance(event, CacheState):
            continue
        hold |= {position: share for position, share, _ in event.changed}
        kept = torch.stack([engine.cache.kept(layer)[0] for layer in range(engine.session.layers)])
        at, counts = kept[kept >= 0].unique(return_counts=True)
        assert {p: h for p, h in hold.items() if h} == pytest.approx(
            dict(zip(at.tolist(), (counts / caches).tolist(), strict=True))
        )
        assert event.kept == int((kept >= 0).sum(-1).max()) == sum(event.kinds.values())
        for heavy in event.heaviest:
            assert heavy.position < event.seen - 28
            assert heavy.hold == pytest.approx(hold[heavy.position])
            assert sum(map(sum, engine.inspect(heavy.position))) == round(heavy.hold * caches)
            assert engine.observer.text_of(heavy.position) == heavy.text
        last = event
    assert (last.kinds["S"], last.kinds["R"]) == (0, 28)
    assert 34 < last.kinds["H"] <= 36


def test_cancel_between_steps_keeps_what_was_said(engine: Engine) -> None:
    heard: list[Event] = []
    for event in engine.generate(story(engine), LONG, cancel=lambda: len(of(Token, heard)) >= 5):
        heard.append(event)
    turn = heard[-1]
    assert isinstance(turn, Turn)
    assert (turn.finish, turn.new_tokens) == ("stopped", 5)
    assert engine.pending == (ids(heard)[-1],)
    whole = list(engine.generate([], replace(LONG, max_tokens=5)))  # goes on as if nothing had been
    engine.reset()
    twin = ids(list(engine.generate(story(engine), replace(LONG, max_tokens=10))))
    assert ids(heard) + ids(whole) == twin


@pytest.mark.parametrize("times", [1, 2, 5])
def test_a_prompt_that_is_not_read_to_its_end_was_never_said(engine: Engine, times: int) -> None:
    """Cancelled before its first layer, or in the middle of a call, where some layers have evicted."""
    list(engine.generate(story(engine), LONG))
    seen, pending, kept = engine.seen, engine.pending, engine.cache.kept(0)
    prompt = story(engine, " Once upon a time there was a big dog" * 8)
    asked = iter([*[False] * times, True])  # once, then before each layer
    events = list(engine.generate(prompt, LONG, cancel=lambda: next(asked)))
    assert [event.event for event in events if event.event not in ("reading", "cache")] == ["turn"]
    assert (events[-1].finish, events[-1].prompt_tokens) == ("stopped", 0)  # type: ignore[union-attr]
    assert (engine.seen, engine.pending) == (seen, pending)
    assert torch.equal(engine.cache.kept(0), kept)
    assert len(ids(list(engine.generate([], replace(LONG, max_tokens=3))))) == 3
    engine.reset()
    before_anything = list(engine.generate(prompt, LONG, cancel=lambda: True))
    assert [event.event for event in before_anything] == ["turn"]
    assert engine.seen == 0


def test_the_same_seed_gives_the_same_answer(make: Callable[..., Engine]) -> None:
    sampling = replace(LONG, temperature=1.0, top_k=40, top_p=0.95, min_p=0.01)
    answers = [ids(list(make(seed=seed).generate([1], sampling))) for seed in (1, 1, 2)]
    assert answers[0] == answers[1] != answers[2]


def test_repetition_penalty_forbids_what_was_said(engine: Engine) -> None:
    events = list(engine.generate([1], replace(LONG, repetition_penalty=10.0, max_tokens=60)))
    assert len(set(ids(events))) == 60


def test_stop_strings_end_the_answer_and_are_not_shown(engine: Engine) -> None:
    events = list(engine.generate(story(engine), replace(LONG, stop=("named Lily", "dragon"))))
    turn = events[-1]
    assert isinstance(turn, Turn)
    assert turn.finish == "stop"
    assert turn.text.endswith("a little girl ")
    assert "".join(token.text for token in of(Token, events)) == turn.text


def test_the_model_ends_its_answer(engine: Engine) -> None:
    events = list(engine.generate(story(engine), replace(LONG, ignore_eos=False, max_tokens=None)))
    assert events[-1].finish == "eos"  # type: ignore[union-attr]
    assert ids(events)[-1] in engine.eos
    assert of(Token, events)[-1].text == ""


def test_snapshot_and_restore_repeat_a_turn_after_evictions(engine: Engine) -> None:
    sampling = replace(LONG, temperature=1.0)
    list(engine.generate(story(engine), sampling))
    before = engine.snapshot()
    more = engine.tokenizer.encode(" Then the dog", add_special_tokens=False)
    first = list(engine.generate(more, sampling))
    engine.restore(before)
    second = list(engine.generate(more, sampling))
    assert ids(first) == ids(second)
    assert [e.heaviest for e in of(CacheState, first)] == [e.heaviest for e in of(CacheState, second)]


def test_the_full_cache_stops_at_the_window_and_says_so(make: Callable[..., Engine]) -> None:
    engine = make(policy="full")
    events = list(engine.generate([1], replace(LONG, max_tokens=None)))
    assert [error.code for error in of(Error, events)] == ["window"]
    assert events[-1].finish == "length"  # type: ignore[union-attr]
    assert engine.seen == 512


def test_nothing_to_read_is_refused(engine: Engine) -> None:
    with pytest.raises(UsageError, match="nothing to read"):
        next(engine.generate([], LONG))


def test_a_failure_goes_back_to_before_the_turn(shared_models: Path) -> None:
    """Weights that overflow: the NaN is named, the partial answer comes out, the conversation survives."""
    settings = replace(SETTINGS, model=str(shared_models / "stories3m"), engine="transformers")
    engine = Engine(loaded(settings), settings)
    list(engine.generate(story(engine), LONG))
    seen, kept = engine.seen, [engine.cache.kept(layer) for layer in range(6)]
    norm = engine.model.model.norm
    calls = 0

    def break_later(_: Any, __: Any, output: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return output * float("nan") if calls > 4 else output

    hook = norm.register_forward_hook(break_later)
    events: list[Event] = []
    try:
        with pytest.raises(GenerationError, match="NaN"):
            events.extend(engine.generate([5, 6], LONG))
    finally:
        hook.remove()
    assert events[-1].finish == "error"  # type: ignore[union-attr]
    assert len(of(Token, events)) == 4
    gone = [position for position, hold, _ in of(CacheState, events)[-1].changed if hold]
    assert all(position < seen for position in gone)
    assert engine.seen == seen
    for layer in range(6):
        assert torch.equal(engine.cache.kept(layer), kept[layer])
    assert len(of(Token, list(engine.generate([5, 6], LONG)))) == 150


def test_a_protected_prompt_is_never_evicted(make: Callable[..., Engine]) -> None:
    engine = make(budget=64)
    assert engine.protect(10) == 10
    list(engine.generate(story(engine, " Once upon a time there was a big red dog"), LONG))
    for layer in range(6):
        for held in engine.cache.kept(layer)[0].tolist():
            assert set(range(10)) <= set(held)
    assert make(budget=64).protect(1000) == 18  # (budget - recent) // 2


def test_a_prompt_read_at_once_is_said_to_be_and_may_be_longer_than_the_window(
    make: Callable[..., Engine],
) -> None:
    engine = make(prefill="full")
    assert (engine.session.prefill, make().session.prefill) == ("full", "chunked")
    short, answer = story(engine) * 20, Sampling(max_tokens=3, ignore_eos=True)
    assert of(Prompt, list(engine.generate(short, answer)))[0].chunks == 1
    assert of(Prompt, list(engine.generate(short * 6, answer)))[0].chunks == 2  # 512 tokens at once at most
    assert engine.cache.most_kept == 64
