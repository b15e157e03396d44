"""The bounded cache: one `H2OLayer` of fixed slots per attention layer, as a `transformers.Cache`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from h2o_chat.baselines import SEES_THE_FUTURE
from h2o_chat.config import PREFILLS, Prefill
from h2o_chat.errors import BudgetError, UsageError, WindowFullError
from h2o_chat.plan import Plan
from h2o_chat.policies import POLICIES, Shares, divide
from h2o_chat.quantized import BITS
from h2o_chat.rope import Positions
from h2o_chat.slots import H2OLayer, among


@dataclass
class Snapshot:
    """A copy of everything a cache holds; `H2OCache.restore` puts it back."""

    policy: str
    shares: Shares | None
    """None for the `full` policy."""
    layers: list[dict[str, Tensor]]
    """`H2OLayer.STATE` of each layer, by name; none before the first token."""
    fed: int
    """Columns, padding included."""
    near_from: int
    """Keys before this position are out of reach."""
    rebase_due: int
    """Columns at which the rotation index would reach the window."""
    ragged: bool
    """Padding was fed."""
    protect_below: int
    """Tokens at positions below this are protected: sinks, system prompt."""
    bits: int | None
    """Of a number in the slots; None: as the model computes it, in `dtype`."""
    dtype: torch.dtype
    pins: frozenset[int] = frozenset()
    """Positions that will be protected when they are fed."""
    any_far: list[bool] = field(default_factory=list)
    """Of each layer: whether some key is out of reach."""


class H2OCache(Cache):
    """A heavy-hitter cache of a fixed number of slots for any transformers model (arXiv 2306.14048).

        from h2o_chat import H2OCache
        model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="h2o")
        model.generate(**inputs, past_key_values=H2OCache(budget=512))

    In plain `generate()` transformers supplies the positions, which grow without bound, and keeps all
    `input_ids`: this bounds keys and values, not those. The program's engine passes `positions` (from
    `rope.probe`) and feeds `position_ids()`; then distances are clamped to `reach` for ever.

    Args:
        budget: slots per layer, row and KV head, everything kept included.
        policy: a name of `policies.POLICIES`; `full` keeps everything and ignores the budget.
        sinks: first tokens protected; None for the policy's own number.
        recent: newest tokens protected; None for the policy's own share.
        chunk: prompt tokens that attend before the next eviction; None for budget // 4, at least 8.
        prefill: "full" is the prompt pass of the paper: all tokens of one call attend to each other, then it
            is chosen once who stays. A layer at work holds keys and values of the whole call, so memory grows
            with the prompt (never by its square).
        positions: what `rope.probe(model)` found; None leaves positions to the caller.
        observe: keep the account that `lost` needs.
        kv: precision of keys and values in the slots: "auto" as the model computes them, "int8" or "int4"
            (`quantized.py`). Pass `positions` with it: without, keys are rounded as they come, after RoPE.

    Raises:
        BudgetError: the parts do not fit into the budget.
        UsageError: an unknown policy, prefill or precision, a chunk of no tokens, or a policy that has to see
            the future.
    """

    foresees = False
    """Whether it was given the future (`lab.belady.Foresight`)."""

    def __init__(
        self,
        budget: int = 512,
        *,
        policy: str = "h2o",
        sinks: int | None = None,
        recent: int | None = None,
        chunk: int | None = None,
        prefill: Prefill = "chunked",
        positions: Positions | None = None,
        observe: bool = False,
        kv: str = "auto",
    ) -> None:
        for what, value in (("budget", budget), ("sinks", sinks), ("recent", recent), ("chunk", chunk)):
            if type(value) is not int and not (value is None and what != "budget"):
                raise UsageError(f"{what}={value!r} is no number of tokens.", "Give an int.")
        if policy not in POLICIES:
            raise UsageError(f"Policy {policy!r} is not known.", f"One of: {', '.join(POLICIES)}.")
        if POLICIES[policy].offline and not self.foresees:
            raise UsageError(SEES_THE_FUTURE, f"{policy} is a reference for h2o-chat eval perplexity alone.")
        if kv != "auto" and kv not in BITS:
            raise UsageError(f"K/V precision {kv!r} is not known.", f"One of: auto, {', '.join(BITS)}.")
        shares = None if policy == "full" else divide(policy, budget, sinks, recent)
        if chunk is None:
            chunk = 256 if shares is None else max(8, budget // 4)
        if chunk < 1:
            raise UsageError(f"A chunk of {chunk} tokens cannot be read.", "It must be at least 1.")
        if positions is not None:
            chunk = min(chunk, positions.window)
        if prefill not in PREFILLS:
            raise UsageError(f"Prefill {prefill!r} is not known.", f"One of: {', '.join(PREFILLS)}.")
        protected = 0 if shares is None else shares.sinks
        self.plan = Plan(policy, shares, chunk, prefill, observe, protect_below=protected, bits=BITS.get(kv))
        self.trained = positions
        self._asked = (sinks, recent)
        self._start()
        super().__init__(layer_class_to_replicate=self._new_layer)

    def _start(self) -> None:
        self._near_from = 0
        """Keys before this position are out of reach (in rows without padding)."""
        self._rebase_due = self.trained.window if self.trained else 0
        """Columns at which the rotation index would reach the window (in rows without padding)."""
        self._ragged = False
        """Padding was fed: rows are of different age, and each has its own time for both."""

    def _new_layer(self) -> H2OLayer:
        layer = H2OLayer(self.plan)
        if self.trained is not None:
            if len(self.layers) == len(self.trained.ropes):
                raise UsageError(
                    f"This H2OCache was made for a model of {len(self.layers)} layers, and is fed more.",
                    "Use one cache per model.",
                )
            layer.rope = self.trained.ropes[len(self.layers)]
            layer.reach = self.reach
            layer.nearer = self.nearer
        return layer

    @property
    def fed(self) -> int:
        """Columns fed, padding included."""
        return int(self.get_seq_length())

    @property
    def reach(self) -> int:
        """Tokens: no key is met farther away than `reach - 1`, however far it is.

        The policy's share of the trained window; at least the budget, so that distances are true as long as
        nothing was evicted. 0: positions are left to the caller.
        """
        if self.trained is None:
            return 0
        window = self.trained.window
        if self.plan.shares is None:
            return window
        return max(int(window * POLICIES[self.plan.policy].reach), min(self.plan.shares.budget, window))

    @property
    def nearer(self) -> int:
        """By so many tokens what is pinned, and a system prompt, is met nearer than the edge of the reach.

        Only models that chat find again what stands there (docs/POLICY.md); others take it for the text
        that they are to continue, as if it had just been read.
        """
        if self.trained is None or not self.trained.chats:
            return 0
        at = int(self.trained.window * POLICIES[self.plan.policy].protected_at)
        return self.reach - min(self.reach, max(1, at))

    @property
    def pass_tokens(self) -> int:
        """Prompt tokens to feed in one call: a chunk; with prefill="full" what the window can hold."""
        return self.trained.window if self.plan.prefill == "full" and self.trained else self.plan.chunk

    def kept(self, layer: int) -> Tensor:
        """True positions of the tokens a layer holds, in slot order. [R, H, S] int32, -1 = empty

        Only once something was fed: before, there are no slots.
        """
        return torch.as_tensor(self.layers[layer].positions).clone()

    @property
    def most_kept(self) -> int:
        """Slots in use in the fullest row and head of any layer."""
        layers = [layer for layer in self.layers if layer.is_initialized]
        return max((int((layer.positions >= 0).sum(-1).max()) for layer in layers), default=0)

    def speaks(self, model: bool | None) -> None:
        """Says whose words are fed from now on: the model's own (True) or what is said to it (False).

        Until it is said (None), several tokens at once count as said to the model, single ones as its own.
        """
        self.plan.given = None if model is None else not model

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
        seen, layers = self._seen, self._filled()
        chosen = [(layer.positions >= 0) & among(layer.positions, wanted) for layer in layers]
        pins = self._pins_ahead() | {position for position in wanted if position >= seen}
        held = [layer.protected | mask for layer, mask in zip(layers, chosen, strict=True)]
        self._refuse(self._fullest(held) + self._ahead(pins))
        for layer, protected in zip(layers, held, strict=True):
            layer.protect(protected)
        self.plan.pins = pins
        found = {p for layer, m in zip(layers, chosen, strict=True) for p in layer.positions[m].tolist()}
        return len(found | (pins & wanted))

    def unpin(self, positions: Iterable[int] | None = None, keep: Iterable[int] = ()) -> None:
        """Lets pinned tokens be evicted again, None: all but `keep`; sinks, system prompt stay protected."""
        wanted, kept = None if positions is None else set(positions), set(keep)
        for layer in self._filled():
            first = layer.positions < self.plan.protect_below
            other = among(layer.positions, kept) if wanted is None else ~among(layer.positions, wanted)
            layer.protect(layer.protected & (first | other))
        self.plan.pins = self._pins_ahead() & kept if wanted is None else self._pins_ahead() - wanted

    @property
    def protected(self) -> int:
        """Slots of the fullest cache that are protected, or will be by what is yet to be fed."""
        return self._fullest([layer.protected for layer in self._filled()]) + self._ahead(self._pins_ahead())

    @property
    def _seen(self) -> int:
        """Real tokens fed to every row."""
        return min((int(layer.seen.min()) for layer in self._filled()), default=0)

    def _filled(self) -> list[H2OLayer]:
        """The layers that have slots: all of them, or none before the first token."""
        return [layer for layer in self.layers if layer.is_initialized]

    def _fullest(self, protected: list[Tensor]) -> int:
        """The most protected slots that one cache has, of masks [R, H, S] per layer."""
        return max((int(mask.sum(-1).max()) for mask in protected), default=0)

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
        if not POLICIES[policy].heavy:
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
            f"{self.plan.policy} keeps only the newest; with h2o something can be pinned."
            if fits is None
            else f"It would fit into a budget of {fits:,}; or unpin something."
        )
        raise BudgetError(
            f"That would protect {protected:,} slots; of a budget of {shares.budget:,} at most"
            f" {shares.most_protected:,} may be ({self.protected:,} are).",
            hint,
        )

    def position_ids(self, tokens: int, real: Tensor | None = None) -> Tensor:
        """The rotation indices to feed with the next tokens, [R, N] (or [1, N]), for ever below the window.

        True positions grow without bound, rotations may not (fp32 angles, `dynamic` and `longrope` scaling,
        and the model has never seen them). RoPE sees only distances, so: `index = position - base`; when it
        would reach the window, base moves up to the next token and the kept keys are turned back with it;
        and a key whose distance would pass `reach` - 1 stays there, or `nearer`. That is looked after in
        blocks of window // 32 tokens, so a distance is exact up to reach - window // 32 at least.

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
        self.plan.edges.clear()
        self.plan.pins = self._pins_ahead()
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
        # To the edge goes what is far from the first new token, or out of the last one's window.
        nearest = 1 - self.reach
        leaving = self.fed + max(nearest, tokens - window)
        if leaving > 0 and (self._ragged or _round_up(leaving, block) > self._near_from):
            self._near_from = _round_up(leaving, block)
            by = torch.as_tensor(more - window).clamp_min(nearest)
            self._each(lambda layer: layer.clamp(_round_up(layer.seen + by, block)))
        if end > self._rebase_due or (end > window and self._ragged):
            self._rebase_due = self.fed + window
            self._each(lambda layer: layer.rebase(layer.seen + more - layer.base > window))
        first = self.layers[0]
        return _count((first.seen - first.base)[:, None], tokens, real)

    def _each(self, act: Callable[[H2OLayer], None]) -> None:
        for layer in self.layers:
            act(layer)

    def snapshot(self, *, copy: bool = True) -> Snapshot:
        """The whole state; an evicted token cannot come back otherwise.

        Args:
            copy: False lends the tensors themselves, good until the next token is fed.
        """
        return Snapshot(
            policy=self.plan.policy,
            shares=self.plan.shares,
            layers=[
                {n: getattr(layer, n).clone() if copy else getattr(layer, n) for n in layer.STATE}
                for layer in self.layers
                if layer.is_initialized
            ],
            fed=self.fed,
            near_from=self._near_from,
            rebase_due=self._rebase_due,
            ragged=self._ragged,
            protect_below=self.plan.protect_below,
            bits=self.plan.bits,
            dtype=self.plan.dtype,
            pins=self._pins_ahead(),
            any_far=[layer.any_far for layer in self.layers],
        )

    def restore(self, snapshot: Snapshot, *, hand_over: bool = False) -> None:
        """Puts the state back as it was.

        Args:
            hand_over: take the snapshot's own tensors, which needs no memory; it cannot be used again.

        Raises:
            UsageError: it is the snapshot of a cache with another policy, budget or precision.
        """
        was = snapshot.policy, snapshot.shares, snapshot.bits
        now = self.plan.policy, self.plan.shares, self.plan.bits
        if was != now:
            raise UsageError(
                "This snapshot is of a cache with {} {} {} bits, this one has {} {} {}.".format(*was, *now),
                "Make the cache with the same policy, budget and K/V precision.",
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
        self.plan.protect_below, self.plan.pins = snapshot.protect_below, snapshot.pins
        self.plan.dtype = snapshot.dtype

    def reset(self) -> None:
        """Forgets everything."""
        super().reset()
        self._start()
        self.plan.protect_below = self.plan.shares.sinks if self.plan.shares else 0
        self.plan.pins = frozenset()

    @property
    def bytes_held(self) -> int:
        """Bytes of all keys and values, and of their scales; empty slots included."""
        return sum(layer.keys.nbytes + layer.values.nbytes for layer in self.layers if layer.is_initialized)

    @property
    def bytes_full(self) -> int:
        """Bytes that a cache of everything fed so far would hold, in the model's own precision."""
        return sum(layer.plain_slot_bytes * layer.fed for layer in self._filled())


def _count(first: Tensor | int, tokens: int, real: Tensor | None) -> Tensor:
    """Indices first, first + 1 ... of the real tokens; padding repeats its neighbour's. [R, N]"""
    if real is None:
        device = first.device if isinstance(first, Tensor) else None
        return first + torch.arange(tokens, device=device)[None]
    return (first + real.long().cumsum(-1) - 1).clamp_min(0)


def _round_up(count: Any, block: int) -> Any:
    """An int, or a tensor of them [R], up to the next multiple of `block`."""
    return -(-count // block) * block


def _sawtooth(index: Tensor, window: int) -> Tensor:
    """0 .. window - 1, then window // 2 .. window - 1 again and again."""
    half = window // 2
    return torch.where(index < window, index, half + (index - window) % (window - half))
