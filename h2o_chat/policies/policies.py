"""Which slot to give up next: pure functions on tensors, no state. Read this file first.

H2O (arXiv 2306.14048, section 4) in four lines. Every attention layer, row and KV head keeps at most
`budget` tokens. A token's score grows by the attention that it receives. The newest `recent` tokens are
safe. When one token too many is held, the lowest score among the others goes, for ever. That is `h2o-paper`;
`tests/oracle.py` has it in 27 lines, one token at a time. The default, `h2o`, has `largest_output_change`.

A policy here is that rule (`eviction_order.py`) with two things left open: how the score decays
(`scores.py`), and what priority is made of it.

Shapes: L layers, R rows, H KV heads, G query heads per KV head, S slots, D head size.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from h2o_chat.base.errors import UsageError
from h2o_chat.policies.scores import Received


class Slots:
    """Slots by what is known of them: states by the names of `state.STATES`, [L, R, H, S, ...].

    A policy gets the states in `RANKED_BY` and `Policy.looks_at`; reading any other raises AttributeError.
    Empty slots have position -1 and score 0.
    """

    positions: Tensor  # [L, R, H, S] int32, in the conversation
    score: Tensor  # [L, R, H, S, G] attention received from each query head, decayed at the policy's rate
    prompt: Tensor  # [L, R, H, S] bool: read in a prompt, not generated

    RANKED_BY = ("positions", "score", "values", "prompt")

    def __init__(self, budget: int = 0, layers: Sequence[int] = (0,), **states: Tensor) -> None:
        self.budget, self.layers, self.states = budget, layers, states
        self.output_change_kernel: Callable[[Slots], Tensor] = output_change_of_heads
        self.dequantised: Callable[[Tensor], Tensor] = lambda stored: stored

    @property
    def values(self) -> Tensor:
        """[L, R, H, S, D]; where they are stored in bytes, these are unpacked for a policy that asks."""
        return self.dequantised(self.states["values"])

    def output_change(self) -> Tensor:
        """`output_change_of_heads`, by the kernel of the step under way (`eviction.Kernels`). [L, R, H, S]"""
        return self.output_change_kernel(self)

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
    """All are equal: ties drop the oldest, which leaves a sliding window. [L, R, H, S]"""
    return torch.zeros_like(slots.score[..., 0])


def accumulated_attention(slots: Slots) -> Tensor:
    """The published score: the sum of all attention received (2306.14048, section 4.2). [L, R, H, S]"""
    return slots.score.sum(-1)


def largest_output_change(slots: Slots) -> Tensor:
    """The default keeps tokens that are attended to and whose values differ from the others'. [L, R, H, S]

    A token counts as much as the layer's output would move without it (CAOTE, arXiv 2504.14051), for each
    query head apart, and nearly the largest decides: a token that one query head needs must stay, whatever
    the other heads of its group do. docs/POLICY.md has the evidence, and what was tried beside it.
    """
    return slots.output_change()


def output_change_of_heads(slots: Slots) -> Tensor:
    """Nearly the largest change of its query heads: the fourth root of summed fourth powers. [L, R, H, S]"""
    return output_change_by_head(slots).square().square().sum(-1).sqrt().sqrt()


def output_change_by_head(slots: Slots) -> Tensor:
    """How far each query head's output moves without a token: p / (1 - p) * |v - output|. [L, R, H, S, G]"""
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


@dataclass(frozen=True)
class Policy:
    """A ranking, and the numbers that go with it."""

    priority: Priority  # the lowest goes first
    decay_factor: float | None  # of a score at each query: 1.0 forgets nothing; None: 1 - 1 / budget
    sinks: int  # first tokens protected unless the caller says otherwise (StreamingLLM, arXiv 2309.17453)
    heavy: bool  # part of the budget is for heavy hitters; else all but the sinks is recent
    slots_per_sink: int = 0  # a small budget has fewer sinks: one for so many slots; 0: all `sinks`
    recent: float = 0.5  # share of the budget that the newest tokens have, where part is for heavy hitters
    looks_at: tuple[str, ...] = ()
    """States that it looks at beside `Slots.RANKED_BY`. The native step keeps none of these: torch attends
    then, which takes longer."""
    stride: float = 0.0  # share of the budget evicted at once; 0: one slot. Fewer rankings, a little worse
    reach: float = 1.0
    """Share of the trained window at which keys are clamped: a key further off is turned as if it were there
    (`cache/distance.py`). In a training text of W tokens W - d pairs lie d apart, so the last distances are
    hardly trained."""
    protected_at: float = 1.0
    """Like `reach`, but for the clamped keys of system prompts and pins; at most `reach`. Does not apply to
    sinks, nor to any token of a model without a chat format (`distance.distance_of`)."""
    bounded: bool = True  # False: nothing is ever evicted, slots are added instead
    scores: Received = field(default_factory=Received)  # how the score grows
    grows: dict[str, Received] = field(default_factory=dict)
    """States of its own that queries add to, and how; `looks_at` names them too."""
    name: str = "custom"

    def __post_init__(self) -> None:
        """Raises UsageError if a state of its own grows, and it does not look at it."""
        if unread := self.grows.keys() - {*self.looks_at}:
            raise UsageError(
                f"A policy that grows {', '.join(sorted(unread))} has to look at it.", "Name it in looks_at."
            )


POLICIES: dict[str, Policy] = {
    "h2o": Policy(
        largest_output_change,
        decay_factor=None,
        sinks=4,
        heavy=True,
        slots_per_sink=128,
        recent=7 / 16,
        stride=1 / 32,
        reach=0.5,
        protected_at=1 / 16,
    ),
    "h2o-paper": Policy(accumulated_attention, decay_factor=1.0, sinks=0, heavy=True),
    "window": Policy(oldest_first, decay_factor=1.0, sinks=0, heavy=False),
    "streaming": Policy(oldest_first, decay_factor=1.0, sinks=4, heavy=False),
    "full": Policy(oldest_first, decay_factor=1.0, sinks=0, heavy=False, bounded=False),
}
POLICIES = {name: replace(policy, name=name) for name, policy in POLICIES.items()}
"""The policies that a person would choose; those only to compare with are in `references.py`. The name of a
new one also goes into `ChosenPolicy`, or `ComparedPolicy`, of `base/config.py`."""
