"""`h2o-chat lab eval lm-eval`: EleutherAI's tasks through the bounded cache, never with future attention.

The published H2O harness chose what to keep by queries that had not come yet. Here every text is read as the
program reads it: `chunk` tokens attend, then the policy gives slots up, then the next come. So a bounded
policy needs no truncation, whatever the length; `full` sees what fits the model's window, as lm_eval's own
models do.

Shapes: R rows of L tokens, shorter ones padded at the end; logits [R, N, V].
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import ExitCode, UsageError
from h2o_chat.base.progress import Tick, part, progress_bar, unheard
from h2o_chat.cache.forward_call import Step
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import Turn
from h2o_chat.lab.shared.intervals import mean_interval
from h2o_chat.lab.shared.policy_runs import Run, runs_of
from h2o_chat.lab.shared.report_output import print_tables, slots, tell
from h2o_chat.models.load import Loaded, load
from h2o_chat.models.tokenizer_calls import tokens_of
from h2o_chat.transformers_cache.cache import H2OCache
from h2o_chat.transformers_cache.probe import probe

try:
    from lm_eval.api.model import TemplateLM
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.tasks import TaskManager
    from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
except ModuleNotFoundError as error:
    raise UsageError(
        f"lm_eval cannot be used: {error}.", "Install it with pip install 'h2o-chat[lm-eval]' (600 MB)."
    ) from error

ROWS = 16
"""Texts at once."""
ANSWER_TOKENS = 256
"""Tokens of a generated answer, where the task does not say."""
TASKS = Path(__file__).parent / "tasks"
"""Tasks that come with the program."""


class BoundedLM(TemplateLM):
    """A model with a bounded cache, as lm_eval asks for one.

    Args:
        settings: policy, budget, sinks, recent; and `chunk`, the tokens read before slots are given up.
    """

    def __init__(self, loaded: Loaded, settings: Settings, tick: Tick = unheard) -> None:
        super().__init__()
        self.tokenizer = loaded.tokenizer
        self.engine = Engine(loaded, settings)
        self.positions = probe(loaded.model)
        self.settings, self.tick = settings, tick
        self.device_name = loaded.device

    @property
    def eot_token_id(self) -> int:
        return int(self.tokenizer.eos_token_id)

    @property
    def prefix_token_id(self) -> int:
        start = self.tokenizer.bos_token_id
        return self.eot_token_id if start is None else int(start)

    @property
    def window(self) -> int | None:
        """Tokens that can be fed at most; None: there is no end."""
        return self.positions.window if self.settings.policy == "full" else None

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """A start token, where the model has one and nobody said otherwise, then the words."""
        start = self.tokenizer.bos_token_id
        words = tokens_of(self.tokenizer, string)
        return words if add_special_tokens is False or start is None else [start, *words]

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = True) -> list[tuple[float, bool]]:
        found: list[tuple[float, bool]] = super().loglikelihood(requests, disable_tqdm=True)
        return found

    def _loglikelihood_tokens(
        self, requests: list[tuple[Any, list[int], list[int]]], **_: Any
    ) -> list[tuple[float, bool]]:
        """Log-likelihood of each continuation after its context, and whether greedy decoding says it."""
        texts = [([*context, *said], len(said)) for _, context, said in requests]
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i][0]))  # alike lengths beside each other
        found: dict[int, tuple[float, bool]] = {}
        for start in range(0, len(order), ROWS):
            batch = order[start : start + ROWS]
            found.update(zip(batch, self._score([texts[i] for i in batch]), strict=True))
            self.tick(len(found) / len(order))
        return [found[i] for i in range(len(texts))]

    @torch.no_grad()
    def _score(self, texts: Sequence[tuple[list[int], int]]) -> list[tuple[float, bool]]:
        """One batch: (tokens, how many of the last ones are scored)."""
        if self.window:
            texts = [(ids[-self.window - 1 :], min(said, self.window)) for ids, said in texts]
        longest = max(len(ids) for ids, _ in texts)
        ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row, _ in texts])
        lengths = torch.tensor([len(row) for row, _ in texts])[:, None]
        column = torch.arange(1, longest)  # of the targets
        scored = (column < lengths) & (column >= lengths - torch.tensor([[said] for _, said in texts]))
        logs, greedy = (torch.cat(parts, 1).cpu() for parts in zip(*self._read(ids, lengths), strict=True))
        total = logs.double().masked_fill(~scored, 0).sum(1).tolist()
        return list(zip(total, (greedy | ~scored).all(1).tolist(), strict=True))

    def _read(self, ids: Tensor, lengths: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Feeds rows [R, L]; yields for the tokens that followed their log-likelihood and whether each was
        the likeliest, [R, N] each."""
        plan, model = self.settings, self.engine.model
        cache = H2OCache(
            plan.budget,
            policy=plan.policy,
            sinks=plan.sinks,
            recent=plan.recent,
            chunk=plan.chunk,
            positions=self.positions,
            kv=plan.kv_dtype,
        )
        columns = cache.plan.chunk
        real = torch.arange(ids.shape[1]) < lengths - 1  # the last token of a row is a target alone
        ids, real = ids.to(self.engine.runner.device), real.to(self.engine.runner.device)
        for start in range(0, ids.shape[1] - 1, columns):
            cut = slice(start, min(start + columns, ids.shape[1] - 1))
            width = cut.stop - start
            padded = not bool(real[:, : cut.stop].all())
            cache.prepare(Step(width, real=real[:, cut] if padded else None))
            where = cache.position_ids().to(ids.device)
            more = {"attention_mask": real[:, : cut.stop].long()} if padded or self.positions.learned else {}
            output = model(
                ids[:, cut],
                position_ids=where.expand(len(ids), -1),
                past_key_values=cache,
                use_cache=True,
                **more,
            )
            logits = output.logits.to(torch.promote_types(output.logits.dtype, torch.float32))
            target = ids[:, start + 1 : cut.stop + 1].unsqueeze(-1)
            said = logits.gather(-1, target).squeeze(-1) - logits.logsumexp(-1)
            yield said, logits.argmax(-1) == target.squeeze(-1)

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = True) -> list[float]:
        """Scores whole texts in one go, however long; only `full` needs windows."""
        return [self._rolling(self.tok_encode(request.args[0], False)) for request in requests]

    def _rolling(self, ids: list[int]) -> float:
        start = self.prefix_token_id
        windows = [([start], ids)] if ids else []
        if self.window:
            cuts = get_rolling_token_windows(ids, start, max_seq_len=self.window, context_len=1)
            windows = [make_disjoint_window(cut) for cut in cuts]
        found = self._loglikelihood_tokens([("", context, said) for context, said in windows])
        return sum(log for log, _ in found)

    def generate_until(self, requests: list[Any], disable_tqdm: bool = True) -> list[str]:
        """Answers up to the texts that end them; the prompts are read chunk by chunk, too."""
        answers = []
        for number, request in enumerate(requests):
            text, asked = request.args
            stops = asked.get("until") or ()
            tokens = int(asked.get("max_gen_toks", ANSWER_TOKENS))
            sampling = Sampling(
                temperature=float(asked.get("temperature", 0) if asked.get("do_sample") else 0),
                top_p=float(asked.get("top_p", 1)),
                max_tokens=tokens,
                stop=tuple(stop for stop in ([stops] if isinstance(stops, str) else stops) if stop),
            )
            ids = self.tok_encode(text)
            if self.window:
                ids = ids[-max(1, self.window - tokens) :]
            self.engine.reset()
            events = self.engine.generate(ids, sampling)
            answers += [event.text for event in events if isinstance(event, Turn)]
            self.tick((number + 1) / len(requests))
        return answers


@dataclass(frozen=True)
class Result:
    """One metric of one task, under one policy and budget."""

    task: str
    metric: str
    policy: str
    budget: int | None
    """None: the full cache."""
    value: float
    interval: tuple[float, float] | None
    """95% interval of the value, bootstrap over documents; None where the metric is no mean over them."""
    change: float | None
    """To the full cache."""
    change_interval: tuple[float, float] | None
    """95% interval of the change: documents are compared with themselves."""
    documents: int


@dataclass(frozen=True)
class HarnessReport:
    """All results, and what they were measured on."""

    model: str
    chunk: int
    results: list[Result]


def run_harness(
    settings: Settings,
    tasks: Sequence[str],
    include: Path | None,
    data: Path | None,
    policies: Sequence[str],
    budgets: Sequence[int],
    limit: int | None,
    shots: int | None,
    as_json: bool,
) -> ExitCode:
    """The command: a table, or one JSON object, on stdout; progress on stderr."""
    runs = runs_of(policies, budgets)
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    manager = _manager(tasks, include, data)
    with progress_bar() as show:
        loaded = load(settings, show)

        def evaluate(run: Run, tick: Tick) -> Any:
            lm = BoundedLM(loaded, run.settings(chunk=settings.chunk or 1), tick)
            try:
                return simple_evaluate(
                    lm,
                    tasks=list(tasks),
                    task_manager=manager,
                    num_fewshot=shots,
                    limit=limit,
                    bootstrap_iters=0,
                )
            except (OSError, ValueError) as error:
                raise UsageError(
                    f"The tasks {', '.join(tasks)} cannot be run: {error}.",
                    "Tasks of the hub need a network; with --include-path and --data none is needed.",
                ) from error

        report = compare(loaded.name, runs, evaluate, settings, partial(show, "score"))
    return tell(report, as_json, show_table)


def _manager(tasks: Sequence[str], include: Path | None, data: Path | None) -> Any:
    """Tasks of our own and of the user; only if one is not there, the thousands of lm_eval, too.

    Raises:
        UsageError: a task that nobody has.
    """
    own = [str(TASKS), *([str(include)] if include else [])]
    unknown = ""
    for defaults in (False, True):
        known = {"data": str(data)} if data else {}
        manager = TaskManager(include_path=own, include_defaults=defaults, metadata=known)
        unknown = next((task for task in tasks if task not in manager.all_tasks), "")
        if not unknown:
            return manager
    raise UsageError(f"lm_eval knows no task {unknown!r}.", "--include-path names a folder of tasks.")


def compare(
    model: str, runs: Sequence[Run], evaluate: Callable[[Run, Tick], Any], settings: Settings, tick: Tick
) -> HarnessReport:
    """Evaluates the full cache, which is the first run, then the others against it."""
    results: list[Result] = []
    full: dict[tuple[str, str], tuple[float, list[float]]] = {}
    for number, run in enumerate(runs):
        found = evaluate(run, part(tick, number, len(runs)))
        for task, metrics in found["results"].items():
            documents = found["samples"].get(task, [])
            for name, value in metrics.items():
                metric, _, _ = name.partition(",")
                if not isinstance(value, int | float) or metric.endswith("_stderr") or "," not in name:
                    continue
                each = _per_document(documents, metric, float(value))
                reference = full.setdefault((task, metric), (float(value), each))
                changes = [a - b for a, b in zip(each, reference[1], strict=False)]
                results.append(
                    Result(
                        task=task,
                        metric=metric,
                        policy=run.name,
                        budget=run.budget,
                        value=float(value),
                        interval=mean_interval(each, settings.seed or 0) if each else None,
                        change=None if run.budget is None else float(value) - reference[0],
                        change_interval=(
                            mean_interval(changes, settings.seed or 0) if changes and run.budget else None
                        ),
                        documents=len(documents),
                    )
                )
    return HarnessReport(model, settings.chunk or 1, results)


def _per_document(documents: Sequence[dict[str, Any]], metric: str, value: float) -> list[float]:
    """The metric of every document, if their mean is the metric of the task; else nothing."""
    each = [float(d[metric]) for d in documents if isinstance(d.get(metric), int | float)]
    if not each or len(each) != len(documents) or abs(sum(each) / len(each) - value) > 1e-6:
        return []
    return each


def show_table(report: HarnessReport) -> None:
    """One line for each policy and budget, one column for each metric."""
    from rich.table import Table

    documents = max((result.documents for result in report.results), default=0)
    how = "token by token" if report.chunk == 1 else f"{report.chunk} tokens at a time"
    table = Table(
        title=f"{report.model}: lm_eval, {documents:,} documents, read {how}",
        caption="[95% bootstrap interval over documents]; after the slash: change to full, paired.",
    )
    table.add_column("policy")
    table.add_column("slots", justify="right")
    columns = list(dict.fromkeys((result.task, result.metric) for result in report.results))
    for task, metric in columns:
        table.add_column(f"{task} {metric}", justify="right")
    lines: dict[tuple[str, int | None], dict[tuple[str, str], str]] = {}
    for result in report.results:
        cells = lines.setdefault((result.policy, result.budget), {})
        cells[result.task, result.metric] = _cell(result)
    for (variant, budget), cells in lines.items():
        table.add_row(variant, slots(budget), *(cells.get(column, "") for column in columns))
    print_tables(table)


def _cell(result: Result) -> str:
    cell = f"{result.value:.4f}"
    if result.interval:
        cell += f" [{result.interval[0]:.3f}, {result.interval[1]:.3f}]"
    if result.change is not None:
        cell += f" / {result.change:+.4f}"
    if result.change_interval:
        cell += f" [{result.change_interval[0]:+.3f}, {result.change_interval[1]:+.3f}]"
    return cell
