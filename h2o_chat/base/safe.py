"""Makes untrusted text safe to draw: control characters of a model or a person are shown, never obeyed."""

import re

from rich.cells import set_cell_size

from h2o_chat.base.errors import UNSEEN

# C0 has pictures of its own in Unicode.
_PICTURES = {code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)}
_PICTURES[0x7F] = 0x2421
_TABLE = _PICTURES | dict.fromkeys(UNSEEN, 0xFFFD)
_RAW = _TABLE | {0x09: "⇥"}
_WHITESPACE = {" ": "␣", "\n": "↵", "\t": "⇥"}


def safe_text(text: str) -> str:
    """`text` with every control character replaced by a visible one; newlines and tabs stay."""
    return text.replace("\r\n", "\n").translate(_TABLE)


def raw_text(text: str) -> str:
    """`text` with a visible character for each control character, newlines and tabs included: same length."""
    return text.translate(_RAW)


def token_label(text: str) -> str:
    """One token on one line, stripped; a token that is only whitespace is made visible."""
    shown = safe_text(text)
    if not shown.strip():
        return "".join(_WHITESPACE.get(character, character) for character in shown) or "∅"
    return re.sub(r"\s", lambda blank: _WHITESPACE.get(blank[0], " "), shown.strip())


def fit(text: str, cells: int) -> str:
    """`text` in exactly `cells` columns, wide characters counted as two."""
    return set_cell_size(text, cells)
