"""The line below an answer that was ended by something."""

from textual.content import Content

from h2o_chat.tui.widgets.theme import MUTED

FINISHES = {
    "stopped": "stopped here; what was said is kept",
    "length": "cut at the token limit",
    "error": "broken off by an error",
    "interrupted": "broken off: the program was killed here",
}
"""The text of that line, by finish."""


def below(finish: str | None) -> Content:
    """The line; empty for an answer that ended by itself."""
    return Content.styled(f"■ {FINISHES[finish]}", f"italic {MUTED}") if finish in FINISHES else Content()
