"""Going elsewhere by restoring: another answer, message, branch, conversation or cache."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from h2o_chat.base import precedence
from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import BudgetError, H2OChatError, StoreError, UsageError
from h2o_chat.base.progress import ShouldStop, never, unheard
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.keeper import mark_branches
from h2o_chat.chat.conversation.message import numbered
from h2o_chat.chat.conversation.restore import pin_again, read_again
from h2o_chat.chat.conversation.tool_rounds import send_and_call
from h2o_chat.chat.recall.elsewhere import Elsewhere
from h2o_chat.events.events import Event, Note, ReadProgress
from h2o_chat.store import StoredMessage

if TYPE_CHECKING:  # importing torch takes seconds
    from h2o_chat.engine.engine import Engine

REBUILDING = ("policy", "budget", "sinks", "recent", "chunk", "prefill", "kv_dtype")
"""Settings of the cache: another value needs another cache."""


def edit(
    chat: Chat,
    index: int,
    text: str,
    sampling: Sampling,
    cancel: ShouldStop = never,
    progress: ReadProgress = unheard,
) -> Iterator[Event]:
    """Says something else instead of message `index`, or the same: then other words answer it (/regenerate).

    The messages that followed are kept as another branch. No event comes until the cache has been brought
    back, and none at all where that was cancelled: then nothing has changed.

    Raises:
        UsageError: it is not a message of the user.
        StoreError: the conversation is not stored.
        H2OChatError: whatever `Chat.send` raises; where nothing was said instead, nothing has changed.
    """
    if not 0 <= index < len(chat.messages) or chat.messages[index].role != "user":
        raise UsageError(f"{numbered(index)} is not one of yours.", "Only what you said can be said anew.")
    before = chat.messages[index - 1].id if index else None
    if chat.keeper is None or chat.messages[index].id is None:
        raise StoreError("This conversation is not stored: there is nothing to go back to.")
    leaf, pinned = chat.keeper.leaf, chat.messages[index].pinned
    if not chat.go_to(before, progress, cancel):
        return
    yield from chat.looked()
    # The cache was brought back with its random state: the same words would be drawn.
    said_here = _children(chat, before)
    chat.engine.reseed(chat.session.seed + len(said_here))
    avoid = [answer.text for one in said_here if one.text == text for answer in _children(chat, one.id)]
    try:
        yield from send_and_call(chat, text, sampling, cancel, pin=pinned, avoid=avoid)
    except H2OChatError:
        if len(chat.messages) <= index:
            yield from _return_to(chat, leaf, progress)
            yield from chat.looked()
        raise
    mark_branches(chat.keeper, chat.messages)
    if len(chat.messages) <= index:  # stopped before it was read: nothing was said instead
        yield from _return_to(chat, leaf, progress)
        yield from chat.said_from(index)


def _return_to(chat: Chat, leaf: int | None, progress: ReadProgress) -> Iterator[Note]:
    """Goes back to where the conversation was before something else was to be said."""
    chat.resume(progress, leaf=leaf)
    yield from chat.take_notes()


def open_another(
    chat: Chat, conversation: str, progress: ReadProgress = unheard, cancel: ShouldStop = never
) -> bool:
    """Goes on with another stored conversation, where it ended, in a cache as it had; this one is let go.

    Returns False if it was cancelled. Then, and where anything is raised, nothing has changed.

    Raises:
        StoreError: it cannot be read (`BusyError`: it is open elsewhere).
        UsageError: there is no such conversation, or it was held with another model.
    """
    assert chat.keeper is not None
    left, engine, settings, opened = chat.keeper, chat.engine, chat.settings, False
    left.leave()
    try:
        chat.engine, chat.settings, notes = _cache_of(chat, conversation)
        own = {name: value for name, value in asdict(chat.settings).items() if name in REBUILDING}
        chat.keeper = left.other(conversation, chat.engine.session, own)
        opened = chat.resume(progress, cancel)
    finally:
        gone = left if opened else chat.keeper
        if not opened:
            chat.keeper, chat.engine, chat.settings = left, engine, settings
        if gone is not chat.keeper:
            gone.close()
    if opened:
        chat.session = chat.session_now()
        # Whoever recalls writes into this list, too.
        chat.notes[:] = [*chat.keeper.notes, *notes]
        chat.keeper.notes = chat.notes
        chat.recall.elsewhere = Elsewhere(chat.keeper, chat.recall.rarity)
    return opened


def _cache_of(chat: Chat, conversation: str) -> tuple["Engine", Settings, list[Note]]:
    """An engine with a cache as a stored conversation had it, and its settings; the present ones where these
    are the same or cannot be had, which a note says.
    """
    assert chat.keeper is not None
    try:
        stored = chat.keeper.store.settings(conversation)
        given = {name: stored[name] for name in REBUILDING if name in stored}
        for name, value in given.items():
            if value is not None or getattr(Settings, name) is not None:  # else it is left to the program
                precedence.check(name, value, name)
        own = replace(chat.settings, **given)
        return (chat.engine if own == chat.settings else chat.engine.remade(own)), own, []
    except (StoreError, UsageError, BudgetError) as error:
        note = Note(
            error.code, f"It goes on in the present memory, since its own cannot be had: {error.message}"
        )
        return chat.engine, chat.settings, [note]


def check_rebuild(chat: Chat, settings: Settings) -> None:
    """Raises BudgetError if the budget cannot work, StoreError if nothing is stored to be read again."""
    chat.engine.check(settings)
    if chat.begun and (chat.keeper is None or chat.keeper.leaf is None):
        what = "This conversation is not stored: there is nothing to build another memory from."
        raise StoreError(what, "Begin a new one, then change it.")


def rebuild(
    chat: Chat, settings: Settings, progress: ReadProgress = unheard, cancel: ShouldStop = never
) -> bool:
    """Builds another cache by reading the conversation again.

    Returns False if it was cancelled. Then, and where anything is raised, nothing has changed.
    """
    check_rebuild(chat, settings)
    engine, notes = chat.engine.remade(settings), list[Note]()
    if chat.begun and chat.keeper and chat.keeper.leaf is not None:
        path = chat.keeper.path(chat.keeper.leaf)
        pin_again(engine, notes, path)
        if not read_again(engine, chat.template, path, 0, progress, cancel):
            return False
    chat.engine, chat.settings = engine, settings
    chat.session = chat.session_now()
    if chat.keeper:
        chat.keeper.changed(engine.session, asdict(settings))
        chat.keeper.save_again(engine)
    chat.holds.forget()
    chat.state = None
    if engine.seen:
        chat.update_state()
        chat.holds.share_out(chat.messages, engine.seen)
    chat.spell()  # a screen that shows it from its beginning forgets what the tokens were
    chat.notes += notes
    return True


@dataclass(frozen=True)
class Fork:
    """A message that has siblings: other messages were said in its place."""

    index: int
    number: int
    """The number of the next sibling, from 1 on."""
    count: int
    leaf: int
    """Id of the newest message behind the next sibling."""


def next_fork(chat: Chat, index: int | None = None) -> Fork | None:
    """The next sibling of a message; without `index`, of the last one that has any. None: there is none."""
    own = {
        at: message.id
        for at, message in enumerate(chat.messages)
        if message.role == "user" and message.id is not None
    }
    places = sorted(own, reverse=True)
    if index is not None:  # an answer is made again together with what it answers
        places = [at for at in places if at <= index][:1]
    for at in places:
        there = [one.id for one in _children(chat, chat.messages[at - 1].id if at else None)]
        if len(there) > 1:
            number = (there.index(own[at]) + 1) % len(there)
            leaf = there[number]
            while after := _children(chat, leaf):
                leaf = after[-1].id
            return Fork(at, number + 1, len(there), leaf)
    return None


def go_to_fork(chat: Chat, fork: Fork, progress: ReadProgress = unheard, cancel: ShouldStop = never) -> bool:
    """Goes on with the other branch, with the cache as it was there; False if it was cancelled."""
    if not chat.resume(progress, cancel, fork.leaf):
        return False
    text = f"Branch {fork.number} of {fork.count} from {numbered(fork.index)} on."
    chat.notes.append(Note("branch", text))
    return True


def _children(chat: Chat, parent: int | None) -> list[StoredMessage]:
    assert chat.keeper is not None
    assert chat.keeper.conversation is not None
    return chat.keeper.store.children(chat.keeper.conversation, parent)
