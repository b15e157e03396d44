"""The bounded cache: `H2OCache`, as transformers sees it, over the arenas that hold the slots."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from h2o_chat.base.config import Prefill
from h2o_chat.base.errors import UsageError
from h2o_chat.cache import pins
from h2o_chat.cache import snapshot as snapshots
from h2o_chat.cache.absorb import absorb_rest
from h2o_chat.cache.arena import Arena
from h2o_chat.cache.clock import Clock
from h2o_chat.cache.layer import H2OLayer
from h2o_chat.cache.plan import plan_of
from h2o_chat.cache.policies import Policy
from h2o_chat.cache.ready import chunks_of, fed_indices, make_ready, refuse
from h2o_chat.cache.rope import Positions, Rope, probe
from h2o_chat.cache.snapshot import Snapshot
from h2o_chat.cache.step import Step


class H2OCache(Cache):
    """A heavy-hitter cache of a fixed number of slots for any transformers model (arXiv 2306.14048).

        from h2o_chat import H2OCache
        model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="h2o")
        model.generate(**inputs, past_key_values=H2OCache(budget=512, model=model))

    In plain `generate()` transformers supplies positions, which grow without bound: only keys and values are
    bounded. The program's engine passes `positions` and calls `prepare` and `position_ids` before each step;
    then rotation indices stay below the window for ever.

    Args:
        budget: slots per layer, row and KV head, everything kept included.
        policy: a name, or a `Policy` of your own (docs/POLICY.md); `full` keeps everything and ignores the
            budget.
        sinks: first tokens protected; None for the policy's own number.
        recent: newest tokens protected; None for the policy's own share.
        chunk: prompt tokens that attend before the next eviction; None for budget // 4, at least 8.
        prefill: "full" is the prompt pass of the paper: all tokens of one call attend to each other, then it
            is chosen once who stays; memory grows with the prompt (never by its square).
        model: says how its keys are turned; without it keys are compared as they are after RoPE, which makes
            the default policy worse, and nothing is clamped.
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
        """Of each row; before the first token only of rows for which something was protected."""
        self.fresh = self.plan.clock()
        """Of the other rows."""
        self.arenas_in_step: list[Arena] = []
        """Where what the last prompt has brought may wait."""
        self.step: Step | None = None
        """What was prepared."""
        super().__init__(layer_class_to_replicate=self.new_layer)

    def new_layer(self) -> H2OLayer:
        """The next one, as transformers asks for it."""
        if self.trained is not None and len(self.layers) == len(self.trained.ropes):
            raise UsageError(
                f"This H2OCache was made for a model of {len(self.layers)} layers, and is fed more.",
                "Use one cache per model.",
            )
        return H2OLayer(self, len(self.layers))

    def rope(self, layer: int) -> Rope | None:
        """How a layer turns its keys; None: not at all, or nobody said."""
        return self.trained.ropes[layer] if self.trained else None

    # -- what it holds ---------------------------------------------------------------------------------

    @property
    def arenas(self) -> list[Arena]:
        """None before the first token; what waits is absorbed first, which may raise (`absorb_rest`)."""
        return absorb_rest(self.arenas_in_step, self.step)

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
        """As many whole chunks as `most` tokens hold, at least one: prompt tokens to feed in the next call.
        Each chunk still gives up slots before the next one attends, so this changes no token."""
        return self.pass_tokens if self.plan.prefill == "full" else chunks_of(self, most)

    def kept(self, layer: int) -> Tensor:
        """True positions of the tokens a layer holds. [R, H, S] int32, -1 = empty

        Raises:
            UsageError: nothing was fed yet, so there are no slots.
        """
        if not self.arenas:
            raise UsageError("This H2OCache holds nothing yet.", "Feed it to a model first.")
        return torch.as_tensor(self.layers[layer].slots.positions).clone()

    @property
    def most_kept(self) -> int:
        """Slots in use in the fullest row and head of any layer."""
        return max((clock.in_use for clock in self.clocks), default=0)

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
        """Protects the first tokens (a system prompt) before they are fed, as many as may be; how many are:
        at most (budget - recent) // 2, sinks included."""
        return pins.protect(self, tokens, row)

    def pin(self, positions: Iterable[int], row: int | None = None) -> int:
        """Protects the tokens at these true positions where they are still held; those not fed yet from the
        start. A layer with a sliding window still gives up what it cannot see any more.

        Returns:
            Of how many some KV head holds something, or will when they are fed.

        Raises:
            BudgetError: with sinks and system prompt that is more than `Shares.most_protected` slots of some
                KV head; nothing has changed.
        """
        return pins.pin(self, positions, row)

    def unpin(
        self, positions: Iterable[int] | None = None, keep: Iterable[int] = (), row: int | None = None
    ) -> None:
        """Lets pinned tokens be evicted again, None: all but `keep`; sinks, system prompt stay protected."""
        pins.unpin(self, positions, keep, row)

    @property
    def protected(self) -> int:
        """Slots of the fullest row and KV head that are protected, or will be by what is yet to be fed."""
        return pins.protected(self)

    def protected_in(self, row: int) -> int:
        """`protected`, of one row."""
        return pins.protected(self, row)

    def budget_for(self, protected: int) -> int | None:
        """The smallest budget, from this one on, of which so many slots may be protected; None: no budget."""
        return pins.budget_for(self.plan, protected)

    # -- a step ----------------------------------------------------------------------------------------

    def prepare(self, step: Step) -> None:
        """Everything that has to happen before a step; call it once, then feed the step to the model.

        In plain transformers nobody calls it: then the first layer does.

        Raises:
            UsageError: more tokens at once than the window holds; the step before was not fed, or failed.
            WindowFullError: the `full` policy reached the end of the window.
        """
        refuse(self, step)
        step.passes, step.begun = [], False
        if self.arenas:
            make_ready(self, step)
        self.step = step

    def position_ids(self) -> Tensor:
        """The rotation indices to feed with the prepared step, for ever below the window. [R, N]; before the
        first token [R or 1, N]

        Raises:
            UsageError: nothing was prepared, or the cache was made without positions.
        """
        if self.plan.distance is None or not self.plan.distance.rebases:
            raise UsageError("This H2OCache was made without positions.", "Pass positions=probe(model).")
        if self.step is None:
            raise UsageError("No step was prepared.", "Call cache.prepare(Step(tokens=...)) first.")
        return fed_indices(self, self.step)

    # -- copies ----------------------------------------------------------------------------------------

    def snapshot(self, *, copy: bool = True) -> Snapshot:
        """The whole state; without `copy` the tensors themselves, good until the next token is fed."""
        taken = snapshots.take(self)
        return taken.copy() if copy else taken

    def restore(self, snapshot: Snapshot, *, hand_over: bool = False) -> None:
        """Puts the state back; with `hand_over` its own tensors, which needs no memory, and only once.

        Raises:
            UsageError: it is the snapshot of a cache with another policy, budget or precision.
        """
        snapshots.put(self, snapshot if hand_over else snapshot.copy())

    def take_row(self, row: int, *, copy: bool = True) -> Snapshot:
        """The whole state of one row, see `snapshot`.

        Raises:
            UsageError: there is no such row.
        """
        pins.rows(self, row)
        taken = snapshots.take(self).row(row)
        return taken.copy() if copy else taken

    def put_row(self, row: int, snapshot: Snapshot | None) -> None:
        """Puts the state of one row of a cache alike into this row, or (None) empties it; the other rows go
        on untouched.

        Raises:
            UsageError: there is no such row; or it is the snapshot of a cache with another policy, budget or
                precision, of several rows, or of tokens while this cache has none.
        """
        pins.rows(self, row)
        snapshots.put_row(self, row, snapshot)

    def reset(self) -> None:
        """Forgets everything."""
        for layer in self.layers:
            layer.reset()
        self.clocks, self.arenas_in_step, self.step = [], [], None
        self.fresh = self.plan.clock()

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
