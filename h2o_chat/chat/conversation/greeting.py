"""The first words: the model that was opened, its memory, and the small budget of the first models."""

from collections.abc import Collection
from dataclasses import replace

from h2o_chat.base.config import Settings
from h2o_chat.events.events import Session
from h2o_chat.models import smollm2
from h2o_chat.models.fits import auto_budget
from h2o_chat.models.resolve import BUNDLED, POCKET, LocalModel, find, look_up

WORDS = {64: 50, 128: 100}
"""About how many words these numbers of tokens are."""
FOUR_LINES = "Four lines are offered to try that: enter sends the one in the prompt, or type your own."
ABOUT = {
    POCKET: "pocket is a toy: it knows next to nothing of the world, but it remembers what it is told. "
    + FOUR_LINES,
    smollm2.NAME: "SmolLM2 is a small model: it talks, and is often wrong about the world. Watch what it"
    " forgets, and what comes back when you ask for it. " + FOUR_LINES,
}
"""Said once about each first model, before the first offer."""


def why_small(session: Session) -> str:
    """Why the screen gives the first models a small budget; empty where it is another budget or model."""
    budget = FIRST_BUDGETS.get(session.model)
    if budget is None or session.budget != budget:
        return ""
    words = f"{budget} tokens are about {WORDS[budget]} words, so that you soon see it forget"
    return f"{words}: /budget 512 gives it more."


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


FIRST_BUDGETS = {POCKET: 128, smollm2.NAME: 128}
"""Budgets of the first models on the screen: the first tokens are evicted with the third or fourth message.
With 64 slots a recalled piece may be evicted before it is answered; SmolLM2's system prompt alone takes 31.
"""
ABOUT_MEMORY = frozenset({"budget", "policy", "sinks", "recent", "chunk", "prefill", "system"})
"""Settings that keep the usual budget when a person names one: they, and a system prompt, may need more."""


def first_budget(settings: Settings, named: Collection[str]) -> Settings:
    """The settings for the screen: `pocket` and SmolLM2 begin with a small budget, others as they are.

    Args:
        named: the settings that a person named, wherever: by a flag, in a file, in the environment, or as a
            stored conversation has them.

    Raises:
        ModelError: there is no model by that name.
        UsageError: the user's configuration cannot be read.
    """
    if not ABOUT_MEMORY.isdisjoint(named):
        return settings
    model = look_up(settings.model)
    if isinstance(model, LocalModel) and model.folder in BUNDLED:
        return replace(settings, budget=FIRST_BUDGETS[POCKET])
    if isinstance(model, LocalModel) and model.folder == smollm2.place():
        return replace(settings, budget=FIRST_BUDGETS[smollm2.NAME])
    return settings


def fitted_budget(settings: Settings, named: Collection[str]) -> Settings:
    """The settings with the budget that suits a model that is here (`fits.auto_budget`), if nobody named one.

    Args:
        named: as for `first_budget`, whose budgets stay.
    """
    if "budget" in named or settings.budget != Settings.budget:
        return settings
    import psutil

    return replace(settings, budget=auto_budget(find(settings.model).folder, psutil.virtual_memory().total))
