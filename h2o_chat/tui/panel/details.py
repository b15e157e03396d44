"""The third tab: lost, bytes, the older tokens that most heads hold, the map of heads."""

from itertools import zip_longest

from textual.content import Content

from h2o_chat.base.glyphs import NAMES, bar, number, percent, size, spark
from h2o_chat.base.safe import fit, token_label
from h2o_chat.chat.memory.cache_view import CacheView
from h2o_chat.events.events import CacheState, Heavy
from h2o_chat.tui.widgets.box_frame import Line, chosen_at, clipped, title, window
from h2o_chat.tui.widgets.theme import MUTED

LEGEND = "↑↓ another token   pgdn more   █ held"
LABEL_CELLS = 7
HITTERS, MAP_ROWS = 5, 12
"""Most lines of each part; together they are longer than the panel, which shows a window of them."""
NAME_CELLS = 12


def draw(memory: CacheView, inner: int) -> list[Line]:
    cache, session = memory.cache, memory.session
    if cache is None or session is None:
        return [title("details"), Line(Content.styled("nothing read yet", MUTED))]
    room = inner - LABEL_CELLS
    return [
        title(f"{token_label(session.policy)}, token by token"),
        _labelled("lost", _lost(memory, cache, room)),
        _labelled("bytes", Content(_bytes(cache, room))),
        title(f"held by most heads, of {memory.caches:,}"),
        *_hitters(memory, inner),
        title(f"which heads hold {_pointed(memory, max(inner - 24, 4))}".rstrip()),
        *map(Line, draw_heads(memory, inner, MAP_ROWS)),
    ]


def order(memory: CacheView) -> list[tuple[int, int]]:
    """(first, last) position of what can be chosen, in order."""
    return [(one.position, one.position) for one in memory.cache.heaviest] if memory.cache else []


def _lost(memory: CacheView, cache: CacheState, room: int) -> Content:
    """The loss lately, and its history; a resumed memory does not know its loss lately."""
    if not memory.knows_lost:
        return Content("not told before the next answer")
    history = spark(list(memory.lost)[-max(room - 19, 1) :])
    return Content.assemble(fit(f"{percent(cache.lost)} of attention", 19), (history, "$accent"))


def _bytes(cache: CacheState, inner: int) -> str:
    """Bytes of the slots, which are allocated at once."""
    if cache.bytes >= cache.bytes_full:
        return f"{size(cache.bytes)} allocated, full: {size(cache.bytes_full)}"
    left = f"{size(cache.bytes)} of {size(cache.bytes_full)} full"
    less = f"{cache.bytes_full / cache.bytes:.1f}x less" if cache.bytes else ""
    return fit(left, max(inner - len(less), len(left) + 1)) + less


def _pointed(memory: CacheView, cells: int) -> str:
    position = memory.pointed
    if position is None:
        return ""
    text, where = memory.text(position), f"@{position:,}"
    if text is None:
        return where
    return f"{clipped(token_label(text), max(cells - len(where) - 1, 1)).rstrip()} {where}"


def _hitters(memory: CacheView, inner: int) -> list[Line]:
    """The ranks around the token under the cursor: number, token, position, heads, bar."""
    heaviest = memory.cache.heaviest if memory.cache else []
    if not heaviest:
        return [Line(Content.styled("none yet", MUTED))]
    part = window(chosen_at(order(memory), memory.pointed), len(heaviest), HITTERS)
    return [_hitter(memory, rank, token, inner) for rank, token in list(enumerate(heaviest, 1))[part]]


def _hitter(memory: CacheView, rank: int, token: Heavy, inner: int) -> Line:
    digits = len(str(memory.caches))
    fixed = f"{rank:>2}{'▸' if token.position == memory.pointed else ' '}"
    pin = " pin" if token.kind == "S" else "    "
    name_cells = min(NAME_CELLS, max(inner - 30, 6))
    name, where = fit(token_label(token.text), name_cells), f"@{token.position}"
    left = f"{name} {where:<7} {memory.holders(token.hold):>{digits}} "
    cells = max(inner - len(fixed) - name_cells - 11 - digits, 4)
    content = Content.assemble(
        (fixed, MUTED),
        (left, "$foreground"),
        (bar(token.hold, cells - len(pin) + 1), "$secondary" if token.kind == "S" else "$accent"),
        (pin, MUTED),
    )
    return Line(content, ((0, inner, token.position),))


def _labelled(label: str, value: Content) -> Line:
    return Line(Content.assemble((label.ljust(LABEL_CELLS), MUTED), value.stylize_before("$foreground")))


FACTS_CELLS = 17
WIDEST_HEAD_CELLS = 4
HALVES = {(True, True): "█", (True, False): "▀", (False, True): "▄", (False, False): "·"}


def draw_heads(memory: CacheView, width: int, rows: int) -> list[Content]:
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
    cells = max(map(len, lines))
    return [
        Content.assemble((line.ljust(cells), "$accent"), " ", (fact, "$foreground"))
        for line, fact in zip_longest(lines, facts, fillvalue="")
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
    wide = max(1, min(WIDEST_HEAD_CELLS, width // max(len(pooled[0]), 1)))
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
