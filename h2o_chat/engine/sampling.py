"""The next token, chosen by transformers' own logits processors."""

from collections import deque

import torch
from torch import Tensor
from transformers.generation.logits_process import (
    LogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from h2o_chat.base.config import Sampling
from h2o_chat.base.errors import GenerationError

REPETITION_TOKENS = 1024
"""The repetition penalty looks back this far: a history that grows would cost more with every token."""


class Sampler:
    """Chooses tokens from logits; seeded, so that a run can be repeated."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.random = torch.Generator(device).manual_seed(seed)
        self.history: deque[int] = deque(maxlen=REPETITION_TOKENS)
        self._sampling: Sampling | None = None
        self._processors: list[LogitsProcessor] = []

    def choose(self, logits: Tensor, sampling: Sampling) -> int:
        """The next token from logits [V].

        Raises:
            GenerationError: the logits hold NaN or +inf (overflow in half precision, damaged weights).
        """
        scores = logits.float()[None]
        wrong = ~(scores < torch.inf).all()  # NaN is not below anything
        scores = scores.masked_fill(wrong, 0)
        if sampling is not self._sampling:
            self._sampling, self._processors = sampling, _processors(sampling)
        seen = None  # the others do not look at it
        if sampling.repetition_penalty != 1:
            seen = torch.tensor([list(self.history)], dtype=torch.long, device=scores.device)
        for process in self._processors:
            scores = process(seen, scores)
        if sampling.temperature == 0:
            token = scores.argmax(-1)
        else:
            token = torch.multinomial(scores.softmax(-1), 1, generator=self.random)
        chosen = int(torch.where(wrong, -1, token))  # the one value that is read from the device per token
        if chosen < 0:
            raise GenerationError(
                "The model produced NaN or infinite logits.",
                "In half precision this is overflow: try --dtype float32 (or bfloat16 on a GPU).",
            )
        return chosen


def _processors(sampling: Sampling) -> list[LogitsProcessor]:
    """In transformers' own order: penalties, temperature, then the cuts."""
    processors: list[LogitsProcessor] = []
    if sampling.repetition_penalty != 1:
        processors.append(RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty))
    if sampling.temperature not in (0, 1):
        processors.append(TemperatureLogitsWarper(sampling.temperature))
    if sampling.temperature and sampling.top_k:
        processors.append(TopKLogitsWarper(sampling.top_k))
    if sampling.temperature and sampling.top_p < 1:
        processors.append(TopPLogitsWarper(sampling.top_p))
    if sampling.temperature and sampling.min_p:
        processors.append(MinPLogitsWarper(sampling.min_p))
    return processors
