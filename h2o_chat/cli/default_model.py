"""The model of a start that names none."""

from collections.abc import Collection
from pathlib import Path

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import name_of
from h2o_chat.cli.run import say


def with_model(settings: Settings, asked: Collection[str], folder: Path, *, said: bool = True) -> Settings:
    """The settings with a model; where none was asked for, stderr says which one it is.

    Args:
        asked: settings on the command line, or of the stored conversation.
        folder: the data folder; its newest conversation has the model used last.
        said: stderr says it.
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
