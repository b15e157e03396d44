"""What stands below an answer: how it ended where it did not end by itself, and what it rested on."""

from textual.content import Content

from h2o_chat.base.safe import safe_text
from h2o_chat.chat.sources import rests_on
from h2o_chat.events.events import Source
from h2o_chat.tui.theme import MUTED

FINISHES = {
    "stopped": "stopped here; what was said is kept",
    "length": "cut at the token limit",
    "error": "broken off by an error",
    "interrupted": "broken off: the program was killed here",
}
"""What is said under an answer that did not end by itself."""


def below(finish: str | None, source: Source | None) -> Content:
    """A line for each; nothing where there is nothing to say."""
    lines = [f"■ {FINISHES[finish]}"] if finish in FINISHES else []
    if source is not None:
        lines.append(f"↳ {safe_text(rests_on(source))}")
    return Content.styled("\n".join(lines), f"italic {MUTED}") if lines else Content()
