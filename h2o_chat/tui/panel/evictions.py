"""Evictions, in words: a part of the second tab."""

from textual.content import Content

from h2o_chat.base.safe import fit, safe_text
from h2o_chat.chat.conversation.message import numbered
from h2o_chat.chat.memory.cache_view import CacheView
from h2o_chat.chat.memory.remembered_words import Phrase, forgotten
from h2o_chat.chat.memory.why import since
from h2o_chat.tui.widgets.box_frame import Line, muted, whole_words, window
from h2o_chat.tui.widgets.theme import MUTED


def in_words(memory: CacheView, inner: int, rows: int) -> list[Line]:
    """A line a phrase: its text, its message, and the message that was being said when it was forgotten."""
    phrases = forgotten(memory)
    if not phrases or rows < 1:
        return [muted("no words to show yet" if memory.evicted else "nothing yet")]
    chosen = (at for at, one in enumerate(phrases) if _is_here(memory, one))
    shown = phrases[window(next(chosen, None), len(phrases), rows)]
    whens = [since(memory, one.seen) for one in shown]
    columns = max(len(numbered(one.index)) for one in shown), max(map(len, whens))
    return [_phrase(memory, one, when, inner, columns) for one, when in zip(shown, whens, strict=True)]


def _is_here(memory: CacheView, phrase: Phrase) -> bool:
    return memory.cursor is not None and phrase.first <= memory.cursor <= phrase.last


def _phrase(memory: CacheView, phrase: Phrase, when: str, inner: int, columns: tuple[int, int]) -> Line:
    here = _is_here(memory, phrase)
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
