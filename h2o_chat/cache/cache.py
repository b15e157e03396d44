"""The bounded cache: `H2OCache`, as transformers sees it, over the arenas that hold the slots."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from h2o_chat.base.config import PREFILLS, Prefill
from h2o_chat.base.errors import BudgetError, UsageError, WindowFullError
from h2o_chat.cache import distance as distances
from h2o_chat.cache.arena import GROW, Arena, Shape, among
from h2o_chat.cache.baselines import SEES_THE_FUTURE
from h2o_chat.cache.clock import Clock, decode_pass, prompt_passes
from h2o_chat.cache.layer import H2OLayer
from h2o_chat.cache.plan import Plan
from h2o_chat.cache.policies import POLICIES, Policy, divide
from h2o_chat.cache.quantized import BITS
from h2o_chat.cache.room import require_room
from h2o_chat.cache.rope import Positions, probe
from h2o_chat.cache.snapshot import Part, Snapshot
from h2o_chat.cache.state import STATES
from h2o_chat.cache.step import Now, Step


class H2OCache(Cache):
    """A heavy-hitter cache of a fixed number of slots for any transformers model (arXiv 2306.14048).

        from h2o_chat import H2OCache
        model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="h2o")
        model.generate(**inputs, past_key_values=H2OCache(budget=512, model=model))

    In plain `generate()` transformers supplies the positions, which grow without bound, and keeps all
    `input_ids`: this bounds keys and values, not those. The program's engine passes `positions` and calls
    `prepare` and `position_ids` before each step; then rotation indices stay below the window for ever.

    Args:
        budget: slots per layer, row and KV head, everything kept included.
        policy: a name of `policies.POLICIES`, or a `Policy` of your own (docs/POLICY.md); `full` keeps
            everything and ignores the budget.
        sinks: first tokens protected; None for the policy's own number.
        recent: newest tokens protected; None for the policy's own share.
        chunk: prompt tokens that attend before the next eviction; None for budget // 4, at least 8.
        prefill: "full" is the prompt pass of the paper: all tokens of one call attend to each other, then it
            is chosen once who stays. A layer at work holds keys and values of the whole call, so memory grows
            with the prompt (never by its square).
        model: it is asked how its keys are turned; without it keys are compared as they are after RoPE, which
            makes the default policy worse, and nothing is clamped.
        positions: what `rope.probe(model)` found, for a caller who feeds `position_ids()`.
        observe: keep the account that `lost` needs.
        kv: precision of keys and values in the slots: "auto" as the model computes them, "int8" or "int4"
            (`quantized.py`). Pass `model` with it: without, keys are rounded as they come, after RoPE.

    Raises:
        BudgetError: the parts do not fit into the budget.
        UsageError: an unknown policy, prefill or precision, a chunk of no tokens, or a policy that has to see
            the future.
        ModelError: the model's positions are not understood.
    """

    foresees = False
    """Whether it was given the future (`lab.belady.Foresight`)."""

    def __init__(
        self,
        budget: int = 512,
        *,
        policy: str | Policy = "h2o",
        sinks: int | None = None,
        recent: int | None = None,
        chunk: int | None = None,
        prefill: Prefill = "chunked",
        model: Any = None,
        positions: Positions | None = None,
        observe: bool = False,
        kv: str = "auto",
    ) -> None:
        for what, value in (("budget", budget), ("sinks", sinks), ("recent", recent), ("chunk", chunk)):
            if type(value) is not int and not (value is None and what != "budget"):
                raise UsageError(f"{what}={value!r} is no number of tokens.", "Give an int.")
        if isinstance(policy, str):
            if policy not in POLICIES:
                raise UsageError(f"Policy {policy!r} is not known.", f"One of: {', '.join(POLICIES)}.")
            policy = POLICIES[policy]
        if policy.offline and not self.foresees:
            raise UsageError(
                SEES_THE_FUTURE, f"{policy.name} is a reference for h2o-chat eval perplexity alone."
            )
        if kv != "auto" and kv not in BITS:
            raise UsageError(f"K/V precision {kv!r} is not known.", f"One of: auto, {', '.join(BITS)}.")
        shares = None if policy.name == "full" else divide(policy, budget, sinks, recent)
        if chunk is None:
            chunk = 256 if shares is None else max(8, budget // 4)
        if chunk < 1:
            raise UsageError(f"A chunk of {chunk} tokens cannot be read.", "It must be at least 1.")
        if prefill not in PREFILLS:
            raise UsageError(f"Prefill {prefill!r} is not known.", f"One of: {', '.join(PREFILLS)}.")
        self.trained = probe(model) if positions is None and model is not None else positions
        distance = None
        if self.trained is not None:
            chunk = min(chunk, self.trained.window)
            distance = distances.distance_of(self.trained, policy, shares, rebases=positions is not None)
        protected = 0 if shares is None else shares.sinks
        self.plan = Plan(policy, shares, chunk, prefill, observe, BITS.get(kv), distance, protected)
        self._asked = (sinks, recent)
        self.clocks: list[Clock] = []
        """Of each row; none before the first token."""
        self.arenas: list[Arena] = []
        self._now: Now | None = None
        super().__init__(layer_class_to_replicate=self._new_layer)

    def _new_layer(self) -> H2OLayer:
        if self.trained is not None and len(self.layers) == len(self.trained.ropes):
            raise UsageError(
                f"This H2OCache was made for a model of {len(self.layers)} layers, and is fed more.",
                "Use one cache per model.",
            )
        return H2OLayer(self, len(self.layers))

    # -- what it holds ---------------------------------------------------------------------------------

    @property
    def fed(self) -> int:
        """Columns fed, padding included."""
        return int(self.get_seq_length())

    @property
    def reach(self) -> int:
        """Tokens: no key is met farther away than `reach` - 1, see `distance.py`; 0: it is the caller.s."""
        return self.plan.distance.reach if self.plan.distance else 0

    @property
    def pass_tokens(self) -> int:
        """Prompt tokens to feed in one call: a chunk; with prefill="full" what the window can hold."""
        return self.trained.window if self.plan.prefill == "full" and self.trained else self.plan.chunk

    def call_tokens(self, most: int) -> int:
        """Prompt tokens to feed in the next call: as many whole chunks as `most` tokens hold, at least one.

        Each chunk still gives up slots before the next one attends, so this changes no token; where keys are
        due to be clamped between two chunks they come one by one.
        """
        if self.plan.prefill == "full":
            return self.pass_tokens
        chunk, distance = self.plan.chunk, self.plan.distance
        many = max(chunk, most // chunk * chunk)
        if distance is not None and not distance.learned and self._seen + many - chunk >= distance.reach:
            return chunk
        return many

    def kept(self, layer: int) -> Tensor:
        """True positions of the tokens a layer holds, in slot order. [R, H, S] int32, -1 = empty

        Only once something was fed: before, there are no slots.
        """
        return torch.as_tensor(self.layers[layer].slots.positions).clone()

    @property
    def most_kept(self) -> int:
        """Slots in use in the fullest row and head of any layer."""
        return max((clock.held for clock in self.clocks), default=0)

    @property
    def bytes_held(self) -> int:
        """Bytes of all keys and values, and of their scales; empty slots included."""
        return sum(arena.bytes_held for arena in self.arenas)

    @property
    def bytes_full(self) -> int:
        """Bytes that a cache of everything fed so far would hold, in the model's own precision."""
        return sum(arena.plain_slot_bytes for arena in self.arenas) * self.fed

    # -- what is protected -----------------------------------------------------------------------------

    def protect(self, tokens: int) -> int:
        """Protects the first tokens (a system prompt), as many as may be; call it before they are fed.

        Returns:
            How many are: at most (budget - recent) // 2, sinks included.
        """
        if self.plan.shares is not None:
            most = self.plan.shares.most_protected
            self.plan.protect_below = max(self.plan.shares.sinks, min(tokens, most))
        return self.plan.protect_below

    def pin(self, positions: Iterable[int]) -> int:
        """Protects tokens from eviction, wherever they are still held; those not fed yet from the start.

        What was evicted stays gone. A layer with a sliding window gives up what it cannot see any more, pins
        too.

        Args:
            positions: true positions, the same in every row.

        Returns:
            Of how many some cache holds something, or will when they are fed.

        Raises:
            BudgetError: with sinks and system prompt that is more than `Shares.most_protected` slots in some
                cache; nothing has changed.
        """
        wanted = {position for position in positions if position >= 0}
        seen, slots = self._seen, [arena.slots for arena in self.arenas]
        chosen = [(some.positions >= 0) & among(some.positions, wanted) for some in slots]
        pins = self._pins_ahead() | {position for position in wanted if position >= seen}
        held = [some.protected | mask for some, mask in zip(slots, chosen, strict=True)]
        self._refuse(_fullest(held) + self._ahead(pins))
        for arena, protected in zip(self.arenas, held, strict=True):
            distances.protect(arena, protected)
        self.plan.pins = pins
        found = {p for some, m in zip(slots, chosen, strict=True) for p in some.positions[m].tolist()}
        return len(found | (pins & wanted))

    def unpin(self, positions: Iterable[int] | None = None, keep: Iterable[int] = ()) -> None:
        """Lets pinned tokens be evicted again, None: all but `keep`; sinks, system prompt stay protected."""
        wanted, kept = None if positions is None else set(positions), set(keep)
        for arena in self.arenas:
            positions = arena.slots.positions
            first = positions < self.plan.protect_below
            other = among(positions, kept) if wanted is None else ~among(positions, wanted)
            distances.protect(arena, arena.slots.protected & (first | other))
        self.plan.pins = self._pins_ahead() & kept if wanted is None else self._pins_ahead() - wanted

    @property
    def protected(self) -> int:
        """Slots of the fullest cache that are protected, or will be by what is yet to be fed."""
        return _fullest([a.slots.protected for a in self.arenas]) + self._ahead(self._pins_ahead())

    @property
    def _seen(self) -> int:
        """Real tokens fed to every row."""
        return min((clock.seen for clock in self.clocks), default=0)

    def _pins_ahead(self) -> frozenset[int]:
        """Pins that are not fed yet."""
        seen = self._seen if self.plan.pins else 0
        return frozenset(position for position in self.plan.pins if position >= seen)

    def _ahead(self, pins: frozenset[int]) -> int:
        """Tokens yet to be fed that will be protected; the first ones only once there are any."""
        below, seen = self.plan.protect_below, self._seen
        return max(below - seen, 0) + sum(position >= below for position in pins)

    def budget_for(self, protected: int) -> int | None:
        """The smallest budget, from this one on, of which so many slots may be protected; None: no budget."""
        shares, policy = self.plan.shares, self.plan.policy
        if shares is None or protected <= shares.most_protected:
            return None if shares is None else shares.budget
        if not policy.heavy:
            return None
        sizes = count(shares.budget)
        return next(size for size in sizes if divide(policy, size, *self._asked).most_protected >= protected)

    def _refuse(self, protected: int) -> None:
        """
        Raises:
            BudgetError: so many slots may not be protected; says how many may, and what would fit.
        """
        shares = self.plan.shares
        if shares is None or protected <= shares.most_protected:
            return
        fits = self.budget_for(protected)
        hint = (
            f"{self.plan.policy.name} keeps only the newest; with h2o something can be pinned."
            if fits is None
            else f"It would fit into a budget of {fits:,}; or unpin something."
        )
        raise BudgetError(
            f"That would protect {protected:,} slots; of a budget of {shares.budget:,} at most"
            f" {shares.most_protected:,} may be ({self.protected:,} are).",
            hint,
        )

    # -- a step ----------------------------------------------------------------------------------------

    def prepare(self, step: Step) -> None:
        """Everything that has to happen before a step; call it once, then feed the step to the model.

        In plain transformers nobody calls it: then the first layer does.

        Raises:
            UsageError: more tokens at once than the window holds.
            WindowFullError: the `full` policy reached the end of the window.
        """
        distance = self.plan.distance
        if distance is not None and distance.rebases:
            if step.tokens > distance.window:
                raise UsageError(
                    f"{step.tokens} tokens at once are more than the model's window of {distance.window}."
                )
            if self.plan.shares is None and self.fed + step.tokens > distance.window:
                raise WindowFullError(
                    f"The full cache has reached the {distance.window} tokens the model was trained for.",
                    "Use another policy (h2o goes on for ever) or start anew.",
                )
        self.plan.pins = self._pins_ahead()
        self._now = Now(step)
        if self.clocks:
            self._make_ready(self._now)

    @torch.no_grad()
    def _make_ready(self, now: Now) -> None:
        """Decides from the clocks what is due, for all layers, and does what is due before they attend."""
        plan, step, clocks = self.plan, now.step, self.clocks
        counts = [step.tokens] * len(clocks) if step.real is None else step.real.sum(-1).tolist()
        if plan.distance is not None and not plan.distance.learned:
            clamp, rebase = distances.due(plan.distance, clocks, counts)
            for arena in self.arenas:
                if clamp:
                    distances.clamp(arena, [clock.near_from for clock in clocks])
                if rebase:
                    distances.rebase(arena, [clock.base for clock in clocks])
        self._join()
        for arena in self.arenas:
            arena.clamps = arena.rope is not None and any(clock.near_from for clock in clocks)
        if plan.shares is None:
            most = max(clock.held for clock in clocks) + step.tokens
            for arena in self.arenas:
                arena.grow(most)
        if step.tokens == 1:
            now.passes = [decode_pass(clocks, counts, plan.budget, plan.stride)]
            for arena in self.arenas:
                arena.place(now.passes[0], now.prompt)
        else:
            chunk = plan.chunk if plan.prefill == "chunked" else step.tokens
            now.passes = prompt_passes(clocks, step.tokens, counts, plan.budget, chunk)

    def _join(self) -> None:
        """Puts the layers of the first step, each in an arena of its own, into as few arenas as they fit."""
        if len(self.arenas) < 2 or len(self.arenas) < len(self.layers):
            return
        joined: list[Arena] = []
        while self.arenas:
            first = self.arenas.pop(0)
            alike = [arena for arena in self.arenas if first.fits(arena)]
            if alike:
                first.join(alike)
            self.arenas = [arena for arena in self.arenas if arena not in alike]
            joined.append(first)
        self.arenas = joined
        self._tell_layers()

    def _tell_layers(self) -> None:
        """Says to each layer where its slots are."""
        for arena in self.arenas:
            for at, number in enumerate(arena.layers):
                layer = self.layers[number]
                layer.arena, layer.at, layer.is_initialized = arena, at, True

    def position_ids(self) -> Tensor:
        """The rotation indices to feed with the prepared step, for ever below the window. [R or 1, N]

        Raises:
            UsageError: nothing was prepared, or the cache was made without positions.
        """
        if self.trained is None or self.plan.distance is None:
            raise UsageError("This H2OCache was made without positions.", "Pass positions=probe(model).")
        if self._now is None:
            raise UsageError("No step was prepared.", "Call cache.prepare(Step(tokens=...)) first.")
        step, first = self._now.step, [0]
        if self._now.passes:
            first = [
                at - clock.base for at, clock in zip(self._now.passes[0].first, self.clocks, strict=True)
            ]
        start: int | Tensor = first[0]
        if len(set(first)) > 1:
            device = self.arenas[0].device
            start = torch.tensor(first, device=device)[:, None]
        return distances.fed_indices(self.plan.distance, start, step.tokens, step.real)

    def begin(self, layer: H2OLayer, keys: Tensor, values: Tensor, groups: int, mask: Tensor | None) -> Now:
        """Called by each layer's attention: the step under way, and slots for a layer that has none.

        Args:
            keys, values: [R, H, N, D] of the step.
            groups: G.
            mask: [R, N] bool, False for padding, as transformers says it; None: all are real.
        """
        if layer.number == 0:
            if self._now is None or self._now.begun:
                real = None if mask is None or bool(mask.all()) else mask
                self.prepare(Step(keys.shape[2], real=real))
            assert self._now is not None
            self._now.begun = True
            if not self.clocks:
                self.clocks = [Clock() for _ in range(keys.shape[0])]
                self._make_ready(self._now)
        assert self._now is not None
        if layer.arena is None:
            rows, heads, _, size = keys.shape
            shape = Shape(rows, heads, groups, size, values.shape[-1], keys.dtype, keys.device)
            require_room(shape, (self.plan.budget or GROW) + 1)
            rope = self.trained.ropes[layer.number] if self.trained else None
            arena = Arena(self.plan, [layer.number], rope, shape)
            self.arenas.append(arena)
            layer.arena, layer.at, layer.is_initialized = arena, 0, True
            if self.plan.shares is None:
                arena.grow(max(clock.held for clock in self.clocks))
            if keys.shape[2] == 1:
                arena.place(self._now.passes[0], self._now.prompt)
        return self._now

    # -- copies ----------------------------------------------------------------------------------------

    def snapshot(self, *, copy: bool = True) -> Snapshot:
        """The whole state; an evicted token cannot come back otherwise.

        Args:
            copy: False lends the tensors themselves, good until the next token is fed.
        """
        self._join()
        names = [state.name for state in STATES if state.saved]

        def taken(tensor: Tensor) -> Tensor:
            return tensor.clone() if copy else tensor

        return Snapshot(
            policy=self.plan.policy.name,
            shares=self.plan.shares,
            bits=self.plan.bits,
            parts=[
                Part(a.layers, a.of, {name: taken(a.slots.states[name]) for name in names}, taken(a.lost))
                for a in self.arenas
            ],
            clocks=[replace(clock) for clock in self.clocks],
            fed=self.fed,
            protect_below=self.plan.protect_below,
            pins=self._pins_ahead(),
        )

    @torch.inference_mode(False)
    def restore(self, snapshot: Snapshot, *, hand_over: bool = False) -> None:
        """Puts the state back as it was.

        Args:
            hand_over: take the snapshot's own tensors, which needs no memory; it cannot be used again.

        Raises:
            UsageError: it is the snapshot of a cache with another policy, budget or precision.
        """
        was = snapshot.policy, snapshot.shares, snapshot.bits
        now = self.plan.policy.name, self.plan.shares, self.plan.bits
        if was != now:
            raise UsageError(
                "This snapshot is of a cache with {} {} {} bits, this one has {} {} {}.".format(*was, *now),
                "Make the cache with the same policy, budget and K/V precision.",
            )
        parts = [
            part
            if hand_over
            else replace(part, states={n: s.clone() for n, s in part.states.items()}, lost=part.lost.clone())
            for part in snapshot.parts
        ]
        self.reset()
        self.clocks = [replace(clock) for clock in snapshot.clocks]
        while len(self.layers) < sum(len(part.layers) for part in parts):
            self.layers.append(self._new_layer())
        for part in parts:
            rope = self.trained.ropes[part.layers[0]] if self.trained else None
            arena = Arena(self.plan, part.layers, rope, part.shape, part.states)
            arena.lost = part.lost
            arena.base = torch.tensor(
                [clock.base for clock in self.clocks], dtype=torch.int32, device=arena.device
            )
            self.arenas.append(arena)
        self._tell_layers()
        for layer in self.layers:
            layer.fed = snapshot.fed
        self.plan.protect_below, self.plan.pins = snapshot.protect_below, snapshot.pins

    def reset(self) -> None:
        """Forgets everything."""
        for layer in self.layers:
            layer.reset()
        self.clocks, self.arenas, self._now = [], [], None
        self.plan.protect_below = self.plan.sinks
        self.plan.pins = frozenset()

    def select_rows(self, rows: Tensor) -> None:
        """Row i becomes a copy of row rows[i]; `rows` [new rows]."""
        for arena in self.arenas:
            arena.select_rows(rows)
        if self.clocks:
            self.clocks = [replace(self.clocks[row]) for row in rows.tolist()]

    reorder_cache = batch_select_indices = select_rows

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Every row `repeats` times."""
        self.select_rows(torch.arange(len(self.clocks)).repeat_interleave(repeats))


def _fullest(protected: list[Tensor]) -> int:
    """The most protected slots that one KV head has, of masks [L, R, H, S] per arena."""
    return max((int(mask.sum(-1).max()) for mask in protected), default=0)
