"""The third tab, in the terms of the paper: kinds, lost, bytes, heavy hitters, head map."""

from textual.content import Content

from h2o_chat.base.glyphs import bar, percent, spark
from h2o_chat.base.safe import fit, token_label
from h2o_chat.chat.memory.cache_view import CacheView
from h2o_chat.events.events import CacheState, Heavy
from h2o_chat.tui.panel import headmap
from h2o_chat.tui.panel.gauge import kept_line
from h2o_chat.tui.widgets.box_frame import Line, chosen_at, title, window
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
    lines = [
        title(f"{token_label(session.policy)}, token by token"),
        *map(Line, _summary(memory, cache, inner)),
    ]
    lines += [title(f"heavy hitters, of {memory.caches:,} heads"), *_hitters(memory, inner)]
    lines.append(title(f"which heads hold {_pointed(memory, max(inner - 24, 4))}".rstrip()))
    lines += map(Line, headmap.draw(memory, inner, MAP_ROWS))
    return lines


def order(memory: CacheView) -> list[tuple[int, int]]:
    """(first, last) position of what can be chosen, in order."""
    return [(one.position, one.position) for one in memory.cache.heaviest] if memory.cache else []


def _summary(memory: CacheView, cache: CacheState, inner: int) -> list[Content]:
    room = inner - LABEL_CELLS
    return [
        _labelled("slots", _kinds(memory, cache)),
        _labelled("lost", _lost(memory, cache, room)),
        _labelled("bytes", Content(kept_line(cache, room))),
    ]


def _kinds(memory: CacheView, cache: CacheState) -> Content:
    """Slots by kind; protected ones beyond the sinks are a system prompt or pinned."""
    sinks = memory.session.sinks if memory.session else 0
    protected = cache.kinds.get("S", 0)
    names = {"S": "sink" if protected <= sinks else "pinned", "H": "heavy", "R": "recent"}
    return Content(" · ".join(f"{cache.kinds.get(kind, 0):,} {name}" for kind, name in names.items()))


def _lost(memory: CacheView, cache: CacheState, room: int) -> Content:
    """The loss lately, and its history; a resumed memory does not know its loss lately."""
    if not memory.knows_lost:
        return Content("not told before the next answer")
    history = spark(list(memory.lost)[-max(room - 19, 1) :])
    return Content.assemble(fit(f"{percent(cache.lost)} of attention", 19), (history, "$accent"))


def _pointed(memory: CacheView, cells: int) -> str:
    """The text and the position of the token under the cursor."""
    position = memory.pointed
    if position is None:
        return ""
    text, where = memory.text(position), f"@{position:,}"
    if text is None:
        return where
    label, room = token_label(text), max(cells - len(where) - 1, 1)
    cut = fit(label, room)
    return f"{label if cut.rstrip() == label else f'{fit(label, room - 1)}…'} {where}"


def _hitters(memory: CacheView, inner: int) -> list[Line]:
    """The ranks around the token under the cursor: number, token, position, heads, bar."""
    heaviest = memory.cache.heaviest if memory.cache else []
    if not heaviest:
        return [Line(Content.styled("none yet", MUTED))]
    part = window(chosen_at(order(memory), memory.pointed), len(heaviest), HITTERS)
    return [_hitter(memory, number, heaviest[number], inner) for number in range(len(heaviest))[part]]


def _hitter(memory: CacheView, number: int, token: Heavy, inner: int) -> Line:
    digits = len(str(memory.caches))
    fixed = f"{number + 1:>2}{'▸' if token.position == memory.pointed else ' '}"
    where = f"@{token.position}"
    holders = f"{memory.holders(token.hold):>{digits}}"
    pin = " pin" if token.kind == "S" else "    "
    name_cells = min(NAME_CELLS, max(inner - 30, 6))
    left = f"{fit(token_label(token.text), name_cells)} {where:<7} {holders} "
    cells = max(inner - len(fixed) - name_cells - 11 - digits, 4)
    content = Content.assemble(
        (fixed, MUTED),
        (left, "$foreground"),
        (bar(token.hold, cells - len(pin) + 1), "$secondary" if token.kind == "S" else "$accent"),
        (pin, MUTED),
    )
    return Line(content, ((0, inner, token.position),))


def _labelled(label: str, value: Content) -> Content:
    return Content.assemble((label.ljust(LABEL_CELLS), MUTED), value.stylize_before("$foreground"))
