"""The second tab: the survival map, and what was evicted, in words."""

from h2o_chat.chat.memory.cache_view import CacheView
from h2o_chat.chat.memory.remembered_words import forgotten
from h2o_chat.tui.panel import evictions, survival_map
from h2o_chat.tui.panel.lines import Line, title

LEGEND = "taller: more heads hold it   · forgotten"


def draw(memory: CacheView, inner: int, rows: int) -> list[Line]:
    """The map above, the evicted words below, in at most this many lines."""
    low = max(rows // 3, 1) if rows >= 6 else 0
    high = rows - 1 - (low + 1 if low else 0)
    lines = [title("what was held, when so many tokens were read")]
    lines += map(Line, survival_map.draw(memory.survival, inner, high))
    if low:
        lines += [
            title("forgotten: of which message, since which"),
            *evictions.in_words(memory, inner, rows - len(lines) - 1),
        ]
    return lines[:rows]


def order(memory: CacheView) -> list[tuple[int, int]]:
    """(first, last) position of what can be chosen, in order."""
    return [(phrase.first, phrase.last) for phrase in forgotten(memory)]
