"""The budget that the screen opens the bundled model with, where nothing about its memory was named."""

from collections.abc import Collection
from dataclasses import replace

from h2o_chat.base.config import Settings
from h2o_chat.models.resolve import BUNDLED, Found, look_up

FIRST_BUDGET = 64
"""The first tokens go with the third message. See docs/LOG.md: of 48 to 96 what is told is still answered."""
ABOUT_MEMORY = frozenset({"budget", "policy", "sinks", "recent", "chunk", "prefill", "system"})
"""Whoever names one of these wants the usual budget: some, and a system prompt, may need more than 64."""


def first_budget(settings: Settings, named: Collection[str]) -> Settings:
    """The settings for the screen: with `FIRST_BUDGET` for the bundled model, else as they are.

    Args:
        named: the settings that a person named, wherever: by a flag, in a file, in the environment, or as a
            stored conversation has them.

    Raises:
        ModelError: there is no model by that name.
        UsageError: the user's configuration cannot be read.
    """
    if ABOUT_MEMORY.isdisjoint(named) and is_bundled(settings.model):
        return replace(settings, budget=FIRST_BUDGET)
    return settings


def is_bundled(name: str | None) -> bool:
    """Whether this name means the model that comes with the program.

    Raises:
        ModelError, UsageError: as `look_up`.
    """
    model = look_up(name)
    return isinstance(model, Found) and model.folder in BUNDLED
