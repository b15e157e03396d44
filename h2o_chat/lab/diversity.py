"""Do sampled continuations repeat each other? Self-BLEU (1802.01886), by which the paper compares caches.

The first tokens of a document are continued several times at temperature 1; each continuation is scored by
BLEU-4 against the others of its prompt. Lower is more diverse; a cache that forgets its prompt may drift
apart or fall into loops.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from h2o_chat.base.errors import UsageError
from h2o_chat.base.progress import Tick, unheard
from h2o_chat.cache.rope import Positions
from h2o_chat.cache.step import Step
from h2o_chat.lab.contest import Run
from h2o_chat.lab.figures import mean_interval
from h2o_chat.models.load import Loaded
from h2o_chat.transformers_cache.probe import probe

SAMPLES = 4
"""Continuations of one prompt."""
PROMPTS = 8
PROMPT_TOKENS = 64


@dataclass(frozen=True)
class Diversity:
    """One policy."""

    contestant: str
    budget: int | None
    """None: the full cache."""
    self_bleu: float
    interval: tuple[float, float]
    """95%, bootstrap over prompts."""
    tokens: int
    """Of a continuation."""


def self_bleu(texts: Sequence[str]) -> float:
    """Mean BLEU-4 of each text against all others, smoothed where it has no common run of four words.

    Raises:
        UsageError: nltk is not installed.
    """
    try:
        from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
    except ModuleNotFoundError as error:
        raise UsageError(
            "Self-BLEU needs the package nltk.", "Install it with pip install 'h2o-chat[scores]'."
        ) from error
    words = [text.split() for text in texts]
    smooth = SmoothingFunction().method1
    each = [
        float(sentence_bleu(words[:at] + words[at + 1 :], said, smoothing_function=smooth))
        for at, said in enumerate(words)
    ]
    return sum(each) / len(each)


@torch.no_grad()
def continuations(
    model: Any, prompts: Tensor, run: Run, positions: Positions, tokens: int, seed: int
) -> Tensor:
    """Samples one continuation for each row of prompts [R, N], at temperature 1. [R, tokens]"""
    generator = torch.Generator().manual_seed(seed)
    cache = run.cache(positions)
    feeding = list(torch.split(prompts, cache.plan.chunk, 1))
    said: list[Tensor] = []
    while len(said) < tokens:
        logits = torch.empty(0)
        for part in feeding:
            cache.prepare(Step(part.shape[1]))
            where = cache.position_ids().to(part.device).expand_as(part)
            logits = model(part, position_ids=where, past_key_values=cache, use_cache=True).logits
        chances = logits[:, -1].float().softmax(-1).cpu()
        feeding = [torch.multinomial(chances, 1, generator=generator).to(prompts.device)]
        said.append(feeding[0])
    return torch.cat(said, 1)


def diversity(
    loaded: Loaded, ids: Tensor, runs: Sequence[Run], seed: int, tick: Tick = unheard
) -> list[Diversity]:
    """All runs on the beginnings of documents [N, L]; a continuation ends where the document would."""
    start = min(PROMPT_TOKENS, ids.shape[1] // 2)
    tokens, positions = ids.shape[1] - start, probe(loaded.model)
    prompts = ids[:PROMPTS, :start].to(loaded.device)
    results = []
    for number, run in enumerate(runs):
        rows = prompts.repeat_interleave(SAMPLES, 0)
        said = continuations(loaded.model, rows, run, positions, tokens, seed)
        texts = loaded.tokenizer.batch_decode(said, skip_special_tokens=True)
        each = [self_bleu(texts[at : at + SAMPLES]) for at in range(0, len(texts), SAMPLES)]
        mean = sum(each) / len(each)
        results.append(Diversity(run.name, run.budget, mean, mean_interval(each, seed), tokens))
        tick((number + 1) / len(runs))
    return results
