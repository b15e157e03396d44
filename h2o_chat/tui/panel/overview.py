"""The first tab: words that are still remembered, the oldest first, and words that were just forgotten."""

from rich.cells import cell_len
from textual.content import Content

from h2o_chat.base.glyphs import MARKS, heads, held_bar
from h2o_chat.base.safe import safe_text
from h2o_chat.chat.conversation.message import numbered
from h2o_chat.chat.memory.cache_view import CacheView
from h2o_chat.chat.memory.in_words import HeldWord, Phrase, forgotten, remembered
from h2o_chat.tui.widgets.box_frame import Line, chosen_at, clipped, muted, title, whole_words, window
from h2o_chat.tui.widgets.theme import KIND_STYLES, MUTED

LEGEND = "█ holds it   · let it go   oldest first"
HEADS = "a head: one of the model's small memories"
BAR_CELLS = 6
WORD_CELLS = (6, 18)
"""Least and most columns of a word."""


def order(memory: CacheView) -> list[tuple[int, int]]:
    """(first, last) position of what can be chosen, as they stand there."""
    words = [(held.word.first, held.word.last) for held in remembered(memory)]
    return words + [(phrase.first, phrase.last) for phrase in forgotten(memory)]


def draw(memory: CacheView, inner: int, rows: int) -> list[Line]:
    """Both parts, in exactly as many lines as are given."""
    held, went = remembered(memory), forgotten(memory)
    nothing = "no words to show yet" if memory.evicted else "nothing yet"
    wrapped = _phrases(memory, went, inner) if went else [muted(nothing)]
    low = 0 if rows < 5 else min(len(wrapped), max(1, rows // 4))
    high = rows - 1 - (low + 1 if low else 0)
    lines = [title("still remembered from long ago" if memory.evicted else "remembered so far")]
    lines += _words(memory, held, inner, high) or [muted(_nothing(memory))]
    lines += [Line(Content())] * (1 + high - len(lines))
    if low:
        lines.append(title("just forgotten"))
        marked = (at for at, line in enumerate(wrapped) if "▸" in line.content.plain)
        chosen = None if memory.cursor is None else next(marked, None)
        lines += wrapped[window(chosen, len(wrapped), low)]
    return lines[:rows]


def _nothing(memory: CacheView) -> str:
    if not memory.hold:
        return "nothing yet"
    if memory.span(memory.seen - 1) is None:
        return "being read: its words come when it is read"
    return "no whole word: only what is new" if memory.evicted else "no words yet"


def _words(memory: CacheView, held: list[HeldWord], inner: int, rows: int) -> list[Line]:
    """A line a word: the word, the number of its message, how many heads hold it."""
    chosen = chosen_at([(one.word.first, one.word.last) for one in held], memory.cursor)
    shown = held[window(chosen, len(held), rows)]
    counts = [heads(one.hold, memory.caches) for one in shown]
    numbers = [numbered(one.word.index) for one in shown]
    right, middle = max(map(len, counts), default=0), max(map(len, numbers), default=0)
    bar = BAR_CELLS if inner - middle - right - BAR_CELLS - 6 >= WORD_CELLS[0] else 0
    left = min(max(inner - middle - right - bar - 6, 1), WORD_CELLS[1])
    lines = []
    for one, number, count in zip(shown, numbers, counts, strict=True):
        here = memory.cursor is not None and memory.cursor in one.word.tokens
        content = Content.assemble(
            "▸ " if here else "  ",
            (clipped(safe_text(one.word.text), left), "bold $foreground" if here else "$foreground"),
            (f" {number:<{middle}} ", MUTED),
            (held_bar(one.hold, MARKS[one.kind], bar), KIND_STYLES[one.kind]),
            (f"{' ' if bar else ''}{count:>{right}}", "$foreground"),
        )
        lines.append(Line(content, ((0, inner, one.word.first),)))
    return lines


def _phrases(memory: CacheView, phrases: list[Phrase], inner: int) -> list[Line]:
    """Phrases side by side, as many as fit."""
    lines: list[Line] = []
    content = Content()
    spots: list[tuple[int, int, int]] = []
    for phrase in phrases:
        here = memory.cursor is not None and phrase.first <= memory.cursor <= phrase.last
        where = f" {numbered(phrase.index)}"
        text = f"“{whole_words(safe_text(phrase.text), inner - len(where) - 4)}”"
        start = content.cell_length + (2 if spots and not here else 0)
        if spots and start + 2 * here + cell_len(text) + len(where) > inner:
            lines.append(Line(content, tuple(spots)))
            content, spots, start = Content(), [], 0
        mark = "▸ " if here else "  " if spots else ""
        content = Content.assemble(
            content, mark, (text, "bold $foreground" if here else "$foreground"), (where, MUTED)
        )
        spots.append((start, content.cell_length, phrase.first))
    return [*lines, Line(content, tuple(spots))]
