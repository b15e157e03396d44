"""From one branch of a stored conversation to another: what stood somewhere before it was said anew."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.message import numbered
from h2o_chat.events.events import Note, ReadSoFar
from h2o_chat.tui.jobs import Opened, Report


@dataclass(frozen=True)
class Fork:
    """A message in whose place something else was said, too."""

    index: int
    """Its place in the conversation."""
    number: int
    """Which of them the next one is, from 1 on."""
    count: int
    leaf: int
    """The newest message that followed the next one."""


def next_fork(talk: Chat, index: int | None = None) -> Fork | None:
    """What else was said in the place of a message; None: of the last one of which there is anything.

    Raises:
        StoreError: it cannot be read.
    """
    own = {
        at: message.id
        for at, message in enumerate(talk.messages)
        if message.role == "user" and message.id is not None
    }
    places = sorted(own, reverse=True)
    if index is not None:  # an answer is made again together with what it answers
        places = [at for at in places if at <= index][:1]
    for at in places:
        there = _children(talk, talk.messages[at - 1].id if at else None)
        if len(there) > 1:
            number = (there.index(own[at]) + 1) % len(there)
            leaf = there[number]
            while after := _children(talk, leaf):
                leaf = after[-1]
            return Fork(at, number + 1, len(there), leaf)
    return None


def go(
    talk: Chat, fork: Fork, cancel: Callable[[], bool], progress: Callable[[ReadSoFar], None]
) -> Iterator[Report]:
    """Goes on with the other branch, with the memory as it was there."""
    if talk.resume(progress, cancel, fork.leaf):
        talk.notes.append(
            Note("branch", f"Branch {fork.number} of {fork.count} from {numbered(fork.index)} on.")
        )
        yield Opened(talk)


def _children(talk: Chat, parent: int | None) -> list[int]:
    keeper = talk.keeper
    if keeper is None or keeper.conversation is None:
        return []
    return [message.id for message in keeper.store.children(keeper.conversation, parent)]
