"""What can be changed while a conversation goes on, as `/set` and the screen of settings read and show it."""

import json
from dataclasses import asdict, replace
from typing import Any

from h2o_chat.base import precedence
from h2o_chat.base.config import RecallName, Sampling
from h2o_chat.base.errors import UsageError
from h2o_chat.chat.conversation import going_back
from h2o_chat.chat.conversation.chat import Chat

ANSWERING = tuple(asdict(Sampling()))
"""Settings that hold from the next answer on."""
REBUILDING = ("policy", "budget", "sinks", "recent", "chunk", "prefill", "kv_dtype")
"""Settings for which the cache is built again."""
SETTABLE = (*ANSWERING, "seed", "recall", *REBUILDING)
"""All that can be changed while a conversation goes on."""
OPTIONAL = ("max_tokens", "sinks", "recent", "chunk")
"""Those that may be left to the program."""


def values(talk: Chat, sampling: Sampling) -> dict[str, Any]:
    """All of them as they are now."""
    now = asdict(talk.settings) | asdict(sampling) | {"seed": talk.session.seed}
    return {name: now[name] for name in SETTABLE}


def set_recall(talk: Chat, value: RecallName) -> None:
    """Whether what is gone and asked for is recalled, from the next message on."""
    talk.settings = replace(talk.settings, recall=value)
    if talk.keeper:
        talk.keeper.changed(talk.session, asdict(talk.settings))


def read(name: str, text: str) -> Any:
    """A value as it was typed.

    Raises:
        UsageError: there is no such setting, it cannot be changed now, or may not be this.
    """
    if name not in SETTABLE:
        precedence.known(name, "The setting")
        raise UsageError(
            f"{name} cannot be changed while a conversation goes on.", f"One of: {', '.join(SETTABLE)}."
        )
    if name in OPTIONAL and text in ("", "none"):
        return None
    if name == "stop" and not text:
        return ()
    return precedence.parse(name, text, name)


def typed(value: Any) -> str:
    """A value as it would be typed; `read` gives it back."""
    if isinstance(value, tuple):
        return json.dumps(value, ensure_ascii=False) if value else ""
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def shown(value: Any) -> str:
    """A value as it is told."""
    if isinstance(value, tuple):
        return ", ".join(map(repr, value)) or "none"
    return "none" if value is None else str(value)


def check(talk: Chat, new: dict[str, Any]) -> None:
    """Whether these values can hold together.

    Raises:
        BudgetError: such a cache cannot work.
        StoreError: the cache cannot be built again: the conversation is not stored.
    """
    if other := {name: value for name, value in new.items() if name in REBUILDING}:
        going_back.check_rebuild(talk, replace(talk.settings, **other))
