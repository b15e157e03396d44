"""The slots of all layers of one shape: one tensor per state, [L, R, H, S, ...]; a layer is a view of it.

Slots are allocated once, S = budget + 1 per layer, row and KV head. A decoded token is written into an empty
one (`place`), attends, and its probabilities are added to the scores (`finish`). When its last empty slot has
been written a row settles: new keys are compared with those kept, the policy ranks once for all layers, and
`stride` slots are given up. A prompt chunk needs no slots of its own while it attends; `absorb` then chooses
who of slots and chunk stays, layer by layer. No slot is moved or allocated per token.

Shapes: L layers, R rows, H KV heads, G query heads per KV head, S slots, N new tokens, D head size.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from h2o_chat.cache import scores
from h2o_chat.cache.clock import Pass
from h2o_chat.cache.distance import edge_angles, held_indices, indices
from h2o_chat.cache.plan import Plan
from h2o_chat.cache.policies import Slots
from h2o_chat.cache.quantized import dequantise, quantise, row_bytes
from h2o_chat.cache.rope import Rope
from h2o_chat.cache.scores import REMEMBER
from h2o_chat.cache.state import STATES, State

GROW = 256
"""Slots that the `full` policy adds at a time."""


@dataclass(frozen=True)
class Shape:
    """What layers of one arena have in common."""

    rows: int
    heads: int
    """KV heads."""
    groups: int
    """Query heads per KV head."""
    key: int
    """Components of a key, D."""
    value: int
    """Components of a value."""
    dtype: torch.dtype
    """Of keys and values as the model computes them."""
    device: torch.device


class Arena:
    """The slots of some layers, which turn their keys alike.

    Args:
        saved: states that were saved, [L, R, H, S, ...]; they are taken over, not copied. None: empty slots.
    """

    @torch.inference_mode(False)  # else it could be written to in inference mode alone
    def __init__(
        self,
        plan: Plan,
        layers: Sequence[int],
        rope: Rope | None,
        shape: Shape,
        saved: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.plan, self.layers, self.rope, self.of = plan, tuple(layers), rope, shape
        self.device = shape.device
        self.exact = torch.promote_types(shape.dtype, torch.float32)
        self._trailing: dict[str, tuple[int, ...]] = {
            "": (),
            "key": (shape.key,),
            "value": (shape.value,),
            "group": (plan.policy.scores.columns(shape.groups),),
        }
        self.windows: list[int | None] = [None] * len(self.layers)
        """Of each layer: positions that a query sees, itself included; None: all before it."""
        slots = saved["positions"].shape[3] if saved else (plan.budget or GROW) + 1
        size = (len(self.layers), shape.rows, shape.heads, slots)
        states = {state.name: (saved or {}).get(state.name) for state in STATES}
        filled = {s.name: self.empty(s, size) if (had := states[s.name]) is None else had for s in STATES}
        self.slots = Slots(slots - 1, self.layers, **filled)
        self.order = torch.arange(slots, dtype=torch.int32, device=self.device).repeat(*size[:3], 1)
        """[L, R, H, S] slots in use, then the empty ones in the order in which they will be written."""
        self.base = torch.zeros(shape.rows, dtype=torch.int32, device=self.device)
        """[R] positions whose rotation index is 0."""
        self.lost = torch.zeros(shape.rows, dtype=torch.float64, device=self.device)
        """[R] shares of attention that evicted tokens had been receiving, summed over layers and heads."""
        self.clamps = False
        """Some key may be clamped."""
        self._given: Tensor | None = None
        if saved:
            self.refresh()

    # -- shape -----------------------------------------------------------------------------------------

    @property
    def shape(self) -> torch.Size:
        """[L, R, H, S]"""
        return self.slots.positions.shape

    def fits(self, other: "Arena") -> bool:
        """Whether the layers of both could be one arena."""
        return self.rope is other.rope and self.of == other.of and self.shape[3] == other.shape[3]

    @torch.inference_mode(False)
    def join(self, others: Iterable["Arena"]) -> None:
        """Takes over the layers of other arenas that fit."""
        parts = [self, *others]
        self.layers = tuple(layer for part in parts for layer in part.layers)
        self.windows = [window for part in parts for window in part.windows]
        for name in self.slots.states:
            self.slots.states[name] = torch.cat([part.slots.states.pop(name) for part in parts])
        self.order = torch.cat([part.order for part in parts])
        self.lost = sum((part.lost for part in parts[1:]), parts[0].lost)
        self.slots.layers = self.layers
        self._given = None

    @torch.inference_mode(False)
    def grow(self, slots: int) -> None:
        """Makes room for so many slots in use: where nothing is ever evicted."""
        missing = slots - (self.shape[3] - 1)
        if missing <= 0:
            return
        more = -(-missing // GROW) * GROW
        for state in STATES:
            grown = self.empty(state, (*self.shape[:3], more))
            self.slots.states[state.name] = torch.cat((self.slots.states[state.name], grown), 3)
        self.order = torch.cat(
            (
                self.order,
                self.order.shape[3] + torch.arange(more, device=self.device).expand(*self.shape[:3], more),
            ),
            3,
        )
        self._given = None

    @torch.inference_mode(False)
    def select_rows(self, rows: Tensor) -> None:
        """Row i becomes a copy of row rows[i]."""
        rows = rows.to(self.device)
        for name, state in self.slots.states.items():
            self.slots.states[name] = state.index_select(1, rows)
        self.order, self.lost = self.order.index_select(1, rows), self.lost.index_select(0, rows)
        self.base = self.base.index_select(0, rows)
        self.of = replace(self.of, rows=len(rows))
        self._given = None

    def put_row(
        self, row: int, saved: Sequence[tuple[int, Mapping[str, Tensor]]], base: int, lost: float
    ) -> None:
        """Takes over one row, of each layer (at, states [H, S, ...]); what nobody brings is emptied."""
        for state in STATES:
            mine = self.slots.states[state.name][:, row]
            mine.fill_(state.empty)
            for at, states in saved if state.saved else ():
                slots = min(mine.shape[2], states[state.name].shape[1])  # `full`: the others are empty
                mine[at, :, :slots] = states[state.name][:, :slots]
        positions = self.slots.positions[:, row]
        self.slots.hidden[:, row] = positions < 0
        self.order[:, row] = in_use_first(positions).to(self.order.dtype)
        self.base[row], self.lost[row] = base, lost

    def refresh(self) -> None:
        """Makes anew what follows from the saved states."""
        self.order.copy_(in_use_first(self.slots.positions))
        self.slots.hidden.copy_(self.slots.positions < 0)

    def layer(self, at: int) -> Slots:
        """Views of one layer's states: [1, R, H, S, ...]."""
        states = {name: state[at : at + 1] for name, state in self.slots.states.items()}
        return Slots(self.slots.budget, self.layers[at : at + 1], **states)

    @property
    def bytes_held(self) -> int:
        """Bytes of keys and values, and of their scales; empty slots included."""
        return self.slots.keys.nbytes + self.slots.values.nbytes

    @property
    def plain_slot_bytes(self) -> int:
        """Bytes of one slot's key and value in all layers, rows and heads, as the model computes them."""
        layers, rows, heads, _ = self.shape
        return layers * rows * heads * (self.of.key + self.of.value) * self.of.dtype.itemsize

    def empty(self, state: State, shape: tuple[int, ...]) -> Tensor:
        trailing = self._trailing[state.trailing]
        dtypes = {"kv": self.of.dtype, "exact": self.exact, "int32": torch.int32, "bool": torch.bool}
        dtype = dtypes[state.dtype]
        if state.dtype == "kv" and self.plan.bits is not None:
            dtype, trailing = torch.uint8, (row_bytes(trailing[0], self.plan.bits),)
        return torch.full((*shape, *trailing), state.empty, dtype=dtype, device=self.device)

    # -- keys and values -------------------------------------------------------------------------------

    def numbers(self, stored: Tensor) -> Tensor:
        """Stored keys or values [..., D or B] as numbers. [..., D]"""
        if self.plan.bits is None:
            return stored
        return dequantise(stored, self.plan.bits, self.of.dtype)

    def held_keys(self, at: int) -> Tensor:
        """One layer's keys as queries meet them, turned to their rotation index. [R, H, S, D]"""
        keys = self.numbers(self.slots.keys[at])
        if self.plan.bits is None or self.rope is None:
            return keys
        return self.rope.rotate(keys, held_indices(self)[at])

    def held_values(self, at: int) -> Tensor:
        """One layer's values as the model computes with them. [R, H, S, D]"""
        return self.numbers(self.slots.values[at])

    def to_store(self, keys: Tensor, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """New keys and values [R, H, N, D] at `positions` [R, 1 or H, N] as slots hold them."""
        if self.plan.bits is None:
            return keys, values
        if self.rope is not None:
            keys = self.rope.rotate(keys, -indices(positions, self.base))
        return quantise(keys, self.plan.bits), quantise(values, self.plan.bits)

    # -- a decoded token -------------------------------------------------------------------------------

    @torch.no_grad()
    def place(self, now: Pass, prompt: bool) -> None:
        """Gives the next token of every row its empty slot, in all layers; `write` brings the rest."""
        self.slot = self._next_slots(now.held)  # [L, R, H, 1]
        self.when = self.per_row(now.first)[..., 0]  # [R, 1]
        self.edge = edge_angles(self, self.when, self.of.dtype) if self.clamps else None
        self.used = self.shape[3] if now.used is None else now.used + 1
        at = self.per_row([first if count else -1 for first, count in zip(now.first, now.count, strict=True)])
        self.new = at  # [R, 1, 1]
        new = {
            "positions": at,
            "prompt": prompt,
            "protected": self.protected(now),
            "hidden": at < 0,
        }
        for name, value in new.items():
            state = self.slots.states[name]
            value = torch.as_tensor(value, dtype=state.dtype, device=self.device)
            state.scatter_(3, self.slot, value.expand_as(self.slot))
        # Of each layer [R * H]: its rows in keys seen as [R * H * S, D].
        start = torch.arange(0, self.order[0].numel(), self.shape[3], device=self.device)
        self.flat_slot = self.slot.flatten(1) + start
        if self._given is None:
            layers, rows, heads, slots = self.shape
            with torch.inference_mode(False):
                self._given = torch.zeros(
                    layers, rows, heads, self.of.groups, slots, dtype=self.exact, device=self.device
                )

    def _next_slots(self, held: Sequence[int]) -> Tensor:
        """The empty slots to be written next, after `held` slots in use of each row. [L, R, H, 1]"""
        if len(set(held)) == 1:
            return self.order[..., held[0] : held[0] + 1].long()
        return self.order.gather(3, self.per_row(held).long().expand(*self.shape[:3], 1)).long()

    def write(self, at: int, keys: Tensor, values: Tensor) -> None:
        """One layer's keys and values [R, H, 1, D] of the tokens that were placed."""
        slots = self.layer(at)
        keys, values = self.to_store(keys, values, self.new)
        for stored, new in ((slots.keys, keys), (slots.values, values)):
            stored[0].flatten(0, 2).index_copy_(0, self.flat_slot[at], new.flatten(0, 2))

    def given(self, at: int) -> Tensor:
        """Where one layer's probabilities go: [R, H, G, T], T slots in use at most."""
        assert self._given is not None
        return self._given[at, ..., : self.used]

    @torch.no_grad()
    def finish(self, now: Pass) -> None:
        """After all layers attended: adds what each slot received."""
        assert self._given is not None
        policy, slots = self.plan.policy, self.slots
        gain = policy.scores.gained_at_once(policy.forget, self._given, self.when)  # [L, R, H, S, G]
        slots.score.copy_(policy.scores.add(policy.forget, slots.score, gain, now.count))
        if self.plan.observe:
            received = self._given.mean(3) * (1 - REMEMBER)  # [L, R, H, S]
            left = scores.left(REMEMBER, now.count, slots.recent)
            left = left if isinstance(left, float) else left[..., 0]
            slots.recent.copy_(received + slots.recent * left)

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


def in_use_first(positions: Tensor) -> Tensor:
    """Slots in use first, then the empty ones, each as they lie. [..., S]"""
    return (positions < 0).to(torch.uint8).argsort(dim=-1, stable=True)


def along(index: Tensor, state: Tensor) -> Tensor:
    """Slots [L, R, H, N] as an index into a state [L, R, H, S, ...]."""
    return index if state.ndim == 4 else index.unsqueeze(-1).expand(*index.shape, state.shape[4])
