"""Markdown drawn as one `Content`, without loss: unexplained markup is shown as written.

Textual's own Markdown widget drops html, backslashes and link targets, joins lines, and reads the text of a
table cell as markup when the mouse rests on it; hence this small renderer. HTML, images, entities and escapes
are not rules here, so their source stays on the screen. A link is its words and its address and cannot be
clicked: an answer must not lead elsewhere than it shows.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_block.table import table as gfm_table
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.tree import SyntaxTreeNode
from rich._wrap import divide_line
from textual.content import Content
from textual.highlight import highlight

from h2o_chat.base.safe import safe_text
from h2o_chat.tui.widgets.theme import MUTED

BULLETS = "•◦▪"
LONGEST_FENCE = 16
"""Longest fence of a code block that is opened again; longer ones would leave no room for the code."""
SLOW = frozenset(("autoit", "autohotkey", "ahk", "gherkin", "cucumber"))
"""Languages shown without colour: their rules in Pygments take seconds for a page of blank lines."""
_MARKS = frozenset("*_~`[|\n\t")
"""Characters behind which no row is divided: markup, and tabs, which count from a piece's beginning."""
_BEGINS = frozenset("#>-+=0123456789 \t")
"""Characters that may begin a heading, a quotation, a list or code."""
_NUMBER = re.compile(r"\s*\d{1,9}[.)]?")
"""A line that may yet become the next item of the list above it."""
_INLINE = {"em": "italic", "strong": "bold", "s": "strike"}
_OFF = (
    *("link", "image", "autolink", "entity", "escape", "html_inline", "html_block", "reference", "inline"),
    "newline",  # it drops what code without a fence is indented by
)
_LINK = re.compile(r"\[([^\[\]\n]+)\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)\)")
"""Words and address; a link with more parts, a title say, stays as it is written."""


def _link(state: StateInline, silent: bool) -> bool:
    """Keeps the address as it is written: the parser's own rule would change its spelling."""
    found = _LINK.match(state.src, state.pos, state.posMax)
    if found is None:
        return False
    if not silent:
        token = state.push("link", "", 0)
        token.content, token.info = found.groups()
    state.pos = found.end()
    return True


def _table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Keeps the lines of a table: the parser's own tokens lack cells beyond the header."""
    before = len(state.tokens)
    if not gfm_table(state, start, end, silent):
        return False
    if not silent:
        del state.tokens[before:]
        token = state.push("table", "", 0)
        token.map = [start, state.line]
        token.content = state.getLines(start, state.line, state.blkIndent, False)
    return True


_PARSER = MarkdownIt("commonmark", {"html": False, "maxNesting": 40}).enable(["strikethrough", "table"])
"""CommonMark, tables and strikethrough, less every rule that hides text; `_inline` parses within blocks."""
_PARSER.disable(_OFF)
_PARSER.inline.ruler.push("words and address", _link)
_PARSER.block.ruler.at("table", _table, {"alt": ["paragraph", "reference"]})


def render(source: str, width: int = 0) -> Content:
    """Draws all of `source`, blocks separated by an empty line; tables for a `width`, 0 if it is unknown."""
    text = safe_text(source)
    tokens = _PARSER.parse(text)
    if any(token.level >= _PARSER.options.maxNesting - 2 for token in tokens):
        return Content(text)  # the parser drops what is nested deeper, and a list item takes two levels
    return _blocks(SyntaxTreeNode(tokens), width)


@dataclass(frozen=True)
class Cut:
    """The place where a growing text is divided: the part before it can stay as it is drawn."""

    at: int
    joint: str
    """Stands between the two parts: an empty line, a new line, a space or nothing."""
    reopen: str = ""
    """Prefix of the rest, so that it is read as before."""


def code_blocks(source: str) -> list[str]:
    """The code blocks of a text, as they would be pasted."""
    return [token.content for token in _PARSER.parse(source) if token.type in ("fence", "code_block")]


def cut(source: str) -> Cut:
    """Divides a text before its last block, else its last item, else line, else word, else at its end."""
    tokens = _PARSER.parse(safe_text(source))
    if found := _before_last(tokens, source, 0) or _before_last(tokens, source, 1):
        return found
    for blank_character in ("\n", " "):
        at = source.rfind(blank_character, len(source) // 2) + 1
        if at:
            reopen = _open_fence(tokens, source[:at]) or _open_table(tokens, source[:at])
            closed = source[:at].endswith("\n\n") or (tokens[:1] and tokens[0].type == "fence" and not reopen)
            return Cut(at, "\n\n" if closed else blank_character, reopen)
    return Cut(len(source), "", _open_fence(tokens, source))


def early_cut(source: str, width: int) -> Cut | None:
    """Divides a text where nobody can see it: before its last block, else before its last two rows in this
    width (0: not known), if it has no markup. None where there is no such place."""
    if "\n" in source.strip("\n"):
        found = _before_last(_PARSER.parse(safe_text(source)), source, 0)
        return None if found and _NUMBER.fullmatch(source, found.at) else found
    if width < 1 or source[0] in _BEGINS or not _MARKS.isdisjoint(source) or safe_text(source) != source:
        return None
    breaks = [0, *divide_line(source, width)]
    if len(breaks) < 3:
        return None
    row, at = breaks[-3:-1]
    # One of two blanks would be lost; the blank after a folded word may have a row of its own.
    folded = row > 0 and source[row - 1] != " "
    seamless = source[at] not in _BEGINS and source[at - 1] == " " and source[at - 2] != " " and not folded
    return Cut(at, " ") if seamless else None


def _before_last(tokens: Sequence[Token], source: str, level: int) -> Cut | None:
    """Divides before the last block of a level, if there are several."""
    starts = [token.map[0] for token in tokens if token.map and token.level == level and token.nesting >= 0]
    if len(starts) < 2 or starts[-1] == 0:
        return None
    lines = source.split("\n")
    blank = level == 0 or not lines[starts[-1] - 1].strip("> ")
    at = sum(len(line) + 1 for line in lines[: starts[-1]])
    return Cut(at, "\n\n" if blank else "\n")


def _open_fence(tokens: Sequence[Token], source: str) -> str:
    """The line that opens again the code block in which `source` ends."""
    if not tokens or tokens[0].type != "fence":
        return ""
    mark = tokens[0].markup
    last = source.rstrip().rpartition("\n")[2].strip()
    closed = "\n" in source.strip() and len(last) >= len(mark) and not last.strip(mark[0])
    return "" if closed or len(mark) > LONGEST_FENCE else f"{mark}\n"


def _open_table(tokens: Sequence[Token], source: str) -> str:
    """The lines that open again the table in which `source` ends."""
    if not tokens or tokens[0].type != "table" or source.endswith("\n\n"):
        return ""
    first = tokens[0].map[0] if tokens[0].map else 0  # blank lines may stand before it
    below = source.split("\n", first)[-1]
    if below.count("\n") < 2:
        return ""
    head, marks = below.split("\n")[:2]
    return "|" + " |" * len(split(head)) + f"\n{marks.strip()}\n"  # the header itself is not shown again


def _blocks(parent: SyntaxTreeNode, width: int, separator: str = "\n\n") -> Content:
    return Content(separator).join([_block(node, width) for node in parent.children])


def _block(node: SyntaxTreeNode, width: int) -> Content:
    match node.type:
        case "heading":
            style = "bold $primary underline" if node.tag == "h1" else "bold $primary"
            return _blocks(node, width).stylize(style)
        case "bullet_list" | "ordered_list":
            return _list(node, width)
        case "blockquote":
            return _indent(_blocks(node, width), "│ ", "│ ").stylize(MUTED)
        case "fence" | "code_block":
            return _code(node)
        case "table":
            return draw_table(node.content, max(width - 2 * node.level, 1) if width else 0)
        case "hr":
            return Content.styled("─" * 24, MUTED)
        case "inline":
            return _inline(node.content)
        case _:
            return _blocks(node, width)


def _list(node: SyntaxTreeNode, width: int) -> Content:
    """Items one below the other; loose lists keep their empty lines."""
    bullet = BULLETS[node.level // 2 % len(BULLETS)]
    items: list[Content] = []
    for item in node.children:
        label = f"{item.info}{item.markup}" if item.info else bullet
        tight = all(one.hidden for one in item.walk() if one.type == "paragraph")
        drawn = _blocks(item, width, "\n" if tight else "\n\n")
        items.append(_indent(drawn, f" {label} ", " " * (len(label) + 2)))
    loose = any("\n\n" in item.plain for item in items)
    return Content("\n\n" if loose else "\n").join(items)


def _code(token: SyntaxTreeNode) -> Content:
    """Code, coloured where its language is known, behind a bar."""
    language = token.info.split()[0] if token.info.split() else ""
    plain = not language or language.lower() in SLOW
    code = highlight(token.content.rstrip("\n"), language="text" if plain else language)
    if language:
        code = Content.assemble((f"{token.info.strip()}\n", MUTED), code)
    return _indent(code, "▏ ", "▏ ")


def _inline(text: str) -> Content:
    tokens: list[Token] = []
    _PARSER.inline.parse(text, _PARSER, {}, tokens)
    parts: list[Content | str | tuple[str, str]] = []
    styles: list[str] = []
    for child in tokens:
        name = child.type.removesuffix("_open").removesuffix("_close")
        if name in _INLINE and child.nesting > 0:
            styles.append(_INLINE[name])
        elif name in _INLINE:
            styles.remove(_INLINE[name])
        elif name == "link":
            words = _inline(child.content).stylize(" ".join([*styles, "underline"]))
            parts += [words, ("" if words.plain == child.info else f" ({child.info})", MUTED)]
        else:
            text = child.content
            code = ["$text-accent"] if child.type == "code_inline" else []
            parts.append((f"`{text}`" if code else text, " ".join(styles + code)))
    return Content.assemble(*parts)


def _indent(content: Content, first: str, rest: str) -> Content:
    """`content` with `first` before its first line and `rest` before the others."""
    lines = content.split("\n", allow_blank=True)
    marked = [Content.assemble((rest if at else first, MUTED), line) for at, line in enumerate(lines)]
    return Content("\n").join(marked)


LEAST_CELLS = 8
"""Columns of the screen below which a column of the table cannot be read."""
MOST_CELLS = 400
"""Widest column, where the width of the screen is unknown."""

Row = Sequence[Content]


def split(line: str) -> list[str]:
    """The cells of a line; an escaped bar stays in its cell."""
    cells = re.split(r"(?<!\\)\|", line.strip().removeprefix("|"))
    if len(cells) > 1 and not cells[-1].strip():
        cells.pop()  # the bar at the end
    return [cell.strip().replace("\\|", "|") for cell in cells]


def draw_table(source: str, width: int) -> Content:
    """A table, as a grid, or one line a cell where the grid has no room.

    Nothing is lost: a row may have more cells than the header, which Markdown would leave out.
    """
    head, marks, *lines = source.split("\n")
    cells = [[_inline(cell) for cell in split(line)] for line in [head, *lines]]
    count = max(map(len, cells))
    rows = [row + [Content()] * (count - len(row)) for row in cells]
    right = [mark.endswith(":") and not mark.startswith(":") for mark in split(marks)]
    right += [False] * (count - len(right))
    header = [cell.stylize("bold") for cell in rows[0]] if any(cell.plain for cell in rows[0]) else None
    widths = _widths(rows, width)
    if widths is None:
        return _listed(header, rows[1:])
    drawn = [_grid(row, widths, right) for row in rows[1:]]
    if header is not None:
        rule = Content.styled("─┼─".join("─" * cells for cells in widths), MUTED)
        drawn[:0] = [_grid(header, widths, right), rule]
    return Content("\n").join(drawn)


def _widths(rows: Sequence[Row], width: int) -> list[int] | None:
    """Width of each column of the table; None: they have no room beside each other."""
    most = min(width, MOST_CELLS) or MOST_CELLS
    widths = [max(1, *(min(cell.cell_length, most) for cell in column)) for column in zip(*rows, strict=True)]
    room = width - 3 * (len(widths) - 1) if width else sum(widths)
    while sum(widths) > room:
        widest = widths.index(max(widths))
        if widths[widest] <= LEAST_CELLS:
            return None
        widths[widest] -= 1
    return widths


def _grid(row: Row, widths: Sequence[int], right: Sequence[bool]) -> Content:
    """A row of cells, wrapped in their columns."""
    wrapped = [cell.wrap(width) or [Content()] for cell, width in zip(row, widths, strict=True)]
    lines = []
    for at in range(max(map(len, wrapped))):
        parts = []
        for cell, width, to_the_right in zip(wrapped, widths, right, strict=True):
            part = cell[at].rstrip() if at < len(cell) else Content()
            missing = max(width - part.cell_length, 0)
            parts.append(part.pad_left(missing) if to_the_right else part.pad_right(missing))
        lines.append(Content.styled(" │ ", MUTED).join(parts).rstrip())
    return Content("\n").join(lines)


def _listed(header: Row | None, rows: Sequence[Row]) -> Content:
    """One line a cell, with the head of its column before it; a bar beside each row."""
    if not rows:
        rows, header = [header or []], None
    drawn = []
    for row in rows:
        names = header or [Content()] * len(row)
        cells = [
            Content.assemble(name, ": ", cell) if name.plain else cell
            for name, cell in zip(names, row, strict=True)
            if name.plain or cell.plain
        ]
        drawn.append(Content("\n").join(cells))
    return Content("\n\n").join(drawn)
