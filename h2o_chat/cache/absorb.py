"""A prompt chunk comes in: if all fits it is written into empty slots, else it is chosen who stays.

Layer by layer, since a chunk's keys exist only while its layer is at work; by the functions of `settle.py`.
Shapes: R rows, H KV heads, G query heads per KV head, S slots, T of them in use at most, N new tokens, D head
size.
"""

import torch
from torch import Tensor

from h2o_chat.cache import scores
from h2o_chat.cache.arena import Arena, along, in_use_first
from h2o_chat.cache.clock import Pass
from h2o_chat.cache.distance import indices
from h2o_chat.cache.policies import Slots, highest
from h2o_chat.cache.scores import REMEMBER
from h2o_chat.cache.settle import Compare, framed, rank, visible_from
from h2o_chat.cache.state import STATES


@torch.no_grad()
def absorb(
    arena: Arena,
    at: int,
    now: Pass,
    keys: Tensor,
    values: Tensor,
    gain: Tensor,
    share: Tensor | None,
    *,
    prompt: bool,
    compare: Compare,
) -> None:
    """After one layer's chunk attended to the slots and to itself: chooses who of all of them stays.

    Args:
        keys, values: [R, H, N, D] of the chunk.
        gain: [R, H, T + N, G] what its queries add to the scores; the first T slots are in use at most.
        share: [R, H, T + N] what they add to `recent`; None where nobody asks what is lost.
    """
    used = gain.shape[2] - keys.shape[2]
    place = torch.arange(now.tokens, device=keys.device, dtype=torch.int32)
    new = arena.per_row(now.first) + place  # [R, 1, N]; real tokens stand in front
    new = new.masked_fill(place >= arena.per_row(now.count), -1).expand(-1, keys.shape[1], -1)  # [R, H, N]
    stored = arena.to_store(keys, values, new)
    slots, policy = arena.layer(at), arena.plan.policy
    held = Slots(
        slots.budget, slots.layers, **{n: state[:, :, :, :used] for n, state in slots.states.items()}
    )
    chunk = {state.name: arena.empty(state, (1, *new.shape)) for state in STATES}
    chunk |= {
        "keys": stored[0][None],
        "values": stored[1][None],
        "positions": new[None],
        "score": gain[None, :, :, used:],
        "prompt": torch.full_like(new[None], prompt, dtype=torch.bool),
        "protected": arena.protected(now).expand_as(new)[None],
        "hidden": new[None] < 0,
    }
    held.score.copy_(policy.scores.add(policy.forget, held.score, gain[None, :, :, :used], now.count))
    if share is not None:
        left = scores.left(REMEMBER, now.count, share)
        held.recent.mul_(left if isinstance(left, float) else left[..., 0]).add_(share[None, :, :, :used])
        chunk["recent"] = share[None, :, :, used:]
    if now.even and not now.settles:
        where = arena.order[at : at + 1, ..., now.held[0] : now.held[0] + now.tokens].long()
        for name, tensor in slots.states.items():
            tensor.scatter_(3, along(where, tensor), chunk[name].to(tensor.dtype))
        return
    union = Slots(
        arena.slots.budget,
        slots.layers,
        **{name: torch.cat((state, chunk[name].to(state.dtype)), 3) for name, state in held.states.items()},
    )
    keep = _stay(arena, at, now, union, used, compare)  # [1, R, H, K]
    if share is not None:
        arena.lost += union.recent.scatter(3, keep, 0).sum((0, 2)).sum(-1).double()
    stays = keep.shape[3]
    start = torch.arange(0, union.positions.numel(), union.positions.shape[3], device=keep.device)
    flat = (keep.view(-1, stays) + start[:, None]).flatten()  # in a state seen as [R * H * (T + N), ...]
    for state in STATES:
        mine, found = slots.states[state.name], union.states[state.name]
        mine[:, :, :, :stays] = found.flatten(0, 3).index_select(0, flat).view(mine[:, :, :, :stays].shape)
        mine[:, :, :, stays:] = state.empty
    arena.order[at] = in_use_first(slots.positions[0])


def _stay(arena: Arena, at: int, now: Pass, union: Slots, used: int, compare: Compare) -> Tensor:
    """The tokens of slots and chunk that one layer keeps: at most the budget. [1, R, H, K]"""
    in_use = in_use_first(union.positions)
    if not now.settles:
        most = max(held + count for held, count in zip(now.held, now.count, strict=True))
        return in_use[..., :most]
    if now.compares and arena.plan.policy.keys:
        new = indices(union.positions[..., used:], arena.base)
        index = torch.cat((arena.held_indices(at)[..., :used], new), 3)
        due = torch.tensor([row in now.compares for row in range(len(now.count))], device=arena.device)
        for name, numbers in compare(arena, union, index).items():
            union.states[name] = torch.where(due[:, None, None], numbers, union.states[name])
    seen = [first + count for first, count in zip(now.first, now.count, strict=True)]
    visible = visible_from(arena, seen)
    visible = visible[at : at + 1] if visible.shape[0] > 1 else visible
    budget = arena.slots.budget
    priority = framed(arena, union, rank(arena, union, now.compared), seen, visible)
    stay = highest(priority, union.positions, budget)
    if len(now.settles) == len(seen):
        return stay
    settles = torch.tensor([row in now.settles for row in range(len(seen))], device=arena.device)
    return torch.where(settles[:, None, None], stay, in_use[..., :budget])
