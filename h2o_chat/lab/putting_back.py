"""What was evicted is put back: the very keys and values, at their true positions.

Of a message its keys and values are copied while all of them are held (`rows_of`). Later, when a row needs
them again, every KV head gives up as many slots as it lacks tokens of the message, those that its policy
ranks lowest, and gets the tokens (`put_back`). So all heads stay equally full, and no token stands twice in
one of them. RepairKV (docs/POLICY.md) restores rows in the same way.

Shapes: L layers, H KV heads, S slots, N tokens of the message, K slots given up at most, B bytes, D head.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from h2o_chat.base.errors import UsageError
from h2o_chat.cache.arena import Arena
from h2o_chat.cache.distance import indices
from h2o_chat.cache.quantized import dequantise, quantise
from h2o_chat.cache.settle import compare_keys, framed, rank, visible_from
from h2o_chat.cache.state import STATES
from h2o_chat.policies.frame import lowest
from h2o_chat.transformers_cache.cache_like import CacheLike

BITS = 8
"""Of each component."""


@dataclass(frozen=True)
class Rows:
    """Keys before RoPE and values of tokens that follow each other, of some layers, in bytes."""

    layers: tuple[int, ...]
    first: int  # position of the first token
    keys: Tensor  # [L, H, N, B] uint8
    values: Tensor  # [L, H, N, B] uint8

    @property
    def positions(self) -> range:
        return range(self.first, self.first + self.keys.shape[2])


@torch.no_grad()
def rows_of(cache: CacheLike, positions: range, row: int = 0) -> list[Rows]:
    """Copies of the keys and values of tokens that every layer and KV head holds, an entry for each arena.

    Raises:
        UsageError: some of them are not held everywhere.
    """
    return [_copied(arena, positions, row) for arena in cache.arenas]


def _copied(arena: Arena, positions: range, row: int) -> Rows:
    slot, held = _where(arena, positions, row)
    if not bool(held.all()):
        missing = positions[int((~held).any(0).any(0).nonzero()[0])]
        raise UsageError(
            f"The token at position {missing} is not held by every KV head.", "Copy it before it is evicted."
        )
    part = arena.slots.cut(rows=slice(row, row + 1))
    keys, values = (arena.numbers(_taken(part.states[name][:, 0], slot)) for name in ("keys", "values"))
    if arena.rope is not None and arena.plan.bits is None:
        index = arena.held_indices(part, slice(row, row + 1))[:, 0].gather(2, slot)
        keys = arena.rope.rotate(keys, -index)
    return Rows(arena.layers, positions.start, quantise(keys, BITS), quantise(values, BITS))


@torch.no_grad()
def put_back(cache: CacheLike, rows: Sequence[Rows], row: int = 0) -> int:
    """Puts tokens back where they are not held, protected, and read as prompt; how many any head lacked.

    Unprotect them later with `H2OCache.unpin`. What they had received of attention is not known: they begin
    with a score of zero.

    Raises:
        UsageError: a head would have to give up more than it may.
    """
    lacked: set[int] = set()
    found = {layer: (one.keys[at], one.values[at]) for one in rows for at, layer in enumerate(one.layers)}
    for arena in cache.arenas:  # in the first step each layer had an arena of its own
        keys, values = (torch.stack([found[layer][which] for layer in arena.layers]) for which in (0, 1))
        lacked |= _put_into(cache, arena, Rows(arena.layers, rows[0].first, keys, values), row)
    return len(lacked)


def _put_into(cache: CacheLike, arena: Arena, rows: Rows, row: int) -> set[int]:
    clock, which = cache.clocks[row], slice(row, row + 1)
    part, new = (
        arena.slots.cut(rows=which),
        torch.tensor(rows.positions, dtype=torch.int32, device=arena.device),
    )
    visible = visible_from(arena, arena.layers, [clock.seen])  # [L or 1, 1, 1, 1]
    lacking = ~_where(arena, rows.positions, row)[1] & (new >= visible[:, 0])  # [L, H, N]
    count = lacking.sum(-1, keepdim=True)  # [L, H, 1]
    most = int(count.max())
    if not most:
        return set()
    priority = framed(arena, part, rank(arena, part, [clock.compared]), [clock.seen])
    # An empty slot is the next token's, and what is held of the message stays.
    stays = (part.positions < 0) | torch.isin(part.positions, new)
    priority = priority.masked_fill(stays, torch.inf)
    if int(priority.isfinite().sum(-1).min()) < most:
        raise UsageError(f"{most} tokens cannot be put back.", "Put back fewer, or unpin something.")
    # The lowest first, so that a head which lacks fewer gives up its lowest.
    going = lowest(priority, part.positions, most)  # [L, 1, H, K]
    going = going.gather(3, priority.gather(3, going).argsort(dim=3))[:, 0]  # [L, H, K]
    which_new = (
        (~lacking).long().argsort(dim=-1, stable=True)[..., :most]
    )  # [L, H, K]: what it lacks, in order
    real = torch.arange(most, device=arena.device) < count  # [L, H, K]
    for name, tensor in _states(arena, rows, new, clock.near_from, row).items():
        mine = part.states[name][:, 0]  # [L, H, S, ...]
        put = _taken(tensor, which_new)
        where = real if put.ndim == 3 else real.unsqueeze(-1)
        mine.scatter_(2, _along(going, mine), torch.where(where, put.to(mine.dtype), _taken(mine, going)))
    arena.ranked.pop(row, None)
    if arena.plan.policy.keys:
        for name, numbers in compare_keys(arena, part, arena.held_indices(part, which)).items():
            part.states[name].copy_(numbers)
    return set(new[lacking.any(0).any(0)].tolist())


def _states(arena: Arena, rows: Rows, new: Tensor, near_from: int, row: int) -> dict[str, Tensor]:
    """All states of the tokens that come back. [L, H, N, ...]"""
    keys, values = (dequantise(one, BITS, arena.layer_shape.dtype) for one in (rows.keys, rows.values))
    shape = keys.shape[:3]
    states = {s.name: arena.empty(s, tuple(shape)) for s in STATES}
    clamped, protected = new < near_from, torch.ones_like(new, dtype=torch.bool)
    if arena.plan.bits is not None:
        keys, values = quantise(keys, arena.plan.bits), quantise(values, arena.plan.bits)
    elif arena.rope is not None:
        assert arena.plan.distance is not None
        index = torch.where(
            clamped,
            arena.plan.distance.clamped_indices(protected, new),
            indices(new[None, None], arena.base[row : row + 1])[0, 0],
        )
        keys = arena.rope.rotate(keys, index.expand(shape))
    flags = {"prompt": True, "protected": True}
    states |= {
        "keys": keys,
        "values": values,
        "positions": new.expand(shape),
        "clamped": clamped.expand(shape),
    }
    return states | {name: torch.full_like(states[name], value) for name, value in flags.items()}


def _where(arena: Arena, positions: range, row: int) -> tuple[Tensor, Tensor]:
    """In which slot each token lies, and whether it does. [L, H, N] twice"""
    wanted = torch.tensor(positions, dtype=torch.int32, device=arena.device)
    same = arena.slots.positions[:, row, :, None, :] == wanted[:, None]  # [L, H, N, S]
    return same.to(torch.uint8).argmax(-1), same.any(-1)


def _along(index: Tensor, state: Tensor) -> Tensor:
    """Slots [L, H, N] as an index into a state [L, H, S, ...]."""
    return index if state.ndim == 3 else index.unsqueeze(-1).expand(*index.shape, state.shape[3])


def _taken(state: Tensor, slot: Tensor) -> Tensor:
    """What lies in slots [L, H, N] of a state [L, H, S, ...]. [L, H, N, ...]"""
    return state.gather(2, _along(slot, state))
