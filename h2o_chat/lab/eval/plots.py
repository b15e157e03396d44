"""Pictures of the reports of `lab eval` (the extra `plot`)."""

from functools import partial
from pathlib import Path
from typing import Any

from h2o_chat.lab.eval.long_recall import BARE, LongRecallReport
from h2o_chat.lab.eval.perplexity import PerplexityReport, Score
from h2o_chat.lab.eval.recall_questions import RecallReport
from h2o_chat.lab.shared.pictures import draw

Point = tuple[int, float, tuple[float, float]]
"""Slots, a value, its interval."""


def plot_perplexity(report: PerplexityReport, folder: Path) -> list[Path]:
    """The ratio to full by budget; of documents longer than the window, the perplexity by position."""
    long = any(score.ratio is None for score in report.scores)
    title = f"{report.model}: perplexity" + (" by position" if long else " to full")
    return [draw(folder / "perplexity.png", title, _by_position if long else _by_budget, report)]


def plot_recall(report: RecallReport, folder: Path) -> list[Path]:
    """Right answers by budget, over all facts; the full cache as a line."""
    title, put = f"{report.model}: facts recalled", partial(_shares, group="all facts")
    return [draw(folder / "recall.png", title, put, report)]


def plot_long_recall(report: LongRecallReport, folder: Path) -> list[Path]:
    """Right answers by budget, a picture for each kind of facts; the full cache as lines."""
    groups = list(dict.fromkeys(share.group for share in report.shares if share.budget is not None))
    return [
        draw(
            folder / f"recall-{group.replace(',', '').replace(' ', '-')}.png",
            f"{report.model}: {group}, after {report.tokens:,} tokens",
            partial(_shares, group=group),
            report,
        )
        for group in groups
    ]


def _lines(axes: Any, points: dict[str, list[Point]], what: str) -> None:
    """One line with its intervals for each name, over budgets."""
    for name, given in points.items():
        given = sorted(given)
        middle = [value for _, value, _ in given]
        # The value of a tiny sample may lie at the end of its interval, rounded beyond it.
        low = [max(0.0, value - interval[0]) for _, value, interval in given]
        high = [max(0.0, interval[1] - value) for _, value, interval in given]
        axes.errorbar(
            [slots for slots, _, _ in given], middle, yerr=[low, high], marker="o", capsize=3, label=name
        )
    slots = sorted({point[0] for given in points.values() for point in given})
    axes.set_xscale("log", base=2)
    axes.set_xticks(slots, [f"{one:,}" for one in slots])
    axes.set(xlabel="slots", ylabel=what)
    axes.legend(fontsize="small")


def _by_budget(axes: Any, report: PerplexityReport) -> None:
    points: dict[str, list[Point]] = {}
    for score in report.scores:
        if score.ratio is not None:
            points.setdefault(_who(score), []).append((score.budget, score.ratio, score.interval))
    _lines(axes, points, "ratio")


def _by_position(axes: Any, report: PerplexityReport) -> None:
    lines: dict[str, list[Score]] = {}
    for score in report.scores:
        lines.setdefault(f"{_who(score)}, {score.budget:,} slots", []).append(score)
    for name, scores in lines.items():
        axes.plot(
            [score.end for score in scores], [score.perplexity for score in scores], marker="o", label=name
        )
    axes.set(xlabel="positions up to", ylabel="perplexity")
    axes.legend(fontsize="small")


def _who(score: Score) -> str:
    return ", ".join(part for part in (score.policy, score.reading) if part)


def _shares(axes: Any, report: RecallReport | LongRecallReport, group: str) -> None:
    points: dict[str, list[Point]] = {}
    for share in report.shares:
        if share.group != group:
            continue
        value = share.right / share.of
        if share.budget is None:
            line = ":" if share.policy == BARE else "--"
            axes.axhline(value, color="gray", linestyle=line, label=share.policy)
        else:
            points.setdefault(share.policy, []).append((share.budget, value, share.interval))
    _lines(axes, points, "share of right answers")
    axes.set_ylim(0, 1)
