"""The next token, chosen by transformers' own logits processors.

On a CPU two things are done otherwise: they take longer than the whole step of a small model. Top-p: torch
sorts 49,152 tokens with their places in 3 ms, numpy without them in .2. The draw: torch.multinomial makes a
random number for each token (1 ms), here one does, among the sorted tokens if there are such. What is kept,
and how often a token comes, is the same.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from h2o_chat.base.config import Sampling
from h2o_chat.base.errors import GenerationError
from h2o_chat.native.threads import one_torch_thread

Process = Callable[[Any, Tensor], Tensor]
"""A logits processor as transformers has them: tokens so far, scores [1, V] -> scores [1, V]."""

REPETITION_TOKENS = 1024
"""The repetition penalty looks back this far: a history that grows would cost more with every token."""


class Sampler:
    """Chooses tokens from logits; seeded, so that a run can be repeated."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.on_cpu = device.type == "cpu"
        """Reading a value there waits for nothing."""
        self.random = torch.Generator(device).manual_seed(seed)
        self.history: deque[int] = deque(maxlen=REPETITION_TOKENS)
        self._sampling: Sampling | None = None
        self._processors: list[Process] = []

    def choose(self, logits: Tensor, sampling: Sampling) -> int:
        """The next token from logits [V].

        Raises:
            GenerationError: the logits hold NaN or +inf (overflow in half precision, damaged weights).
        """
        if sampling is not self._sampling:
            self._sampling, self._processors = sampling, _processors(sampling, self.on_cpu)
        scores = logits.float()[None]
        if not self.on_cpu:
            return self._choose(scores, sampling)
        with one_torch_thread():
            return self._choose_on_cpu(scores, sampling)

    def _choose(self, scores: Tensor, sampling: Sampling) -> int:
        """From scores [1, V] on a device, from which one value is read."""
        wrong = ~(scores < torch.inf).all()  # NaN is not below anything
        scores = self._processed(scores.masked_fill(wrong, 0), sampling)
        if sampling.temperature == 0:
            token = scores.argmax(-1)
        else:
            token = torch.multinomial(scores.softmax(-1), 1, generator=self.random)
        return _checked(int(torch.where(wrong, -1, token)))

    def _choose_on_cpu(self, scores: Tensor, sampling: Sampling) -> int:
        """From scores [1, V]."""
        if not scores.numpy().max() < np.inf:  # NaN is the largest, and not below anything
            return _checked(-1)
        scores = self._processed(scores, sampling)
        if sampling.temperature == 0:
            return int(scores.numpy().argmax())
        drawn = float(torch.rand((), dtype=torch.float64, generator=self.random))
        if _cuts_as_it_draws(sampling):
            return Ascending(scores, sampling.top_p).at(drawn)
        shares = scores.softmax(-1)[0].cumsum(-1, dtype=torch.float64).numpy()
        return _first_beyond(drawn * shares[-1], shares)

    def _processed(self, scores: Tensor, sampling: Sampling) -> Tensor:
        """Scores [1, V] after all processors."""
        seen = None  # the others do not look at it
        if sampling.repetition_penalty != 1:
            history = np.fromiter(self.history, np.int64, len(self.history))
            seen = torch.from_numpy(history)[None].to(scores.device)
        for process in self._processors:
            scores = process(seen, scores)
        return scores


class Ascending:
    """Tokens by score, and how many of the lowest `TopPLogitsWarper` cuts off, the same to the last one.

    Numbers are sorted without their places. Of equal ones the first tokens stand first.

    Args:
        scores: [1, V] fp32 on a CPU, without NaN.
        top_p: above 0, below 1.
    """

    def __init__(self, scores: Tensor, top_p: float) -> None:
        self.numbers = scores[0].numpy()
        self.ordered = np.sort(self.numbers)
        # What is added up, and compared with what, is transformers' own: torch adds fp32 in fp64, too.
        shares = torch.from_numpy(self.ordered)[None].softmax(-1)[0].cumsum(-1, dtype=torch.float64)
        self.shares = shares.numpy()
        cut = int(np.searchsorted(shares.float().numpy(), np.float32(1 - top_p), "right"))
        self.cut = min(cut, len(self.numbers) - 1)

    def at(self, drawn: float) -> int:
        """The token at this share, from 0 to 1, of what is kept."""
        least = self.shares[self.cut - 1] if self.cut else 0.0
        place = max(self.cut, _first_beyond(least + drawn * (self.shares[-1] - least), self.shares))
        equal = np.flatnonzero(self.numbers == self.ordered[place])
        return int(equal[place - np.searchsorted(self.ordered, self.ordered[place])])


class TopPOnCpu:
    """`TopPLogitsWarper`, the same tokens to the last one; of equal ones the first are cut off."""

    def __init__(self, top_p: float) -> None:
        self.top_p = top_p

    def __call__(self, input_ids: Tensor | None, scores: Tensor) -> Tensor:
        """Scores [1, V] fp32 on a CPU, without NaN; -inf where a token is cut off."""
        by_score = Ascending(scores, self.top_p)
        least = by_score.ordered[by_score.cut]
        kept = torch.threshold(scores, float(np.nextafter(least, np.float32(-np.inf))), -torch.inf)
        equal = by_score.cut - np.searchsorted(by_score.ordered, least)
        if equal > 0:
            kept[0, np.flatnonzero(by_score.numbers == least)[:equal]] = -torch.inf
        return kept


def _first_beyond(drawn: float, shares: np.ndarray[Any, np.dtype[np.float64]]) -> int:
    """The first place whose share, added up, reaches beyond what was drawn."""
    return min(int(np.searchsorted(shares, drawn, side="right")), len(shares) - 1)


def _cuts_as_it_draws(sampling: Sampling) -> bool:
    """On a CPU: top-p is the last cut, so its sorted tokens can be drawn from."""
    return sampling.temperature > 0 and sampling.top_p < 1 and not sampling.min_p


def _checked(token: int) -> int:
    """
    Raises:
        GenerationError: it is negative: there was none to choose.
    """
    if token < 0:
        raise GenerationError(
            "The model produced NaN or infinite logits.",
            "In half precision this is overflow: try --dtype float32 (or bfloat16 on a GPU).",
        )
    return token


def _processors(sampling: Sampling, on_cpu: bool) -> list[Process]:
    """In transformers' own order: penalties, temperature, then the cuts."""
    if sampling.temperature == 0 and sampling.repetition_penalty == 1:
        return []
    from transformers.generation import logits_process as theirs  # the greedy do without

    processors: list[Process] = []
    if sampling.repetition_penalty != 1:
        processors.append(theirs.RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty))
    if sampling.temperature not in (0, 1):
        processors.append(theirs.TemperatureLogitsWarper(sampling.temperature))
    if sampling.temperature and sampling.top_k:
        processors.append(theirs.TopKLogitsWarper(sampling.top_k))
    if sampling.temperature and sampling.top_p < 1 and not (on_cpu and _cuts_as_it_draws(sampling)):
        processors.append((TopPOnCpu if on_cpu else theirs.TopPLogitsWarper)(sampling.top_p))
    if sampling.temperature and sampling.min_p:
        processors.append(theirs.MinPLogitsWarper(sampling.min_p))
    return processors
