"""The second tab: the survival map, and what was evicted, in words."""

from textual.content import Content

from h2o_chat.base.glyphs import MARKS, height, short
from h2o_chat.base.safe import fit, safe_text
from h2o_chat.chat.conversation.message import numbered
from h2o_chat.chat.memory.cache_view import CacheView, Survival, SurvivalStep
from h2o_chat.chat.memory.in_words import Phrase, forgotten, since
from h2o_chat.tui.widgets.box_frame import Line, chosen_at, muted, title, whole_words, window
from h2o_chat.tui.widgets.theme import MUTED

LEGEND = "taller: more heads hold it   · forgotten"


def draw(memory: CacheView, inner: int, rows: int) -> list[Line]:
    """The map above, the evicted words below, in at most this many lines."""
    low = max(rows // 3, 1) if rows >= 6 else 0
    high = rows - 1 - (low + 1 if low else 0)
    lines = [title("what was held, when so many tokens were read")]
    lines += map(Line, survival_map(memory.survival, inner, high))
    if low:
        lines.append(title("forgotten: of which message, since which"))
        lines += evicted_words(memory, inner, rows - len(lines))
    return lines[:rows]


def order(memory: CacheView) -> list[tuple[int, int]]:
    """(first, last) position of what can be chosen, in order."""
    return [(phrase.first, phrase.last) for phrase in forgotten(memory)]


LABEL_CELLS = 7


def survival_map(lives: Survival, width: int, rows: int) -> list[Content]:
    """The map, newest step last, and a line that names the ends of its columns."""
    if not lives.steps or rows < 2:
        return [Content.styled("no step yet" if rows >= 2 else "no room", MUTED)][:rows]
    seen, steps, cells = lives.steps[-1].seen, lives.steps, max(width - LABEL_CELLS, 1)
    shown = min(rows - 1, len(steps))
    lines = []
    for row in range(shown):
        step = steps[(row + 1) * len(steps) // shown - 1]
        marks = "".join(_mark(step, lives.width, seen, cell, cells) for cell in range(cells))
        lines.append(Content.assemble((f"{short(step.seen):>{LABEL_CELLS - 1}} ", MUTED), (marks, "$accent")))
    left, right = "the oldest", "the newest"
    axis = f"{'↑ read':<{LABEL_CELLS}}{left}{right:>{max(cells - len(left), 0)}}"
    return [*lines, Content.styled(axis, MUTED)]


def _mark(step: SurvivalStep, width: int, seen: int, cell: int, cells: int) -> str:
    first = cell * seen // cells
    end = min(max((cell + 1) * seen // cells, first + 1), step.seen)
    if first >= end:
        return " "
    ranges = range(first // width, -(-end // width))
    tokens = min(ranges.stop * width, step.seen) - ranges.start * width
    return height(sum(step.held[at] for at in ranges) / tokens).replace(" ", MARKS["·"])


def evicted_words(memory: CacheView, inner: int, rows: int) -> list[Line]:
    """A line a phrase: its text, its message, and the message that was being said when it was forgotten."""
    phrases = forgotten(memory)
    if not phrases or rows < 1:
        return [muted("no words to show yet" if memory.evicted else "nothing yet")]
    chosen = chosen_at([(one.first, one.last) for one in phrases], memory.cursor)
    shown = phrases[window(chosen, len(phrases), rows)]
    whens = [since(memory, one.seen) for one in shown]
    columns = max(len(numbered(one.index)) for one in shown), max(map(len, whens))
    return [_phrase(memory, one, when, inner, columns) for one, when in zip(shown, whens, strict=True)]


def _phrase(memory: CacheView, phrase: Phrase, when: str, inner: int, columns: tuple[int, int]) -> Line:
    here = memory.cursor is not None and phrase.first <= memory.cursor <= phrase.last
    where = f"{numbered(phrase.index):<{columns[0]}}"
    room = max(inner - sum(columns) - 5, 3)
    text = f"“{whole_words(safe_text(phrase.text), room - 2)}”"
    return Line(
        Content.assemble(
            "▸ " if here else "  ",
            (fit(text, room), "bold $foreground" if here else "$foreground"),
            (f" {where}  {when:<{columns[1]}}", MUTED),
        ),
        ((0, inner, phrase.first),),
    )
