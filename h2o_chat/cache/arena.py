"""The slots of all layers of one shape: one tensor per state, [L, R, H, S, ...]; a layer is a view of it.

Slots are allocated once, S = budget + 1 per layer, row and KV head. A decoded token is written into an empty
one (`place`, `write`), attends, and its probabilities are added to the scores (`finish`). When its last empty
slot has been written a row settles (`settle.py`). A prompt chunk needs no slots of its own while it attends;
then it is chosen who of slots and chunk stays (`absorb.py`). No slot is moved or allocated per token.

Shapes: L layers, R rows, H KV heads, G query heads per KV head, S slots, N new tokens, D head size.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from h2o_chat.cache import scores
from h2o_chat.cache.clock import Pass
from h2o_chat.cache.distance import indices
from h2o_chat.cache.plan import GROW, Plan
from h2o_chat.cache.policies import Slots
from h2o_chat.cache.quantized import dequantise, quantise, row_bytes
from h2o_chat.cache.rope import Rope
from h2o_chat.cache.state import STATES, State


@dataclass(frozen=True)
class Shape:
    """What layers of one arena have in common."""

    rows: int
    heads: int  # KV heads
    groups: int  # query heads per KV head
    key: int  # components of a key, D
    value: int  # components of a value
    dtype: torch.dtype  # of keys and values as the model computes them
    device: torch.device


@dataclass(frozen=True)
class Part:
    """What is saved of one arena."""

    layers: tuple[int, ...]
    shape: Shape
    states: dict[str, Tensor]  # the saved ones of `state.STATES`, [L, R, H, S, ...]
    lost: Tensor  # [R]


@dataclass(frozen=True)
class Ranked:
    """What the policy ranked the slots of one row by when that settled."""

    seen: int  # tokens fed to it then
    ranking: Tensor  # [L, H, S]


class New(NamedTuple):
    """What a pass of a prompt brings to one layer."""

    keys: Tensor  # [R, H, N, D]
    values: Tensor
    gain: Tensor  # [R, H, T + N, G] what its queries add to the scores; the first T slots are in use at most
    lately: Tensor | None  # [R, H, T + N] what they add to `lately`; None where nobody asks what is lost


class Arena:
    """The slots of some layers, which turn their keys alike.

    Args:
        slots: S.
    """

    @torch.inference_mode(False)  # else it could be written to in inference mode alone
    def __init__(
        self, plan: Plan, layers: Sequence[int], rope: Rope | None, shape: Shape, slots: int
    ) -> None:
        self.plan, self.layers, self.rope, self.of = plan, tuple(layers), rope, shape
        self.device = shape.device
        self.exact = torch.promote_types(shape.dtype, torch.float32)
        size = (len(self.layers), shape.rows, shape.heads, slots)
        states = {state.name: self.empty(state, size) for state in STATES}
        self.slots = Slots(plan.budget, self.layers, **states)
        self.windows: list[int | None] = [None] * len(self.layers)
        """Of each layer: positions that a query sees, itself included; None: all before it."""
        self.order = torch.empty(size, dtype=torch.int32, device=self.device)
        """[L, R, H, S] slots in use, then the empty ones in the order in which they will be written."""
        self.base = torch.zeros(shape.rows, dtype=torch.int32, device=self.device)
        """[R] positions whose rotation index is 0."""
        self.lost = torch.zeros(shape.rows, dtype=torch.float64, device=self.device)
        """[R] shares of attention that evicted tokens had been receiving, summed over layers and heads."""
        self.clamps = False
        """Some key may be clamped."""
        self.slot: Tensor | None = None
        """[L, R, H, 1] where the token under way is, which was placed and not finished."""
        self._probabilities: Tensor | None = None
        self.waiting: list[New] = []
        """What the last pass of a prompt has brought to the layers just before (`absorb.wait`)."""
        self.refresh()

    def empty(self, state: State, shape: tuple[int, ...]) -> Tensor:
        """Empty slots of a state: [*shape, ...]."""
        of, bits = self.of, self.plan.bits
        groups = self.plan.policy.scores.columns(of.groups)
        trailing = {"": (), "key": (of.key,), "value": (of.value,), "group": (groups,)}[state.trailing]
        dtypes = {"kv": of.dtype, "exact": self.exact, "int32": torch.int32, "bool": torch.bool}
        dtype = dtypes[state.dtype]
        if state.dtype == "kv" and bits is not None:
            dtype, trailing = torch.uint8, (row_bytes(trailing[0], bits),)
        return torch.full((*shape, *trailing), state.empty, dtype=dtype, device=self.device)

    # -- shape -----------------------------------------------------------------------------------------

    @property
    def shape(self) -> torch.Size:
        """[L, R, H, S]"""
        return self.slots.positions.shape

    @property
    def bytes_held(self) -> int:
        """Bytes of keys and values, and of their scales; empty slots included."""
        return self.slots.keys.nbytes + self.slots.values.nbytes

    @property
    def plain_slot_bytes(self) -> int:
        """Bytes of one slot's key and value in all layers, rows and heads, as the model computes them."""
        layers, rows, heads, _ = self.shape
        return layers * rows * heads * (self.of.key + self.of.value) * self.of.dtype.itemsize

    @torch.inference_mode(False)
    def grow(self, tokens: int) -> None:
        """Makes room for so many tokens of a row, in blocks; a budget already has its slots."""
        missing = min(tokens, self.plan.budget) - (self.shape[3] - 1)
        if missing > 0:
            more = (*self.shape[:3], -(-missing // GROW) * GROW)
            self._replace(
                {s.name: torch.cat((self.slots.states[s.name], self.empty(s, more)), 3) for s in STATES}
            )

    @torch.inference_mode(False)
    def select_rows(self, rows: Tensor) -> None:
        """Row i becomes a copy of row rows[i]."""
        rows = rows.to(self.device)
        self.of = replace(self.of, rows=len(rows))
        self.base, self.lost = self.base.index_select(0, rows), self.lost.index_select(0, rows)
        self._replace({name: state.index_select(1, rows) for name, state in self.slots.states.items()})

    def _replace(self, states: dict[str, Tensor]) -> None:
        """Takes tensors of other layers, rows or slots."""
        self.slots = Slots(self.plan.budget, self.layers, **states)
        self.order = torch.empty_like(self.slots.positions)
        self._probabilities = None
        self.refresh()

    def refresh(self) -> None:
        """Makes anew what follows from the saved states."""
        self.ranked: dict[int, Ranked] = {}  # by row, at its last settle: for whoever looks right after it
        for layer in range(len(self.layers)):  # one at a time: there may be little memory to go back with
            self.order[layer].copy_(in_use_first(self.slots.positions[layer]))
        self.slots.hidden.copy_(self.slots.positions < 0)

    # -- what is saved ---------------------------------------------------------------------------------

    def part(self) -> Part:
        """Everything saved, the tensors themselves."""
        states = {state.name: self.slots.states[state.name] for state in STATES if state.saved}
        return Part(self.layers, self.of, states, self.lost)

    def take_over(self, part: Part, base: Sequence[int]) -> None:
        """Goes on with the tensors of a part of these layers, and the clocks' `base`."""
        self.lost, self.base = part.lost, torch.tensor(base, dtype=torch.int32, device=self.device)
        self._replace(part.states | {"hidden": part.states["positions"] < 0})

    def put_row(self, row: int, parts: Sequence[Part], base: int) -> None:
        """Takes over what the parts of one row say of these layers; no parts: the row is emptied."""
        self.base[row], self.lost[row] = base, 0
        self._probabilities = None  # those of slots that are empty now would be added for ever
        self.waiting.clear()
        for state in STATES:
            self.slots.states[state.name][:, row] = state.empty
        self.ranked.pop(row, None)
        for part in parts:
            for number, layer in enumerate(part.layers):
                if layer not in self.layers:
                    continue
                for name, saved in part.states.items():
                    mine = self.slots.states[name][self.layers.index(layer), row]  # [H, S, ...]
                    slots = min(mine.shape[1], saved.shape[3])  # where slots are added, the others are empty
                    mine[:, :slots] = saved[number, 0, :, :slots]
                if number == 0:
                    self.lost[row] += part.lost[0]
        self.order[:, row] = in_use_first(self.slots.positions[:, row])
        self.slots.hidden[:, row] = self.slots.positions[:, row] < 0

    # -- keys and values -------------------------------------------------------------------------------

    def cut(
        self, layers: slice = slice(None), rows: slice = slice(None), slots: slice = slice(None)
    ) -> Slots:
        """The states of layers, rows and slots that follow each other: views, no copies. [l, r, H, s, ...]"""
        states = {name: state[layers, rows, :, slots] for name, state in self.slots.states.items()}
        return Slots(self.slots.budget, self.layers[layers], **states)

    def numbers(self, stored: Tensor) -> Tensor:
        """Stored keys or values [..., D or B] as numbers. [..., D]"""
        return stored if self.plan.bits is None else dequantise(stored, self.plan.bits, self.of.dtype)

    def held_keys(self, at: int) -> Tensor:
        """One layer's keys as queries meet them, turned to their rotation index. [R, H, S, D]"""
        keys = self.numbers(self.slots.keys[at])
        if self.plan.bits is None or self.rope is None:
            return keys
        return self.rope.rotate(keys, self.held_indices(slice(at, at + 1))[0])

    def held_indices(self, layers: slice = slice(None), rows: slice = slice(None)) -> Tensor:
        """Rotation index of every slot's key, of layers and rows that follow each other. [l, r, H, S]"""
        of = (layers, rows)
        positions, distance = self.slots.positions[of], self.plan.distance
        near = indices(positions, self.base[rows])
        if distance is None or not self.clamps:
            return near
        far = distance.clamped_indices(self.slots.protected[of], positions)
        return torch.where(self.slots.clamped[of], far, near)

    def edge_angles(self, at: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """What turns queries at positions `at` [R, N] to index reach - 1 (`Rope.turn`). [R, 1, 1, N, D] each

        From there clamped keys at index 0 stand at distance reach - 1, and protected ones nearer.
        """
        assert self.rope is not None
        assert self.plan.distance is not None
        by = self.plan.distance.reach - 1 - (at - self.base[:, None])
        return self.rope.angles(by[:, None, None], dtype)

    def held_values(self, at: int) -> Tensor:
        """One layer's values as the model computes with them. [R, H, S, D]"""
        return self.numbers(self.slots.values[at])

    def to_store(self, keys: Tensor, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """New keys and values [..., R, H, N, D] at `positions` [R, 1 or H, N] as slots hold them."""
        if self.plan.bits is None:
            return keys, values
        if self.rope is not None:
            keys = self.rope.rotate(keys, -indices(positions, self.base))
        return quantise(keys, self.plan.bits), quantise(values, self.plan.bits)

    # -- a decoded token -------------------------------------------------------------------------------

    @torch.no_grad()
    def place(self, now: Pass, prompt: bool) -> None:
        """Gives the next token of every row its empty slot, in all layers; `write` brings the rest."""
        if len(set(now.in_use)) == 1:
            slot = self.order[..., now.in_use[0] : now.in_use[0] + 1].long()
        else:
            held = self.per_row(now.in_use).long().expand(*self.shape[:3], 1)
            slot = self.order.gather(3, held).long()
        self.slot = slot
        real = [first if count else -1 for first, count in zip(now.first, now.count, strict=True)]
        self.new = self.per_row(real)  # [R, 1, 1] positions
        self.when = self.per_row(now.first)[..., 0]  # [R, 1]
        self.edge = self.edge_angles(self.when, self.of.dtype) if self.clamps else None
        self.used = self.shape[3] if now.used is None else now.used + 1
        new = {
            "positions": self.new,
            "prompt": prompt,
            "protected": self.protected(now),
            "hidden": self.new < 0,
        }
        for name, value in new.items():
            state = self.slots.states[name]
            value = torch.as_tensor(value, dtype=state.dtype, device=self.device)
            state.scatter_(3, slot, value.expand_as(slot))
        # Of each layer [R * H]: its rows in keys seen as [R * H * S, D].
        start = torch.arange(0, self.order[0].numel(), self.shape[3], device=self.device)
        self.flat_slot = slot.flatten(1) + start
        if self._probabilities is None:
            layers, rows, heads, slots = self.shape
            size = (layers, rows, heads, self.of.groups, slots)
            with torch.inference_mode(False):
                self._probabilities = torch.zeros(size, dtype=self.exact, device=self.device)

    def write(self, at: int, keys: Tensor, values: Tensor) -> None:
        """One layer's keys and values [R, H, 1, D] of the tokens that were placed."""
        keys, values = self.to_store(keys, values, self.new)
        for stored, new in ((self.slots.keys, keys), (self.slots.values, values)):
            stored[at].flatten(0, 2).index_copy_(0, self.flat_slot[at], new.flatten(0, 2))

    def probabilities(self, at: int) -> Tensor:
        """Where one layer's probabilities go: [R, H, G, T], T slots in use at most."""
        assert self._probabilities is not None
        return self._probabilities[at, ..., : self.used]

    @torch.no_grad()
    def finish(self, now: Pass) -> None:
        """After all layers attended: adds what each slot received."""
        assert self._probabilities is not None
        policy, slots, self.slot = self.plan.policy, self.slots, None
        gain = policy.scores.gained_at_once(policy.forget, self._probabilities, self.when)  # [L, R, H, S, G]
        slots.score.copy_(policy.scores.add(policy.forget, slots.score, gain, now.count))
        if self.plan.observe:
            received = self._probabilities.mean(3) * (1 - scores.REMEMBER)  # [L, R, H, S]
            left = scores.left(scores.REMEMBER, now.count, slots.lately)
            left = left if isinstance(left, float) else left[..., 0]
            slots.lately.copy_(received + slots.lately * left)

    def protected(self, now: Pass) -> Tensor:
        """Which new tokens are protected as they are written: sinks, system prompt, pins. [R, 1, N] bool"""
        flags = torch.zeros(len(now.count), 1, now.tokens, dtype=torch.bool)
        for row, columns in enumerate(now.protected):
            if columns:
                flags[row, 0, list(columns)] = True
        return flags.to(self.device)

    def per_row(self, numbers: Sequence[int]) -> Tensor:
        """[R, 1, 1] int32"""
        return torch.tensor(numbers, dtype=torch.int32, device=self.device)[:, None, None]


@torch.inference_mode(False)
def joined(arenas: Sequence[Arena]) -> list[Arena]:
    """The layers of all these in as few arenas as they fit."""
    groups: dict[tuple[int, Shape, int], list[Arena]] = {}
    for arena in arenas:
        groups.setdefault((id(arena.rope), arena.of, arena.shape[3]), []).append(arena)
    for first, *others in groups.values():
        for other in others:
            first.layers += other.layers
            first.windows += other.windows
            first.lost = first.lost + other.lost
        alike = [first, *others]
        if others:
            first._replace({s.name: torch.cat([a.slots.states.pop(s.name) for a in alike]) for s in STATES})
    return [group[0] for group in groups.values()]


def in_use_first(positions: Tensor) -> Tensor:
    """Slots in use first, then the empty ones, each as they lie. [..., S] int32"""
    empty = positions < 0
    before = empty.cumsum(-1, dtype=torch.int32)  # empty ones up to each slot
    slot = torch.arange(positions.shape[-1], dtype=torch.int32, device=positions.device)
    place = torch.where(empty, len(slot) - before[..., -1:] + before - 1, slot - before)
    return torch.empty_like(before).scatter_(-1, place.long(), slot.expand_as(before))


def along(index: Tensor, state: Tensor) -> Tensor:
    """Slots [L, R, H, N] as an index into a state [L, R, H, S, ...]."""
    return index if state.ndim == 4 else index.unsqueeze(-1).expand(*index.shape, state.shape[4])
