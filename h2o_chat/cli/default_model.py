"""The model for whoever names none."""

from collections.abc import Collection
from pathlib import Path

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import name_of
from h2o_chat.cli.run import say


def with_model(settings: Settings, asked: Collection[str], folder: Path, *, said: bool = True) -> Settings:
    """The settings with a model; where none was asked for, stderr says which one it is.

    Args:
        asked: the settings that stand on the command line, or that the stored conversation was held with.
        folder: the data folder, where the newest conversation says which model was used last.
        said: whether stderr says it.
    """
    if "model" in asked:
        return settings
    from h2o_chat.chat.conversation.opening import choose_unnamed

    what = f"{settings.model}, as configured"
    if settings.model is None:
        settings, what = choose_unnamed(settings, folder)
    if said:
        say(f"h2o-chat: no model was named: {name_of(what)}")
    return settings
