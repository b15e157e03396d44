"""The head map: which caches hold the token under the cursor; layers down, KV heads across."""

from textual.content import Content

from h2o_chat.base.glyphs import NAMES, number
from h2o_chat.chat.memory.cache_view import CacheView
from h2o_chat.tui.widgets.theme import MUTED

FACTS_CELLS = 17
WIDEST = 4
"""Most columns for one KV head."""
HALVES = {(True, True): "█", (True, False): "▀", (False, True): "▄", (False, False): "·"}


def draw(memory: CacheView, width: int, rows: int) -> list[Content]:
    """The map, and what else is known of the token beside it."""
    position = memory.pointed
    if position is None:
        return [Content.styled("no token to look at yet", MUTED)]
    which = memory.which(position)
    facts = _facts(memory, position, which, rows)
    if which is None:
        return [Content.styled("which heads hold it was not told", MUTED), *map(Content, facts)][:rows]
    lines, note = head_map(which, width - FACTS_CELLS - 1, rows)
    if note and len(facts) < rows:
        facts.append(note)
    cells = max(map(len, lines), default=0)
    lines += [" " * cells] * (min(len(facts), rows) - len(lines))
    facts += [""] * (len(lines) - len(facts))
    return [
        Content.assemble((line, "$accent"), " ", (fact, "$foreground"))
        for line, fact in zip(lines, facts, strict=False)
    ]


def head_map(which: list[list[bool]], width: int, rows: int) -> tuple[list[str], str]:
    """Lines of the map, and a note where cells were pooled.

    A layer takes a row where there is room, else half of one; layers and heads that still do not fit are
    pooled, and a pooled cell is lit where at least half of its caches hold the token.
    """
    layers, heads = len(which), len(which[0])
    across, down = -(-heads // max(width, 1)), 1 if layers <= rows else -(-layers // (2 * max(rows, 1)))
    pooled = [
        [_most(which[top : top + down], left, across) for left in range(0, heads, across)]
        for top in range(0, layers, down)
    ]
    wide = max(1, min(WIDEST, width // max(len(pooled[0]), 1)))
    gap = " " if wide > 2 else ""
    cell = wide - len(gap)
    if layers <= rows:
        lines = [gap.join(("█" if lit else "·") * cell for lit in row) for row in pooled]
    else:
        pooled += [[False] * len(pooled[0])] * (len(pooled) % 2)
        pairs = zip(pooled[::2], pooled[1::2], strict=True)
        lines = [gap.join(HALVES[pair] * cell for pair in zip(*two, strict=True)) for two in pairs]
    return lines, f"1 = {down}×{across}" if down * across > 1 else ""


def _most(layers: list[list[bool]], left: int, across: int) -> bool:
    lit = [one for row in layers for one in row[left : left + across]]
    return 2 * sum(lit) >= len(lit)


def _facts(memory: CacheView, position: int, which: list[list[bool]] | None, rows: int) -> list[str]:
    """Lines that fit beside the map, the most important first; their numbers are never cut."""
    hold, heavy = memory.hold.get(position, 0.0), memory.heavy(position)
    score = heavy[1].score if heavy else memory.score.get(position)
    saw = max(memory.seen - position, 0)
    facts = [f"{memory.holders(hold):,} of {memory.caches:,}", NAMES[memory.kind(position)]]
    if heavy:
        facts.append(f"no. {heavy[0]} by heads")
    if score is not None:
        facts.append(f"score {number(score)}")
    if score is not None and saw:
        facts.append(f"mean {number(score / saw)}")
    facts.append(f"seen {saw:,}")
    if which is not None:
        facts.append(f"in {sum(map(any, which)):,}/{len(which):,} layers")
    if position in memory.hold:
        facts.append(f"used @{max(memory.attended.get(position, position), position):,}")
    elif went := memory.left(position):
        facts += [f"left at {went.seen:,}", f"score {number(went.token.score)}"]
    if which is not None:
        facts += ["", "█ held  · let go", f"↓ {len(which):,} layers", f"→ {len(which[0]):,} heads"]
    return [fact for fact in facts[:rows] if len(fact) <= FACTS_CELLS]
