"""Writes a prompt chunk into empty slots and, if not all fits, evicts tokens (`eviction.choose_evicted`).

Layers are absorbed one by one or a few together. No slot is moved: evicted tokens leave empty slots, into
which new tokens are written. The last chunk of a prompt waits until slots are asked for
(`H2OCache.current_arenas`), so that the first token of the answer comes earlier.
Shapes: L layers of the arena, l of them absorbed together, R rows, H KV heads, G query heads per KV head,
S slots, T of them in use at most, N new tokens, D head size.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from h2o_chat.base.devices import free_bytes
from h2o_chat.base.errors import UsageError
from h2o_chat.cache.arena import Arena, PassResult, along, evict, in_use_first
from h2o_chat.cache.clock import Pass
from h2o_chat.cache.eviction import Due, Kernels, choose_evicted, rows_due
from h2o_chat.cache.forward_call import Step
from h2o_chat.cache.state import STATES
from h2o_chat.policies.policies import Slots

ABSORBED_AT_ONCE_BYTES = 8 << 20
"""Layers are grouped up to this size of keys and values (slots and chunk): fewer torch calls. Larger groups
gain little and take memory."""
WAITING_BYTES = 16 << 20  # most bytes that wait for the end of a step on a CPU; more is absorbed at once
WAITING_BYTES_GPU = 8 << 30
"""The limit on a GPU, but at most a quarter of its free memory: a long prompt read in one pass is absorbed
after the first token of the answer."""


def queue_last_pass(arena: Arena, at: int, step: Step, new: PassResult) -> None:
    """Queues the last pass of a step for one layer, to be absorbed later with the other layers."""
    arena.waiting.append(new)
    layer_bytes = sum(tensor.untyped_storage().nbytes() for tensor in (new.keys, new.values))
    # Layers that share slots come later, and add to what waits.
    if not any(arena.sharers) and len(arena.waiting) * layer_bytes > _most_waiting(arena):
        _absorb_waiting(arena, at + 1, step)


def add_shared(arena: Arena, at: int, new: PassResult, *, first: bool) -> None:
    """Queues a layer whose slots other layers share; what its slots gain is the mean over all of them.

    Args:
        first: it is the layer itself, which comes before those that share its slots.
    """
    gains = {name: gain / (1 + arena.sharers[at]) for name, gain in new.gains.items()}
    if first:
        arena.waiting.append(PassResult(new.keys, new.values, gains))
        return
    for name, grows in arena.plan.grows.items():
        mine = arena.waiting[at].gains[name]
        mine.copy_(grows.together(mine, gains[name]))


def _most_waiting(arena: Arena) -> int:
    if arena.device.type != "cuda":
        return WAITING_BYTES
    return min(WAITING_BYTES_GPU, free_bytes(arena.device) // 4)


def absorb_rest(arenas: list[Arena], step: Step | None) -> list[Arena]:
    """Absorbs what waits since the last step, and returns the arenas.

    Raises:
        UsageError: an earlier call failed midway.
    """
    if step is None:
        return arenas
    if step.half_absorbed:
        raise UsageError(
            "Eviction after the last prompt was interrupted.",
            "Go back to a snapshot that was taken before it, or call cache.reset().",
        )
    for arena in arenas:
        if arena.waiting:
            step.half_absorbed = True
            with step.absorb_context():
                _absorb_waiting(arena, len(arena.layers), step)
            step.half_absorbed = False
    return arenas


def _absorb_waiting(arena: Arena, end: int, step: Step) -> None:
    """Absorbs what waits for the layers before `end`, in groups of ABSORBED_AT_ONCE_BYTES."""
    step.changed_slots = True
    while arena.waiting:
        first = arena.waiting[0]
        layer_bytes = arena.bytes_held // len(arena.layers) + first.keys.nbytes + first.values.nbytes
        together = arena.waiting[: max(1, ABSORBED_AT_ONCE_BYTES // layer_bytes)]
        at = end - len(arena.waiting)
        del arena.waiting[: len(together)]
        absorb(arena, at, step, step.passes[-1], together)


@torch.no_grad()
def absorb(arena: Arena, at: int, step: Step, this_pass: Pass, new: Sequence[PassResult]) -> None:
    """Takes in a chunk that has attended to the slots and to itself: adds scores, evicts, writes.

    Args:
        at: first layer; `new` has one entry for it and each following layer.
        this_pass: the pass of the chunk.
    """
    layers = slice(at, at + len(new))
    slots, chunk = arena.slots.cut(layers), _chunk(arena, layers, this_pass, new, step.of_prompt)
    grows, decay_factor = arena.plan.grows, arena.plan.decay_factor
    given = {name: torch.stack([one.gains[name] for one in new]) for name in grows}  # [l, R, H, T + N, ...]
    used = given["score"].shape[3] - this_pass.tokens
    held = slots.cut(slots=slice(used))
    arena.add_gains(held, {name: gain[:, :, :, :used] for name, gain in given.items()}, this_pass)
    for name, gain in given.items():
        came, mine = chunk.states.get(name), gain[:, :, :, used:]
        if came is not None:
            mine = grows[name].add(decay_factor, came, mine, this_pass.first, this_pass.count)
        chunk.states[name] = mine
    if this_pass.even and not this_pass.evicts:
        start, end = this_pass.in_use[0], this_pass.in_use[0] + this_pass.tokens
        in_order = this_pass.first == this_pass.in_use  # nothing was evicted yet: a copy instead of a scatter
        where = None if in_order else arena.order[layers, ..., start:end].long()
        for name, new_state in chunk.states.items():
            state = slots.states[name]
            if where is None:
                state[:, :, :, start:end] = new_state
            else:
                state.scatter_(3, along(where, state), new_state)
        return
    stays = chunk.positions >= 0  # [l, R, H, N]
    for due in rows_due(arena, this_pass):
        stays[:, due.rows] &= _stay(arena, slots, used, chunk, due, step.kernels)
    _write(slots, chunk, stays)
    arena.order[layers] = in_use_first(slots.positions)


def _chunk(arena: Arena, layers: slice, this_pass: Pass, new: Sequence[PassResult], prompt: bool) -> Slots:
    """States of the chunk's tokens, [l, R, H, N, ...]; unknown ones have the values of empty slots."""
    keys, values = torch.stack([one.keys for one in new]), torch.stack([one.values for one in new])
    size, new_states = keys.shape[:4], arena.new_token_states(this_pass, prompt)
    states = {name: state.expand(size) for name, state in new_states.items()}
    states["keys"], states["values"] = arena.to_store(keys, values, new_states["positions"])
    if this_pass.evicts:  # the chunk is ranked together with the slots
        ranked = {"clamped", *arena.plan.policy.looks_at} - states.keys()
        states |= {state.name: arena.empty(state, size) for state in STATES if state.name in ranked}
    return Slots(arena.plan.budget, arena.layers[layers], **states)


def _stay(arena: Arena, slots: Slots, used: int, chunk: Slots, due: Due, kernels: Kernels) -> Tensor:
    """Evicts in the rows of `due`; returns which tokens of the chunk stay. [l, r, H, N] bool"""
    names = {*Slots.RANKED_BY, *arena.plan.policy.looks_at, "protected"}
    names |= {"lately"} if arena.plan.observe else set()
    held = {name: slots.states[name][:, due.rows, :, :used] for name in names}
    new = {name: chunk.states[name][:, due.rows] for name in names}
    both = Slots(
        slots.budget, slots.layers, **{name: torch.cat((held[name], new[name]), 3) for name in names}
    )
    count = both.positions.shape[3] - arena.plan.budget
    _, to_evict = choose_evicted(arena, both, due, count, kernels)
    # For evicted tokens of the chunk, an empty slot is emptied again: there is one, since S = budget + 1.
    slots = slots.cut(rows=due.rows)
    evict(slots, torch.where(to_evict < used, to_evict, slots.positions.argmin(3, keepdim=True)))
    return torch.ones_like(both.protected).scatter_(3, to_evict, False)[..., used:]


def _write(slots: Slots, chunk: Slots, stays: Tensor) -> None:
    """Writes the tokens of a chunk that stay, `stays` [l, R, H, N], into empty slots, in their order.

    One slot stays empty, since S = budget + 1: all other tokens are written there, and it is emptied. Writing
    all takes one copy of each state; leaving some out would take four.
    """
    order, count = in_use_first(slots.positions).long(), slots.positions.shape[3]
    in_use = (slots.positions >= 0).sum(-1, keepdim=True)
    where = order.gather(3, torch.where(stays, in_use + stays.cumsum(-1) - 1, count - 1))
    first = torch.arange(0, slots.positions.numel(), count, device=stays.device)  # first slot of each head
    into = (where.flatten(0, 2) + first[:, None]).flatten()
    for name, new in chunk.states.items():
        trailing = new.shape[4:]
        slots.states[name].view(-1, *trailing).index_copy_(0, into, new.reshape(-1, *trailing))
    evict(slots, order[..., -1:])
