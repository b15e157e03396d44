"""The settings that can be changed while a conversation goes on: read, shown, checked, applied."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from h2o_chat.base import precedence
from h2o_chat.base.config import CHOSEN, KV_DTYPES, PREFILLS, RECALLS, THINKS, Sampling, ThinkName
from h2o_chat.base.errors import UsageError
from h2o_chat.base.glyphs import size
from h2o_chat.base.progress import ShouldStop
from h2o_chat.chat.commands.surface import Opened, Surface
from h2o_chat.chat.conversation import going_back
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.going_back import REBUILDING
from h2o_chat.chat.conversation.remarks import about_reading
from h2o_chat.chat.templates.chat_template import choose
from h2o_chat.events.events import Note, ReadProgress

ANSWERING = tuple(asdict(Sampling()))
"""Settings that hold from the next answer on."""
SETTABLE = (*ANSWERING, "seed", "recall", "think", *REBUILDING)
OPTIONAL = ("max_tokens", "sinks", "recent", "chunk")
"""Settings that may be left to the program."""
HELP = {
    "temperature": ("0: always the likeliest token", "0.7"),
    "top_p": ("sample from this share of the probability", "0.9"),
    "top_k": ("sample from so many tokens; 0: all", "40"),
    "min_p": ("drop tokens below this share of the likeliest", "0.05"),
    "repetition_penalty": ("above 1: repeat less", "1.1"),
    "max_tokens": ("longest answer; none: no limit", "2000"),
    "stop": ('texts that end an answer: ["###", "User:"]', "###"),
    "ignore_eos": ("go on past the model's own end", "true"),
    "seed": ("for sampling", "7"),
    "recall": ("auto: read forgotten words that a question needs once more", "all"),
    "think": ("thoughts before an answer, where the model's template has a switch", "off"),
    "policy": ("what to forget first", "h2o-paper"),
    "budget": ("tokens kept per layer and KV head", "1024"),
    "sinks": ("first tokens always kept; none: by policy", "4"),
    "recent": ("newest tokens always kept; none: by policy", "64"),
    "chunk": ("prompt tokens at once; none: budget / 4, to 512", "128"),
    "prefill": ("full: a whole prompt attends to itself first", "full"),
    "kv_dtype": ("precision of the memory", "int8"),
}
"""The meaning of each, and an example of a value."""
CHOICES = {
    "ignore_eos": ("false", "true"),
    "recall": RECALLS,
    "think": THINKS,
    "policy": CHOSEN,
    "prefill": PREFILLS,
    "kv_dtype": KV_DTYPES,
}
LEAST_BUDGET = 16
"""Fewer slots are for experiments (`--budget`): in the middle of a conversation they are a slip."""


def values(chat: Chat, sampling: Sampling) -> dict[str, Any]:
    now = asdict(chat.settings) | asdict(sampling) | {"seed": chat.session.seed}
    return {name: now[name] for name in SETTABLE}


def read(name: str, text: str) -> Any:
    """A value as it was typed; UsageError: no such setting, none that can change now, or no such value."""
    if name not in SETTABLE:
        precedence.known(name, "The setting")
        raise UsageError(
            f"{name} cannot be changed while a conversation goes on.", f"One of: {', '.join(SETTABLE)}."
        )
    if name in OPTIONAL and text in ("", "none"):
        return None
    if name == "stop" and not text:
        return ()
    value = precedence.parse(name, text, name)
    if name == "budget" and value < LEAST_BUDGET:
        raise UsageError(f"A budget of {value} holds no talk.", f"{LEAST_BUDGET} or more; 512 is usual.")
    return value


def typed(value: Any) -> str:
    """A value as it would be typed: `read` gives it back."""
    if isinstance(value, tuple):
        return json.dumps(value, ensure_ascii=False) if value else ""
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def told(name: str, value: Any) -> str:
    """A setting's value, its meaning, and how another value is typed."""
    meaning, example = HELP[name]
    return f"{name} = {typed(value) or 'none'} ({meaning}). Another value: /set {name} {example}"


def check(chat: Chat, new: dict[str, Any]) -> None:
    """See `going_back.check_rebuild`."""
    if rebuilding := _only(new, REBUILDING):
        going_back.check_rebuild(chat, replace(chat.settings, **rebuilding))


def apply(surface: Surface, new: dict[str, Any]) -> None:
    """Makes these values hold; the cache is built again at most once."""
    chat = surface.idle()
    if "seed" in new:
        chat.reseed(new["seed"])
    if "recall" in new:
        chat.settings = replace(chat.settings, recall=new["recall"])
    if "think" in new:
        _think(chat, new["think"])
    if chat.keeper and new.keys() & {"recall", "think"}:
        chat.keeper.changed(chat.session, asdict(chat.settings))
    answering = _only(new, ANSWERING)
    surface.sampling = replace(surface.sampling, **answering)
    chat.makers.named.update(answering)
    rebuilding = _only(new, REBUILDING)
    soon = _named({name: value for name, value in new.items() if name not in rebuilding})
    if soon and rebuilding:  # the messages that are shown now will be shown anew
        chat.notes.append(Note("setting", f"{soon}, from the next answer on"))
    elif soon:
        surface.say(f"{soon}, from the next answer on")
    if not rebuilding:
        return
    settings, named = replace(chat.settings, **rebuilding), _named(rebuilding)
    present = _named(_only(asdict(chat.settings), list(rebuilding)))

    def work(cancel: ShouldStop, progress: ReadProgress) -> Iterator[Opened | Note]:
        if going_back.rebuild(chat, settings, progress, cancel):
            chat.notes.append(Note("setting", f"{named}; the conversation was read again"))
            yield Opened(chat, rebuilt=True)
        else:
            yield Note("setting", f"stopped, still {present}: the conversation is as it was")

    if seen := surface.memory.seen:
        about, takes = about_reading(seen, chat.longest_read), ""
        if "budget" in rebuilding and settings.policy != "full":
            takes = f"; keys and values take {size(settings.budget * chat.session.slot_bytes)}"
        surface.say(f"{named}: {seen:,} tokens are read again{about}{takes}; esc keeps {present}")
    surface.run(work, f"reading {seen:,} tokens again · esc stops")


def _think(chat: Chat, how: ThinkName) -> None:
    """Switches the model's thought; UsageError: no such switch."""
    before = chat.template
    chat.template = choose(chat.engine.tokenizer, chat.settings.template, how)
    if chat.begun and before.later("probe").ids == chat.template.later("probe").ids:
        chat.notes.append(Note("think", "The model is told so at the beginning: /new begins with it."))
    chat.settings = replace(chat.settings, think=how)
    chat.session = chat.session_now()


def _only(values: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in names}


def _named(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {typed(value) or 'none'}" for name, value in values.items())
