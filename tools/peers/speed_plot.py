"""Picture of the speeds: milliseconds a token, over tokens seen."""

from pathlib import Path
from typing import Any

from h2o_chat.lab.bench.speed import OURS, Report
from h2o_chat.lab.shared.pictures import draw


def plot_speed(report: Report, folder: Path) -> Path:
    """A line for each program, named from the slowest to the fastest at the end; ours thick."""
    return draw(folder / "speed.png", "One token, by tokens seen before it", _lines, report)


def _lines(axes: Any, report: Report) -> None:
    by_age = sorted(report.rows, key=lambda row: row.seen_tokens)
    slowest_first = sorted(by_age, key=lambda row: (row.seen_tokens, row.token_ms), reverse=True)
    for program in dict.fromkeys(row.program for row in slowest_first):
        rows = [row for row in by_age if row.program == program]
        ours = rows[0].kind == OURS
        axes.plot(
            [row.seen_tokens for row in rows],
            [row.token_ms for row in rows],
            marker="o",
            linewidth=3 if ours else 1.2,
            color="black" if ours else None,
            zorder=3 if ours else 2,
            label=f"h2o-chat, {program}" if ours else program,
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    seen = sorted({row.seen_tokens for row in report.rows})
    axes.set_xticks(seen, [f"{one:,}" for one in seen])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:g}"[0] in "25" else "")
    axes.set_xlabel("tokens seen")
    axes.set_ylabel("ms per token")
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
