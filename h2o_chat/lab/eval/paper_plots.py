"""Pictures of what `eval observe` and `eval generate` found, by matplotlib (`pictures.py`)."""

from pathlib import Path
from typing import Any

from h2o_chat.lab.eval.attention_figures import ObserveReport
from h2o_chat.lab.eval.generate import METRICS, GenerateReport
from h2o_chat.lab.shared.pictures import draw


def plot_observe(report: ObserveReport, folder: Path) -> list[Path]:
    """One picture for each part that was asked for; their files."""
    files = []
    if report.layers:
        files += [
            draw(folder / "sparsity.png", "Entries below 1% of their row's largest", _sparsity, report),
            draw(folder / "power-law.png", "Accumulated attention by rank, to the highest", _ranks, report),
        ]
    if report.removal:
        files.append(draw(folder / "removal.png", "Perplexity without tokens, to all", _removal, report))
    return files


def plot_generate(report: GenerateReport, folder: Path) -> list[Path]:
    """Every metric by policy and budget; the file."""
    return [draw(folder / "generate.png", f"{report.model}: answers", _generate, report)]


def _sparsity(axes: Any, report: ObserveReport) -> None:
    middle = [one.sparsity for one in report.layers]
    low = [one.sparsity - one.sparsity_interval[0] for one in report.layers]
    high = [one.sparsity_interval[1] - one.sparsity for one in report.layers]
    axes.bar([str(one.layer) for one in report.layers], middle, yerr=[low, high], capsize=3)
    axes.set(xlabel="layer", ylabel="share", ylim=(0, 1))


def _ranks(axes: Any, report: ObserveReport) -> None:
    for one, scores in zip(report.layers, report.scores, strict=True):
        ranks = range(1, len(scores) + 1)
        axes.loglog(ranks, scores, label=f"layer {one.layer}: exponent {one.exponent:.2f}, R2 {one.r2:.2f}")
    axes.set(xlabel="rank", ylabel="score")
    axes.legend(fontsize="small")


def _removal(axes: Any, report: ObserveReport) -> None:
    for what in dict.fromkeys(one.what for one in report.removal):
        found = sorted((one for one in report.removal if one.what == what), key=lambda one: one.share)
        low = [one.ratio - one.interval[0] for one in found]
        high = [one.interval[1] - one.ratio for one in found]
        shares = [100 * one.share for one in found]
        axes.errorbar(
            shares, [one.ratio for one in found], yerr=[low, high], marker="o", capsize=3, label=what
        )
    axes.set(xlabel="tokens removed, %", ylabel="perplexity to all tokens")
    axes.legend()


def _generate(axes: Any, report: GenerateReport) -> None:
    for metric in METRICS:
        found = [one for one in report.scores if one.metric == metric]
        names = [f"{one.contestant}\n{one.budget or 'all'}" for one in found]
        axes.plot(names, [one.value for one in found], marker="o", label=metric)
    axes.set(xlabel="policy, slots", ylabel="score", ylim=(0, 1))
    axes.legend()
