"""Which slot to give up next: pure functions on tensors, no state. Read this file first.

H2O (arXiv 2306.14048, section 4) in four lines. Every attention layer, row and KV head keeps at most
`budget` tokens. A token's score grows by the attention that it receives. The newest `recent` tokens are
safe. When one token too many is held, the lowest score among the others goes, for ever.

A policy here is that frame (`frame.py`) with two things left open: how the score forgets (`scores.py`), and
what priority is made of it. Shapes: R rows, H KV heads, G query heads per KV head, S slots, D head size.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from h2o_chat.base import devices
from h2o_chat.base.errors import UsageError
from h2o_chat.policies.scores import Received


class Slots:
    """Slots by what is known of them: states by the names of `state.STATES`, [L, R, H, S, ...].

    A policy is given those of `RANKED_BY` and what `Policy.looks_at` names; reading another raises. Empty
    slots have position -1 and score 0. Distinctness and novelty of a key not yet compared are the mean of the
    others; they are zeros for a policy that does not look at keys.
    """

    positions: Tensor  # [L, R, H, S] int32, in the conversation
    score: Tensor  # [L, R, H, S, G] attention received from each query head, forgotten at the policy's rate
    distinctness: Tensor  # [L, R, H, S] minus the cosine of a key, before RoPE, to the mean of the kept keys
    novelty: Tensor  # [L, R, H, S] minus its cosine to the nearest other one kept, 0 to -1
    prompt: Tensor  # [L, R, H, S] bool: read in a prompt, not generated

    RANKED_BY = ("positions", "score", "values", "distinctness", "novelty", "prompt")

    def __init__(self, budget: int = 0, layers: Sequence[int] = (0,), **states: Tensor) -> None:
        self.budget, self.layers, self.states = budget, layers, states
        self.kernel: Callable[[Slots], Tensor] = output_change_of_heads
        self.numbers: Callable[[Tensor], Tensor] = lambda stored: stored

    @property
    def values(self) -> Tensor:
        """[L, R, H, S, D]; where they are stored in bytes, these are unpacked for a policy that asks."""
        return self.numbers(self.states["values"])

    def change(self) -> Tensor:
        """`output_change_of_heads`, by the kernel of the step under way (`settle.Kernels`). [L, R, H, S]"""
        return self.kernel(self)

    def __getattr__(self, name: str) -> Tensor:
        try:
            return self.states[name]
        except KeyError:
            raise AttributeError(
                f"slots have no state {name!r} here, only {', '.join(self.states)}:"
                " Policy(looks_at=...) names more"
            ) from None

    def cut(
        self, layers: slice = slice(None), rows: slice = slice(None), slots: slice = slice(None)
    ) -> "Slots":
        """Those of layers, rows and slots that follow each other: views, no copies. [l, r, H, s, ...]"""
        states = {name: state[layers, rows, :, slots] for name, state in self.states.items()}
        return Slots(self.budget, self.layers[layers], **states)


Priority = Callable[[Slots], Tensor]


def oldest_first(slots: Slots) -> Tensor:
    """No opinion: ties drop the oldest, which leaves a sliding window. [L, R, H, S]"""
    return torch.zeros_like(slots.score[..., 0])


def accumulated_attention(slots: Slots) -> Tensor:
    """The published score: the sum of all attention received (2306.14048, section 4.2). [L, R, H, S]"""
    return slots.score.sum(-1)


PIECES = 3
"""Tokens after its first one that a word goes on for, at most."""
ENOUGH = 512
"""Slots from which on novelty counts in full."""


@dataclass(frozen=True)
class Weights:
    """Of the terms of `heavy_or_novel`; one that is 0 is left out (but for `old`), which the lab measures."""

    change: float = 1.0
    floor: float = 0.02
    word: float = 0.4
    age: float = 0.2
    old: float = 8.0  # budgets after which a token is old; 0: all pay for their age from the first token on
    distinct: float = 3.0
    novel: float = 4.0
    prompt: float = 16.0
    fade: float = 64.0  # power of the share of slots that were told, by which `prompt` falls; 0: off
    few: float = 64.0  # slots up to which `distinct` counts in full; from twice as many on not at all


DEFAULT = Weights()


def heavy_or_novel(slots: Slots, weights: Weights = DEFAULT) -> Tensor:
    """The default: heavy hitters stay, and prompt tokens whose keys are novel. [L, R, H, S]

    log(output change) - 0.2 log(1 + age / 8 budgets) + 3 x distinctness + 16 x prominence of prompt tokens.
    Each term decides where the larger ones after it are equal (docs/POLICY.md has the evidence):

    - Output change: taken per query head, and the fourth powers are summed, so nearly the largest counts: a
      token that one query head needs must stay, whatever the others do. Below .02 of the mean it counts as
      .02: nobody uses the token, and how little does not matter.
    - Words: a token counts at least 2/5 of the token before it. Heads that copy find the first token of a
      word and go on with the next; where that was evicted they go on with the rest of another word.
    - Age: of tokens no longer used those go first that are older than some budgets. Without it what was once
      of use gathers from the whole conversation, and perplexity grows with its length.
    - Distinctness: of tokens equally used, those with a key unlike the mean stay. From 128 slots on the
      newer ones do.
    - Prominence, 0 to 1: how far a prompt token's distinctness + novelty is above the mean of the slots. A
      fact is told once and asked for much later; no query attends to it until then. The model repeats what it
      still needs of its own words (Random Attention, arXiv 2609.03430), so generated tokens get none.
      Where all that is held was told, as while a page is read, nobody gets any: what is in use stays.
      Without novelty repeated kinds of token (numbers, days of the week) evict a unique name. Below 512
      slots novelty counts for less: the words that a fact is asked by are repeated ones too.
    """
    held = (slots.positions >= 0).to(slots.score.dtype)
    change = whole_words(slots.change(), slots.positions, weights.word)
    tiny = torch.finfo(change.dtype).tiny
    in_use = weights.change * (weights.floor + change / mean_held(change, held).clamp_min(tiny)).log()
    age = slots.positions.amax(-1, keepdim=True) - slots.positions  # 0 for the newest
    few = min(1.0, max(0.0, 2 - slots.budget / max(1.0, weights.few)))
    unlike = few * weights.distinct * slots.distinctness
    older = (age.to(in_use.dtype) / max(1.0, weights.old * slots.budget)).log1p()
    worth = in_use - weights.age * older + unlike
    novelty = weights.novel * min(1.0, slots.budget / ENOUGH) * slots.novelty
    bonus = weights.prompt * slots.prompt * prominence(slots.distinctness + novelty, held)
    if weights.fade:
        bonus = bonus * (1 - mean_held(slots.prompt.to(bonus.dtype), held) ** weights.fade)
    return worth + bonus


def output_change_of_heads(slots: Slots) -> Tensor:
    """Nearly the largest of `output_change_by_head`: fourth root of the sum of fourth powers. [L, R, H, S]"""
    return output_change_by_head(slots).square().square().sum(-1).sqrt().sqrt()


def output_change_by_head(slots: Slots) -> Tensor:
    """`output_change` of every query head apart. [L, R, H, S, G]"""
    tiny = torch.finfo(slots.score.dtype).tiny
    share = slots.score / slots.score.sum(-2, keepdim=True).clamp_min(tiny)  # [L, R, H, S, G]
    values = slots.values.to(share.dtype)
    output = share.transpose(-1, -2) @ values  # [L, R, H, G, D]
    # ||v - o||^2 multiplied out, so that no [L, R, H, G, S, D] is made.
    crossed = (output @ values.transpose(-1, -2)).transpose(-1, -2)  # [L, R, H, S, G]
    lengths = torch.linalg.vector_norm(values, dim=-1, keepdim=True)
    squares = lengths.square() + output.square().sum(-1).unsqueeze(-2)
    distance = (squares - 2 * crossed).clamp_min(0).sqrt()
    change: Tensor = share / (1 - share).clamp_min(torch.finfo(share.dtype).eps) * distance
    return change


def whole_words(change: Tensor, positions: Tensor, weight: float = DEFAULT.word) -> Tensor:
    """At least `weight` of what the token right before has, and so on for `PIECES` tokens. [L, R, H, S]"""
    order, ordered = _oldest_first(positions)
    follows = (ordered.diff(dim=-1) == 1) & (ordered[..., 1:] > 0)
    goes_on = weight * follows.to(change.dtype)
    by_age = change.gather(-1, order)
    before, after = by_age[..., :-1], by_age[..., 1:]
    for _ in range(PIECES):
        torch.maximum(after, goes_on * before, out=after)
    return torch.empty_like(change).scatter_(-1, order, by_age)


def _oldest_first(positions: Tensor) -> tuple[Tensor, Tensor]:
    """Slots by age, empty ones in front, and their positions. [L, R, H, S] each"""
    if devices.reads_free(positions.device):  # numpy sorts single numbers in a tenth of torch's time
        both = (positions.numpy().astype(np.int64) << 32) + np.arange(positions.shape[-1])
        both.sort(axis=-1)
        return torch.from_numpy(both & 0xFFFFFFFF), torch.from_numpy(both >> 32)
    ordered, order = positions.sort(dim=-1)
    return order, ordered


def mean_held(numbers: Tensor, held: Tensor) -> Tensor:
    """Over the slots in use, which have 1 in `held`, as floats; others 0. [L, R, H, S] -> [L, R, H, 1]"""
    return (numbers * held).sum(-1, keepdim=True) / held.sum(-1, keepdim=True).clamp_min(1)


def prominence(numbers: Tensor, held: Tensor) -> Tensor:
    """How many standard deviations each is above the mean of the slots in use, bent to at most 1.

    Numbers that are equal but for rounding, as those of two keys alone, stand out by nothing.
    """
    off = numbers - mean_held(numbers, held)
    spread = mean_held(off.square(), held).sqrt().clamp_min(torch.finfo(off.dtype).eps ** 0.5)
    return (0.85 * off / spread).tanh().relu()


@dataclass(frozen=True)
class Policy:
    """What to rank by, and the numbers that go with it."""

    priority: Priority  # the lowest goes first
    forget: float  # score = forget * score + attention received, at every query
    sinks: int  # first tokens protected unless the caller says otherwise (StreamingLLM, arXiv 2309.17453)
    heavy: bool  # part of the budget is for heavy hitters; else all but the sinks is recent
    slots_per_sink: int = 0  # a small budget has fewer sinks: one for so many slots; 0: all `sinks`
    recent: float = 0.5  # share of the budget that the newest tokens have, where part is for heavy hitters
    keys: bool = False  # it looks at `distinctness`
    pairs: bool = False  # it looks at `novelty` too, which compares every key with every other
    looks_at: tuple[str, ...] = ()
    """States that it looks at beside `Slots.RANKED_BY`. The native step keeps none of these: torch attends
    then, which takes longer."""
    stride: float = 0.0  # share of the budget given up at once; 0: one slot. Fewer rankings, a little worse
    reach: float = 1.0
    """Share of the trained window at which keys are clamped. In a training text of W tokens W - d pairs lie d
    apart, so the last distances are hardly trained."""
    protected_at: float = 1.0
    """Share of the trained window at which clamped keys of a system prompt and pins are met instead; at most
    `reach`. Not sinks, and none with a model that does not chat (`distance.distance_of`)."""
    bounded: bool = True  # False: nothing is ever given up, slots are added instead
    scores: Received = field(default_factory=Received)  # how the score grows
    grows: dict[str, Received] = field(default_factory=dict)
    """States of its own that queries add to, and how; `looks_at` names them too."""
    name: str = "custom"

    def __post_init__(self) -> None:
        """
        Raises:
            UsageError: a state of its own grows, and it is not said that the policy looks at it.
        """
        if unread := self.grows.keys() - {*self.looks_at}:
            raise UsageError(
                f"A policy that grows {', '.join(sorted(unread))} has to look at it.", "Name it in looks_at."
            )


POLICIES: dict[str, Policy] = {
    "h2o": Policy(
        heavy_or_novel,
        forget=0.96,
        sinks=4,
        heavy=True,
        slots_per_sink=128,
        recent=7 / 16,
        keys=True,
        pairs=True,
        stride=1 / 32,
        reach=0.5,
        protected_at=1 / 16,
    ),
    "h2o-paper": Policy(accumulated_attention, forget=1.0, sinks=0, heavy=True),
    "window": Policy(oldest_first, forget=1.0, sinks=0, heavy=False),
    "streaming": Policy(oldest_first, forget=1.0, sinks=4, heavy=False),
    "full": Policy(oldest_first, forget=1.0, sinks=0, heavy=False, bounded=False),
}
POLICIES = {name: replace(policy, name=name) for name, policy in POLICIES.items()}
"""Those that a person would choose; `named.py` knows the others too."""
