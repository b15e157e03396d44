"""The first words: what was opened and what its memory is."""

from h2o_chat.events.events import Session
from h2o_chat.models.resolve import POCKET
from h2o_chat.tui.first_budget import FIRST_BUDGET

SMALL = "64 tokens are about 50 words, so that you soon see it forget: /budget 512 gives it more"
TOY = (
    "pocket is a toy: it knows next to nothing of the world, but it remembers what it is told. Four lines are"
    " offered to try that: enter sends the one in the prompt, or type your own."
)
"""Said once, before the first offer."""


def why_small(session: Session) -> str:
    """Why the screen gives the bundled model a small budget; empty where it has another, or is another."""
    if (session.model, session.budget) != (POCKET, FIRST_BUDGET):
        return ""
    return f"{SMALL}."


def greeting(session: Session) -> str:
    """Two or three sentences about a conversation that has not begun."""
    if session.budget is None:
        memory = f"It remembers everything, up to {session.window:,} tokens."
    else:
        memory = f"It remembers {session.budget:,} tokens; what gets little attention is forgotten."
    match session.template:
        case "model":
            template = ""
        case "plain":
            template = " It has no chat template: it continues what you write."
        case name:
            template = f" It is spoken to by the {name} template."
    return f"{session.model} is ready. {memory}{template}"
