"""Line below an answer that did not end by itself."""

from textual.content import Content

from h2o_chat.tui.widgets.theme import MUTED

FINISHES = {
    "stopped": "stopped here; what was said is kept",
    "length": "cut at the token limit",
    "error": "broken off by an error",
    "interrupted": "broken off: the program was killed here",
}
"""What is said under an answer that did not end by itself."""


def below(finish: str | None) -> Content:
    """How it ended; nothing where there is nothing to say."""
    return Content.styled(f"■ {FINISHES[finish]}", f"italic {MUTED}") if finish in FINISHES else Content()
