"""What the slash commands do in the plain chat: those of the screen that need no screen, and `MORE`."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from h2o_chat.base.errors import StoreError, UsageError
from h2o_chat.chat.commands import settable, table
from h2o_chat.chat.conversation import going_back, pinning
from h2o_chat.chat.conversation.going_back import open_another, rebuild
from h2o_chat.chat.files.export import one_line, when
from h2o_chat.chat.files.export_chat import export
from h2o_chat.chat.memory import in_words
from h2o_chat.cli.plain import PlainChat, progress_in
from h2o_chat.cli.plain_lines import HOW
from h2o_chat.tui.prompt import branches

LISTED = 20
"""Stored conversations that `/open` lists."""

MORE = {"memory": "what is remembered, in words", "again": "answer the last message once more"}
"""Commands that the screen has as keys, or shows all the time."""


def act(talk: PlainChat, name: str, rest: str) -> bool:
    """Does a command; false where there is none of that name here.

    Raises:
        H2OChatError: it cannot be done.
    """
    done = ACTS.get(name)
    if done is not None:
        done(talk, rest)
    return done is not None


def _help(talk: PlainChat, _: str) -> None:
    rows = [(f"/{one.name} {one.arguments}".rstrip(), one.help) for one in table.COMMANDS if one.name in ACTS]
    rows += [(f"/{name}", what) for name, what in MORE.items()]
    for name, what in rows:
        talk.lines.say(f"{name}: {what}")
    talk.lines.say(f"{HOW}.")
    talk.lines.say(
        "@FILE in a message sends a file along. ctrl+c stops an answer, once more leaves; ctrl+d leaves."
    )


def _new(talk: PlainChat, _: str) -> None:
    _begin(talk, None)


def _system(talk: PlainChat, rest: str) -> None:
    if rest:
        _begin(talk, rest)
    else:
        talk.lines.note(
            f"the system prompt is: {talk.chat.system}" if talk.chat.system else "no system prompt."
        )


def _begin(talk: PlainChat, system: str | None) -> None:
    talk.chat.clear(system)
    talk.lines.note("another conversation begins.")
    talk.opened(talk.chat)


def _open(talk: PlainChat, rest: str) -> None:
    keeper = talk.chat.keeper
    if keeper is None:
        raise StoreError("Conversations are not stored here: there is none to open.")
    if not rest:
        for about in keeper.store.list(LISTED):
            title = one_line(about.title) or "no title"
            talk.lines.say(f"{about.id}: {title}, {when(about.updated)}, {about.messages:,} messages")
        talk.lines.say("/open ID goes on with one of them")
        return
    if open_another(talk.chat, keeper.store.find(rest), talk.reading, talk.signals.stops):
        talk.opened(talk.chat)
    else:
        talk.lines.note("stopped: nothing has changed.")


def _model(talk: PlainChat, rest: str) -> None:
    if not rest:
        raise UsageError("Which model?", "/model NAME; h2o-chat models lists them.")
    before = talk.chat
    if before.keeper:
        before.keeper.leave()
    chat = talk.opener_of(rest)(progress_in(talk.lines))
    before.close()
    talk.opened(chat)
    talk.lines.note(f"{chat.session.model} is ready.")


def _set(talk: PlainChat, rest: str) -> None:
    name, _, value = rest.partition(" ")
    name, value = name.replace("-", "_"), value.strip()
    now = settable.values(talk.chat, talk.sampling)
    if value:
        _change(talk, name, settable.read(name, value))
    elif name and name not in now:
        settable.read(name, value)  # says that there is none
    for one in [name] if name else now:
        shown = settable.values(talk.chat, talk.sampling)[one]
        talk.lines.say(f"{one} = {settable.shown(shown)}")


def _change(talk: PlainChat, name: str, value: object) -> None:
    settable.check(talk.chat, {name: value})
    if name == "seed":
        assert isinstance(value, int)
        talk.chat.reseed(value)
    elif name == "recall":
        settable.set_recall(talk.chat, "off" if value == "off" else "auto")
    elif name in settable.ANSWERING:
        talk.sampling = replace(talk.sampling, **{name: value})  # type: ignore[arg-type]
        talk.chat.makers.named.add(name)
    else:
        settings = replace(talk.chat.settings, **{name: value})  # type: ignore[arg-type]
        if not rebuild(talk.chat, settings, talk.reading, talk.signals.stops):
            talk.lines.note("stopped: nothing has changed.")


def _short(name: str) -> Callable[[PlainChat, str], None]:
    """`/name VALUE` for `/set name VALUE`."""
    return lambda talk, rest: _set(talk, f"{name} {rest}")


def _memory(talk: PlainChat, _: str) -> None:
    for line in in_words.memory(talk.chat, talk.texts):
        talk.lines.say(line)


def _why(talk: PlainChat, rest: str) -> None:
    if not rest:
        raise UsageError("Which word?", "/why WORD")
    lines = in_words.why(talk.chat, talk.texts, rest)
    if not lines:
        raise UsageError(
            f"{rest!r} was not said in this conversation.", "/find WORDS looks for part of a word."
        )
    for line in lines:
        talk.lines.say(line)


def _find(talk: PlainChat, rest: str) -> None:
    found = [n for n, one in enumerate(talk.chat.messages) if rest and rest.lower() in one.text.lower()]
    if not found:
        raise UsageError(f"{rest!r} stands in no message." if rest else "Find what?", "/find WORDS")
    for index in found:
        talk.say_message(index)


def _pin(talk: PlainChat, rest: str) -> None:
    if rest in ("", "next"):
        talk.pins_next = True
        talk.lines.note("the next message is pinned as it is sent.")
    else:
        talk.hear(pinning.pin(talk.chat, _number(talk, rest)))


def _unpin(talk: PlainChat, rest: str) -> None:
    if not rest and talk.pins_next:
        talk.pins_next = False
        talk.lines.note("the next message is not pinned.")
    elif not rest:
        pinned = ", ".join(f"#{n + 1}" for n, one in enumerate(talk.chat.messages) if one.pinned)
        raise UsageError("Which message?", f"/unpin NUMBER; pinned are: {pinned or 'none'}.")
    else:
        talk.hear(pinning.pin(talk.chat, _number(talk, rest), on=False))


def _recall(talk: PlainChat, rest: str) -> None:
    talk.lines.note(talk.chat.recall.by_hand(rest, talk.chat.messages, talk.chat.session.budget).message)


def _export(talk: PlainChat, rest: str) -> None:
    talk.lines.note(f"wrote {export(talk.chat, rest)}")


def _again(talk: PlainChat, _: str) -> None:
    talk.hear(going_back.regenerate(talk.chat, talk.sampling, talk.signals.stops, talk.reading))


def _edit(talk: PlainChat, rest: str) -> None:
    own = [index for index, message in enumerate(talk.chat.messages) if message.role == "user"]
    if not own:
        raise UsageError("Nothing was said yet.")
    index = _number(talk, rest) if rest else own[-1]
    if index not in own:
        raise UsageError(f"#{index + 1} is not one of yours.", "Only what you said can be said anew.")
    if talk.chat.keeper is None or talk.chat.messages[index].id is None:
        raise StoreError("This conversation is not stored: there is no going back.")
    talk.say_message(index)
    talk.editing = index
    talk.lines.note("what you type next is said instead; an empty line leaves it as it was.")


def _branch(talk: PlainChat, rest: str) -> None:
    fork = branches.next_fork(talk.chat, _number(talk, rest) if rest else None)
    if fork is None:
        raise UsageError("Nothing else was said here.", "/edit and /again begin a branch.")
    if not list(branches.go(talk.chat, fork, talk.signals.stops, talk.reading)):
        talk.lines.note("stopped: nothing has changed.")
        return
    talk.opened(talk.chat)


def _quit(talk: PlainChat, _: str) -> None:
    talk.left = True


def _number(talk: PlainChat, words: str) -> int:
    """The place of a message by its number, which is counted from 1.

    Raises:
        UsageError: there is no such message.
    """
    last = len(talk.chat.messages)
    found = re.fullmatch(r"#?(\d{1,9})", words)
    if found is None or not 1 <= int(found[1]) <= last:
        raise UsageError(f"There is no message {words!r}.", f"They are #1 to #{last}." if last else "")
    return int(found[1]) - 1


ACTS: Mapping[str, Callable[[PlainChat, str], None]] = {
    "help": _help,
    "new": _new,
    "open": _open,
    "system": _system,
    "set": _set,
    "policy": _short("policy"),
    "budget": _short("budget"),
    "model": _model,
    "stats": _memory,
    "memory": _memory,
    "pin": _pin,
    "unpin": _unpin,
    "recall": _recall,
    "why": _why,
    "find": _find,
    "export": _export,
    "regenerate": _again,
    "again": _again,
    "edit": _edit,
    "branch": _branch,
    "quit": _quit,
}
