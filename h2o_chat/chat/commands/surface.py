"""The interface of slash commands to where they are typed: the screen and `--plain` each are a `Surface`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from h2o_chat.base.config import Sampling
from h2o_chat.base.progress import ShouldStop
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.message import Message
from h2o_chat.chat.memory.cache_view import CacheView
from h2o_chat.events.events import CacheState, Event, Note, ReadProgress, Session


class ChatLike(Protocol):
    """A conversation as it is shown: `Chat`, or one from a recording."""

    session: Session
    messages: list[Message]
    state: CacheState | None

    def take_notes(self) -> Iterator[Note]: ...


@dataclass(frozen=True)
class Opened:
    """A conversation is open, to be shown from its beginning: the first, or another one."""

    chat: ChatLike
    rebuilt: bool = False
    """The conversation is the same as before; only its cache is another one."""


Job = Callable[[ShouldStop, ReadProgress], Iterator[Event | Opened]]
"""Takes `cancelled` and `progress`, yields what it reports; where it was cancelled, notes alone."""


class Surface(Protocol):
    """The screen, or the plain chat, as commands use it."""

    sampling: Sampling
    pins_next: bool

    @property
    def memory(self) -> CacheView: ...

    @property
    def selected(self) -> int | None: ...

    def idle(self) -> Chat: ...

    def say(self, text: str) -> None:
        """Show lines that answer a command."""

    def remark(self, text: str) -> None:
        """Show one short line, for a moment where that is possible."""

    def note(self, note: Note) -> None: ...

    def run(
        self,
        job: Job,
        doing: str,
        *,
        edits: int | None = None,
        fork: int | None = None,
        keeps_messages: bool = False,
    ) -> None:
        """Run a job and show what it reports.

        Args:
            doing: what goes on, in words.
            edits: index of the message that it replaces.
            fork: index of the message where the branch begins that it opens.
            keeps_messages: it changes no message.
        """

    def speak(self, text: str) -> None:
        """Send a message that was not typed now."""

    def begin_edit(self, index: int) -> None:
        """Ask for the text that replaces a message of the user."""

    def pin_next(self, on: bool) -> None: ...

    def open_model(self, name: str, conversation: str | None = None) -> None:
        """Open a model, for a new conversation or a stored one."""

    def choose_model(self) -> None: ...

    def choose_conversation(self) -> None: ...

    def choose_setting(self) -> None: ...

    def find(self, words: str) -> None: ...

    def help(self) -> None: ...

    def leave(self) -> None: ...
