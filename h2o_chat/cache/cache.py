"""The bounded cache: `H2OCache`, as transformers sees it, over the arenas that hold the slots."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from h2o_chat.base.config import Prefill
from h2o_chat.base.errors import UsageError, WindowFullError
from h2o_chat.cache import distance as distances
from h2o_chat.cache import pins
from h2o_chat.cache.arena import Arena, Shape, joined
from h2o_chat.cache.clock import Clock, decode_pass, prompt_passes
from h2o_chat.cache.layer import H2OLayer
from h2o_chat.cache.plan import plan_of
from h2o_chat.cache.policies import Policy
from h2o_chat.cache.room import require_room
from h2o_chat.cache.rope import Positions, probe
from h2o_chat.cache.snapshot import Snapshot
from h2o_chat.cache.step import Step


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
        policy: a name, or a `Policy` of your own (docs/POLICY.md); `full` keeps everything and ignores the
            budget.
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
        self.trained = probe(model) if positions is None and model is not None else positions
        rebases = positions is not None
        self.plan = plan_of(budget, policy, sinks, recent, chunk, prefill, kv, observe, self.trained, rebases)
        self.clocks: list[Clock] = []
        """Of each row; before the first token of those rows for which something was protected."""
        self._fresh = self._new_clock()
        """What other rows begin with at the first token."""
        self.arenas: list[Arena] = []
        """None before the first token."""
        self._step: Step | None = None
        super().__init__(layer_class_to_replicate=self._new_layer)

    def _new_layer(self) -> H2OLayer:
        if self.trained is not None and len(self.layers) == len(self.trained.ropes):
            raise UsageError(
                f"This H2OCache was made for a model of {len(self.layers)} layers, and is fed more.",
                "Use one cache per model.",
            )
        return H2OLayer(self, len(self.layers))

    def _new_clock(self) -> Clock:
        return Clock(protect_below=self.plan.shares.sinks)

    # -- what it holds ---------------------------------------------------------------------------------

    @property
    def fed(self) -> int:
        """Columns fed, padding included."""
        return int(self.get_seq_length())

    @property
    def reach(self) -> int:
        """Tokens: no key is met farther away than `reach` - 1; 0: distances are the caller's."""
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
        seen = max((clock.seen for clock in self.clocks), default=0)
        clamps = distance is not None and not distance.learned and seen + many - chunk >= distance.reach
        return chunk if clamps else many

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

    # -- what is protected, of one row or (None) of every row ------------------------------------------

    def protect(self, tokens: int, row: int | None = None) -> int:
        """Protects the first tokens (a system prompt), as many as may be; call it before they are fed.

        Returns:
            How many are: at most (budget - recent) // 2, sinks included.
        """
        return pins.protect(self.plan, self._rows(row), tokens)

    def pin(self, positions: Iterable[int], row: int | None = None) -> int:
        """Protects tokens from eviction, wherever they are still held; those not fed yet from the start.

        What was evicted stays gone. A layer with a sliding window gives up what it cannot see any more, pins
        too.

        Args:
            positions: true positions in the row's conversation.

        Returns:
            Of how many some KV head holds something, or will when they are fed.

        Raises:
            BudgetError: with sinks and system prompt that is more than `Shares.most_protected` slots of some
                KV head; nothing has changed.
        """
        return pins.pin(self.plan, self.arenas, self._rows(row), positions)

    def unpin(
        self, positions: Iterable[int] | None = None, keep: Iterable[int] = (), row: int | None = None
    ) -> None:
        """Lets pinned tokens be evicted again, None: all but `keep`; sinks, system prompt stay protected."""
        pins.unpin(self.arenas, self._rows(row), positions, keep)

    @property
    def protected(self) -> int:
        """Slots of the fullest row and KV head that are protected, or will be by what is yet to be fed."""
        return pins.protected(self.arenas, self._rows(None))

    def protected_in(self, row: int) -> int:
        """`protected`, of one row."""
        return pins.protected(self.arenas, self._rows(row))

    def budget_for(self, protected: int) -> int | None:
        """The smallest budget, from this one on, of which so many slots may be protected; None: no budget."""
        return pins.budget_for(self.plan, protected)

    def _rows(self, row: int | None) -> dict[int, Clock]:
        """The clocks that a call is about. The first token fixes how many rows there are: until then a row
        comes into being as it is named, and "every row" are also those to come (-1).

        Raises:
            UsageError: there is no such row.
        """
        if row is None:
            return dict(enumerate(self.clocks)) | ({} if self.arenas else {-1: self._fresh})
        if row < 0 or (self.arenas and row >= len(self.clocks)):
            raise UsageError(
                f"There is no row {row}.", f"This H2OCache has the rows 0 to {len(self.clocks) - 1}."
            )
        self._name_rows(row + 1)
        return {row: self.clocks[row]}

    def _name_rows(self, rows: int) -> None:
        """Gives the first `rows` rows clocks, those that have none yet."""
        self.clocks += [replace(self._fresh) for _ in range(rows - len(self.clocks))]

    # -- a step ----------------------------------------------------------------------------------------

    def prepare(self, step: Step) -> None:
        """Everything that has to happen before a step; call it once, then feed the step to the model.

        In plain transformers nobody calls it: then the first layer does.

        Raises:
            UsageError: more tokens at once than the window holds.
            WindowFullError: the `full` policy reached the end of the window.
        """
        distance = self.plan.distance
        if distance is not None and distance.rebases and step.tokens > distance.window:
            raise UsageError(
                f"{step.tokens} tokens at once are more than the model's window of {distance.window}."
            )
        step.passes, step.begun = [], False
        if self.arenas:
            self._make_ready(step)
        self._step = step

    @torch.no_grad()
    def _make_ready(self, step: Step) -> None:
        """Decides from the clocks what is due, for all layers, and does what is due before they attend."""
        plan, clocks, distance = self.plan, self.clocks, self.plan.distance
        counts = step.counts(len(clocks))
        ends = [clock.seen + count for clock, count in zip(clocks, counts, strict=True)]
        if distance and distance.rebases and not plan.shares.bounded and max(ends) > distance.window:
            raise WindowFullError(
                f"The full cache has reached the {distance.window} tokens the model was trained for.",
                "Use another policy (h2o goes on for ever) or start anew.",
            )
        self._join()
        if distance is not None and not distance.learned:
            clamps, rebases = distances.due(distance, clocks, counts)
            for arena in self.arenas:
                if clamps:
                    distances.clamp(arena, [clock.near_from for clock in clocks])
                if rebases:
                    distances.rebase(arena, [clock.base for clock in clocks])
                arena.clamps = arena.rope is not None and any(clock.near_from for clock in clocks)
        for arena in self.arenas:
            arena.grow(max(ends))
        if step.tokens == 1:
            step.passes = [decode_pass(clocks, counts, plan.budget, plan.stride)]
            for arena in self.arenas:
                arena.place(step.passes[0], bool(step.prompt))
        else:
            chunk = plan.chunk if plan.prefill == "chunked" else step.tokens
            step.passes = prompt_passes(clocks, step.tokens, counts, plan.budget, chunk)

    def _join(self) -> None:
        """Each layer made an arena of its own in the first step: puts them into as few as they fit."""
        if 1 < len(self.arenas) == len(self.layers):
            self.arenas = joined(self.arenas)
            self._place_layers()

    def _place_layers(self) -> None:
        """Says to each layer where its slots are."""
        for arena in self.arenas:
            for at, number in enumerate(arena.layers):
                layer = self.layers[number]
                layer.arena, layer.at, layer.is_initialized = arena, at, True

    def position_ids(self) -> Tensor:
        """The rotation indices to feed with the prepared step, for ever below the window. [R, N]

        Before the first token [R or 1, N].

        Raises:
            UsageError: nothing was prepared, or the cache was made without positions.
        """
        if self.plan.distance is None:
            raise UsageError("This H2OCache was made without positions.", "Pass positions=probe(model).")
        step = self._step
        if step is None:
            raise UsageError("No step was prepared.", "Call cache.prepare(Step(tokens=...)) first.")
        first = [0]
        if step.passes:
            first = [at - clock.base for at, clock in zip(step.passes[0].first, self.clocks, strict=True)]
        device = None if step.real is None else step.real.device
        starts = torch.tensor(first, device=device)[:, None]
        return distances.fed_indices(self.plan.distance, starts, step.tokens, step.real)

    def begin(self, layer: H2OLayer, keys: Tensor, values: Tensor, groups: int, mask: Tensor | None) -> Step:
        """Called by each layer's attention: the step under way, and slots for a layer that has none.

        Args:
            keys, values: [R, H, N, D] of the step.
            groups: G.
            mask: [R, N] bool, False for padding, as transformers says it; None: all are real.
        """
        rows, heads, tokens, size = keys.shape
        if layer.number == 0:
            if self._step is None or self._step.begun:
                real = None if mask is None or bool(mask.all()) else mask
                self.prepare(Step(tokens, real=real))
            assert self._step is not None
            self._step.begun = True
            if not self.arenas:
                if len(self.clocks) > rows:
                    raise UsageError(
                        f"Something was protected in row {len(self.clocks) - 1}, and the batch has {rows}"
                        " rows.",
                        "Feed as many rows as were named, or cache.reset().",
                    )
                self._name_rows(rows)
                self._make_ready(self._step)
        assert self._step is not None
        if layer.arena is None:
            shape = Shape(rows, heads, groups, size, values.shape[-1], keys.dtype, keys.device)
            require_room(shape, self.plan.slots)
            self.arenas.append(self._arena((layer.number,), shape, self.plan.slots))
            layer.arena, layer.at, layer.is_initialized = self.arenas[-1], 0, True
            layer.arena.grow(max(clock.held for clock in self.clocks))
            if tokens == 1:
                layer.arena.place(self._step.passes[0], bool(self._step.prompt))
        return self._step

    def _arena(self, layers: tuple[int, ...], shape: Shape, slots: int) -> Arena:
        """One for layers that turn their keys alike."""
        return Arena(self.plan, layers, self.trained.ropes[layers[0]] if self.trained else None, shape, slots)

    # -- copies ----------------------------------------------------------------------------------------

    def snapshot(self, *, copy: bool = True) -> Snapshot:
        """The whole state; an evicted token cannot come back otherwise.

        Args:
            copy: False lends the tensors themselves, good until the next token is fed.
        """
        self._join()
        taken = Snapshot(
            policy=self.plan.policy.name,
            shares=self.plan.shares,
            bits=self.plan.bits,
            parts=[arena.part() for arena in self.arenas],
            clocks=[replace(clock) for clock in self.clocks],
            fresh=replace(self._fresh),
            fed=self.fed,
        )
        return taken.copy() if copy else taken

    def take_row(self, row: int, *, copy: bool = True) -> Snapshot:
        """The whole state of one row; `put_row` puts it back, here or in another row or cache alike.

        Raises:
            UsageError: there is no such row.
        """
        self._rows(row)
        taken = self.snapshot(copy=False).row(row)
        return taken.copy() if copy else taken

    @torch.inference_mode(False)
    def put_row(self, row: int, snapshot: Snapshot | None) -> None:
        """Puts one row's state back, or empties the row (None); the others go on untouched.

        Raises:
            UsageError: there is no such row; or it is the snapshot of a cache with another policy, budget or
                precision, of several rows, or of tokens while this cache has none.
        """
        self._rows(row)
        if snapshot is not None:
            self._refuse_other(snapshot)
            if len(snapshot.clocks) != 1 or (snapshot.parts and not self.arenas):
                raise UsageError(
                    f"A snapshot of {len(snapshot.clocks)} rows cannot be put into row {row}.",
                    "Give one row, of Snapshot.row; before the first token use cache.restore().",
                )
        clock = self.clocks[row] = replace(snapshot.clocks[0]) if snapshot else self._new_clock()
        for arena in self.arenas:
            arena.grow(clock.held)
            arena.put_row(row, snapshot.parts if snapshot else [], clock.base)

    @torch.inference_mode(False)
    def restore(self, snapshot: Snapshot, *, hand_over: bool = False) -> None:
        """Puts the state back as it was.

        Args:
            hand_over: take the snapshot's own tensors, which needs no memory; it cannot be used again.

        Raises:
            UsageError: it is the snapshot of a cache with another policy, budget or precision.
        """
        self._refuse_other(snapshot)
        parts = (snapshot if hand_over else snapshot.copy()).parts
        self.reset()
        self.clocks, self._fresh = [replace(clock) for clock in snapshot.clocks], replace(snapshot.fresh)
        while len(self.layers) < sum(len(part.layers) for part in parts):
            self.layers.append(self._new_layer())
        for part in parts:
            arena = self._arena(part.layers, part.shape, 0)
            arena.take_over(part, [clock.base for clock in self.clocks])
            self.arenas.append(arena)
        self._place_layers()
        for layer in self.layers:
            layer.fed = snapshot.fed

    def _refuse_other(self, snapshot: Snapshot) -> None:
        """
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

    def reset(self) -> None:
        """Forgets everything."""
        for layer in self.layers:
            layer.reset()
        self.clocks, self.arenas, self._step = [], [], None
        self._fresh = self._new_clock()

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
