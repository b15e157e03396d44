"""How full the memory is: the top of the panel on every tab."""

from textual.content import Content

from h2o_chat.base.glyphs import MARKS, NAMES, size
from h2o_chat.base.safe import fit
from h2o_chat.chat.memory.cache_view import CacheView
from h2o_chat.events.events import CacheState
from h2o_chat.tui.widgets.theme import MUTED

STYLES = {"H": "$accent", "R": "$primary", "S": "$secondary", "·": MUTED}
ORDER = ("H", "R", "S")


def note(memory: CacheView) -> str:
    """The note in the frame: tokens kept, of how many."""
    cache, session = memory.cache, memory.session
    if cache is None or session is None:
        return ""
    if memory.evicted:
        return f"{cache.kept:,} of {cache.seen:,} tokens kept"
    return (
        f"{cache.kept:,} tokens" if session.budget is None else f"{cache.kept:,} of {session.budget:,} used"
    )


def draw(memory: CacheView, inner: int) -> list[Content]:
    """A bar of the slots, the meaning of its marks, and bytes where they say something."""
    cache, session = memory.cache, memory.session
    if cache is None or session is None:
        return [Content.styled("nothing read yet", MUTED)]
    forgotten = f"{memory.evicted:,} forgotten" if memory.evicted else "nothing forgotten yet"
    if session.budget is None:
        forgotten = "keeps everything"
    bar = _bar(cache, session.budget or max(cache.kept, 1), max(inner - len(forgotten) - 3, 4))
    lines = [Content.assemble(*bar, "   ", (forgotten, "$foreground")), _marks(cache, session.sinks, inner)]
    if memory.evicted and cache.bytes_full > cache.bytes:
        never = f"never over {size(cache.bytes)}"
        never += f" + {size(session.fixed_bytes)} fixed" if session.fixed_bytes else ""
        more = f"{never} · without limit {size(cache.bytes_full)}"
        lines.append(Content.styled(more if len(more) <= inner else never, MUTED))
    return lines


def _bar(cache: CacheState, budget: int, cells: int) -> list[tuple[str, str]]:
    """The slots of the fullest cache by kind; a kind that has any always shows."""
    parts, used, drawn = [], 0, 0
    for kind in ORDER:
        count = cache.kinds.get(kind, 0)
        used += count
        end = min(max(round(used / budget * cells), drawn + (count > 0)), cells)
        parts.append((MARKS[kind] * (end - drawn), STYLES[kind]))
        drawn = end
    return [*parts, (" " * (cells - drawn), "")]


def _marks(cache: CacheState, sinks: int, inner: int) -> Content:
    """The legend of the bar, with numbers. The first tokens are protected though nobody has pinned them."""
    nothing_pinned = 0 < cache.kinds.get("S", 0) <= sinks
    names = NAMES | ({"S": "first"} if nothing_pinned else {})
    parts = [
        ((MARKS[kind], STYLES[kind]), f" {names[kind]} {cache.kinds.get(kind, 0):,}")
        for kind in ("R", "H", "S")
    ]
    words = sum(len(mark) + len(text) for (mark, _), text in parts)
    gap = " " * max(min((inner - words) // 2, 3), 1)
    return Content(gap).join([Content.assemble(mark, (text, "$foreground")) for mark, text in parts])


def kept_line(cache: CacheState, inner: int) -> str:
    """Bytes of the slots, which are allocated at once."""
    if cache.bytes >= cache.bytes_full:
        return f"{size(cache.bytes)} allocated, full: {size(cache.bytes_full)}"
    left = f"{size(cache.bytes)} of {size(cache.bytes_full)} full"
    less = f"{cache.bytes_full / cache.bytes:.1f}x less" if cache.bytes else ""
    return fit(left, max(inner - len(less), len(left) + 1)) + less
