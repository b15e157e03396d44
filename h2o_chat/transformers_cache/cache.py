"""The bounded cache: `H2OCache`, as transformers sees it, over the arenas that hold the slots."""

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from h2o_chat.base.config import PREFILLS, Prefill
from h2o_chat.base.errors import UsageError
from h2o_chat.cache.absorb import absorb_rest
from h2o_chat.cache.arena import Arena
from h2o_chat.cache.clock import Clock
from h2o_chat.cache.distance import distance_of
from h2o_chat.cache.plan import GROW, Plan
from h2o_chat.cache.quantized import BITS
from h2o_chat.cache.rope import Positions, Rope
from h2o_chat.cache.step import Step
from h2o_chat.policies.named import named
from h2o_chat.policies.policies import Policy
from h2o_chat.policies.shares import divide
from h2o_chat.transformers_cache import generated, pins, ready
from h2o_chat.transformers_cache import snapshot as snapshots
from h2o_chat.transformers_cache.layer import H2OLayer
from h2o_chat.transformers_cache.probe import probe


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
        positions: what `probe.probe(model)` found, for a caller who feeds `position_ids()`.
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
        for what, value in (("budget", budget), ("sinks", sinks), ("recent", recent), ("chunk", chunk)):
            if type(value) is not int and not (value is None and what != "budget"):
                raise UsageError(f"{what}={value!r} is no number of tokens.", "Give an int.")
        if kv != "auto" and kv not in BITS:
            raise UsageError(f"K/V precision {kv!r} is not known.", f"One of: auto, {', '.join(BITS)}.")
        if prefill not in PREFILLS:
            raise UsageError(f"Prefill {prefill!r} is not known.", f"One of: {', '.join(PREFILLS)}.")
        policy = named(policy) if isinstance(policy, str) else policy
        shares = divide(policy, budget, sinks, recent)
        if chunk is None:
            chunk = max(8, budget // 4) if shares.bounded else GROW
        if chunk < 1:
            raise UsageError(f"A chunk of {chunk} tokens cannot be read.", "It must be at least 1.")
        self.trained = probe(model) if positions is None and model is not None else positions
        distance = None
        if self.trained is not None:
            chunk = min(chunk, self.trained.window)
            distance = distance_of(self.trained, policy, shares, rebases=positions is not None)
        asked = sinks, recent
        self.plan = Plan(policy, shares, asked, chunk, prefill, observe, BITS.get(kv), distance)
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
        """Empty before the first token; what waits is absorbed first, which may raise (`absorb_rest`)."""
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
        """Tokens of a whole chunk of a prompt; with prefill="full" what the window can hold."""
        return self.trained.window if self.plan.prefill == "full" and self.trained else self.plan.chunk

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

    @property
    def protected(self) -> int:
        """Slots of the fullest row and KV head that are protected, or will be by what is yet to be fed."""
        return self.protected_in(None)

    # -- methods that stand in files of their own ------------------------------------------------------

    protect, pin, unpin = pins.protect, pins.pin, pins.unpin
    protected_in, budget_for = pins.protected_in, pins.budget_for
    give_up_generated = generated.give_up_generated
    prepare, position_ids = ready.prepare, ready.position_ids
    snapshot, restore = snapshots.snapshot, snapshots.restore
    take_row, put_row = snapshots.take_row, snapshots.put_row
    select_rows = reorder_cache = batch_select_indices = snapshots.select_rows

    def reset(self) -> None:
        """Forgets everything."""
        for layer in self.layers:
            layer.reset()
        self.clocks, self.arenas_in_step, self.step = [], [], None
        self.fresh = self.plan.clock()

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Every row `repeats` times."""
        self.select_rows(torch.arange(len(self.clocks)).repeat_interleave(repeats))
