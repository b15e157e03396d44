"""`h2o-chat lab eval agreement`: how far a bounded cache leads from what the full cache would have said.

Texts are cut into prompts, and the full cache continues each greedily: that is the reference. With a bounded
cache each prompt is continued twice at once, as two rows. The first is fed the reference whatever it would
have said itself: per step, KL(full || bounded) and whether the likeliest token is the same. The second goes
its own way: how many tokens until it first says another. Nothing ends a continuation but its length.

Shapes: N prompts of P tokens, T tokens of continuation, V words; log-probabilities [N, T, V].
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from torch import Tensor

from h2o_chat.base.errors import UsageError
from h2o_chat.base.progress import Tick, unheard
from h2o_chat.cache.forward_call import Step
from h2o_chat.cache.rope import Positions
from h2o_chat.lab.eval.perplexity import ROWS
from h2o_chat.lab.shared.intervals import mean_interval
from h2o_chat.lab.shared.measured_results import Results, key
from h2o_chat.lab.shared.policy_runs import Run
from h2o_chat.lab.shared.report_output import print_tables, with_interval
from h2o_chat.models.load import Loaded
from h2o_chat.transformers_cache.probe import probe

LOGIT_BYTES = 1 << 28
"""Bytes of the reference's log-probabilities; a large vocabulary gets fewer prompts at once."""


@dataclass(frozen=True)
class Score:
    """One policy at one budget; intervals are 95%, bootstrap over prompts."""

    policy: str
    budget: int
    kl: float
    """Nats per step, KL(full || bounded), fed what the full cache said."""
    kl_interval: tuple[float, float]
    equal: float
    """Share of steps whose likeliest token is the full cache's."""
    equal_interval: tuple[float, float]
    tokens_before: float
    """Tokens before the first that differs, fed its own tokens; all of them where none differs."""
    tokens_before_interval: tuple[float, float]
    undiverged: float
    """Share of prompts continued alike to the end."""
    kl_to_first: tuple[float, float, float] | None = None
    """Nats more than the first variant's at the same budget, prompt by prompt, and its interval, where
    wanted."""


@dataclass(frozen=True)
class AgreementReport:
    """All scores, and what they were measured on."""

    model: str
    dtype: str
    prompts: int
    prompt_tokens: int
    tokens: int
    """Tokens of a continuation."""
    seed: int
    scores: list[Score]


@torch.no_grad()
def continued(
    loaded: Loaded, prompts: Tensor, run: Run, positions: Positions, tokens: int, said: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Continues prompts [N, P] greedily, after reading them chunk by chunk.

    Args:
        said: [M, tokens]: what the first M rows are fed, whatever they would say.

    Returns:
        Log-probabilities of the first M rows, of all without `said` [M, T, V], and every row's likeliest
        tokens [N, T].
    """
    cache, device = run.cache(positions), loaded.device
    given = 0 if said is None else len(said)
    likely: list[Tensor] = []
    chances: list[Tensor] = []
    feeding = list(torch.split(prompts.to(device), cache.plan.chunk, 1))
    for step in range(tokens):
        logits = torch.empty(0)
        for part in feeding:
            cache.prepare(Step(part.shape[1], prompt=step == 0))
            where = cache.position_ids().to(device).expand_as(part)
            logits = loaded.model(part, position_ids=where, past_key_values=cache).logits[:, -1]
        log_chances = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
        chances.append(log_chances[: given or None].cpu())
        likely.append(log_chances.argmax(-1, keepdim=True))
        following = likely[-1]
        if said is not None:
            following = torch.cat([said[:, step : step + 1].to(device), following[given:]])
        feeding = [following]
    return torch.stack(chances, 1), torch.cat(likely, 1).cpu()


def measure(
    loaded: Loaded,
    prompts: Tensor,
    runs: Sequence[Run],
    tokens: int,
    seed: int,
    tick: Tick = unheard,
    results: Results | None = None,
    paired: bool = False,
) -> AgreementReport:
    """Compares every run with the first, which is the full cache, on prompts [N, P].

    Args:
        results: what is there already is not measured again.
        paired: each is compared with the first of the others, too, at the same budget.

    Raises:
        UsageError: the full cache has no room for a prompt and its continuation, or a budget has.
    """
    positions, length = probe(loaded.model), prompts.shape[1]
    full, *others = runs
    if length + tokens > positions.window:
        raise UsageError(
            f"A prompt of {length:,} tokens and {tokens:,} more do not fit the model's window of"
            f" {positions.window:,}, and the full cache ends there.",
            "Give a smaller --prompt or fewer --tokens.",
        )
    most = max(run.budget or 0 for run in others)
    if most >= length + tokens - 1:
        raise UsageError(
            f"A budget of {most:,} slots forgets nothing of {length:,} and {tokens:,} tokens.",
            "Give smaller budgets or a larger --prompt.",
        )
    words = loaded.model.config.get_text_config().vocab_size
    at_once = max(1, min(ROWS, LOGIT_BYTES // (4 * tokens * words)))
    batches = torch.split(prompts, at_once)
    found: list[list[tuple[float, float, int]]] = [[] for _ in others]
    results = results or Results(None)
    for number, batch in enumerate(batches):
        reference = lru_cache(partial(continued, loaded, batch, full, positions, tokens))
        data = [batch.tolist(), tokens]
        for at, run in enumerate(others):
            where = key(loaded, "agreement", data, policy=run.name, budget=run.budget)
            found[at] += results.once(where, partial(_against, loaded, batch, run, positions, reference))
            tick((number + (at + 1) / len(others)) / len(batches))
    scores: list[Score] = []
    of_first: dict[int | None, list[tuple[float, float, int]]] = {}
    for run, each in zip(others, found, strict=True):
        firsts = of_first.setdefault(run.budget, each)
        scores.append(_score(run, each, tokens, seed, firsts if paired and each is not firsts else None))
    return AgreementReport(loaded.name, loaded.dtype, len(prompts), length, tokens, seed, scores)


def _against(
    loaded: Loaded,
    prompts: Tensor,
    run: Run,
    positions: Positions,
    reference: Callable[[], tuple[Tensor, Tensor]],
) -> list[tuple[float, float, int]]:
    """For each prompt of [N, P]: nats per step, share of equal tokens, tokens before the first other."""
    chances, said = reference()
    own, likely = continued(loaded, torch.cat([prompts, prompts]), run, positions, said.shape[1], said)
    kl = (chances.exp() * (chances - own)).sum(-1).mean(1).tolist()
    equal = (likely[: len(prompts)] == said).float().mean(1).tolist()
    # Alike up to the first other token: ones until a zero, then zeros.
    before = (likely[len(prompts) :] == said).long().cumprod(1).sum(1).tolist()
    return list(zip(kl, equal, before, strict=True))


def _score(
    run: Run,
    each: Sequence[tuple[float, float, int]],
    tokens: int,
    seed: int,
    firsts: Sequence[tuple[float, float, int]] | None,
) -> Score:
    """Means over prompts of the figures of `_against`; with `firsts`, differences to the first variant."""
    kl, equal, before = ([float(one[part]) for one in each] for part in range(3))
    more = [one - first[0] for one, first in zip(kl, firsts or (), strict=False)]
    return Score(
        policy=run.name,
        budget=run.budget or 0,
        kl=sum(kl) / len(kl),
        kl_interval=mean_interval(kl, seed),
        equal=sum(equal) / len(equal),
        equal_interval=mean_interval(equal, seed),
        tokens_before=sum(before) / len(before),
        tokens_before_interval=mean_interval(before, seed),
        undiverged=sum(one == tokens for one in before) / len(before),
        kl_to_first=(sum(more) / len(more), *mean_interval(more, seed)) if more else None,
    )


def show_table(report: AgreementReport) -> None:
    """One line for each policy and budget."""
    from rich.table import Table

    table = Table(
        title=f"{report.model}: {report.prompts} prompts of {report.prompt_tokens:,} tokens,"
        f" {report.tokens:,} more, against the full cache",
        caption="[95% bootstrap interval over prompts].",
    )
    table.add_column("policy")
    for name in ("slots", "KL, nats per step", "equal tokens", "tokens before another", "none other"):
        table.add_column(name, justify="right")
    paired = any(one.kl_to_first for one in report.scores)
    if paired:
        table.add_column(f"KL, more than {report.scores[0].policy}", justify="right")
    for one in report.scores:
        more = one.kl_to_first
        table.add_row(
            one.policy,
            f"{one.budget:,}",
            with_interval(one.kl, one.kl_interval, 4),
            with_interval(one.equal, one.equal_interval, 3),
            with_interval(one.tokens_before, one.tokens_before_interval, 1),
            f"{one.undiverged:.2f}",
            *([with_interval(more[0], more[1:], 4) if more else ""] if paired else []),
        )
    print_tables(table)
