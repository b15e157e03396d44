"""What `eval perplexity` found, as a table on stdout."""

from rich.table import Table

from h2o_chat.lab.eval.perplexity import PerplexityReport
from h2o_chat.lab.shared.report_output import print_tables


def show_table(report: PerplexityReport) -> None:
    """Contestants down, budgets across; with several stretches, one line for each."""
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
        if score.to_first is not None:
            put(f"{who} : {report.scores[0].contestant}", stretch, score.budget, *score.to_first)
    for (contestant, stretch), cells in lines.items():
        table.add_row(contestant, stretch, *(cells.get(budget, "") for budget in budgets))
    print_tables(table)
