"""Tab 4: what went, the newest first."""

from itertools import islice

from textual.content import Content

from h2o_chat.base.safe import fit, token_label
from h2o_chat.tui.glyphs import number, percent
from h2o_chat.tui.panel.held import CacheView, Went
from h2o_chat.tui.theme import MUTED


def draw(memory: CacheView, width: int, rows: int, first: int = 0) -> list[Content]:
    """The tokens that left the last cache that held them: when, what, how much was held, what it scored.

    Args:
        first: how many of the newest are left out.
    """
    if not memory.went:
        return [Content.styled("nothing has gone yet", MUTED)]
    name_cells = max(width - 31, 4)
    head = f"{'at':>6} {fit('token', name_cells)} {'':<8}{'held':>5} {'score':>8}"
    lines = [Content.styled(head, MUTED)]
    lines += [
        _line(one, name_cells, one.token.position == memory.cursor)
        for one in islice(reversed(memory.went), first, first + rows - 2)
    ]
    told = len(memory.went)
    more = f"{memory.gone_tokens:,} went" + (f" · {told} of them told" if memory.gone_tokens > told else "")
    return [*lines, Content.styled(f" {more}", MUTED)]


def _line(went: Went, name_cells: int, here: bool) -> Content:
    token = went.token
    sign = "▸" if here else " "
    text = f"{went.seen:>6}{sign}{fit(token_label(token.text), name_cells)} {f'@{token.position}':<8}"
    return Content.assemble(
        (text, "bold" if here else ""),
        f"{percent(token.hold) if token.hold else '-':>5}",
        f" {number(token.score) if token.hold else '-':>8}",
    )
