"""A recording on the screen: played at its own pace, in a pane that has a line instead of the prompt.

A recording that is empty or damaged raises UsageError where it is read.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import Static

from h2o_chat.base.progress import Progress, ShouldStop
from h2o_chat.base.safe import safe_text
from h2o_chat.chat.commands.surface import ChatLike, Opened
from h2o_chat.chat.conversation.message import Message, from_event
from h2o_chat.events.events import (
    CacheState,
    End,
    Event,
    Note,
    Prompt,
    ReadProgress,
    ReadSoFar,
    Said,
    Session,
    Token,
    Turn,
)
from h2o_chat.tui.pane.jobs import SHOWN_MESSAGES, Jobs
from h2o_chat.tui.pane.pane import Pane

LONGEST_WAIT_S = 5.0
"""Nobody watches a prompt being read for minutes."""
STEP_S = 0.05
BEHIND_S = 0.25
"""The most that is caught up with; after that the replay stays late."""

UNSAID = "(what was said is not in this recording)"
FORGOTTEN = Message("user", "")
"""Stands for messages too old to be shown."""


class Pace:
    """Waits as long as it took then, divided by `speed`, unless somebody pauses or leaves."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self.paused = False
        self._owed_s = 0.0
        self._clock = time.monotonic()

    def pause(self) -> None:
        self.paused = not self.paused

    def wait(self, ms: float, cancel: ShouldStop) -> None:
        """Return when an event is due that took so long; sooner if it is cancelled."""
        self._owed_s = max(self._owed_s - self._passed_s(), -BEHIND_S)
        self._owed_s += min(ms / 1000 / self._speed, LONGEST_WAIT_S)
        while (self._owed_s > 0 or self.paused) and not cancel():
            paused = self.paused
            time.sleep(STEP_S if paused else min(self._owed_s, STEP_S))
            passed_s = self._passed_s()
            self._owed_s -= 0.0 if paused else passed_s

    def _passed_s(self) -> float:
        """Seconds since the last call."""
        before_s, self._clock = self._clock, time.monotonic()
        return self._clock - before_s


@dataclass
class RecordedChat:
    """A conversation of a recording, as it was when it was opened."""

    session: Session
    messages: list[Message] = field(default_factory=list)
    state: CacheState | None = None
    notes: list[Note] = field(default_factory=list)

    def take_notes(self) -> Iterator[Note]:
        while self.notes:
            yield self.notes.pop(0)

    def add(self, said: Said) -> None:
        """Add a message; messages too old to be shown are replaced by `FORGOTTEN`."""
        del self.messages[said.index :]
        self.messages += [FORGOTTEN] * (said.index - len(self.messages))
        self.messages.append(from_event(said))
        if len(self.messages) > SHOWN_MESSAGES:
            self.messages[-SHOWN_MESSAGES - 1] = FORGOTTEN


class Player:
    """Reports the events of a recording, which begin with a session, perhaps after notes, at a pace."""

    def __init__(self, events: Iterator[Event], pace: Pace) -> None:
        self.pace = pace
        self._events = events
        self._ahead: list[Event] = []
        self._next_index = 0
        self._answering = False
        self._waited_ms = 0.0  # milliseconds for the prompt that is being read

    def open(self, progress: Progress) -> ChatLike:
        """The first conversation."""
        progress("read", None)
        notes = []
        while isinstance(event := self._take(), Note):
            notes.append(event)
        assert isinstance(event, Session), "the reader has seen to it"
        recorded = self._begin(event)
        recorded.notes[:0] = notes
        return recorded

    def play(self, cancel: ShouldStop, progress: ReadProgress) -> Iterator[Event | Opened]:
        """The events at their pace; a job of `Jobs`."""
        while not cancel() and (event := self._take()) is not None:
            if isinstance(event, Session):
                yield Opened(self._begin(event))
                continue
            if isinstance(event, ReadSoFar | Prompt | Token | Turn) and not self._answering:
                yield self._note(Said(self._next_index, "user", UNSAID))
            match event:
                case ReadSoFar() | Prompt():
                    self._read(event, cancel)
                case Token():
                    self.pace.wait(event.ms, cancel)
            yield self._note(event)

    def _read(self, event: ReadSoFar | Prompt, cancel: ShouldStop) -> None:
        """Waits as long as it took since the last report of this prompt: `LONGEST_WAIT_S` in all."""
        until_ms = min(event.ms, 1000 * LONGEST_WAIT_S)
        self.pace.wait(max(until_ms - self._waited_ms, 0.0), cancel)
        self._waited_ms = 0.0 if isinstance(event, Prompt) else until_ms

    def _begin(self, session: Session) -> RecordedChat:
        recorded = RecordedChat(session)
        while recorded.state is None:
            match self._peek(0):
                case Said() as said if not self._asks(said):
                    recorded.add(said)
                case Note() as note:
                    recorded.notes.append(note)
                case CacheState() as state:
                    recorded.state = state
                case _:
                    break
            self._take()
        self._next_index, self._answering = len(recorded.messages), False
        return recorded

    def _asks(self, said: Said) -> bool:
        """Whether this was said while it was recorded, and not before."""
        return said.role in ("user", "tool") and not isinstance(
            self._peek(1), Said | CacheState | Session | End | None
        )

    def _note(self, event: Event) -> Event:
        """Keep count of the messages."""
        match event:
            case Said(index, role):
                self._answering = role in ("user", "tool")
                self._next_index = index + (2 if self._answering else 1)
            case Turn():
                self._answering, self._waited_ms = False, 0.0
                if event.finish == "stopped" and not event.prompt_tokens:
                    self._next_index = max(self._next_index - 2, 0)
        return event

    def _peek(self, place: int) -> Event | None:
        self._ahead += islice(self._events, max(place + 1 - len(self._ahead), 0))
        return self._ahead[place] if place < len(self._ahead) else None

    def _take(self) -> Event | None:
        event = self._peek(0)
        del self._ahead[:1]
        return event


class ReplayPane(Pane):
    UNENDED = "interrupted"
    CAN_STOP = False
    BINDINGS: ClassVar[list[BindingType]] = [Binding("space", "pause", "pause")]

    def __init__(self, jobs: Jobs, player: Player, name: str) -> None:
        super().__init__(jobs)
        self._player = player
        self._name_shown = safe_text(name)
        self._line = Static(id="replaying", markup=False)
        self.entry = [self._line]

    def on_mount(self) -> None:
        self.transcript.focus()
        self._say_where("·", "opening")

    def on_opened(self, chat: ChatLike) -> None:
        first = self.chat is None
        super().on_opened(chat)
        if first:
            self._say_where("▶", "space pauses")
            self.begin(self._player.play, "")

    def broke(self) -> None:
        super().broke()
        self._say_where("✗", "it cannot be shown")

    def on_done(self) -> None:
        super().on_done()
        self._say_where("■", "it has ended")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self.busy if action == "pause" else super().check_action(action, parameters)

    def action_pause(self) -> None:
        self._player.pace.pause()
        paused = self._player.pace.paused
        self._say_where("‖" if paused else "▶", "paused, space goes on" if paused else "space pauses")

    def _say_where(self, sign: str, what: str) -> None:
        self._line.update(f"{sign} a recording · {what} · ctrl+q leaves · {self._name_shown}")
