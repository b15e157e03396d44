"""Report of `bench speed`, as a table and in sentences."""

import sys

from h2o_chat.lab.bench.speed import OURS, TURN_TOKENS, Ratio, Report, Speed
from h2o_chat.lab.shared.report_output import print_table

COLUMNS = (
    "peer", "seen", "threads", "ms a token", "spread", "floor, ms", "of it",
    "read, MB", "prompt", "first, s", "disturbed",
)  # fmt: skip


def show_speed(report: Report) -> None:
    """Writes the tables, and a sentence for each ratio, to stdout."""
    print_table(COLUMNS, map(_cells, report.rows))
    given = list({row.program: row.given for row in report.rows}.items())
    given += [(one.peer, f"did not run: {one.reason}") for one in report.absent]
    print_table(("peer", "was given"), given)
    by_name = {row.peer: row for row in report.rows}
    lines = [_sentence(ratio, by_name) for ratio in report.ratios]
    first = report.rows[0]
    lines.append(
        f"A pass over 1 GiB, one a turn, moves {first.read_gb_s:.1f} GB/s: the floor is each one's bytes at"
        f" that speed. Turns of {TURN_TOKENS} tokens; spread: between the quartiles; in brackets the 95%"
        " interval of the median over turns."
    )
    disturbed = sum(row.disturbed_turns for row in report.rows)
    if disturbed:
        total = sum(row.turns for row in report.rows)
        lines.append(f"Something else ran in {disturbed} of {total} samples: measure again when it is idle.")
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def _cells(row: Speed) -> list[str]:
    return [
        row.peer,
        f"{row.seen_tokens:,}",
        str(row.threads),
        f"{row.token_ms:.2f}",
        f"{row.spread_ms:.2f}",
        f"{row.floor_ms:.2f}",
        f"{row.of_floor:.0%}",
        f"{row.weight_bytes / 1e6:,.0f}",
        f"{row.prompt_tokens:,}" if row.first_ms else "",
        f"{row.first_ms / 1000:.2f}" if row.first_ms else "",
        f"{row.disturbed_turns} of {row.turns}",
    ]


def _sentence(ratio: Ratio, rows: dict[str, Speed]) -> str:
    """Times as fast as another program; times as long as another of ours."""
    mine, other = rows[ratio.peer], rows[ratio.beside]
    if other.kind == OURS:
        return (
            f"{ratio.peer}: a token takes {ratio.token:.3f} times as long [{ratio.low:.3f} to"
            f" {ratio.high:.3f}], at worst {ratio.worst:.2f} times, {mine.token_ms - other.token_ms:+.2f} ms,"
            f" beside {ratio.beside}."
        )
    seen = "" if "seen" in ratio.beside else f" at {other.seen_tokens:,} seen"
    first = f"; the first after {mine.prompt_tokens:,} {1 / ratio.first:.2f} times" if ratio.first else ""
    return (
        f"{ratio.peer}: a token is {1 / ratio.token:.2f} times as fast as {ratio.beside}{seen}"
        f" [{1 / ratio.high:.2f} to {1 / ratio.low:.2f}]{first}."
    )
