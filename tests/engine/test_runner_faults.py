"""A call of a runner that raises: what it fed is as before, or it is known that it is not; in float64."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from beside import EXACT, broken, no_memory
from test_runner import noise
from tiny_models import tiny

from h2o_chat.base.errors import UsageError
from h2o_chat.cache import absorb, turning
from h2o_chat.cache.arena import Arena
from h2o_chat.cache.forward_call import Step
from h2o_chat.engine.runner import Runner, cache_for
from h2o_chat.engine.undo import undo
from h2o_chat.models.load import Loaded
from h2o_chat.transformers_cache.cache import H2OCache
from h2o_chat.transformers_cache.probe import probe


def fed(loaded: Loaded, *prompts: list[int], rows: int | None = None) -> Runner:
    """A runner of so many rows, by default one for each prompt, which are read together."""
    runner = Runner(loaded, cache_for(loaded, EXACT), rows=rows or len(prompts))
    if prompts:
        runner.feed([*prompts], prompt=True)
    return runner


def middle(loaded: Loaded) -> Any:
    """The layer that is broken: what the first one has fed is then there."""
    return loaded.model.model.layers[1]


def test_a_call_of_several_rows_that_raises_is_as_if_it_had_not_been_made(loaded: Loaded) -> None:
    runner, expected = (Runner(loaded, cache_for(loaded, EXACT), rows=3) for _ in range(2))
    prompts = [noise(60, 1), noise(20, 2), []]
    for one in (runner, expected):
        for row in range(2):
            one.feed([prompts[n] if n == row else [] for n in range(3)], prompt=True)
    for number in range(40):
        pieces = [[5 + number], [9 + number] if number % 3 else [], []]
        before = [runner.row_snapshot(row) for row in range(3)]
        with broken(middle(loaded)), pytest.raises(MemoryError):
            runner.feed(pieces, prompt=False)
        for row, was in enumerate(before):
            same_snapshot(runner.row_snapshot(row), was)
        if number % 2:  # another call is made first
            with pytest.raises(UsageError, match="Give a piece for each row"):
                runner.feed([[], []], prompt=False)
        assert torch.equal(runner.feed(pieces, prompt=False), expected.feed(pieces, prompt=False))
    assert expected.clock(0).rope_origin > 0 or expected.clock(0).seen > 48


def same_snapshot(one: Any, other: Any) -> None:
    """The contents of slots, and the counts; what lies in an empty slot counts for nothing."""
    turned = {"rope_origin": 0, "clamped_below": 0}
    assert [replace(clock, **turned) for clock in one.clocks] == [
        replace(clock, **turned) for clock in other.clocks
    ]
    for part, was in zip(one.parts, other.parts, strict=True):
        held = was.states["positions"] >= 0
        assert torch.equal(part.states["positions"], was.states["positions"])
        for name in ("score", "prompt", "protected"):
            assert torch.equal(part.states[name][held], was.states[name][held])


def test_a_step_that_is_refused_keeps_what_waits_of_the_last_prompt(loaded: Loaded) -> None:
    runner, expected = (fed(loaded, noise(20, 1)) for _ in range(2))
    with pytest.raises(UsageError, match="more than the model's window"):
        runner.feed([noise(runner.trained.window + 1, 2)], prompt=True)
    assert not runner.torn
    assert torch.equal(runner.feed([[7]], prompt=False), expected.feed([[7]], prompt=False))


@pytest.mark.parametrize("mended", ["put", "empty", "after a step"])
def test_a_prompt_that_is_absorbed_by_half_tears_its_rows(
    mended: str, loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = fed(loaded, noise(30, 1), noise(30, 2))
    before = runner.row_snapshot(0)
    runner.feed([noise(60, 3), noise(60, 4)], prompt=True)

    with monkeypatch.context() as patch:
        patch.setattr(absorb, "absorb", no_memory)
        with pytest.raises(MemoryError):
            runner.row_snapshot(0)
    if mended == "after a step":
        with pytest.raises(UsageError, match="was interrupted"):
            runner.feed([[5], [6]], prompt=False)
        assert runner.torn == {0, 1}
    if mended == "empty":
        runner.empty(0)
        runner.feed([noise(30, 1), []], prompt=True)
    else:
        runner.put(0, before)
    assert runner.torn == {1}
    expected = fed(loaded, noise(30, 1))
    for token in range(5, 60):
        ours, theirs = runner.feed([[token], []], prompt=False), expected.feed([[token]], prompt=False)
        assert torch.allclose(ours[0], theirs[0], atol=1e-9)


def test_rows_are_torn_where_keys_of_one_arena_alone_were_turned(monkeypatch: pytest.MonkeyPatch) -> None:
    """smollm3 has layers that turn their keys, and layers that do not."""
    cache = H2OCache(16, positions=probe(tiny("smollm3", "h2o", torch.float64, max_position_embeddings=64)))
    model = tiny("smollm3", "h2o", torch.float64, max_position_embeddings=64)

    def feed() -> None:
        with torch.no_grad():
            model(torch.tensor([[5]]), position_ids=cache.position_ids(), past_key_values=cache)

    for _ in range(64):
        cache.prepare(Step(1))
        feed()
    before, step, turned = [replace(clock) for clock in cache.clocks], Step(1), []
    real = turning.rebase

    def fails(arena: Arena, rope_origin: Any) -> None:
        turned.append(arena)
        if len(turned) == 2:
            no_memory()
        real(arena, rope_origin)

    with monkeypatch.context() as patch:
        patch.setattr(turning, "rebase", fails)
        with pytest.raises(MemoryError):
            cache.prepare(step)
    assert undo(cache, step, before, 64, {0}) == {0}


def test_a_prompt_that_raises_in_the_middle_tears_its_row_alone(loaded: Loaded) -> None:
    runner = fed(loaded, noise(30, 1), [])
    before = runner.row_snapshot(0)

    with broken(middle(loaded)), pytest.raises(MemoryError):
        runner.feed([[], noise(100, 2)], prompt=True)  # gives up tokens between two passes
    with pytest.raises(UsageError, match="last step of row 1 ended in the middle"):
        runner.feed([[7], [8]], prompt=False)
    same_snapshot(runner.row_snapshot(0), before)
    runner.feed([[7], []], prompt=False)
    runner.empty(1)
    assert runner.feed([[7], [8]], prompt=False).isfinite().all()


def test_a_short_prompt_that_raises_in_the_middle_can_be_fed_again(loaded: Loaded) -> None:
    """Its layers are absorbed together, so that nothing has changed before the last of them."""
    runner, expected = (fed(loaded, noise(60, 1)) for _ in range(2))
    before = runner.row_snapshot(0)

    with broken(middle(loaded)), pytest.raises(MemoryError):
        runner.feed([noise(10, 2)], prompt=True)
    same_snapshot(runner.row_snapshot(0), before)
    pieces = [noise(10, 3)]
    assert torch.equal(runner.feed(pieces, prompt=True), expected.feed(pieces, prompt=True))
    same_snapshot(runner.row_snapshot(0), expected.row_snapshot(0))


@pytest.mark.parametrize("calls", [0, 3])
def test_a_first_conversation_without_memory_for_it_leaves_the_runner_as_it_was(
    calls: int, loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slots of all rows are made when the first conversation is put: the largest allocation."""
    expected = fed(loaded, noise(30, 1))
    snapshot = expected.row_snapshot(0)
    runner = fed(loaded, rows=3)
    runner.cache.protect(7, row=1)
    select, done = torch.Tensor.index_select, list[Any]()

    def fails(*arguments: Any) -> torch.Tensor:
        done.append(arguments)
        if len(done) > calls:
            no_memory()
        return select(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "index_select", fails)
        with pytest.raises(MemoryError):
            runner.put(0, snapshot)
    assert not runner.cache.current_arenas()
    assert runner.cache.protected_in(1) == 7
    runner.empty(2)
    runner.put(0, snapshot)
    for token in range(5, 40):
        ours = runner.feed([[token], [], [token]], prompt=False)
        assert torch.allclose(ours[0], expected.feed([[token]], prompt=False)[0], atol=1e-9)
    assert runner.cache.protected_in(1) == 7


def test_a_first_call_that_raises_leaves_what_was_protected(loaded: Loaded) -> None:
    runner = fed(loaded, rows=2)
    runner.cache.protect(7, row=1)

    with broken(middle(loaded)), pytest.raises(MemoryError):
        runner.feed([[5, 6], [7, 8]], prompt=True)
    assert runner.cache.protected_in(1) == 7
    again = fed(loaded, rows=2)
    assert torch.equal(runner.feed([[5, 6], [7, 8]], prompt=True), again.feed([[5, 6], [7, 8]], prompt=True))
