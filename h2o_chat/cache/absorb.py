"""A prompt chunk comes in: if all fits it is written into empty slots, else it is chosen who stays.

Layer by layer, or a few layers together; by the functions of `settle.py`. No slot is moved: who goes leaves
it empty, and new tokens that stay are written there. What the last chunk of a prompt brings waits until
somebody looks at the slots (`H2OCache.arenas`): the first token of an answer is told before that.
Shapes: L layers of the arena, l of them that come together, R rows, H KV heads, G query heads per KV head,
S slots, T of them in use at most, N new tokens, D head size.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from h2o_chat.base.errors import UsageError
from h2o_chat.cache import scores
from h2o_chat.cache.arena import Arena, New, along, in_use_first
from h2o_chat.cache.clock import Pass
from h2o_chat.cache.distance import indices
from h2o_chat.cache.policies import Slots, lowest
from h2o_chat.cache.scores import REMEMBER
from h2o_chat.cache.settle import Kernels, framed, rank, visible_from
from h2o_chat.cache.state import STATES
from h2o_chat.cache.step import Step

TOGETHER_BYTES = 8 << 20
"""Of keys and values, of slots and chunk: as many layers are absorbed together as hold so much. A call of
torch takes as long for one small layer as for a few. Larger copies bring little, and take memory."""
WAITING_BYTES = 16 << 20
"""That may wait for the end of a step; more is absorbed in its middle."""


def wait(arena: Arena, at: int, step: Step, new: New) -> None:
    """What the last pass of a step has brought to a layer is absorbed later, all layers after each other."""
    arena.waiting.append(new)
    layer_bytes = sum(tensor.untyped_storage().nbytes() for tensor in (new.keys, new.values))
    if len(arena.waiting) * layer_bytes > WAITING_BYTES:
        _absorb_waiting(arena, at + 1, step)


def absorb_rest(arenas: list[Arena], step: Step | None) -> list[Arena]:
    """These arenas; what waits in them since the last step is absorbed.

    Raises:
        UsageError: that was tried before, and has failed in the middle.
    """
    if step is None:
        return arenas
    if step.torn:
        raise UsageError(
            "It was not chosen to the end which tokens of the last prompt stay.",
            "Go back to a snapshot that was taken before it, or call cache.reset().",
        )
    for arena in arenas:
        if arena.waiting:
            step.torn = True
            with step.around():
                _absorb_waiting(arena, len(arena.layers), step)
            step.torn = False
    return arenas


def _absorb_waiting(arena: Arena, end: int, step: Step) -> None:
    """Absorbs what waits for the layers before `end`, as many of them together as TOGETHER_BYTES hold."""
    step.lasting = True
    while arena.waiting:
        first = arena.waiting[0]
        layer_bytes = arena.bytes_held // len(arena.layers) + first.keys.nbytes + first.values.nbytes
        together = arena.waiting[: max(1, TOGETHER_BYTES // layer_bytes)]
        at = end - len(arena.waiting)
        del arena.waiting[: len(together)]
        absorb(arena, at, step.passes[-1], together, prompt=step.of_prompt, kernels=step.kernels)


@torch.no_grad()
def absorb(arena: Arena, at: int, now: Pass, new: Sequence[New], *, prompt: bool, kernels: Kernels) -> None:
    """After a chunk attended to the slots and to itself: chooses who of all of them stays.

    Args:
        at: the first of the layers that `new` is for; the others follow it.
    """
    layers = slice(at, at + len(new))
    received = {"score": torch.stack([one.gain for one in new])}  # [l, R, H, T + N, ...]
    if given := [one.lately for one in new if one.lately is not None]:
        received["lately"] = torch.stack(given)
    used = received["score"].shape[3] - now.tokens
    slots, held = arena.cut(layers), arena.cut(layers, slots=slice(used))
    _receive(arena, held, {name: of_all[:, :, :, :used] for name, of_all in received.items()}, now)
    chunk = _states(arena, now, new, prompt)
    chunk |= {name: of_all[:, :, :, used:] for name, of_all in received.items()}
    if now.even and not now.settles:
        where = arena.order[layers, ..., now.in_use[0] : now.in_use[0] + now.tokens].long()
        for name, coming in chunk.items():
            state = slots.states[name]
            state.scatter_(3, along(where, state), coming.to(state.dtype))
        return
    stays = torch.cat((held.positions >= 0, chunk["positions"] >= 0), 3)  # [l, R, H, T + N]
    if now.settles:
        stays &= _stay(arena, layers, now, held, chunk, kernels)
        if arena.plan.observe:
            lately = torch.cat((held.lately, chunk["lately"]), 3)
            arena.lost += lately.masked_fill(stays, 0).sum((0, 2, 3)).double()
        _give_up(held, ~stays[..., :used])
    _write(slots, chunk, stays[..., used:])
    arena.order[layers] = in_use_first(slots.positions)


def _receive(arena: Arena, held: Slots, received: dict[str, Tensor], now: Pass) -> None:
    """Adds to the scores of slots what the chunk's queries gave them, [l, R, H, T, ...]."""
    policy = arena.plan.policy
    held.score.copy_(policy.scores.add(policy.forget, held.score, received["score"], now.count))
    if "lately" in received:
        left = scores.left(REMEMBER, now.count, held.lately)
        held.lately.mul_(left if isinstance(left, float) else left[..., 0]).add_(received["lately"])


def _states(arena: Arena, now: Pass, new: Sequence[New], prompt: bool) -> dict[str, Tensor]:
    """What is known of the chunk's tokens as they come, [l, R, H, N, ...]; else they are as empty slots."""
    keys, values = torch.stack([one.keys for one in new]), torch.stack([one.values for one in new])
    size = keys.shape[:4]
    place = torch.arange(now.tokens, device=arena.device, dtype=torch.int32)
    positions = arena.per_row(now.first) + place  # [R, 1, N]; real tokens stand in front
    positions = positions.masked_fill(place >= arena.per_row(now.count), -1)
    keys, values = arena.to_store(keys, values, positions)
    return {
        "keys": keys,
        "values": values,
        "positions": positions.expand(size),
        "prompt": torch.full(size, prompt, device=arena.device),
        "protected": arena.protected(now).expand(size),
        "hidden": (positions < 0).expand(size),
    }


def _stay(
    arena: Arena, layers: slice, now: Pass, held: Slots, chunk: dict[str, Tensor], kernels: Kernels
) -> Tensor:
    """Which tokens of slots and chunk stay; all of rows that do not settle. [l, R, H, T + N] bool"""
    used, seen = held.positions.shape[3], [a + b for a, b in zip(now.first, now.count, strict=True)]
    compares = bool(now.compares) and arena.plan.policy.keys
    union = _union(arena, held, chunk, keys=compares)
    if compares:
        new = indices(union.positions[..., used:], arena.base)
        index = torch.cat((arena.held_indices(layers)[..., :used], new), 3)
        due = torch.tensor([row in now.compares for row in range(len(seen))], device=arena.device)
        found = kernels.compare(arena, union, index)
        if (nearest := found.get("nearest")) is not None:  # of the chunk it is not known who stays, and where
            nearest.masked_fill_(nearest >= used, -1)[..., used:] = -1
        for name, numbers in found.items():
            both = torch.where(due[:, None, None], numbers, union.states[name])
            union.states[name] = both
            held.states[name].copy_(both[..., :used])
            chunk[name] = both[..., used:]
    visible = visible_from(arena, seen)
    visible = visible[layers] if visible.shape[0] > 1 else visible
    priority = framed(arena, union, rank(arena, union, now.compared, kernels), seen, visible)
    goes = lowest(priority, union.positions, priority.shape[3] - arena.slots.budget)
    stays = torch.ones_like(union.protected).scatter_(3, goes, False)
    for row in range(len(seen)):
        if row not in now.settles:
            stays[:, row] = True
    return stays


def _union(arena: Arena, held: Slots, chunk: dict[str, Tensor], *, keys: bool) -> Slots:
    """Slots and chunk side by side, as far as it matters who stays. [l, R, H, T + N, ...]"""
    size = tuple(chunk["positions"].shape)
    names = {*Slots.RANKED_BY, *arena.plan.policy.looks_at, "protected"}
    names |= {"keys", "nearest"} if keys else set()
    states = {}
    for state in STATES:
        if state.name in names:
            mine, coming = held.states[state.name], chunk.get(state.name)
            coming = arena.empty(state, size) if coming is None else coming.to(mine.dtype)
            states[state.name] = torch.cat((mine, coming), 3)
    return Slots(held.budget, held.layers, **states)


def _give_up(held: Slots, goes: Tensor) -> None:
    """Empties slots, `goes` [l, R, H, T]; keys and values there are masked, and overwritten some time."""
    for state in STATES:
        if state.dtype != "kv":
            mine = held.states[state.name]
            mine.masked_fill_(goes if mine.ndim == 4 else goes.unsqueeze(4), state.empty)


def _write(slots: Slots, chunk: dict[str, Tensor], stays: Tensor) -> None:
    """Writes the tokens of a chunk that stay, `stays` [l, R, H, N], into empty slots, in their order."""
    most = min(stays.shape[3], slots.positions.shape[3])
    place = torch.arange(most, device=stays.device)
    coming = stays.logical_not().byte().argsort(dim=-1, stable=True)[..., :most]  # those that stay first
    writes = place < stays.sum(-1, keepdim=True)
    in_use = (slots.positions >= 0).sum(-1, keepdim=True)
    # The empty ones in their order; after the last of them some that are in use, which stay as they are.
    where = in_use_first(slots.positions).long().gather(3, (in_use + place) % slots.positions.shape[3])
    for name, new in chunk.items():
        state = slots.states[name]
        index, wanted = along(where, state), writes if state.ndim == 4 else writes.unsqueeze(4)
        new = new.to(state.dtype).gather(3, along(coming, state))
        state.scatter_(3, index, torch.where(wanted, new, state.gather(3, index)))
