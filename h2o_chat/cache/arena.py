"""The slots of all layers of one shape: one tensor per state, [L, R, H, S, ...]; a layer is a view of it.

Slots are allocated once, S = budget + 1 per layer, row and KV head. A decoded token is written into an empty
one (`place`, `write`), attends, and its probabilities are added to the scores (`finish`). When the last empty
slot of a row is written, the row evicts (`eviction.py`). A prompt chunk attends outside of the slots; then
tokens of slots and chunk are evicted together (`absorb.py`). No slot is moved or allocated per token.

Shapes: L layers, R rows, H KV heads, G query heads per KV head, S slots, N new tokens, D head size.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from h2o_chat.base.devices import free_bytes
from h2o_chat.base.errors import BudgetError
from h2o_chat.cache.clock import Pass
from h2o_chat.cache.distance import indices
from h2o_chat.cache.plan import GROW, Plan
from h2o_chat.cache.quantized import dequantise, quantise, row_bytes
from h2o_chat.cache.rope import Rope
from h2o_chat.cache.state import STATES, State, state_bytes
from h2o_chat.policies.policies import Slots

PerRow = Sequence[int] | Tensor  # one number per row: on the host, or [R, 1, 1] int32 on the device

ORDERED_SLOTS = 1 << 18  # slots sorted at a time, so that scratch memory stays near 8 MiB


@dataclass(frozen=True)
class Shape:
    """Sizes and types that the layers of one arena have in common."""

    rows: int
    heads: int  # KV heads
    groups: int  # query heads per KV head
    key: int  # components of a key, D
    value: int  # components of a value
    dtype: torch.dtype  # the model's precision of keys and values
    device: torch.device

    @property
    def exact(self) -> torch.dtype:
        """Precision of scores: fp32, or fp64 if the model computes in it."""
        return torch.promote_types(self.dtype, torch.float32)

    def kind(self, state: State, width: int, bits: int | None) -> tuple[tuple[int, ...], torch.dtype]:
        """(trailing shape after [L, R, H, S], dtype) of a state.

        Args:
            width: numbers of a score.
            bits: bits of a number in keys and values; None: the model's precision.
        """
        trailing = {"": (), "key": (self.key,), "value": (self.value,), "group": (width,)}[state.trailing]
        if state.dtype == "kv" and bits is not None:
            return (row_bytes(trailing[0], bits),), torch.uint8
        kinds = {"kv": self.dtype, "exact": self.exact, "int32": torch.int32, "bool": torch.bool}
        return trailing, kinds[state.dtype]

    def require_room(self, layers: int, slots: int) -> None:
        """Checks that the slots of some layers fit into free memory.

        The system overcommits: `zeros` of a terabyte may succeed, and the process is killed later.

        Raises:
            BudgetError: they do not fit; names the needed and the free memory.
        """
        # Quantised slots are counted unquantised: a layer is dequantised at a time.
        kv_bytes = (self.key + self.value) * self.dtype.itemsize
        slot_bytes = self.rows * self.heads * (kv_bytes + state_bytes(self.groups))
        if self.device.type not in ("cpu", "cuda"):
            return
        free = free_bytes(self.device)
        needed, these = layers * slots * slot_bytes, f"{layers} layers" if layers > 1 else "one layer"
        if needed > free:
            raise BudgetError(
                f"A budget of {slots - 1:,} slots needs {needed / 1e9:,.1f} GB for {these} alone, and"
                f" {self.device} has {free / 1e9:,.1f} GB free.",
                f"A slot takes {slot_bytes:,} bytes in every layer: a budget of"
                f" {free // (2 * layers * slot_bytes):,} fills half of that with {these}.",
            )


@dataclass(frozen=True)
class SavedArena:
    """The state of one arena in a snapshot."""

    layers: tuple[int, ...]
    shape: Shape
    states: dict[str, Tensor]  # of `state.STATES`, [L, R, H, S, ...]
    lost: Tensor  # [R]

    def changed(self, rows: int, change: Callable[[Tensor], Tensor]) -> "SavedArena":
        """A copy with `change` applied to each tensor [L, R, ...], which then has `rows` rows."""
        states = {name: change(state) for name, state in self.states.items()}
        return SavedArena(self.layers, replace(self.shape, rows=rows), states, change(self.lost[None])[0])


@dataclass(frozen=True)
class PassResult:
    """Keys, values and score gains of a prompt's pass in one layer."""

    keys: Tensor  # [R, H, N, D]
    values: Tensor  # [R, H, N, D]
    gains: Mapping[str, Tensor]
    """Sums that its queries add to slots and tokens, by state of `Plan.grows`: [R, H, T + N, ...], with at
    most the first T slots in use."""


class Arena:
    """The slots of some layers with the same rotation.

    Args:
        slots: S, the number of empty slots; or their states.
    """

    @torch.inference_mode(False)  # tensors made in inference mode can only be written in it
    def __init__(
        self,
        plan: Plan,
        layers: Sequence[int],
        rope: Rope | None,
        shape: Shape,
        slots: int | dict[str, Tensor],
    ) -> None:
        self.plan, self.layers, self.rope, self.layer_shape = plan, tuple(layers), rope, shape
        self.device = shape.device
        self.windows: list[int | None] = [None] * len(self.layers)
        """Per layer: positions that a query sees, itself included; None: all before it."""
        self.chunked = [False] * len(self.layers)  # per layer: a query sees only its own chunk of `windows`
        self.sharers = [0] * len(self.layers)  # per layer: later layers that attend to its slots
        self.layers_left = 0  # layers that have still to attend to the placed token
        self.rope_origin = torch.zeros(shape.rows, dtype=torch.int32, device=self.device)
        """[R] position whose rotation index is 0."""
        self.lost = torch.zeros(shape.rows, dtype=torch.float64, device=self.device)
        """[R] share of attention that evicted tokens had been receiving, summed over layers and heads."""
        self.clamps = False  # whether some key may be clamped
        self.slot: Tensor | None = None  # [L, R, H, 1] slot of the current token, from `place` to `finish`
        self._new_token_states: tuple[Pass, dict[str, Tensor]] | None = None
        """The last call of `new_token_states`: its pass and its result."""
        self.waiting: list[PassResult] = []  # last pass of a prompt in the layers that are not absorbed yet
        if isinstance(slots, int):
            size = (len(self.layers), shape.rows, shape.heads, slots)
            slots = {state.name: self.empty(state, size) for state in STATES}
        self.set_states(slots)

    @torch.inference_mode(False)
    def set_states(self, states: dict[str, Tensor]) -> None:
        """Replaces the states, perhaps with another number of layers, rows or slots."""
        self.slots = Slots(self.plan.budget, self.layers, **states)
        self.order = torch.empty_like(self.slots.positions)
        """[L, R, H, S] slots in use, then the empty ones in the order in which they will be written."""
        most = max(1, ORDERED_SLOTS // max(1, self.slots.positions[:1].numel()))  # layers at a time
        for first in range(0, len(self.layers), most):
            some = slice(first, first + most)
            self.order[some] = in_use_first(self.slots.positions[some])
        self.last_priority: dict[int, tuple[int, Tensor]] = {}
        """By row, of its last eviction, for observers: tokens fed to it by then, and the policy's priority of
        its slots, [L, H, S]."""
        self._probabilities: Tensor | None = None

    def empty(self, state: State, shape: tuple[int, ...]) -> Tensor:
        """A state of empty slots: [*shape, ...]."""
        width = self.plan.policy.scores.width(self.layer_shape.groups)
        trailing, dtype = self.layer_shape.kind(state, width, self.plan.bits)
        return torch.full((*shape, *trailing), state.empty, dtype=dtype, device=self.device)

    # -- shape -----------------------------------------------------------------------------------------

    @property
    def shape(self) -> torch.Size:
        """[L, R, H, S]"""
        return self.slots.positions.shape

    @property
    def bytes_held(self) -> int:
        """Bytes of keys, values and their scales; empty slots included."""
        return self.slots.keys.nbytes + self.slots.values.nbytes

    @property
    def plain_slot_bytes(self) -> int:
        """Bytes of one slot's key and value in all layers, rows and heads, in the model's precision."""
        layers, rows, heads, _ = self.shape
        of = self.layer_shape
        return layers * rows * heads * (of.key + of.value) * of.dtype.itemsize

    def leading(self, this_pass: Pass, more: int = 0) -> int:
        """Number of leading slots that may be in use after `more` tokens per row were written since the pass
        began; all, once something was evicted."""
        return self.shape[3] if this_pass.used is None else this_pass.used + more

    @torch.inference_mode(False)
    def grow(self, tokens: int) -> None:
        """Makes room for `tokens` tokens per row, in blocks of GROW; does nothing if there is a budget."""
        missing = min(tokens, self.plan.budget) - (self.shape[3] - 1)
        if missing > 0:
            more = (*self.shape[:3], -(-missing // GROW) * GROW)
            self.set_states(
                {s.name: torch.cat((self.slots.states[s.name], self.empty(s, more)), 3) for s in STATES}
            )

    def empty_row(self, row: int, rope_origin: int) -> None:
        """Empties a row; the caller sets its `order`."""
        self.rope_origin[row], self.lost[row] = rope_origin, 0
        self._probabilities = None  # old ones of emptied slots would be added forever
        self.waiting.clear()
        self.last_priority.pop(row, None)
        for state in STATES:
            self.slots.states[state.name][:, row] = state.empty

    # -- keys and values -------------------------------------------------------------------------------

    def dequantised(self, stored: Tensor) -> Tensor:
        """Stored keys or values [..., D or B] as numbers. [..., D]"""
        bits = self.plan.bits
        return stored if bits is None else dequantise(stored, bits, self.layer_shape.dtype)

    def held_keys(self, at: int) -> Tensor:
        """One layer's keys, turned to their rotation index. [R, H, S, D]"""
        keys = self.dequantised(self.slots.keys[at])
        if self.plan.bits is None or self.rope is None:
            return keys
        return self.rope.rotate(keys, self.held_indices(self.slots.cut(slice(at, at + 1)))[0])

    def held_indices(self, part: Slots, rows: slice = slice(None)) -> Tensor:
        """Rotation index of the keys of some slots [l, r, H, s] of these rows. [l, r, H, s]"""
        near, distance = indices(part.positions, self.rope_origin[rows]), self.plan.distance
        if distance is None or not self.clamps:
            return near
        return torch.where(part.clamped, distance.clamped_indices(part.protected, part.positions), near)

    def edge_angles(self, at: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor] | None:
        """Angles that turn queries at positions `at` [R, N] to `Distance.edge`. [R, 1, 1, N, D] each

        None: no key is clamped.
        """
        if not self.clamps:
            return None
        assert self.rope is not None
        assert self.plan.distance is not None
        by = self.plan.distance.edge - (at - self.rope_origin[:, None])
        return self.rope.angles(by[:, None, None], dtype)

    def held_values(self, at: int) -> Tensor:
        """One layer's values in the model's precision. [R, H, S, D]"""
        return self.dequantised(self.slots.values[at])

    def to_store(self, keys: Tensor, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """New keys and values [..., R, H, N, D] at `positions` [R, 1 or H, N] in stored form."""
        if self.plan.bits is None:
            return keys, values
        if self.rope is not None:
            keys = self.rope.rotate(keys, -indices(positions, self.rope_origin))
        return quantise(keys, self.plan.bits), quantise(values, self.plan.bits)

    # -- new tokens ------------------------------------------------------------------------------------

    def new_token_states(self, this_pass: Pass, prompt: bool) -> dict[str, Tensor]:
        """States of a pass's tokens before they attend, [R, 1, N] each; computed once for all layers."""
        if self._new_token_states is not None and self._new_token_states[0] is this_pass:
            return self._new_token_states[1]
        column = torch.arange(this_pass.tokens, device=self.device, dtype=torch.int32)
        positions = self.per_row(this_pass.first) + column  # real tokens stand first
        protected = torch.zeros(len(this_pass.count), 1, this_pass.tokens, dtype=torch.bool)
        for row, columns in enumerate(this_pass.protected):
            if columns:
                protected[row, 0, list(columns)] = True
        states = {
            "positions": positions.masked_fill(column >= self.per_row(this_pass.count), -1),
            "prompt": torch.full_like(positions, prompt, dtype=torch.bool),
            "protected": protected.to(self.device),
        }
        self._new_token_states = this_pass, states
        return states

    def add_gains(self, slots: Slots, gains: Mapping[str, Tensor], this_pass: Pass) -> None:
        """Adds the gains of a pass to the slots' states, [l, R, H, S, ...] each."""
        for name, grows in self.plan.grows.items():
            state = slots.states[name]
            first, count = this_pass.first, this_pass.count
            state.copy_(grows.add(self.plan.decay_factor, state, gains[name], first, count))

    @torch.no_grad()
    def place(self, this_pass: Pass, prompt: bool) -> None:
        """Assigns an empty slot to the next token of each row; `write` stores its keys and values."""
        first_empty = self.per_row(this_pass.in_use).long().expand(*self.shape[:3], 1)
        self.slot = self.order.gather(3, first_empty).long()
        self.when = self.per_row(this_pass.first)[..., 0]  # [R, 1] the tokens' positions
        self.edge = self.edge_angles(self.when, self.layer_shape.dtype)
        self.used = self.leading(this_pass, more=1)
        self.layers_left = len(self.layers) + sum(self.sharers)
        for name, new in self.new_token_states(this_pass, prompt).items():
            self.slots.states[name].scatter_(3, self.slot, new.expand_as(self.slot))
        self.empty_slots = self.slots.positions[..., : self.used] < 0  # [L, R, H, T]
        first_slots = torch.arange(self.slot[0].numel(), device=self.device) * self.shape[3]
        self._into = first_slots + self.slot.flatten(1)  # [L, R * H] index among all slots of a layer
        if self._probabilities is None:
            layers, rows, heads, slots = self.shape
            size = (layers, rows, heads, self.layer_shape.groups, slots)
            with torch.inference_mode(False):
                self._probabilities = torch.zeros(size, dtype=self.layer_shape.exact, device=self.device)

    def write(self, at: int, keys: Tensor, values: Tensor) -> None:
        """Stores one layer's keys and values [R, H, 1, D] of the placed tokens."""
        assert self.slot is not None
        keys, values = self.to_store(keys, values, self.when[:, None])
        for stored, new in ((self.slots.keys, keys), (self.slots.values, values)):
            one = stored.shape[4]
            stored[at].view(-1, one).index_copy_(0, self._into[at], new.reshape(-1, one))

    def probabilities(self, at: int) -> Tensor:
        """The buffer of one layer's probabilities: [R, H, G, T], with at most T slots in use."""
        assert self._probabilities is not None
        return self._probabilities[at, ..., : self.used]

    @torch.no_grad()
    def finish(self, this_pass: Pass) -> None:
        """Adds the attention that each slot received, after all layers attended."""
        assert self._probabilities is not None
        self.slot = None
        given, decay_factor = self._probabilities, self.plan.decay_factor
        grows = self.plan.grows.items()
        gains = {name: one.gained_at_once(decay_factor, given, self.when) for name, one in grows}
        self.add_gains(self.slots, gains, this_pass)

    def visible_from(self, at: int, when: Tensor) -> Tensor:
        """Position of the first token that queries at positions `when` see in a layer with a window."""
        window = self.windows[at]
        assert window is not None
        return when // window * window if self.chunked[at] else (when - window + 1).clamp_min(0)

    def per_row(self, numbers: PerRow) -> Tensor:
        """[R, 1, 1] int32"""
        if isinstance(numbers, Tensor):
            return numbers
        return torch.tensor(numbers, dtype=torch.int32, device=self.device)[:, None, None]


@torch.inference_mode(False)
def joined(arenas: Sequence[Arena]) -> list[Arena]:
    """Merges arenas of equal shape and rotation."""
    groups: dict[tuple[int, Shape, int], list[Arena]] = {}
    for arena in arenas:
        groups.setdefault((id(arena.rope), arena.layer_shape, arena.shape[3]), []).append(arena)
    for first, *others in groups.values():
        for other in others:
            first.layers += other.layers
            first.windows += other.windows
            first.chunked += other.chunked
            first.sharers += other.sharers
            first.lost = first.lost + other.lost
        alike = [first, *others]
        if others:
            first.set_states({s.name: torch.cat([a.slots.states.pop(s.name) for a in alike]) for s in STATES})
    return [group[0] for group in groups.values()]


def addresses_of(arenas: Sequence[Arena]) -> tuple[int, ...]:
    """Changes whenever slots lie elsewhere: addresses, and shapes too, since addresses may be reused."""
    found: list[int] = []
    for arena in arenas:
        tensors = (*arena.slots.states.values(), arena.order)
        found += (*arena.shape, *(tensor.data_ptr() for tensor in tensors))
    return tuple(found)


def evict(slots: Slots, to_evict: Tensor) -> None:
    """Empties slots, `to_evict` [l, R, H, N]."""
    for state in STATES:
        if state.dtype != "kv":  # keys and values of empty slots are masked, and overwritten later
            mine = slots.states[state.name]
            mine.scatter_(3, along(to_evict, mine), state.empty)


def in_use_first(positions: Tensor) -> Tensor:
    """Indices of slots in use, then of the empty ones, each in ascending order. [..., S] int32"""
    empty = positions < 0
    before = empty.cumsum(-1, dtype=torch.int32)  # number of empty slots up to each one
    slot = torch.arange(positions.shape[-1], dtype=torch.int32, device=positions.device)
    place = torch.where(empty, before + (len(slot) - 1 - before[..., -1:]), slot - before)
    return torch.empty_like(before).scatter_(-1, place.long(), slot.expand_as(before))


def along(index: Tensor, state: Tensor) -> Tensor:
    """Slots [L, R, H, N] as an index into a state [L, R, H, S, ...]."""
    return index if state.ndim == 4 else index.unsqueeze(-1).expand(*index.shape, state.shape[4])
