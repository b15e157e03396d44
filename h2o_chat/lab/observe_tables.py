"""What `eval observe` found, as tables on stdout."""

from rich.table import Table

from h2o_chat.lab.observe import ObserveReport
from h2o_chat.lab.output import print_tables


def show_tables(report: ObserveReport) -> None:
    """One table for each part that was asked for."""
    title = f"{report.model}: {report.documents} documents of {report.length_tokens:,} tokens"
    if report.layers:
        print_tables(_attention(report, title))
        print_tables(_diminishing(report))
    if report.removal:
        print_tables(_removal(report))
    if report.topic:
        print_tables(_topic(report))
    if report.diversity:
        print_tables(_diversity(report))


def _table(title: str, caption: str, *columns: str) -> Table:
    table = Table(title=title, caption=caption)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    return table


def _attention(report: ObserveReport, title: str) -> Table:
    uniform = report.uniform
    table = _table(
        f"{title}: attention",
        "sparsity: entries below 1% of their row's largest. exponent: of score by rank, log-log least"
        " squares, in brackets least and most of the KV heads; uniform attention:"
        f" {uniform.exponent:.2f}, R2 {uniform.r2:.2f} / {uniform.exponential_r2:.2f}. by word: of all"
        f" occurrences of a token together. overlap: of the {report.kept_share:.0%} heaviest tokens half-way,"
        f" with those of all queries / of the later ones, by chance {report.kept_share:.2f}. words: rank"
        " correlation of a token's attention, all occurrences / one, with the different tokens beside it.",
        "layer",
        "sparsity [95%]",
        "exponent",
        "R2 / of an exponential",
        "by word, R2",
        "overlap all / later",
        "words all / one",
    )
    for one in report.layers:
        table.add_row(
            str(one.layer),
            f"{one.sparsity:.3f} {_interval(one.sparsity_interval)}",
            f"{one.exponent:.2f} [{one.exponent_range[0]:.2f}, {one.exponent_range[1]:.2f}]",
            f"{one.r2:.2f} / {one.exponential_r2:.2f}",
            f"{one.word_law.exponent:.2f}, {one.word_law.r2:.2f}",
            f"{one.local_overlap:.2f} / {one.future_overlap:.2f}",
            f"{one.words:+.2f} / {one.words_each:+.2f}",
        )
    return table


def _diminishing(report: ObserveReport) -> Table:
    names = list(report.layers[0].diminishing)
    caption = "z: attention kept (mass), or nearness of the layer's output to that with everything (output)."
    table = _table("Greedy choices with diminishing returns, share, by F", caption, "layer", *names)
    for one in report.layers:
        table.add_row(str(one.layer), *(f"{one.diminishing[name]:.3f}" for name in names))
    return table


def _removal(report: ObserveReport) -> Table:
    caption = "Perplexity of the second half to that with all tokens; [95% bootstrap over documents]."
    shares = sorted({one.share for one in report.removal})
    table = _table(
        "Tokens of the first half removed", caption, "which", *(f"{share:.0%}" for share in shares)
    )
    for what in dict.fromkeys(one.what for one in report.removal):
        found = {one.share: one for one in report.removal if one.what == what}
        table.add_row(what, *(f"{found[s].ratio:.3f} {_interval(found[s].interval)}" for s in shares))
    return table


def _topic(report: ObserveReport) -> Table:
    stretches = [f"{one.first}-{one.end}" for one in report.topic[0].stretches]
    table = _table(
        "After a change of topic, by tokens of the new text",
        "Share of slots with old tokens at the end of the stretch / perplexity to the full cache / to the"
        " same policy that began with the new text.",
        "policy",
        "slots",
        "gone after",
        "recovered",
        *stretches,
    )
    for one in report.topic:
        table.add_row(
            one.contestant,
            _slots(one.budget),
            _after(one.gone_after),
            _after(one.recovered_after),
            *(f"{s.old:.2f} / {s.to_full:.2f} / {s.to_fresh:.2f}" for s in one.stretches),
        )
    return table


def _diversity(report: ObserveReport) -> Table:
    tokens = report.diversity[0].tokens
    caption = "Lower is more diverse; [95% bootstrap over prompts]."
    table = _table(f"Self-BLEU of continuations of {tokens} tokens", caption, "policy", "slots", "Self-BLEU")
    for one in report.diversity:
        cell = f"{one.self_bleu:.4f} {_interval(one.interval, 4)}"
        table.add_row(one.contestant, _slots(one.budget), cell)
    return table


def _interval(interval: tuple[float, float], digits: int = 3) -> str:
    return f"[{interval[0]:.{digits}f}, {interval[1]:.{digits}f}]"


def _slots(budget: int | None) -> str:
    return "all" if budget is None else f"{budget:,}"


def _after(tokens: int | None) -> str:
    return "-" if tokens is None else f"{tokens:,}"
