"""What `/set` and the screen of settings do: changed settings are made to hold."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import H2OChatError
from h2o_chat.chat.commands import settable
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.going_back import rebuild
from h2o_chat.events.events import Note, ReadSoFar
from h2o_chat.tui.jobs import Opened, Report
from h2o_chat.tui.prompt.editing import Sent
from h2o_chat.tui.prompt.settings_screen import Changed, SettingsScreen
from h2o_chat.tui.prompt.talk_pane import TalkPane


def short(name: str) -> Callable[[TalkPane, str], None]:
    """`/name VALUE` for `/set name VALUE`."""
    return lambda pane, words: change(pane, f"{name} {words}")


def change(pane: TalkPane, words: str) -> None:
    """`NAME VALUE` changes a setting, `NAME` tells its value, nothing shows all of them."""
    name, _, value = words.partition(" ")
    name, value = name.replace("-", "_"), value.strip()
    if not name:
        _show(pane)
    elif value:
        apply(pane, {name: settable.read(name, value)})
    elif name in settable.SETTABLE:
        now = settable.values(pane.idle(), pane.sampling)[name]
        pane.transcript.messages.note(f"{name} = {settable.shown(now)}")
    else:
        settable.read(name, value)


def _show(pane: TalkPane) -> None:
    """Show all settings, to change them."""

    def chosen(changed: Changed | None) -> None:
        if changed is None:
            return
        if changed.theme:
            pane.app.theme = changed.theme
        if changed.values:
            try:
                apply(pane, changed.values)
            except H2OChatError as error:
                pane.show_error(error)

    screen = SettingsScreen(
        settable.values(pane.idle(), pane.sampling),
        sorted(pane.app.available_themes),
        pane.app.theme,
        lambda new: settable.check(pane.idle(), new),
    )
    pane.app.push_screen(screen, chosen)


def apply(pane: TalkPane, new: dict[str, Any]) -> None:
    """Make these values hold: the cache is built again at most once.

    Raises:
        UsageError: there is no conversation now.
    """
    talk = pane.idle()
    if "seed" in new:
        talk.reseed(new["seed"])
    if "recall" in new:
        settable.set_recall(talk, new["recall"])
    answering = {name: new[name] for name in new if name in settable.ANSWERING}
    pane.sampling = replace(pane.sampling, **answering)
    talk.makers.named.update(answering)
    rebuilding = {name: value for name, value in new.items() if name in settable.REBUILDING}
    soon = _named({name: value for name, value in new.items() if name not in rebuilding})
    if soon and rebuilding:  # what is in the transcript now will be shown anew
        talk.notes.append(Note("setting", f"{soon}, from the next answer on"))
    elif soon:
        pane.transcript.messages.note(f"{soon}, from the next answer on")
    if rebuilding:
        _rebuild(pane, talk, replace(talk.settings, **rebuilding), _named(rebuilding))


def _named(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {settable.shown(value)}" for name, value in values.items())


def _rebuild(pane: TalkPane, talk: Chat, settings: Settings, said: str) -> None:
    """Read the conversation again, into a cache with these settings; then it is said which have changed."""
    pane.editing.give_up()
    pane.sent = Sent()

    def work(cancel: Callable[[], bool], progress: Callable[[ReadSoFar], None]) -> Iterator[Report]:
        if rebuild(talk, settings, progress, cancel):
            talk.notes.append(Note("setting", f"{said}; the conversation was read again"))
            yield Opened(talk)

    pane.begin(work, f"reading {pane.memory.seen:,} tokens again · esc stops")
