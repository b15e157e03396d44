"""`H2OCache`: the bounded cache in transformers' interface, over the arenas that hold the slots."""

from collections.abc import Iterable
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
from h2o_chat.cache.forward_call import Step
from h2o_chat.cache.plan import GROW, MOST_CHUNK, Plan
from h2o_chat.cache.quantized import BITS
from h2o_chat.cache.rope import Positions, Rope
from h2o_chat.policies.policies import Policy
from h2o_chat.policies.references import named
from h2o_chat.policies.shares import divide
from h2o_chat.transformers_cache import giving_up, protection, ready
from h2o_chat.transformers_cache import snapshot as snapshots
from h2o_chat.transformers_cache.layer import H2OLayer, StateLayer, layers_of
from h2o_chat.transformers_cache.probe import probe


class H2OCache(Cache):
    """A heavy-hitter cache of a fixed number of slots for any transformers model (arXiv 2306.14048).

        from h2o_chat import H2OCache
        model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="h2o")
        model.generate(**inputs, past_key_values=H2OCache(budget=512, model=model))

    In plain `generate()` only keys and values are bounded: transformers supplies positions, which grow
    without bound. The program's engine passes `positions` and calls `prepare` and `position_ids` before each
    step; rotation indices then always stay below the window.

    Args:
        budget: slots per layer, row and KV head, protected ones included.
        policy: a name, or your own `Policy` (docs/POLICY.md); `full` keeps everything and ignores the budget.
        sinks: first tokens protected; None for the policy's own number.
        recent: newest tokens protected; None for the policy's own share.
        chunk: prompt tokens that attend before the next eviction; None for budget // 4, from 8 to 512.
        prefill: "full" is the paper's prompt pass: all tokens of one call attend to each other before any is
            evicted; memory grows with the prompt (not with its square).
        model: used to find the rotation of its keys; without it, keys are kept after RoPE, and none
            is clamped.
        positions: the result of `probe.probe(model)`, for a caller who feeds `position_ids()`.
        observe: keep the account that `lost` needs.
        kv: precision of keys and values in the slots: "auto" is the model's, or "int8" or "int4"
            (`quantized.py`). Pass `model` with it: without it, keys are rounded after RoPE.

    Raises:
        BudgetError: sinks, recent and heavy slots do not fit into the budget.
        UsageError: an unknown policy, prefill or precision, or a chunk of no tokens.
        ModelError: the model's positions are of an unknown kind.
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
            chunk = min(max(8, budget // 4), MOST_CHUNK) if shares.bounded else GROW
        if chunk < 1:
            raise UsageError(f"A chunk of {chunk} tokens cannot be read.", "It must be at least 1.")
        self.trained = probe(model) if positions is None and model is not None else positions
        distance = None
        if self.trained is not None:
            chunk = min(chunk, self.trained.window)
            distance = distance_of(self.trained, policy, shares, rebases=positions is not None)
        asked = sinks, recent
        self.plan = Plan(policy, shares, asked, chunk, prefill, observe, BITS.get(kv), distance)
        self.clocks: list[Clock] = []  # per row; before the first token only of rows with protected tokens
        self.fresh = self.plan.clock()  # the clock that a row begins with
        self.arenas_as_they_are: list[Arena] = []  # the last pass of a prompt may wait in them
        self.step: Step | None = None  # the prepared step
        self.states_before: list[dict[str, Tensor]] = []  # of `state_layers`, before the prepared step
        super().__init__(layer_class_to_replicate=self.new_layer)
        self.layers += layers_of(self, self.trained.layers if self.trained else ())
        self.state_layers = [layer for layer in self.layers if isinstance(layer, StateLayer)]
        """The layers that keep a state of fixed size; those that transformers asks for later have slots."""

    def new_layer(self) -> H2OLayer:
        """Creates the next layer, when transformers asks for it."""
        if self.trained is not None and len(self.attention_layers) == len(self.trained.ropes):
            raise UsageError(
                f"This H2OCache was made for a model of {len(self.layers)} layers, and is fed more.",
                "Use one cache per model.",
            )
        return H2OLayer(self, len(self.attention_layers))

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        """For transformers: the state of a convolution. UsageError: the cache was made without the model."""
        if layer_idx >= len(self.layers):
            raise UsageError(
                f"Layer {layer_idx} keeps a state, and this H2OCache was made without the model.",
                "Make it with H2OCache(budget, model=model).",
            )
        state: Tensor | None = super().get_conv_state(layer_idx, state_idx)
        return state

    @property
    def attention_layers(self) -> list[H2OLayer]:
        """The layers with slots. All numbers of layers here count only these."""
        return [layer for layer in self.layers if isinstance(layer, H2OLayer)]

    @property
    def shares_slots(self) -> bool:
        """Whether layers attend to the slots of others."""
        return any(layer.kind.sharers for layer in self.attention_layers)

    def rope(self, layer: int) -> Rope | None:
        """The rotation of a layer's keys; None: none, or not known."""
        return self.trained.ropes[layer] if self.trained else None

    def current_arenas(self) -> list[Arena]:
        """The arenas after the waiting pass is absorbed, which may raise (`absorb_rest`); none at first."""
        return absorb_rest(self.arenas_as_they_are, self.step)

    @property
    def fed(self) -> int:
        """Columns fed, padding included."""
        return int(self.get_seq_length())

    @property
    def reach(self) -> int:
        """The largest distance of a key is `reach` - 1 tokens; 0: the caller supplies positions."""
        return self.plan.distance.reach if self.plan.distance else 0

    @property
    def pass_tokens(self) -> int:
        """Tokens of a whole chunk of a prompt; with prefill="full" the model's window."""
        return self.trained.window if self.plan.prefill == "full" and self.trained else self.plan.chunk

    def kept(self, layer: int) -> Tensor:
        """True positions of the tokens a layer holds. [R, H, S] int32, -1 = empty

        Raises:
            UsageError: nothing was fed yet, so there are no slots.
        """
        if not self.current_arenas():
            raise UsageError("This H2OCache holds nothing yet.", "Feed it to a model first.")
        return torch.as_tensor(self.attention_layers[layer].slots.positions).clone()

    @property
    def most_kept(self) -> int:
        """Slots in use in the fullest row and head of any layer."""
        return max((clock.in_use for clock in self.clocks), default=0)

    @property
    def bytes_held(self) -> int:
        """Bytes of all keys, values and their scales; empty slots included."""
        return sum(arena.bytes_held for arena in self.current_arenas())

    @property
    def bytes_full(self) -> int:
        """Bytes of a cache that keeps everything fed so far, in the model's precision."""
        return sum(arena.plain_slot_bytes for arena in self.current_arenas()) * self.fed

    @property
    def protected(self) -> int:
        """Protected slots of the fullest row and KV head, tokens yet to be fed included."""
        return self.protected_in(None)

    # Methods defined in other files.
    evict_generated, give_up = giving_up.evict_generated, giving_up.give_up
    protect, pin, unpin = protection.protect, protection.pin, protection.unpin
    protected_in, budget_for = protection.protected_in, protection.budget_for
    prepare, position_ids = ready.prepare, ready.position_ids
    snapshot, restore = snapshots.snapshot, snapshots.restore
    take_row, put_row = snapshots.take_row, snapshots.put_row
    select_rows = reorder_cache = batch_select_indices = snapshots.select_rows

    def keep_states(self, rows: Iterable[int]) -> None:
        """Puts back the states of rows that were fed nothing in the step, as padding has changed them."""
        waited = list(rows)
        for number, layer in enumerate(self.state_layers if waited else ()):
            before = self.states_before[number]
            for name, state in layer.held.items():
                state[waited] = before[name][waited] if name in before else 0

    def reset(self) -> None:
        for layer in self.layers:
            layer.reset()
        self.clocks, self.arenas_as_they_are, self.step = [], [], None
        self.fresh = self.plan.clock()

    def batch_repeat_interleave(self, repeats: int) -> None:
        self.select_rows(torch.arange(len(self.clocks)).repeat_interleave(repeats))
