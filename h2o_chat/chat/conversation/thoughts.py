"""Thoughts in a conversation: given up once their answer stands, and switched."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from h2o_chat.base.config import ThinkName
from h2o_chat.chat.templates.chat_template import Template, choose
from h2o_chat.events.events import Event, Note, Session, Turn

if TYPE_CHECKING:  # importing torch takes seconds
    from h2o_chat.engine.engine import Engine


def give_up(chat: Any, turn: Turn) -> Iterator[Event]:
    """Gives up the thoughts since the user's last message, unless the answer calls tools."""
    if turn.finish in ("error", "interrupted") or (chat.tools and chat.tools.calls_in(turn.text)):
        return
    thinking, asked = chat.template.thinking, 0
    for at, one in enumerate(chat.messages):
        asked = at if one.role == "user" else asked
    if answers := [one for one in chat.messages[asked:] if one.thought_tokens]:
        places = [thinking.place(one.first, one.thought_tokens) for one in answers]
        chat.engine.give_up_thoughts(places, thinking.drops)
        if chat.settings.events_every:
            chat.look()
            yield from chat.looked()


def think(chat: Any, how: ThinkName) -> None:
    """Has the model think so from the next answer on, see `Settings.think`.

    Raises:
        UsageError: the template has no such switch.
    """
    before = chat.template
    chat.template = choose(chat.engine.tokenizer, chat.settings.template, how)
    if chat.begun and before.later("probe").ids == chat.template.later("probe").ids:
        chat.notes.append(Note("think", "The model is told so at the beginning: /new begins with it."))
    chat.settings = replace(chat.settings, think=how)
    chat.session = session_of(chat.template, chat.engine)


def session_of(template: Template, engine: "Engine") -> Session:
    """The session of an engine in a conversation with this template."""
    thought = [*template.thinking.marks, template.thinking.plain]
    return replace(engine.session, template=template.name, thought=thought)
