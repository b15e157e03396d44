"""The next token, chosen as transformers' own logits processors would.

On a CPU they take longer than the whole step of a small model: top-p, min-p and top-k sort 150,000 tokens in
about 1 ms each, and torch.multinomial makes a random number for each token. Here comparisons find the tokens
that may stay, and one random number draws one of them, until it is one that the cuts keep. The cuts are made
exactly only where that is not certain. The kept tokens and their probabilities are the same.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from h2o_chat.base.config import Sampling
from h2o_chat.base.errors import GenerationError
from h2o_chat.engine.device_choice import HISTORY_TOKENS, changed, device_choice
from h2o_chat.native.threads import one_torch_thread

Probabilities = np.ndarray[Any, np.dtype[np.float32]]

BLOCK = 256  # shares per partial sum: about the root of the vocabulary
DRAW_FIRST = 0.5  # from this top-p on a token is drawn before the cuts: below, they would mostly not keep it
NEAR = 2.0**-19  # two fp32 shares whose ratio is this near to min-p may be rounded to either side of it


class Sampler:
    """Chooses tokens from logits; seeded, so that a run can be repeated."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.on_cpu = device.type == "cpu"  # reading a tensor does not synchronise there
        self.random = torch.Generator().manual_seed(seed)
        self.history: deque[int] = deque(maxlen=HISTORY_TOKENS)

    def choose(
        self,
        logits: Tensor,
        sampling: Sampling,
        changes: Mapping[int, float] | None = None,
        meanwhile: Callable[[Tensor], None] | None = None,
    ) -> int:
        """The next token from logits [V].

        Args:
            changes: added to the logits of these tokens; -inf for those that must not come.
            meanwhile: called on a GPU with the token [1] there, before its id is read.

        Raises:
            GenerationError: the logits hold NaN or +inf, or are all -inf (overflow in half precision, damaged
                weights).
        """
        if self.on_cpu:
            with one_torch_thread():
                scores = changed(logits, changes) if changes else logits.float()
                return self._choose_on_cpu(scores[None], sampling)
        choice = device_choice(logits.device, len(logits))
        drawn = self._random_number()
        return _checked(choice.choose(logits, sampling, changes or {}, self.history, drawn, meanwhile))

    def _choose_on_cpu(self, scores: Tensor, sampling: Sampling) -> int:
        if not abs(scores.numpy().max()) < np.inf:  # NaN is the largest, and not below anything
            return _checked(-1)
        penalty = sampling.repetition_penalty
        if sampling.temperature != 0 or penalty != 1:  # a greedy choice is made after the penalty alone
            seen = np.fromiter(self.history if penalty != 1 else (), np.int64)
            scores = scaled(scores, seen, penalty, sampling.temperature or 1)
        if sampling.temperature == 0:
            return int(scores.numpy().argmax())
        if sampling.top_p < DRAW_FIRST:
            return self._drawn(_cut(scores, sampling).softmax(-1)[0].numpy())
        places = _largest(scores[0].numpy(), sampling.top_k)
        shares = scores[:, places].softmax(-1)[0].numpy()
        likely: Any = slice(None)
        if sampling.min_p:
            likely = np.flatnonzero(shares >= sampling.min_p * shares.max() * (1 - NEAR))
        cut = None
        while True:  # cut-off tokens are drawn again: the others keep their shares
            drawn = self._drawn(shares[likely])
            at = int(likely[drawn]) if sampling.min_p else drawn
            token = int(places[at]) if sampling.top_k else at
            if (kept := is_kept(at, shares, sampling)) is None:
                cut = _cut(scores, sampling) if cut is None else cut
                kept = bool(cut[0, token] > -torch.inf)
            if kept:
                return token

    def _drawn(self, shares: Probabilities) -> int:
        """A place in shares [N], by one random number: first its block, then the place."""
        added = np.add.reduceat(shares, np.arange(0, len(shares), BLOCK), dtype=np.float64).cumsum()
        drawn = float(self._random_number()) * added[-1]
        first = BLOCK * _first_beyond(drawn, added)
        before = added[first // BLOCK - 1] if first else 0.0
        return first + _first_beyond(drawn - before, shares[first : first + BLOCK].cumsum(dtype=np.float64))

    def _random_number(self) -> Tensor:
        """From 0 to 1, without 1. [] fp64"""
        return torch.rand((), dtype=torch.float64, generator=self.random)


def scaled(scores: Tensor, seen: np.ndarray[Any, Any], penalty: float, temperature: float) -> Tensor:
    """Scores [1, V] fp32 on a CPU after `RepetitionPenaltyLogitsProcessor` and `TemperatureLogitsWarper`.

    The numbers are equal, and written once. The penalty is for tokens [N], each counted once.
    """
    numbers = scores[0].numpy()
    found = numbers[seen]
    changed_to = np.where(found < 0, found * penalty, found / penalty) / temperature
    numbers = numbers / temperature
    numbers[seen] = changed_to
    return torch.from_numpy(numbers)[None]


def cut_by_top_p(scores: Tensor, top_p: float) -> Tensor:
    """`TopPLogitsWarper`: the same tokens to the last one; of equal ones the first are cut off.

    Numbers are sorted without their places: numpy does that in 0.1 ms, torch with them in 3.

    Args:
        scores: [1, V] fp32 on a CPU, without NaN; -inf where a token is cut off.
    """
    numbers = scores[0].numpy()
    ordered = np.sort(numbers)
    # The sums and comparisons are those of transformers: torch adds fp32 in fp64, too.
    shares = torch.from_numpy(ordered)[None].softmax(-1)[0].cumsum(-1)
    cut = min(int(np.searchsorted(shares.numpy(), np.float32(1 - top_p), "right")), len(numbers) - 1)
    least = ordered[cut]
    kept = torch.threshold(scores, float(np.nextafter(least, np.float32(-np.inf))), -torch.inf)
    equal = cut - np.searchsorted(ordered, least)
    if equal > 0:
        kept[0, np.flatnonzero(numbers == least)[:equal]] = -torch.inf
    return kept


def cut_by_min_p(scores: Tensor, min_p: float) -> Tensor:
    """`MinPLogitsWarper`: the same tokens, without sorting; the likeliest one always stays.

    Args:
        scores: see `cut_by_top_p`.
    """
    shares = scores.softmax(-1)
    return scores.masked_fill(shares < min_p * shares.amax(-1, keepdim=True), -torch.inf)


def is_kept(place: int, shares: Probabilities, sampling: Sampling) -> bool | None:
    """Whether transformers' top-p and min-p keep a token, without sorting; None: it is undecided.

    Top-p keeps a token whose share, with all smaller ones, is above 1 - top_p. transformers divides by a sum
    in another order and adds in another one. A sum of N fp32 numbers, in any order, is within N 2^-24 of the
    exact one (Higham 2002, 4.2). Here are three; the fourth part is for the rounding of each share.

    Args:
        shares: [N], for all tokens, or for the top k.
    """
    share, sure = shares[place], True
    if sampling.min_p:
        least = sampling.min_p * shares.max()
        if share < least * (1 - NEAR):
            return False
        sure = bool(share > least * (1 + NEAR))
    if sampling.top_p < 1:
        smaller = np.einsum("v,v", shares, shares < share)  # their sum; no N products are written
        least, near = 1 - sampling.top_p, (len(shares) + 8) * 2**-22
        if smaller + share <= least * (1 + near):
            equal = np.count_nonzero(shares == share)  # the last ones of them may stay
            return False if smaller + equal * share < least * (1 - near) else None
    return True if sure else None


def _largest(numbers: Probabilities, count: int) -> Any:
    """Places of the largest numbers [V] and of those that equal the last of them, in order; 0: all of them.

    The count-th largest of the blocks' maxima is a lower bound of them.
    """
    if not count:
        return slice(None)
    blocks = numbers[: len(numbers) // BLOCK * BLOCK].reshape(-1, BLOCK).max(1)
    bound = np.partition(blocks, -count)[-count] if len(blocks) >= count else -np.inf
    places = np.flatnonzero(numbers >= bound)
    if count < len(places):
        places = places[numbers[places] >= np.partition(numbers[places], -count)[-count]]
    return places


def _cut(scores: Tensor, sampling: Sampling) -> Tensor:
    """Scores [1, V] fp32 on a CPU after transformers' cuts, in their order."""
    if sampling.top_k:
        kept = torch.full_like(scores, -torch.inf)
        places = _largest(scores[0].numpy(), sampling.top_k)
        kept[:, places] = scores[:, places]
        scores = kept
    if sampling.top_p < 1:
        scores = cut_by_top_p(scores, sampling.top_p)
    return cut_by_min_p(scores, sampling.min_p) if sampling.min_p else scores


def _first_beyond(drawn: float, added: np.ndarray[Any, np.dtype[np.float64]]) -> int:
    """The first place where the cumulative shares exceed the drawn number."""
    return min(int(np.searchsorted(added, drawn, side="right")), len(added) - 1)


def _checked(token: int) -> int:
    if token < 0:
        raise GenerationError(
            "The model produced NaN or infinite logits.",
            "In half precision this is overflow: try --dtype float32 (or bfloat16 on a GPU).",
        )
    return token
