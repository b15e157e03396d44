"""The last line of each `h2o-chat lab bench`: what the figures above it mean, in one sentence."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from h2o_chat.lab.bench.bounded import Bounded
    from h2o_chat.lab.bench.rows_bench import RowsSpeed
    from h2o_chat.lab.bench.soak import Stretch
    from h2o_chat.lab.bench.ui_bench import Times

MEMORY_GROWTH = 0.05
"""Share by which a process may differ in size: its allocator keeps what was freed."""
TIME_GROWTH = 0.15
"""Share by which medians of a shared machine differ without any growth."""


def bounded(found: "Sequence[Bounded]") -> str:
    (one,) = found
    slots = f"{one.most_kept_slots:,} of {one.budget:,} slots at most"
    index = f"positions up to {one.largest_index:,} of {one.window_tokens:,}"
    memory = f"memory {one.rss_growth_share:+.1%} since token 1,000"
    time = f"a token takes {one.old_over_fresh:.2f} times as long as in a new conversation"
    grown = [
        what
        for what, grows in (
            (slots, one.most_kept_slots > one.budget),
            (index, one.largest_index >= one.window_tokens),
            (memory, one.rss_growth_share > MEMORY_GROWTH),
            (time, one.old_over_fresh > 1 + TIME_GROWTH),
        )
        if grows
    ]
    if grown:
        return f"Verdict: something grows with {one.tokens:,} tokens: {'; '.join(grown)}."
    return f"Verdict: nothing grows with {one.tokens:,} tokens: {slots}, {index}, {memory}, {time}."


def soak(found: "Sequence[Stretch]") -> str:
    first, last = found[0], found[-1]
    if first is last:
        return f"Verdict: none yet. One stretch of {last.tokens:,} tokens has nothing to compare with."
    memory, time = last.rss_bytes / first.rss_bytes, last.token_ms / first.token_ms
    grows = memory > 1 + MEMORY_GROWTH or time > 1 + TIME_GROWTH
    return (
        f"Verdict: {'something grows' if grows else 'nothing grows but the file'} from {first.tokens:,} to"
        f" {last.tokens:,} tokens: memory {memory - 1:+.1%}, a token takes {time:.2f} times as long,"
        f" {last.bytes_per_token:.1f} bytes of the database a token."
    )


def rows(found: "Sequence[RowsSpeed]", threads_asked: bool) -> str:
    first, best = found[0], max(found, key=lambda one: one.tok_s)
    threads = f"{first.threads} thread{'s' if first.threads > 1 else ''}"
    if not threads_asked:
        threads += ", as many as serve and run --batch take here (--threads: others)"
    told = f"With {threads}.\nVerdict: {first.rows:,} at once: {first.tok_s:,.0f} tok/s"
    if best is not first:
        told += f"; {best.rows:,}: {best.tok_s:,.0f}, {best.times_one:.2f} times as many"
    disturbed = sum(one.disturbed for one in found)
    return told + (
        f"; something else ran in {disturbed} samples: measure again when it is idle." if disturbed else "."
    )


def ui(found: "Sequence[Times]") -> str:
    aimed = [one for one in found if one.target]
    missed = [one for one in aimed if not _met(one)]
    if not missed:
        return f"Verdict: the screen is quick enough: all {len(aimed)} aims are met."
    told = "; ".join(f"{one.what} {one.median:.3g} {one.unit} (aim {one.target})" for one in missed)
    return f"Verdict: {len(missed)} of {len(aimed)} aims are missed: {told}."


def _met(one: "Times") -> bool:
    """Whether the median is on the right side of its aim, such as `< 20`."""
    sign, aim = one.target.split()
    return one.median >= float(aim) if sign.startswith(">") else one.median < float(aim)
