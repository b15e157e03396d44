"""The budget that the screen opens the first models with, where nothing about their memory was named."""

from collections.abc import Collection
from dataclasses import replace

from h2o_chat.base.config import Settings
from h2o_chat.models import smollm2
from h2o_chat.models.resolve import BUNDLED, POCKET, Found, look_up

FIRST_BUDGETS = {POCKET: 64, smollm2.NAME: 128}
"""By model. The first tokens go with the third or fourth message. With 48 to 96 slots `pocket` still answers
what it was told (dev/LOG.md); SmolLM2 spends 31 tokens on its system prompt alone."""
ABOUT_MEMORY = frozenset({"budget", "policy", "sinks", "recent", "chunk", "prefill", "system"})
"""Whoever names one of these wants the usual budget: some, and a system prompt, may need more."""


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
    if isinstance(model, Found) and model.folder in BUNDLED:
        return replace(settings, budget=FIRST_BUDGETS[POCKET])
    if isinstance(model, Found) and model.folder == smollm2.place():
        return replace(settings, budget=FIRST_BUDGETS[smollm2.NAME])
    return settings
