"""The slots of one attention layer: who is written where, who is given up, where a kept key stands.

Shapes: R rows, H KV heads, S = budget + 1 slots, N new tokens, D head size. A slot is empty where its
position is -1. One slot is always empty between two steps: the next token is written there, attends, is
attended to, and then some token is given up (`policies.py` says which), whose slot is the next one to be
written. No slot is moved or allocated per token, and shapes never change.
"""

from collections.abc import Iterable
from typing import Any, NoReturn

import torch
from torch import Tensor
from transformers.cache_utils import CacheLayerMixin

from h2o_chat.distinct import cosines, mean_key, nearest
from h2o_chat.errors import UsageError
from h2o_chat.handoff import Handoff
from h2o_chat.plan import Plan
from h2o_chat.policies import POLICIES, Slots, highest, lowest, mean_held, priorities
from h2o_chat.quantized import dequantise, quantise, row_bytes
from h2o_chat.room import require_room
from h2o_chat.rope import MOST_TOKENS, Rope
from h2o_chat.scores import gained, with_gain

GROW = 256
"""Slots that the `full` policy adds at a time."""

REMEMBER = 31 / 32
"""`lost` is what dropped tokens had been receiving, averaged over about the last 32 queries."""

LOOK_EVERY = 16
"""Tokens at least between two comparisons of the kept keys with each other, for policies that ask ..."""

LOOKS = 16
"""... and at least a `LOOKS`-th of the slots: a token's share of comparing all with all is then linear in
the budget, and a new one is compared before it leaves the recent part."""


class H2OLayer(CacheLayerMixin):
    """The slots of one attention layer.

    Args:
        plan: shared by all layers of a cache.
    """

    PER_SLOT = (
        "keys",  # [R, H, S, D], turned to their rotation index (`index`); `held_keys`
        "values",  # [R, H, S, D]; with `plan.bits` both [R, H, S, B] uint8, and no key is turned
        "positions",  # [R, H, S] int32, true positions, -1 = empty
        "score",  # [R, H, S] what the policy accumulates
        "by_head",  # [R, H, S, G] the same of every query head apart; G is 0 if the policy does not ask
        "receiving",  # [R, H, S] share of its head's attention, a mean over about the last 32 queries
        "unlike",  # [R, H, S] minus the cosine of its key, before RoPE, to `mean_key`
        "alone",  # [R, H, S] minus the cosine of its key, before RoPE, to the nearest other one held
        "given",  # [R, H, S] bool: read in a prompt, not generated
        "protected",  # [R, H, S] bool
        "far",  # [R, H, S] bool: out of reach, so met at its edge (or `nearer`), whatever the true distance
    )
    # Everything that a snapshot has to hold, and that follows a row when rows are reordered.
    STATE = (
        *PER_SLOT,
        "mean_key",  # [R, H, D] of the kept keys, each of length 1, before RoPE
        "free",  # [R, H] the empty slot that the next token is written to
        "seen",  # [R] real tokens fed to this row
        "base",  # [R] the position whose rotation index is 0
        "lost",  # [R] shares of attention that the dropped tokens had been receiving, summed over heads
    )

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.policy = POLICIES[plan.policy]
        self.fed = 0
        """Columns fed, padding included: what transformers calls the sequence length."""
        self.rope: Rope | None = None
        """How this layer turns its keys; None: it does not, or nobody said (`H2OCache` without positions)."""
        self.reach = 0
        """Tokens, see `H2OCache.reach`; 0 leaves positions to the caller."""
        self.nearer = 0
        """Tokens, see `H2OCache.nearer`."""
        self.any_far = False
        """Some key is out of reach."""

    # -- what transformers asks of a cache layer -------------------------------------------------------

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Makes empty slots for keys and values [R, H, N, D] such as these.

        Raises:
            BudgetError: the memory has no room for so many.
        """
        rows, heads, _, size = key_states.shape
        slots = (self.plan.shares.budget if self.plan.shares else GROW) + 1
        device = key_states.device
        require_room(rows, heads, slots, size, key_states)
        exact = torch.float64 if key_states.dtype == torch.float64 else torch.float32
        per_slot = (rows, heads, slots)
        self.plan.dtype = key_states.dtype
        self.keys, self.values = (
            new.new_zeros(*per_slot, new.shape[-1])
            if self.plan.bits is None
            else new.new_zeros(*per_slot, row_bytes(new.shape[-1], self.plan.bits), dtype=torch.uint8)
            for new in (key_states, value_states)
        )
        self.positions = torch.full(per_slot, -1, dtype=torch.int32, device=device)
        self.score = torch.zeros(per_slot, dtype=exact, device=device)
        self.by_head = torch.zeros(*per_slot, 0, dtype=exact, device=device)
        self.receiving = torch.zeros(per_slot, dtype=exact, device=device)
        self.unlike = torch.zeros(per_slot, dtype=exact, device=device)
        self.alone = torch.zeros(per_slot, dtype=exact, device=device)
        self.mean_key = torch.zeros(rows, heads, size, dtype=exact, device=device)
        self.given = torch.zeros(per_slot, dtype=torch.bool, device=device)
        self.protected = torch.zeros(per_slot, dtype=torch.bool, device=device)
        self.far = torch.zeros(per_slot, dtype=torch.bool, device=device)
        self.free = torch.zeros(rows, heads, dtype=torch.long, device=device)
        self.seen = torch.zeros(rows, dtype=torch.int32, device=device)
        self.base = torch.zeros(rows, dtype=torch.int32, device=device)
        self.lost = torch.zeros(rows, dtype=torch.float64, device=device)  # summed for ever
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        """Hands the new keys and values [R, H, N, D] on to `h2o_attention`, which fills the slots.

        Raises:
            UsageError: the batch has other rows than the cache, or comes from another model.
            BudgetError: the memory has no room for the slots.
        """
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        rows, heads, size = self.mean_key.shape
        now = (key_states.shape[1], key_states.shape[3], key_states.dtype, key_states.device)
        if now != (heads, size, self.plan.dtype, self.mean_key.device):
            held = f"{heads} KV heads of {size} {self.plan.dtype} on {self.mean_key.device}"
            raise UsageError(
                f"This H2OCache holds {held}, and is fed {now[0]} of {now[1]} {now[2]} on {now[3]}.",
                "Use one cache per model, precision and device, or cache.reset().",
            )
        if key_states.shape[0] != rows:
            raise UsageError(
                f"This H2OCache holds {rows} rows, the batch has {key_states.shape[0]}.",
                "Use one cache per batch, or cache.reset().",
            )
        handoff = Handoff(self, key_states, value_states)
        return handoff, handoff

    def get_seq_length(self) -> int:
        """Columns fed, not slots: transformers counts positions from it."""
        return self.fed

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.fed + query_length, 0

    def get_max_length(self) -> int:
        return -1  # a conversation may go on for ever

    def crop(self, tokens_to_remove: int) -> NoReturn:
        """
        Raises:
            UsageError: always.
        """
        raise UsageError(
            "An H2OCache cannot take tokens back: what was evicted for them is gone.",
            "Assisted generation does not work with it; otherwise use cache.snapshot() and restore().",
        )

    def reset(self) -> None:
        """Forgets everything; the slots are made anew with the next tokens."""
        self.is_initialized = self.any_far = False
        self.fed = 0

    def select_rows(self, rows: Tensor) -> None:
        """Row i becomes a copy of row rows[i]."""
        for name in self.STATE if self.is_initialized else ():
            state = getattr(self, name)
            setattr(self, name, state.index_select(0, rows.to(state.device)))

    reorder_cache = batch_select_indices = select_rows

    def batch_repeat_interleave(self, repeats: int) -> None:
        self.select_rows(torch.arange(self.positions.shape[0]).repeat_interleave(repeats))

    # -- what the attention function needs -------------------------------------------------------------

    @property
    def capacity(self) -> int:
        """Slots that may be in use between two steps."""
        return self.positions.shape[-1] - 1

    @property
    def plain_slot_bytes(self) -> int:
        """Keys and values of one slot in every row and head, as the model computes them."""
        one = [self._unpacked(stored[:, :, :1]) for stored in (self.keys, self.values)]
        return sum(part.nbytes for part in one)

    def reserve(self, tokens: int) -> None:
        """Makes room for new tokens where nothing is ever evicted (the `full` policy)."""
        missing = self.fed + tokens - self.capacity
        if self.plan.shares is not None or missing <= 0:
            return
        grow = -(-missing // GROW) * GROW
        for name in self.PER_SLOT:
            state = getattr(self, name)
            more = state.new_full((*state.shape[:2], grow, *state.shape[3:]), _empty(name))
            setattr(self, name, torch.cat((state, more), 2))

    def tell_apart(self, groups: int) -> None:
        """Makes room for the scores of so many query heads per KV head, if the policy looks at them."""
        if self.policy.by_head and self.by_head.shape[-1] != groups:
            self.by_head = self.score.new_zeros(*self.score.shape, groups)

    @torch.no_grad()
    def insert(self, keys: Tensor, values: Tensor, real: Tensor | None) -> None:
        """Writes one token per row into the free slots; it counts at once.

        Args:
            keys, values: [R, H, 1, D].
            real: [R, 1] bool, False for padding, which leaves its slot empty; None if all are real.
        """
        slot = self.free.unsqueeze(-1)  # [R, H, 1]
        position = self.seen[:, None, None].expand_as(slot)
        if real is not None:
            position = position.masked_fill(~real.unsqueeze(-1), -1)
        keys, values = self._to_store(keys, values, position)
        if self.policy.keys:
            unit = self._unturned(keys, self._new_index(position))
            self.unlike.scatter_(2, slot, -cosines(unit, self.mean_key))
        if self.policy.pairs:
            self.alone.scatter_(2, slot, self._usual())
        where = slot.unsqueeze(-1)
        self.keys.scatter_(2, where.expand_as(keys), keys)
        self.values.scatter_(2, where.expand_as(values), values)
        self.positions.scatter_(2, slot, position)
        self.protected.scatter_(2, slot, self.safe_from_the_start(position))
        self.given.scatter_(2, slot, self.plan.given is True)
        self.seen += 1 if real is None else real[:, 0].to(torch.int32)
        self.fed += 1

    @torch.no_grad()
    def evict_one(self, attention: Tensor, real: Tensor | None, sliding_window: int | None) -> None:
        """After one token attended: adds what each slot received, and gives up one slot if none is empty.

        Args:
            attention: [R, H, G, S] probabilities.
            real: [R, 1] bool, False for padding, which is no query: nothing is forgotten for it.
            sliding_window: what later queries of this layer can see, tokens.
        """
        received, groups = attention.sum(2), attention.shape[2]  # [R, H, S]
        queries = 1 if real is None else real.to(self.score.dtype).unsqueeze(-1)  # [R, 1, 1]
        if self.policy.uses:
            self.score.copy_(self._used(received, groups, sliding_window))
        else:
            forget = self.policy.forget**queries
            self.score.mul_(forget).add_(received)
            if self.policy.by_head:
                kept = forget if isinstance(forget, float) else forget.unsqueeze(-1)
                self.by_head.mul_(kept).add_(attention.transpose(-1, -2))
        if self.policy.keys:
            due = self._due(1 if real is None else real[:, 0].to(torch.int32))
            if bool(due.any()):
                unit = self._unturned(self.keys, self.index())
                self.unlike, self.alone = self._look(unit, self.positions, self.unlike, self.alone, due)
        priority = self._priorities(self._slots(), self.protected, sliding_window)
        free = lowest(priority, self.positions).unsqueeze(-1)  # [R, H, 1]
        if self.plan.observe:
            self.receiving.mul_(REMEMBER**queries).add_(received, alpha=(1 - REMEMBER) / groups)
            self.lost += self.receiving.gather(-1, free).sum((1, 2))
            self.receiving.scatter_(-1, free, 0)
        self.positions.scatter_(-1, free, -1)
        self.score.scatter_(-1, free, 0)
        self.by_head.scatter_(2, free.unsqueeze(-1).expand(-1, -1, -1, self.by_head.shape[-1]), 0)
        self.protected.scatter_(-1, free, False)
        self.far.scatter_(-1, free, False)
        self.free = free.squeeze(-1)

    @torch.no_grad()
    def absorb(
        self,
        keys: Tensor,
        values: Tensor,
        positions: Tensor,
        gain: Tensor,
        gain_by_head: Tensor | None,
        share: Tensor | None,
        sliding_window: int | None,
    ) -> None:
        """After a chunk attended to the slots and to itself: chooses who of all of them stays.

        Args:
            keys, values: [R, H, N, D] of the chunk.
            positions: [R, N] int32, -1 for padding.
            gain: [R, H, S + N] what its queries add to the score (`scores.gained`).
            gain_by_head: [R, H, S + N, G] the same of every query head apart, if the policy asks.
            share: [R, H, S + N] the attention received, forgotten at REMEMBER, as a share of the head's; None
                where nobody asks what is lost.
            sliding_window: what later queries of this layer can see, tokens.
        """
        heads = keys.shape[1]
        queries = (positions >= 0).sum(-1)
        self.seen += queries.to(torch.int32)
        self.fed += keys.shape[2]
        new = positions[:, None].expand(-1, heads, -1)  # [R, H, N]
        nothing = self.score.new_zeros(new.shape)

        def both(old: Tensor, chunk: Tensor) -> Tensor:
            return torch.cat((old, chunk), 2)

        passed = queries.to(self.score.dtype)[:, None, None]
        by_head = both(self.by_head, self.by_head.new_zeros(*new.shape, self.by_head.shape[-1]))
        if gain_by_head is not None:
            by_head = by_head * self.policy.forget ** passed.unsqueeze(-1) + gain_by_head
        keys, values = self._to_store(keys, values, new)
        unlike, alone = both(self.unlike, nothing), both(self.alone, nothing)
        place = both(self.positions, new)
        if self.policy.keys:
            fresh = self._unturned(keys, self._new_index(new))
            unlike = both(self.unlike, -cosines(fresh, self.mean_key))
            if self.policy.pairs:
                alone = both(self.alone, self._usual().expand(new.shape))
            unit = both(self._unturned(self.keys, self.index()), fresh)
            unlike, alone = self._look(unit, place, unlike, alone, self._due(queries))
        every = {
            "keys": both(self.keys, keys),
            "values": both(self.values, values),
            "positions": place,
            "score": with_gain(self.policy, both(self.score, nothing), gain, passed),
            "by_head": by_head,
            "unlike": unlike,
            "alone": alone,
            "given": both(self.given, torch.full_like(new, self.plan.given is not False, dtype=torch.bool)),
            "protected": both(self.protected, self.safe_from_the_start(new)),
            "far": both(self.far, torch.zeros_like(new, dtype=torch.bool)),
        }
        priority = self._priorities(self._slots(**every), every["protected"], sliding_window)
        keep = highest(priority, place, self.capacity)  # [R, H, capacity]
        if share is not None:
            receiving = both(self.receiving * REMEMBER**passed, nothing) + share * (1 - REMEMBER)
            self.lost += receiving.scatter(2, keep, 0).sum((1, 2))
            every["receiving"] = receiving
        for name, state in every.items():
            slots, which = getattr(self, name), keep if state.ndim == 3 else keep.unsqueeze(-1)
            slots[:, :, : self.capacity] = state.take_along_dim(which, 2)
            slots[:, :, self.capacity] = _empty(name)
        self.free = self.positions.argmin(-1)

    def safe_from_the_start(self, positions: Tensor) -> Tensor:
        """Which new tokens, by position, are protected as they are written: sinks, system prompt, pins."""
        safe = (positions >= 0) & (positions < self.plan.protect_below)
        return safe | among(positions, self.plan.pins) if self.plan.pins else safe

    def ranking(self) -> Tensor:
        """What the policy ranks the slots by just now. [R, H, S]"""
        return self.policy.priority(self._slots())

    def _slots(self, **states: Tensor) -> Slots:
        """What the policy may look at, of these states by name, else as they are just now."""
        known = vars(self) | states
        names = ("positions", "score", "unlike", "alone", "given", "by_head")
        values = self._unpacked(known["values"])
        return Slots(values=values, budget=self.capacity, **{name: known[name] for name in names})

    def _used(self, received: Tensor, groups: int, sliding_window: int | None) -> Tensor:
        """The score [R, H, S] of a policy that counts uses, after the query at position `seen - 1`."""
        at = self.seen[:, None] - 1
        visible = self.positions > at.unsqueeze(-1) - (sliding_window or MOST_TOKENS)
        seen = (visible & (self.positions >= 0)).sum(-1, keepdim=True) / groups  # [R, H, 1]
        gain = gained(self.policy, received.unsqueeze(2), seen, at, torch.zeros_like(at))
        return with_gain(self.policy, self.score, gain, torch.ones_like(at).unsqueeze(-1))

    def _priorities(self, slots: Slots, protected: Tensor, sliding_window: int | None) -> Tensor:
        """What is given up first has the lowest: the policy's own, with who is safe above it. [R, H, S]"""
        recent = self.plan.shares.recent if self.plan.shares else 0
        # The next query stands at position `seen`: it sees `sliding_window` positions, its own included.
        visible = self.seen - sliding_window + 1 if sliding_window else torch.zeros_like(self.seen)
        return priorities(
            self.policy,
            slots,
            protected,
            recent_from=self.seen - recent,
            visible_from=visible.clamp_min(0),
        )

    # -- keys and values -------------------------------------------------------------------------------

    def held_keys(self) -> Tensor:
        """Keys as queries meet them, turned to their rotation index. [R, H, S, D]"""
        keys = self._unpacked(self.keys)
        if self.plan.bits is None or self.rope is None:
            return keys
        return self.rope.rotate(keys, self.index())

    def held_values(self) -> Tensor:
        """Values as the model computes with them. [R, H, S, D]"""
        return self._unpacked(self.values)

    def _to_store(self, keys: Tensor, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """New keys and values [R, H, N, D] at `positions` [R, H, N] as slots hold them."""
        if self.plan.bits is None:
            return keys, values
        if self.rope is not None:
            keys = self.rope.rotate(keys, -self._new_index(positions))
        return quantise(keys, self.plan.bits), quantise(values, self.plan.bits)

    def _unpacked(self, stored: Tensor) -> Tensor:
        """Stored keys, or values, [R, H, S, D or B] as numbers. [R, H, S, D]"""
        if self.plan.bits is None:
            return stored
        return dequantise(stored, self.plan.bits, self.plan.dtype)

    def _unturned(self, stored: Tensor, index: Tensor) -> Tensor:
        """Stored keys at rotation index [R, H, N] as they are before RoPE, of length 1: only their content
        tells them apart. [R, H, N, D]

        Where nobody said how a layer turns its keys (`H2OCache` without `positions`) they are taken as they
        are, and distance counts too.
        """
        keys = self._unpacked(stored)
        if self.plan.bits is None and self.rope is not None:
            keys = self.rope.rotate(keys, -index)
        return torch.nn.functional.normalize(keys.to(self.score.dtype), dim=-1)

    def _due(self, queries: Tensor | int) -> Tensor:
        """Rows [R] whose last `queries` tokens completed another stretch between two looks."""
        every = max(LOOK_EVERY, self.capacity // LOOKS)
        return self.seen // every != (self.seen - queries) // every

    def _usual(self) -> Tensor:
        """How alone a key counts until it is compared: as those held do, to stand out nowhere. [R, H, 1]"""
        return mean_held(self.alone, self.positions >= 0)

    def _look(
        self, unit: Tensor, positions: Tensor, unlike: Tensor, alone: Tensor, due: Tensor
    ) -> tuple[Tensor, Tensor]:
        """How unlike the others and how alone each key is, compared anew in the rows due. Two [R, H, S]

        Args:
            unit: [R, H, S, D] the keys, of length 1, before RoPE.
            unlike, alone: [R, H, S] as they are so far, which stay in the other rows.
            due: [R] bool.
        """
        rows = due.nonzero().squeeze(-1)
        if rows.numel() == 0:
            return unlike, alone
        unit, positions = unit[rows], positions[rows]
        mean = mean_key(unit, positions)
        self.mean_key = self.mean_key.index_copy(0, rows, mean)
        if self.policy.pairs:
            alone = alone.index_copy(0, rows, -nearest(unit, positions))
        return unlike.index_copy(0, rows, -cosines(unit, mean)), alone

    # -- positions -------------------------------------------------------------------------------------

    def _new_index(self, positions: Tensor) -> Tensor:
        """Rotation index of tokens as they come, by position, both [R, H, N]; 0 for padding."""
        return (positions - self.base[:, None, None]).masked_fill(positions < 0, 0)

    def index(self) -> Tensor:
        """Rotation index at which each slot's key is met, [R, H, S]: of the near ones counted from `base`, of
        those out of reach from where `to_the_edge` turns a query to.
        """
        return torch.where(self.far, self._far_index(self.protected), self._new_index(self.positions))

    def _far_index(self, protected: Tensor) -> Tensor:
        """The same out of reach: 0, but `nearer` for what somebody wants found, which no sink is: that has to
        be far, and so has the first token where a budget has no sinks.
        """
        sinks = max(1, self.plan.shares.sinks) if self.plan.shares else 1
        return self.nearer * (protected & (self.positions >= sinks))

    def protect(self, protected: Tensor) -> None:
        """Says anew which slots are protected, [R, H, S] bool."""
        by = self._far_index(protected) - self._far_index(self.protected)
        turns = self.far & (by != 0)
        if self.plan.bits is None and bool(turns.any()):
            self._turn(turns, by)
        self.protected = protected

    def clamp(self, near_from: Tensor) -> None:
        """Moves the keys of positions before `near_from` [R] to the edge of the reach.

        Such a key is turned back to angle 0 and flagged; queries meet it at distance reach - 1. What is of a
        system prompt or pinned is met `nearer`.
        """
        leaving = (self.positions >= 0) & ~self.far & (self.positions < near_from[:, None, None])
        if self.rope is None or not bool(leaving.any()):
            return
        if self.plan.bits is None:
            self._turn(leaving, self._far_index(self.protected) - self._new_index(self.positions))
        self.far = self.far | leaving
        self.any_far = True

    def to_the_edge(self, queries: Tensor, at: Tensor) -> Tensor:
        """Queries [R, H, G, N, D] at positions `at` [R, N], turned to index reach - 1.

        There they stand at distance reach - 1 from the keys that `clamp` left at angle 0, and nearer to those
        that are protected.
        """
        assert self.rope is not None
        key = (id(self.rope), self.fed)
        if key not in self.plan.edges:
            edge = self.reach - 1 - (at - self.base[:, None])
            self.plan.edges[key] = self.rope.angles(edge[:, None, None], queries.dtype)
        return self.rope.turn(queries, *self.plan.edges[key])

    def rebase(self, due: Tensor) -> None:
        """Makes the next token's rotation index 0 again in the rows that are due, [R] bool.

        All their near keys are turned back by a common shift (those in bytes are turned as they are read).
        """
        if self.plan.bits is None and self.rope is not None and bool(due.any()):
            shift = torch.where(due, self.base - self.seen, 0)[:, None, None]
            self._turn((self.positions >= 0) & ~self.far, shift.expand_as(self.positions))
        self.base = torch.where(due, self.seen, self.base)

    def _turn(self, which: Tensor, by: Tensor) -> None:
        """Turns the keys of some slots, [R, H, S] bool, by so many positions, [R, H, S]."""
        assert self.rope is not None
        turned = self.rope.rotate(self.keys, by)
        self.keys = torch.where(which.unsqueeze(-1), turned, self.keys)


def among(positions: Tensor, wanted: Iterable[int]) -> Tensor:
    """Which positions are among the wanted ones; same shape, bool."""
    return torch.isin(positions, torch.tensor(sorted(wanted), dtype=positions.dtype, device=positions.device))


def _empty(name: str) -> int:
    """What an empty slot holds of a state."""
    return -1 if name == "positions" else 0
