"""The bounded cache: fixed slots per layer, row and KV head, as a `transformers.Cache`.

Shapes: R rows, H KV heads, S = budget + 1 slots, N new tokens, D head size. A slot is empty where its
position is -1. One slot is always empty between two steps: the next token is written there, attends, is
attended to, and then some token is given up (`policies.py` says which), whose slot is the next one to be
written. Nothing is concatenated, gathered or allocated per token, and shapes never change.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from h2o_chat.errors import ModelError, UsageError, WindowFullError
from h2o_chat.policies import POLICIES, Shares, Slots, divide, highest, lowest, priorities
from h2o_chat.rope import Positions, Rope

GROW = 256
"""Slots that the `full` policy adds at a time."""

REMEMBER = 31 / 32
"""`lost` is what dropped tokens had been receiving, averaged over about the last 32 queries."""


class Handoff:
    """What `update()` gives to the attention function instead of tensors: the new keys and their layer.

    Only our own attention function unwraps it. Any other one would attend to the new tokens alone, silently;
    whatever it does to this object raises instead.
    """

    def __init__(self, layer: "H2OLayer", keys: Tensor, values: Tensor) -> None:
        self.layer, self.keys, self.values = layer, keys, values

    def __getattr__(self, name: str) -> NoReturn:
        _wrong_attention()

    @classmethod
    def __torch_function__(cls, *_: Any, **__: Any) -> NoReturn:
        _wrong_attention()


def _wrong_attention() -> NoReturn:
    raise ModelError(
        "An H2OCache was given to a model that was not loaded with its attention.",
        'Load it with from_pretrained(..., attn_implementation="h2o") after `from h2o_chat import H2OCache`,'
        ' or call model.set_attn_implementation("h2o").',
    )


@dataclass
class Plan:
    """What all layers of one cache share."""

    policy: str
    shares: Shares | None
    """None for the `full` policy."""
    chunk: int
    observe: bool
    """Keep what `lost` is made of."""
    protect_below: int
    """New tokens at positions below this are protected."""


class H2OLayer(CacheLayerMixin):
    """The slots of one attention layer."""

    # Everything that a snapshot has to hold, and that follows a row when rows are reordered.
    STATE = (
        "keys",  # [R, H, S, D], turned by `position - base`, or by nothing where `far`
        "values",  # [R, H, S, D]
        "positions",  # [R, H, S] int32, true positions, -1 = empty
        "score",  # [R, H, S] what the policy accumulates
        "receiving",  # [R, H, S] share of its head's attention, a mean over about the last 32 queries
        "protected",  # [R, H, S] bool
        "far",  # [R, H, S] bool: at the window's edge, whatever the true distance
        "free",  # [R, H] the empty slot that the next token is written to
        "seen",  # [R] real tokens fed to this row
        "base",  # [R] the position whose rotation index is 0
        "lost",  # [R] attention that the dropped tokens had been receiving, summed over heads
    )

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.policy = POLICIES[plan.policy]
        self.fed = 0
        """Columns fed, padding included: what transformers calls the sequence length."""
        self.rope: Rope | None = None
        self.window = 0
        """Tokens; 0 leaves positions to the caller."""
        self.any_far = False

    # -- what transformers asks of a cache layer -------------------------------------------------------

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        rows, heads, _, size = key_states.shape
        slots = (self.plan.shares.budget if self.plan.shares else GROW) + 1
        device = key_states.device
        exact = torch.float64 if key_states.dtype == torch.float64 else torch.float32
        per_slot = (rows, heads, slots)
        self.keys = key_states.new_zeros(*per_slot, size)
        self.values = value_states.new_zeros(*per_slot, value_states.shape[-1])
        self.positions = torch.full(per_slot, -1, dtype=torch.int32, device=device)
        self.score = torch.zeros(per_slot, dtype=exact, device=device)
        self.receiving = torch.zeros(per_slot, dtype=exact, device=device)
        self.protected = torch.zeros(per_slot, dtype=torch.bool, device=device)
        self.far = torch.zeros(per_slot, dtype=torch.bool, device=device)
        self.free = torch.zeros(rows, heads, dtype=torch.long, device=device)
        self.seen = torch.zeros(rows, dtype=torch.int32, device=device)
        self.base = torch.zeros(rows, dtype=torch.int32, device=device)
        self.lost = torch.zeros(rows, dtype=torch.float64, device=device)  # summed for ever
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        """Hands the new keys and values [R, H, N, D] on to `h2o_attention`, which fills the slots."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        if key_states.shape[0] != self.positions.shape[0]:
            raise UsageError(
                f"This H2OCache holds {self.positions.shape[0]} rows, the batch has {key_states.shape[0]}.",
                "Use one cache per batch, or cache.reset().",
            )
        handoff = Handoff(self, key_states, value_states)
        return handoff, handoff

    def get_seq_length(self) -> int:
        return self.fed

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.fed + query_length, 0

    def get_max_length(self) -> int:
        return -1  # a conversation may go on for ever

    def crop(self, tokens_to_remove: int) -> NoReturn:
        raise UsageError(
            "An H2OCache cannot take tokens back: what was evicted for them is gone.",
            "Assisted generation does not work with it; otherwise use cache.snapshot() and restore().",
        )

    def reset(self) -> None:
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

    def reserve(self, tokens: int) -> None:
        """Makes room for new tokens where nothing is ever evicted (the `full` policy)."""
        missing = self.fed + tokens - self.capacity
        if self.plan.shares is not None or missing <= 0:
            return
        grow = -(-missing // GROW) * GROW
        for name in ("keys", "values", "positions", "score", "receiving", "protected", "far"):
            state = getattr(self, name)
            empty = -1 if name == "positions" else 0
            more = state.new_full((*state.shape[:2], grow, *state.shape[3:]), empty)
            setattr(self, name, torch.cat((state, more), 2))

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
        where = slot.unsqueeze(-1)
        self.keys.scatter_(2, where.expand_as(keys), keys)
        self.values.scatter_(2, where.expand_as(values), values)
        self.positions.scatter_(2, slot, position)
        self.protected.scatter_(2, slot, (position >= 0) & (position < self.plan.protect_below))
        self.seen += 1 if real is None else real[:, 0].to(torch.int32)
        self.fed += 1

    @torch.no_grad()
    def evict_one(
        self, received: Tensor, groups: int, real: Tensor | None, sliding_window: int | None
    ) -> None:
        """After one token attended: adds what each slot received, and gives up one slot if none is empty.

        Args:
            received: [R, H, S] attention probabilities summed over the query heads of the group.
            groups: query heads per KV head.
            real: [R, 1] bool, False for padding, which is no query: nothing is forgotten for it.
            sliding_window: what later queries of this layer can see, tokens.
        """
        queries = 1 if real is None else real.to(self.score.dtype).unsqueeze(-1)  # [R, 1, 1]
        self.score.mul_(self.policy.forget**queries).add_(received)
        priority = self._priorities(self.positions, self.score, self.values, self.protected, sliding_window)
        free = lowest(priority, self.positions).unsqueeze(-1)  # [R, H, 1]
        if self.plan.observe:
            self.receiving.mul_(REMEMBER**queries).add_(received, alpha=(1 - REMEMBER) / groups)
            self.lost += self.receiving.gather(-1, free).sum((1, 2))
            self.receiving.scatter_(-1, free, 0)
        self.positions.scatter_(-1, free, -1)
        self.score.scatter_(-1, free, 0)
        self.protected.scatter_(-1, free, False)
        self.far.scatter_(-1, free, False)
        self.free = free.squeeze(-1)

    @torch.no_grad()
    def absorb(
        self,
        keys: Tensor,
        values: Tensor,
        positions: Tensor,
        received: Tensor,
        share: Tensor | None,
        sliding_window: int | None,
    ) -> None:
        """After a chunk attended to the slots and to itself: chooses who of all of them stays.

        Args:
            keys, values: [R, H, N, D] of the chunk.
            positions: [R, N] int32, -1 for padding.
            received: [R, H, S + N] attention, each query forgotten at the policy's rate.
            share: the same forgotten at REMEMBER, as a share of the head's attention; None unless observed.
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

        place = both(self.positions, new)
        passed = queries.to(self.score.dtype)[:, None, None]
        score = both(self.score * self.policy.forget**passed, nothing) + received
        all_values = both(self.values, values)
        protected = both(self.protected, (new >= 0) & (new < self.plan.protect_below))
        priority = self._priorities(place, score, all_values, protected, sliding_window)
        keep = highest(priority, place, self.capacity)  # [R, H, capacity]
        wide = keep.unsqueeze(-1)
        stays = slice(0, self.capacity)

        def store(slots: Tensor, chosen: Tensor, empty: int) -> None:
            slots[:, :, stays] = chosen
            slots[:, :, self.capacity] = empty

        if share is not None:
            receiving = both(self.receiving * REMEMBER**passed, nothing) + share * (1 - REMEMBER)
            self.lost += receiving.scatter(2, keep, 0).sum((1, 2))
            store(self.receiving, receiving.gather(2, keep), 0)
        store(self.keys, both(self.keys, keys).take_along_dim(wide, 2), 0)
        store(self.values, all_values.take_along_dim(wide, 2), 0)
        store(self.score, score.gather(2, keep), 0)
        store(self.protected, protected.gather(2, keep), 0)
        store(self.far, both(self.far, torch.zeros_like(new, dtype=torch.bool)).gather(2, keep), 0)
        store(self.positions, place.gather(2, keep), -1)
        self.free = self.positions.argmin(-1)

    def ranking(self) -> Tensor:
        """What the policy ranks the slots by just now. [R, H, S]"""
        return self.policy.priority(Slots(self.positions, self.score, self.values))

    def _priorities(
        self,
        positions: Tensor,
        score: Tensor,
        values: Tensor,
        protected: Tensor,
        sliding_window: int | None,
    ) -> Tensor:
        recent = self.plan.shares.recent if self.plan.shares else 0
        # The next query stands at position `seen`: it sees `sliding_window` positions, its own included.
        visible = self.seen - sliding_window + 1 if sliding_window else torch.zeros_like(self.seen)
        return priorities(
            self.policy,
            Slots(positions, score, values),
            protected,
            recent_from=self.seen - recent,
            visible_from=visible.clamp_min(0),
        )

    # -- positions -------------------------------------------------------------------------------------

    def clamp(self, near_from: Tensor) -> None:
        """Moves the keys of positions before `near_from` [R] to the window's edge, once and for good.

        Such a key is turned back to angle 0 and flagged; queries meet it at distance window - 1.
        """
        leaving = (self.positions >= 0) & ~self.far & (self.positions < near_from[:, None, None])
        if self.rope is None or not bool(leaving.any()):
            return
        self._turn(leaving, self.base[:, None, None] - self.positions)
        self.far = self.far | leaving
        self.any_far = True

    def rebase(self, due: Tensor) -> None:
        """Makes the next token's rotation index 0 again in the rows that are due, [R] bool.

        All their near keys are turned back by a common shift.
        """
        if self.rope is not None and bool(due.any()):
            shift = torch.where(due, self.base - self.seen, 0)[:, None, None]
            self._turn((self.positions >= 0) & ~self.far, shift.expand_as(self.positions))
        self.base = torch.where(due, self.seen, self.base)

    def _turn(self, which: Tensor, by: Tensor) -> None:
        assert self.rope is not None
        turned = self.rope.rotate(self.keys, by)
        self.keys = torch.where(which.unsqueeze(-1), turned, self.keys)


@dataclass
class Snapshot:
    """A copy of everything a cache holds; `H2OCache.restore` puts it back."""

    policy: str
    shares: Shares | None
    layers: list[dict[str, Tensor]]
    fed: int
    near_from: int
    rebase_due: int
    ragged: bool
    protect_below: int
    any_far: list[bool] = field(default_factory=list)


class H2OCache(Cache):
    """A heavy-hitter cache of a fixed number of slots for any transformers model (arXiv 2306.14048).

        from h2o_chat import H2OCache
        model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="h2o")
        model.generate(**inputs, past_key_values=H2OCache(budget=512))

    In plain `generate()` transformers supplies the positions, which grow without bound, and keeps all
    `input_ids`: this bounds keys and values, not those. The program's engine passes `positions` (from
    `rope.probe`) and feeds `position_ids()`; then distances are clamped to the trained window for ever.

    Args:
        budget: slots per layer, row and KV head, everything kept included.
        policy: a name of `policies.POLICIES`; `full` keeps everything and ignores the budget.
        sinks: first tokens protected; None for the policy's own number.
        recent: newest tokens protected; None for the policy's own share.
        chunk: prompt tokens that attend before the next eviction; None for budget // 4, at least 16.
        positions: what `rope.probe(model)` found; None leaves positions to the caller.
        observe: keep the account that `lost` needs.

    Raises:
        BudgetError: the parts do not fit into the budget.
        UsageError: an unknown policy.
    """

    def __init__(
        self,
        budget: int = 512,
        *,
        policy: str = "h2o",
        sinks: int | None = None,
        recent: int | None = None,
        chunk: int | None = None,
        positions: Positions | None = None,
        observe: bool = False,
    ) -> None:
        if policy not in POLICIES:
            raise UsageError(f"Policy {policy!r} is not known.", f"One of: {', '.join(POLICIES)}.")
        shares = None if policy == "full" else divide(policy, budget, sinks, recent)
        if chunk is None:
            chunk = 256 if shares is None else max(16, budget // 4)
        if chunk < 1:
            raise UsageError(f"A chunk of {chunk} tokens cannot be read.", "It must be at least 1.")
        if positions is not None:
            chunk = min(chunk, positions.window)
        protected = 0 if shares is None else shares.sinks
        self.plan = Plan(policy, shares, chunk, observe, protect_below=protected)
        self.trained = positions
        self._start()
        super().__init__(layer_class_to_replicate=self._new_layer)

    def _start(self) -> None:
        self._near_from = 0
        """Keys before this position are at the window's edge (in rows without padding)."""
        self._rebase_due = self.trained.window if self.trained else 0
        """Columns at which the rotation index would reach the window (in rows without padding)."""
        self._ragged = False
        """Padding was fed: rows are of different age, and each has its own time for both."""

    def _new_layer(self) -> H2OLayer:
        layer = H2OLayer(self.plan)
        if self.trained is not None:
            layer.rope = self.trained.ropes[len(self.layers)]
            layer.window = self.trained.window
        return layer

    @property
    def fed(self) -> int:
        """Columns fed, padding included."""
        return int(self.get_seq_length())

    def kept(self, layer: int) -> Tensor:
        """True positions of the tokens a layer holds, in slot order. [R, H, S] int32, -1 = empty"""
        return torch.as_tensor(self.layers[layer].positions).clone()

    @property
    def most_kept(self) -> int:
        """Slots in use in the fullest row and head of any layer."""
        layers = [layer for layer in self.layers if layer.is_initialized]
        return max((int((layer.positions >= 0).sum(-1).max()) for layer in layers), default=0)

    def protect(self, tokens: int) -> int:
        """Protects the first tokens (a system prompt), as many as may be; call it before they are fed.

        Returns:
            How many are: at most (budget - recent) // 2, sinks included.
        """
        if self.plan.shares is not None:
            most = self.plan.shares.most_protected
            self.plan.protect_below = max(self.plan.shares.sinks, min(tokens, most))
        return self.plan.protect_below

    def position_ids(self, tokens: int, real: Tensor | None = None) -> Tensor:
        """The rotation indices to feed with the next tokens, [R, N] (or [1, N]), for ever below the window.

        True positions grow without bound, rotations may not (fp32 angles, `dynamic` and `longrope` scaling,
        and the model has never seen them). RoPE sees only distances, so: `index = position - base`; when it
        would reach the window, base moves up to the next token and the kept keys are turned back with it;
        and a key whose distance would pass window - 1 stays there. That is looked after in blocks of
        window // 32 tokens, so a distance is exact up to window - window // 32 at least.

        Learned positions (OPT, GPT-2) cannot be moved once they are in a key: the index runs to the end of
        the window and then again and again through its second half. At each return the older tokens seem to
        come after the newer ones until they are evicted; that is the price.

        Args:
            tokens: how many columns will be fed.
            real: [R, N] bool, False for padding.

        Raises:
            UsageError: more tokens at once than the window holds, or the cache was made without positions.
            WindowFullError: the `full` policy reached the end of the window.
        """
        if self.trained is None:
            raise UsageError("This H2OCache was made without positions.", "Pass positions=probe(model).")
        window, end = self.trained.window, self.fed + tokens
        if tokens > window:
            raise UsageError(f"{tokens} tokens at once are more than the model's window of {window}.")
        if self.plan.shares is None and end > window:
            raise WindowFullError(
                f"The full cache has reached the {window} tokens the model was trained for.",
                "Use another policy (h2o goes on for ever) or start anew.",
            )
        self._ragged |= real is not None and not bool(real.all())
        if not self.layers or not self.layers[0].is_initialized:
            return _count(0, tokens, real)
        if self.trained.learned:
            first = torch.as_tensor(self.layers[0].seen)
            return _sawtooth(_count(first[:, None], tokens, real), window)
        more = tokens if real is None else real.sum(-1)
        block = max(1, window // 32)
        near_from = _round_up(end - window, block)
        if end > window and (self._ragged or near_from > self._near_from):
            self._near_from = near_from
            self._each(lambda layer: layer.clamp(_round_up(layer.seen + more - window, block)))
        if end > self._rebase_due or (end > window and self._ragged):
            self._rebase_due = self.fed + window
            self._each(lambda layer: layer.rebase(layer.seen + more - layer.base > window))
        first = self.layers[0]
        return _count((first.seen - first.base)[:, None], tokens, real)

    def _each(self, act: Callable[[H2OLayer], None]) -> None:
        for layer in self.layers:
            act(layer)

    def snapshot(self) -> Snapshot:
        """A copy of the whole state; an evicted token cannot come back otherwise."""
        return Snapshot(
            policy=self.plan.policy,
            shares=self.plan.shares,
            layers=[
                {name: getattr(layer, name).clone() for name in layer.STATE}
                for layer in self.layers
                if layer.is_initialized
            ],
            fed=self.fed,
            near_from=self._near_from,
            rebase_due=self._rebase_due,
            ragged=self._ragged,
            protect_below=self.plan.protect_below,
            any_far=[layer.any_far for layer in self.layers],
        )

    def restore(self, snapshot: Snapshot, *, hand_over: bool = False) -> None:
        """Puts the state back as it was.

        Args:
            hand_over: take the snapshot's own tensors, which needs no memory; it cannot be used again.

        Raises:
            UsageError: it is the snapshot of a cache with another policy or budget.
        """
        if (snapshot.policy, snapshot.shares) != (self.plan.policy, self.plan.shares):
            raise UsageError(
                f"This snapshot is of a cache with {snapshot.policy} {snapshot.shares},"
                f" this one has {self.plan.policy} {self.plan.shares}.",
                "Make the cache with the same policy and budget.",
            )
        layers = [
            {name: tensor if hand_over else tensor.clone() for name, tensor in state.items()}
            for state in snapshot.layers
        ]
        self.reset()
        while len(self.layers) < len(layers):
            self.layers.append(self._new_layer())
        for layer, state, any_far in zip(self.layers, layers, snapshot.any_far, strict=False):
            for name, tensor in state.items():
                setattr(layer, name, tensor)
            layer.is_initialized, layer.fed, layer.any_far = True, snapshot.fed, any_far
        self._near_from, self._rebase_due = snapshot.near_from, snapshot.rebase_due
        self._ragged = snapshot.ragged
        self.plan.protect_below = snapshot.protect_below

    def reset(self) -> None:
        """Forgets everything."""
        super().reset()
        self._start()
        self.plan.protect_below = self.plan.shares.sinks if self.plan.shares else 0

    @property
    def bytes_held(self) -> int:
        """Bytes of all keys and values, empty slots included."""
        return sum(layer.keys.nbytes + layer.values.nbytes for layer in self.layers if layer.is_initialized)

    @property
    def bytes_full(self) -> int:
        """Bytes that a cache of everything fed so far would hold."""
        slots = [layer for layer in self.layers if layer.is_initialized]
        return sum((s.keys.nbytes + s.values.nbytes) // s.positions.shape[-1] * s.fed for s in slots)


def _count(first: Tensor | int, tokens: int, real: Tensor | None) -> Tensor:
    """Indices first, first + 1 ... of the real tokens; padding repeats its neighbour's. [R, N]"""
    if real is None:
        device = first.device if isinstance(first, Tensor) else None
        return first + torch.arange(tokens, device=device)[None]
    return (first + real.long().cumsum(-1) - 1).clamp_min(0)


def _round_up(count: Any, block: int) -> Any:
    """An int, or a tensor of them, up to the next multiple of `block`."""
    return -(-count // block) * block


def _sawtooth(index: Tensor, window: int) -> Tensor:
    """0 .. window - 1, then window // 2 .. window - 1 again and again."""
    half = window // 2
    return torch.where(index < window, index, half + (index - window) % (window - half))
