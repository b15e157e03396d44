"""`h2o-chat --plain`: the chat line by line, for screen readers, slow links and dumb terminals.

The same conversation as on the screen, kept in the same place, with the same commands. Never textual.
"""

import time
from collections.abc import Callable, Iterator

from h2o_chat.base.config import Sampling
from h2o_chat.base.errors import ExitCode, H2OChatError
from h2o_chat.chat.commands import table
from h2o_chat.chat.conversation import going_back
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.greeting import greeting
from h2o_chat.chat.conversation.opening import Opener
from h2o_chat.chat.conversation.reading_progress import words
from h2o_chat.chat.conversation.release import leave
from h2o_chat.chat.files.attached import names_files, with_files
from h2o_chat.chat.files.export import MARKS
from h2o_chat.cli.plain_lines import HOW, Ended, Lines, Signals, nobody_reads
from h2o_chat.events.events import Error, Event, Note, Prompt, ReadSoFar, Said, Token, Turn
from h2o_chat.events.recorder import Recorder

SAY_S = 5.0
"""Between two lines about what takes long: each is read aloud."""
SHOWN_MESSAGES = 10
"""Of a conversation that is opened."""


class PlainChat:
    """A conversation, line by line.

    Args:
        opener_of: by a model's name, what opens it.
        act: does a command; false where there is no such command here.
        recorder: gets every event.

    Attributes:
        texts: Of the tokens, by position.
        editing: The message in whose place the next text is said.
        pins_next: The next message is protected as it is sent.
        left: Somebody has asked to leave.
    """

    def __init__(
        self,
        chat: Chat,
        sampling: Sampling,
        lines: Lines,
        signals: Signals,
        opener_of: Callable[[str], Opener],
        act: Callable[["PlainChat", str, str], bool],
        recorder: Recorder | None = None,
    ) -> None:
        self.chat, self.lines, self.signals = chat, lines, signals
        self.sampling = chat.makers.complete(sampling)
        self.opener_of = opener_of
        self.texts: dict[int, str] = {}
        self.editing: int | None = None
        self.pins_next = self.left = False
        self._act, self._recorder = act, recorder
        self._said_at = float("-inf")

    def run(self) -> ExitCode:
        """Until somebody leaves."""
        self.lines.note(greeting(self.chat.session), f"/help shows the commands; {HOW}.")
        self.show()
        interrupted = False
        while not self.left:
            try:
                with self.signals.waiting():
                    text = self.lines.read()
            except Ended:
                break
            except KeyboardInterrupt:
                self.lines.end_line()
                if interrupted:
                    break
                interrupted = True
                self.lines.note("ctrl+c again leaves.")
                continue
            if text is None:
                self.lines.end_line()
                break
            interrupted = False
            self._take(text)
            interrupted = self.signals.stopped
        return self.signals.code

    def _take(self, text: str) -> None:
        """Do what a text says, or say it to the model."""
        try:
            said = table.parse(text) if not text.startswith("/") or not self._own(text) else None
            if isinstance(said, tuple):
                command, rest = said
                if not self._act(self, command.name, rest):
                    self.lines.error(f"/{command.name} is of the screen: there is none here.")
            elif said is not None and (said.strip() or self.editing is not None):
                self._speak(said)
        except H2OChatError as error:
            self.lines.error(error.message, error.hint)
        for note in self.chat.take_notes():
            self.lines.note(note.message, note.hint)

    def _own(self, text: str) -> bool:
        """Does a command that the screen does not have; whether it was one."""
        name, _, rest = text[1:].partition(" ")
        return name.isalpha() and not table.matching(f"/{name}") and self._act(self, name, rest.strip())

    def _speak(self, text: str) -> None:
        index, self.editing = self.editing, None
        if index is not None and not text.strip():
            self.lines.note(f"#{index + 1} stays as it was.")
            return
        if names_files(text):
            text = with_files(text)
        if index is None:
            pin, self.pins_next = self.pins_next, False
            self.hear(self.chat.send(text, self.sampling, self.signals.stops, pin=pin))
        else:
            self.hear(
                going_back.edit(self.chat, index, text, self.sampling, self.signals.stops, self.reading)
            )

    # What is said

    def hear(self, events: Iterator[Event]) -> None:
        """Write what comes, as it comes."""
        answer, number = "", 0
        self._said_at = time.monotonic()
        for event in events:
            if self._recorder and (note := self._recorder.write(event)):
                self.lines.note(note.message, note.hint)
            match event:
                case Said():
                    number = event.index + 2
                case ReadSoFar():
                    self.reading(event)
                case Prompt():
                    self.texts.update(enumerate(event.texts, event.first))
                case Note():
                    self.lines.note(event.message, event.hint)
                case Error():
                    self.lines.error(event.message, event.hint)
                case Token():
                    self.texts[event.position] = event.text
                    answer = self._answer(number, answer, event.text)
                case Turn():
                    self._answer(number, answer, event.text.removeprefix(answer))
                    self.lines.end_line()
                    self._ended(event)

    def _answer(self, number: int, before: str, more: str) -> str:
        if more and not before:
            self.lines.end_line()
            self.lines.write(f"#{number} {self._speaker('assistant')}: ")
        self.lines.write(more)
        return before + more

    def _ended(self, turn: Turn) -> None:
        if turn.finish == "stopped" and not turn.prompt_tokens:
            self.lines.note("stopped while it was read: nothing was sent.")
        elif mark := MARKS.get(turn.finish):
            self.lines.note(f"{mark}.")

    def reading(self, so_far: ReadSoFar) -> None:
        """How far the reading is, now and then."""
        if time.monotonic() - self._said_at >= SAY_S:
            self._said_at = time.monotonic()
            self.lines.say(f"reading {words(so_far)} · ctrl+c stops")

    def opened(self, chat: Chat) -> None:
        """Go on with another conversation."""
        self.chat, self.editing, self.pins_next = chat, None, False
        self.sampling = chat.makers.complete(self.sampling)
        self.show()

    def show(self) -> None:
        """The conversation so far: its last messages, and what a person should know."""
        chat = self.chat
        if self._recorder:
            for event in chat.opening():
                self._recorder.write(event)
        self.texts = {
            message.first + at: text for message in chat.messages for at, text in enumerate(message.texts)
        }
        earlier = max(0, len(chat.messages) - SHOWN_MESSAGES)
        if earlier:
            self.lines.note(f"{earlier} earlier messages are not shown; h2o-chat sessions show has them all.")
        for index in range(earlier, len(chat.messages)):
            self.say_message(index)
        for note in chat.take_notes():
            self.lines.note(note.message, note.hint)

    def say_message(self, index: int) -> None:
        """One message, with its number."""
        message = self.chat.messages[index]
        pinned = " (pinned)" if message.pinned else ""
        self.lines.say(f"#{index + 1} {self._speaker(message.role)}{pinned}: {message.text}")

    def _speaker(self, role: str) -> str:
        model = self.chat.session.model.rsplit("/", 1)[-1]
        return {"user": "you", "assistant": model}.get(role, role)


def run(
    open_chat: Opener,
    opener_of: Callable[[str], Opener],
    name: str,
    sampling: Sampling,
    act: Callable[[PlainChat, str, str], bool],
    recorder: Recorder | None = None,
) -> ExitCode:
    """A conversation from the opening to its end.

    Args:
        name: of the model that is opened.

    Raises:
        H2OChatError: it cannot be opened, or not all of it is stored.
    """
    lines, signals = Lines(), Signals()
    lines.note(f"opening {name}")
    chat = open_chat(progress_in(lines))
    talk = PlainChat(chat, sampling, lines, signals, opener_of, act, recorder)
    try:
        with signals.taken():
            code = talk.run()
    except BrokenPipeError:
        code = ExitCode.OK
        nobody_reads()
    finally:
        leave(talk.chat, say=True)
        if recorder:
            recorder.end()
    return code


def progress_in(lines: Lines) -> Callable[[str, float | None], None]:
    """How far an opening is, now and then in a line."""
    told = time.monotonic()

    def progress(stage: str, share: float | None) -> None:
        nonlocal told
        if share is not None and time.monotonic() - told >= SAY_S:
            told = time.monotonic()
            what, _, details = stage.partition(":")
            lines.say(f"{what} {share:.0%}{details}")

    return progress
