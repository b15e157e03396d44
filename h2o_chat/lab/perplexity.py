"""`h2o-chat eval perplexity`: what forgetting costs, in nats per token of real text.

Texts are joined and cut into documents of equal length, which are fed one token at a time, one document a
row, through a cache that forgets and through one that does not. `ratio = exp(mean NLL - mean NLL with
everything)` over the positions past the budget (and past the part that is read as a prompt, if there is one):
1.000 is nothing lost. Documents longer than the model's
window have no such reference: there the perplexity itself is given, by how far into the document it was
measured.

Shapes: N documents of L tokens; NLL [N, L - 1], entry t for the token after position t.
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from h2o_chat.cache import H2OCache
from h2o_chat.config import PREFILLS, Settings
from h2o_chat.errors import ExitCode, UsageError
from h2o_chat.lab.belady import Foresight, foresee, rows_at_once
from h2o_chat.lab.contestant import Contestant, crossed, slots_of
from h2o_chat.models import Loaded, load
from h2o_chat.policies import POLICIES
from h2o_chat.progress import progress_bar
from h2o_chat.rope import probe
from h2o_chat.store import clean

ROWS = 16
"""Documents at once."""
FIRST_BUCKET = 64
"""Where the buckets of long documents begin: before it, most budgets have lost nothing."""
DRAWS = 2000
CONFIDENCE = 0.95
MAX_BYTES = 256 << 20
"""Of a file of texts or questions."""

Tick = Callable[[float], None]
"""Share of the work that is done."""


@dataclass(frozen=True)
class Reading:
    """How the documents' first part is read, where it is a prompt.

    Raises:
        UsageError: an unknown prefill.
    """

    prefill: str = "chunked"
    chunk: int | None = None
    """None leaves it to the budget."""

    def __post_init__(self) -> None:
        if self.prefill not in PREFILLS:
            raise UsageError(f"--prefill {self.prefill!r} is not known.", f"One of: {', '.join(PREFILLS)}.")

    def __str__(self) -> str:
        if self.prefill == "full":
            return "full pass"
        return f"chunks of {self.chunk or 'budget/4'}"


@dataclass(frozen=True)
class Score:
    """One contestant at one budget, over one stretch of the documents."""

    contestant: str
    reading: str
    """Of the prompt; empty where there is none."""
    budget: int
    """As asked."""
    slots: int
    """As given: more, at equal bytes, where keys and values are smaller."""
    kv_bytes: int
    """Of keys and values of one document: `H2OCache.bytes_held`."""
    sinks: int
    recent: int
    first: int
    """Positions from here on ..."""
    end: int
    """... and before this one were counted."""
    perplexity: float
    ratio: float | None
    """To the cache that keeps everything; None where the documents are longer than the window."""
    interval: tuple[float, float]
    """Of the ratio, or of the perplexity where there is none: 95%, bootstrap over documents."""
    to_full_pass: tuple[float, float, float] | None
    """Perplexity to that of the same policy after a full prompt pass, and its interval; None where that was
    not measured."""


@dataclass(frozen=True)
class Report:
    """All scores, and what they were measured on."""

    model: str
    dtype: str
    documents: int
    length_tokens: int
    window_tokens: int
    prompt_tokens: int
    """Read at once at the beginning of each document; the rest follows one by one."""
    seed: int
    scores: list[Score]


def documents(texts: Sequence[str], tokenizer: Any, length: int) -> Tensor:
    """The texts, each as BOS + " " + text, joined and cut; what is left over is dropped. [N, L]

    Raises:
        UsageError: they do not fill one document.
    """
    start = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
    ids = [token for text in texts for token in (*start, *_encode(tokenizer, " " + text))]
    count = len(ids) // length
    if count == 0:
        raise UsageError(
            f"The texts hold {len(ids):,} tokens, one document needs {length:,}.",
            "Give more text or a smaller --length.",
        )
    return torch.tensor(ids[: count * length]).view(count, length)


def _encode(tokenizer: Any, text: str) -> list[int]:
    # Not verbose: it would warn of texts longer than the model's window, which is what this is about.
    tokens: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return tokens


@torch.no_grad()
def nll(model: Any, ids: Tensor, cache: H2OCache, columns: int = 1, prompt: int = 0) -> Iterator[Tensor]:
    """Feeds documents [N, L] `columns` at a time; yields the NLL [N, columns] of the tokens that followed.

    The first `prompt` tokens are fed as a prompt is, as many in one call as the cache reads at once.
    """
    widths = [*_parts(prompt, cache.pass_tokens), *_parts(ids.shape[1] - 1 - prompt, columns)]
    steps = torch.split(ids[:, :-1], widths, 1)
    targets = torch.split(ids[:, 1:], widths, 1)
    for step, target in zip(steps, targets, strict=True):
        where = cache.position_ids(step.shape[1]).to(step.device).expand_as(step)
        logits = model(step, position_ids=where, past_key_values=cache).logits
        log_probabilities = logits.float().log_softmax(-1)
        yield -log_probabilities.gather(-1, target.unsqueeze(-1)).squeeze(-1)


def _parts(tokens: int, size: int) -> list[int]:
    return [min(size, tokens - start) for start in range(0, tokens, size)]


def buckets(budget: int, length: int, window: int) -> list[tuple[int, int]]:
    """The stretches [first, end) of positions that are counted.

    Past the budget, where documents fit the window; else 64 to the window, and then twice as far each time.
    """
    last = length - 1
    if length <= window:
        return [(budget, last)]
    edges = [FIRST_BUCKET, window]
    while edges[-1] < last:
        edges.append(min(2 * edges[-1], last))
    return [(first, end) for first, end in pairwise(edges) if first < end]


def bootstrap(per_document: Tensor, seed: int) -> tuple[float, float]:
    """The interval of exp(mean) over documents [N], by resampling them (Efron 1979).

    Differences to a reference are taken per document before they come here: the comparison is paired.
    """
    generator = torch.Generator().manual_seed(seed)
    count = len(per_document)
    draws = torch.randint(count, (DRAWS, count), generator=generator)
    means = per_document.double()[draws].mean(1).exp()
    low, high = means.quantile(torch.tensor([(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]).double()).tolist()
    return low, high


def measure(
    loaded: Loaded,
    ids: Tensor,
    contestants: Sequence[Contestant],
    budgets: Sequence[int],
    seed: int,
    tick: Tick = lambda share: None,
    prompt: int = 0,
    readings: Sequence[Reading] = (Reading(),),
    equal_bytes: bool = False,
) -> Report:
    """All contestants at all budgets on documents [N, L], after each reading of their first `prompt` tokens.

    Args:
        equal_bytes: budgets are slots of the model's own precision; others get as many as fit into as much.

    Raises:
        BudgetError: a contestant's parts do not fit a budget.
        UsageError: a budget that a document does not fill.
    """
    count, length = ids.shape
    if max(budgets) >= length - 1:
        raise UsageError(
            f"A budget of {max(budgets):,} slots forgets nothing of documents of {length:,} tokens.",
            "Give smaller budgets or a larger --length.",
        )
    if prompt >= length - 1:
        raise UsageError(
            f"A prompt of {prompt:,} tokens leaves nothing to measure of documents of {length:,}.",
            "Give a smaller --prompt or a larger --length.",
        )
    positions = probe(loaded.model)
    foresight = [c for c in contestants if POLICIES[c.policy].offline]
    if foresight and length > positions.window:
        raise UsageError(
            f"{foresight[0]} has to read documents with everything kept first, and {length:,} tokens are more"
            f" than the model's window of {positions.window:,}.",
            "Give a smaller --length.",
        )
    shares = {(c, b): c.shares(slots_of(loaded, c, b, equal_bytes)) for c in contestants for b in budgets}
    fits = length <= positions.window
    total = (len(shares) * (len(readings) if prompt else 1) + fits) * count * (length - 1)
    done = 0

    config = loaded.model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads

    def run(columns: int = 1, prompt: int = 0, **plan: Any) -> tuple[Tensor, int]:
        """NLL of all documents through fresh caches, [N, L - 1]; bytes of keys and values of one row."""
        nonlocal done
        rows, held = [], 0
        offline = POLICIES[plan["policy"]].offline
        at_once = min(ROWS, rows_at_once(len(positions.ropes), heads, length)) if offline else ROWS
        for batch in torch.split(ids.to(loaded.device), at_once):
            parts = []
            if offline:
                future = foresee(loaded.model, batch, heads, plan["policy"])
                cache: H2OCache = Foresight(positions=positions, future=future, **plan)
            else:
                cache = H2OCache(positions=positions, **plan)
            for part in nll(loaded.model, batch, cache, columns, prompt):
                parts.append(part)
                done += part.shape[1] * len(batch)
                tick(done / total)
            rows.append(torch.cat(parts, 1))
            held = cache.bytes_held // len(batch)
        return torch.cat(rows).cpu(), held

    full = run(columns=64, policy="full")[0] if fits else None
    scores = []
    # The full pass first: the others are compared with it.
    order = sorted(readings, key=lambda reading: reading.prefill != "full") if prompt else [Reading()]
    for (contestant, budget), parts in shares.items():
        full_pass: Tensor | None = None
        for reading in order:
            found, held = run(
                prompt=prompt,
                budget=parts.budget,
                policy=contestant.policy,
                sinks=parts.sinks,
                recent=parts.recent,
                prefill=reading.prefill,
                chunk=contestant.chunk if reading.chunk is None else reading.chunk,
                kv=contestant.kv,
            )
            if reading.prefill == "full":
                full_pass = found
            for first, end in buckets(budget, length, positions.window):
                first = max(first, prompt)
                if first >= end:
                    continue
                lost = (found if full is None else found - full)[:, first:end].mean(1)  # [N]
                to_full_pass = None
                if full_pass is not None and reading.prefill != "full":
                    more = (found - full_pass)[:, first:end].mean(1)
                    to_full_pass = (float(more.mean().exp()), *bootstrap(more, seed))
                scores.append(
                    Score(
                        contestant=str(contestant),
                        reading=str(reading) if prompt else "",
                        budget=budget,
                        slots=parts.budget,
                        kv_bytes=held,
                        sinks=parts.sinks,
                        recent=parts.recent,
                        first=first,
                        end=end,
                        perplexity=float(found[:, first:end].mean().exp()),
                        ratio=None if full is None else float(lost.mean().exp()),
                        interval=bootstrap(lost, seed),
                        to_full_pass=to_full_pass,
                    )
                )
    return Report(loaded.name, loaded.dtype, count, length, positions.window, prompt, seed, scores)


def read_limited(path: Path) -> str:
    """A file as text.

    Raises:
        OSError, ValueError: it cannot be read, is no text, or is too large.
    """
    with path.open("rb") as file:
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES >> 20} MiB")
    return raw.decode("utf-8")


def read_texts(path: Path) -> list[str]:
    """A JSON list of strings, or any other file as one text.

    Raises:
        UsageError: it cannot be read.
    """
    wanted = "Give a text file, or a .json file with a list of strings."
    try:
        text = read_limited(path)
        found = json.loads(text) if path.suffix == ".json" else [text]
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read: {error}.", wanted) from error
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise UsageError(f"{path} is not a list of strings.", wanted)
    return [clean(one) for one in found]


def run_perplexity(
    settings: Settings,
    texts: Path,
    policies: Sequence[str],
    budgets: Sequence[int],
    length: int,
    as_json: bool,
    prompt: int = 0,
    readings: Sequence[Reading] = (Reading(),),
    kv_dtypes: Sequence[str] = (),
    equal_bytes: bool = False,
    plots: Path | None = None,
) -> ExitCode:
    """The command: a table, or one JSON object, on stdout; a picture into `plots`; progress on stderr."""
    contestants = crossed(policies, kv_dtypes)
    found = read_texts(texts)
    if plots is not None:
        from h2o_chat.lab.paper_plots import pyplot

        pyplot()  # says what is missing before anything is measured
    with progress_bar() as show:
        loaded = load(settings, show)
        ids = documents(found, loaded.tokenizer, length)
        seed, tick = settings.seed or 0, partial(show, "read")
        report = measure(loaded, ids, contestants, budgets, seed, tick, prompt, readings, equal_bytes)
    if plots is not None:
        from h2o_chat.lab.plots import plot_perplexity

        plot_perplexity(report, plots)
    if as_json:
        sys.stdout.write(json.dumps(asdict(report)) + "\n")
    else:
        show_table(report)
    return ExitCode.OK


def show_table(report: Report) -> None:
    """Contestants down, budgets across; with several stretches, one line for each."""
    from rich.console import Console
    from rich.table import Table

    budgets = sorted({score.budget for score in report.scores})
    ratio = all(score.ratio is not None for score in report.scores)
    what = "perplexity to full" if ratio else "perplexity"
    table = Table(
        title=f"{report.model}: {what}, {report.documents} documents of {report.length_tokens:,} tokens",
        caption="In brackets: 95% bootstrap interval over documents.",
    )
    table.add_column("policy")
    table.add_column("positions")
    for budget in budgets:
        table.add_column(f"{budget} slots", justify="right")
    lines: dict[tuple[str, str], dict[int, str]] = {}

    def put(who: str, stretch: str, budget: int, value: float, low: float, high: float) -> None:
        lines.setdefault((who, stretch), {})[budget] = f"{value:.4f} [{low:.3f}, {high:.3f}]"

    for score in report.scores:
        stretch = "past the budget" if ratio else f"{score.first:,}-{score.end:,}"
        stretch = f"{score.first:,}-{score.end:,}" if report.prompt_tokens else stretch
        who = ", ".join(part for part in (score.contestant, score.reading) if part)
        value = score.perplexity if score.ratio is None else score.ratio
        name = who if score.slots == score.budget else f"{who} in as many bytes"
        put(name, stretch, score.budget, value, *score.interval)
        if score.to_full_pass is not None:
            put(f"{who} : full pass", stretch, score.budget, *score.to_full_pass)
    for (contestant, stretch), cells in lines.items():
        table.add_row(contestant, stretch, *(cells.get(budget, "") for budget in budgets))
    Console(file=sys.stdout).print(table)
