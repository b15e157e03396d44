"""Evictions: in words on the second tab, token by token with scores on the third."""

from itertools import islice

from textual.content import Content

from h2o_chat.base.glyphs import number, percent
from h2o_chat.base.safe import fit, safe_text, token_label
from h2o_chat.chat.conversation.message import numbered
from h2o_chat.chat.memory.cache_view import CacheView, Eviction
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


def token_by_token(memory: CacheView, width: int, rows: int) -> list[Content]:
    """The tokens that left their last cache: when, text, share of heads before, score."""
    if not memory.evictions:
        return [Content.styled("nothing has gone yet", MUTED)]
    name_cells = max(width - 31, 4)
    head = f"{'at':>6} {fit('token', name_cells)} {'':<8}{'held':>5} {'score':>8}"
    lines = [Content.styled(head, MUTED)]
    lines += [_token(one, name_cells, memory) for one in islice(reversed(memory.evictions), max(rows - 2, 0))]
    told = len(memory.evictions)
    more = f"{memory.gone_tokens:,} went" + (
        f" · the last {told:,} are listed" if memory.gone_tokens > told else ""
    )
    return [*lines, Content.styled(f" {more}", MUTED)]


def _token(went: Eviction, name_cells: int, memory: CacheView) -> Content:
    token, here = went.token, went.token.position == memory.cursor
    sign = "▸" if here else " "
    text = f"{went.seen:>6}{sign}{fit(token_label(token.text), name_cells)} {f'@{token.position}':<8}"
    return Content.assemble(
        (text, "bold" if here else ""),
        f"{percent(token.hold) if token.hold else '-':>5}",
        f" {number(token.score) if token.hold else '-':>8}",
    )
