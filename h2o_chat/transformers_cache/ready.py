"""Prepares a step before its tokens attend: passes, slots, rotation indices."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from h2o_chat.base.errors import UsageError, WindowFullError
from h2o_chat.cache import turning
from h2o_chat.cache.arena import Arena, Shape, joined
from h2o_chat.cache.clock import decode_pass, prompt_passes
from h2o_chat.cache.distance import turns_due
from h2o_chat.cache.forward_call import Step
from h2o_chat.transformers_cache.cache_like import CacheLike
from h2o_chat.transformers_cache.layer import H2OLayer
from h2o_chat.transformers_cache.protection import name_rows


def prepare(cache: CacheLike, step: Step) -> None:
    """Prepares a step; call it once, then feed the step to the model.

    In plain transformers the first layer calls it.

    Raises:
        UsageError: the step has more tokens than the window; the step before was not fed, or failed.
        WindowFullError: the `full` policy reached the end of the window.
    """
    if cache.step is not None and not cache.step.begun:
        raise UsageError(
            f"A step of {cache.step.tokens} tokens was prepared, and not fed.", "Feed it to the model first."
        )
    if len({layer.fed for layer in cache.attention_layers}) > 1:
        raise UsageError(
            "The last step ended in the middle: some layers have read it, others have not.",
            "Go back to a snapshot that was taken before it, or call cache.reset().",
        )
    distance = cache.plan.distance
    if distance is not None and distance.rebases and step.tokens > distance.window:
        raise UsageError(
            f"{step.tokens} tokens at once are more than the model's window of {distance.window}."
        )
    step.passes, step.begun = [], False
    if cache.state_layers:
        with torch.inference_mode(False):  # models change convolution states in place
            cache.states_before = changed([layer.held for layer in cache.state_layers], torch.clone)
    if cache.current_arenas():
        make_ready(cache, step)
    cache.step = step


def changed(states: list[dict[str, Tensor]], change: Callable[[Tensor], Tensor]) -> list[dict[str, Tensor]]:
    """The states with `change` applied to each tensor [R, ...]."""
    return [{name: change(state) for name, state in one.items()} for one in states]


@torch.no_grad()
def make_ready(cache: CacheLike, step: Step) -> None:
    """Plans the passes of a step, and clamps and rebases keys if that is due; raises as `prepare`."""
    plan, clocks, distance = cache.plan, cache.clocks, cache.plan.distance
    counts = [step.tokens] * len(clocks) if step.real is None else step.real.sum(-1).tolist()
    ends = [clock.seen + count for clock, count in zip(clocks, counts, strict=True)]
    if distance and distance.rebases and not plan.shares.bounded and max(ends) > distance.window:
        raise WindowFullError(
            f"The full cache has reached the {distance.window} tokens the model was trained for.",
            "Use another policy (h2o goes on for ever) or start anew.",
        )
    join(cache)
    if distance is not None and not distance.learned:
        clamps, rebases = turns_due(distance, clocks, counts)
        for arena in cache.current_arenas():
            if clamps:
                turning.clamp(arena, [clock.clamped_below for clock in clocks])
            if rebases:
                turning.rebase(arena, [clock.rope_origin for clock in clocks])
            arena.clamps = arena.rope is not None and any(clock.clamped_below for clock in clocks)
    for arena in cache.current_arenas():
        arena.grow(max(ends))
    if step.tokens == 1:
        step.passes = [decode_pass(clocks, counts, plan.budget, plan.stride)]
    else:
        in_chunks = plan.prefill == "chunked" and not cache.shares_slots
        chunk = plan.chunk if in_chunks else step.tokens
        step.passes = prompt_passes(clocks, step.tokens, counts, plan.budget, chunk)


def position_ids(cache: CacheLike) -> Tensor:
    """Rotation indices to feed with the prepared step, always below the window. [R, N]

    Before the first token [R or 1, N]. Padding repeats its neighbour's index.

    Raises:
        UsageError: no step was prepared, or the cache was made without positions.
    """
    distance, step = cache.plan.distance, cache.step
    if distance is None or not distance.rebases:
        raise UsageError("This H2OCache was made without positions.", "Pass positions=probe(model).")
    if step is None:
        raise UsageError("No step was prepared.", "Call cache.prepare(Step(tokens=...)) first.")
    first = [0]
    if step.passes:
        first = [at - clock.rope_origin for at, clock in zip(step.passes[0].first, cache.clocks, strict=True)]
    along = torch.arange(step.tokens) if step.real is None else step.real.long().cumsum(-1) - 1
    start = torch.tensor(first, device=along.device)[:, None]
    return distance.fed_indices((start + along).clamp_min(0))


def begin(
    cache: CacheLike, layer: H2OLayer, keys: Tensor, values: Tensor, groups: int, mask: Tensor | None
) -> tuple[Step, Arena]:
    """Returns the current step and the layer's arena, which is created if needed; called by attention.

    Args:
        keys, values: [R, H, N, D] of the step.
        groups: G.
        mask: [R, N] bool, False for padding; None: all are real.

    Raises UsageError if another number of tokens was prepared; and as `begin_first` and `make_slots`.
    """
    rows, heads, tokens, size = keys.shape
    if layer.number == 0:
        if cache.step is None or cache.step.begun:  # plain transformers does not call `prepare`
            cache.prepare(Step(tokens, real=None if mask is None or bool(mask.all()) else mask))
        assert cache.step is not None
        if cache.step.tokens != tokens:
            raise UsageError(
                f"A step of {cache.step.tokens} tokens was prepared, and {tokens} are fed.",
                "Say in Step how many columns come; after that go back to a snapshot, or call cache.reset().",
            )
        cache.step.begun = True
        if not cache.arenas_as_they_are:
            begin_first(cache, rows)
    step = cache.step
    assert step is not None
    if layer.arena is None:
        shape = Shape(rows, heads, groups, size, values.shape[-1], keys.dtype, keys.device)
        make_slots(cache, [layer.number], shape)
    assert layer.arena is not None
    return step, layer.arena


def begin_first(cache: CacheLike, rows: int) -> None:
    """Prepares the first step, whose rows are known only now; raises UsageError if more rows were named."""
    if len(cache.clocks) > rows:
        raise UsageError(
            f"Something was protected in row {len(cache.clocks) - 1}, and the batch has {rows} rows.",
            "Feed as many rows as were named, or cache.reset().",
        )
    name_rows(cache, rows)
    assert cache.step is not None
    make_ready(cache, cache.step)


def make_slots(cache: CacheLike, layers: Sequence[int], shape: Shape) -> None:
    """Creates an arena for layers with the same rotation.

    Raises:
        BudgetError: there is no memory for the slots.
        UsageError: with kv="int4" keys or values have an odd number of components.
    """
    if cache.plan.bits == 4 and (shape.key % 2 or shape.value % 2):
        raise UsageError(
            f"With kv='int4' two numbers share a byte, and the keys and values of layer {layers[0]} have"
            f" {shape.key} and {shape.value}.",
            "Use kv='int8'.",
        )
    shape.require_room(len(layers), cache.plan.slots)
    while len(cache.attention_layers) <= max(layers):
        cache.layers.append(cache.new_layer())
    arena = Arena(cache.plan, layers, cache.rope(layers[0]), shape, cache.plan.slots)
    arena.grow(max(clock.in_use for clock in cache.clocks))
    cache.arenas_as_they_are.append(arena)
    place_layers(cache)


def join(cache: CacheLike) -> None:
    """Merges the arenas of single layers, which the first step created."""
    if 1 < len(cache.current_arenas()) == len(cache.attention_layers):
        cache.arenas_as_they_are = joined(cache.current_arenas())
        place_layers(cache)


def place_layers(cache: CacheLike) -> None:
    """Sets the place of each layer's slots."""
    layers = cache.attention_layers
    for arena in cache.arenas_as_they_are:
        for at, number in enumerate(arena.layers):
            layers[number].move_to(arena, at)
            arena.chunked[at], arena.sharers[at] = layers[number].kind.chunked, layers[number].kind.sharers
