"""What can be changed while a conversation goes on, and how: for `/set` and for the screen of settings."""

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from h2o_chat.base import precedence
from h2o_chat.base.config import Sampling
from h2o_chat.base.errors import UsageError
from h2o_chat.events.events import Note

if TYPE_CHECKING:
    from h2o_chat.tui.talk.talk import TalkPane

ANSWERING = tuple(asdict(Sampling()))
"""Settings that hold from the next answer on."""
REMEMBERING = ("policy", "budget", "sinks", "recent", "chunk", "prefill", "kv_dtype")
"""Settings for which the memory is built again."""
SETTABLE = (*ANSWERING, "seed", *REMEMBERING)
"""All that can be changed while a conversation goes on."""
OPTIONAL = ("max_tokens", "sinks", "recent", "chunk")
"""Those that may be left to the program."""


def values(pane: "TalkPane") -> dict[str, Any]:
    """All of them as they are now."""
    talk = pane.idle()
    now = asdict(talk.settings) | asdict(pane.sampling) | {"seed": talk.session.seed}
    return {name: now[name] for name in SETTABLE}


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


def check(pane: "TalkPane", new: dict[str, Any]) -> None:
    """Let these values through, taken together.

    Raises:
        UsageError: there is no conversation now.
        BudgetError: such a memory cannot work.
        StoreError: the memory cannot be built again: the conversation is not stored.
    """
    talk = pane.idle()
    if other := {name: value for name, value in new.items() if name in REMEMBERING}:
        talk.check(replace(talk.settings, **other))


def change(pane: "TalkPane", new: dict[str, Any]) -> None:
    """Make these values hold: the memory is built again at most once.

    Raises:
        UsageError: there is no conversation now.
    """
    talk = pane.idle()
    if "seed" in new:
        talk.reseed(new["seed"])
    pane.sampling = replace(pane.sampling, **{name: new[name] for name in new if name in ANSWERING})
    soon = ", ".join(f"{name} = {shown(value)}" for name, value in new.items() if name not in REMEMBERING)
    other = {name: value for name, value in new.items() if name in REMEMBERING}
    if soon and other:  # what is in the transcript now will be shown anew
        talk.notes.append(Note("setting", f"{soon}, from the next answer on"))
    elif soon:
        pane.transcript.messages.note(f"{soon}, from the next answer on")
    if other:
        pane.rebuild(replace(talk.settings, **other))
