"""`h2o-chat --plain`: the chat line by line, for screen readers, slow links and dumb terminals.

The same conversation as on the screen, kept in the same place, with the same commands. Never textual.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Literal

from h2o_chat.base.config import Sampling
from h2o_chat.base.errors import ExitCode, H2OChatError, UsageError
from h2o_chat.base.progress import ShouldStop
from h2o_chat.chat.commands import settable, table
from h2o_chat.chat.commands.surface import Job, Opened
from h2o_chat.chat.conversation import going_back
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.message import Message, numbered, progress_words, speaker
from h2o_chat.chat.conversation.opening import Opener
from h2o_chat.chat.conversation.release import release_chat
from h2o_chat.chat.conversation.remarks import greeting
from h2o_chat.chat.conversation.tool_rounds import send_and_call
from h2o_chat.chat.files.attached import names_files, with_files
from h2o_chat.chat.files.export import MARKS, one_line, when
from h2o_chat.chat.memory.cache_view import CacheView
from h2o_chat.chat.templates.thinking import Thinking
from h2o_chat.chat.templates.tool_form import Call, Splitter, ToolForm
from h2o_chat.chat.tools.mcp_servers import McpServers
from h2o_chat.cli.plain_lines import HOW, Lines, SignalEnd, Signals
from h2o_chat.cli.run import discard_stdout
from h2o_chat.events.events import Error, Event, Note, ReadSoFar, Said, Token, Turn
from h2o_chat.events.recording import Recorder

LISTED = 20
"""Stored conversations that `/open` lists."""
SHOWN_MESSAGES = 10


class PlainChat:
    """A conversation, line by line: a `Surface` for the slash commands.

    Args:
        opener_of: returns what opens a model, by its name, perhaps for a stored conversation.
        recorder: gets every event.

    Attributes:
        editing: index of the message that the next text replaces.
        pins_next: the next message is pinned as it is sent.
    """

    selected = None  # no message is ever chosen here

    def __init__(
        self,
        chat: Chat,
        sampling: Sampling,
        lines: Lines,
        signals: Signals,
        opener_of: Callable[[str, str | None], Opener],
        recorder: Recorder | None = None,
    ) -> None:
        self.chat, self.lines, self.signals = chat, lines, signals
        self.sampling = chat.makers.complete(sampling)
        self.memory = CacheView()
        self.editing: int | None = None
        self.pins_next = self._left = False
        self._opener_of, self._recorder = opener_of, recorder

    def converse(self) -> ExitCode:
        self.lines.note(greeting(self.chat.session), f"/help shows the commands; {HOW}.")
        self.show()
        interrupted = False
        while not self._left:
            try:
                with self.signals.waiting():
                    text = self.lines.read()
            except SignalEnd:
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
        try:
            parsed = table.parse(text, "plain")
            if not isinstance(parsed, str):
                command, words = parsed
                assert command.body is not None
                command.body(self, words)
            elif parsed.strip() or self.editing is not None:
                self.speak(parsed)
        except H2OChatError as error:
            self.lines.error(error.message, error.hint)
        for note in self.chat.take_notes():
            self.note(note)

    # The surface of commands, see `chat/commands/surface.py`

    def idle(self) -> Chat:
        return self.chat

    def say(self, text: str) -> None:
        self.lines.say(text)

    def remark(self, text: str) -> None:
        self.lines.note(text)

    def note(self, note: Note) -> None:
        self.lines.note(note.message, note.hint)

    def run(self, job: Job, doing: str, **_: object) -> None:
        reported = False

        def events() -> Iterator[Event]:
            nonlocal reported
            for report in job(self.signals.stops, self.reading):
                reported = True
                if isinstance(report, Opened):
                    self.opened(self.chat, report.rebuilt)
                else:
                    yield report

        self.hear(events())
        if not reported:
            self.lines.note("stopped: nothing has changed.")

    def speak(self, text: str) -> None:
        index, self.editing = self.editing, None
        if index is not None and not text.strip():
            self.lines.note(f"{numbered(index)} stays as it was.")
            return
        if names_files(text):
            text = with_files(text)
        if index is None:
            pin, self.pins_next = self.pins_next, False
            self.hear(send_and_call(self.chat, text, self.sampling, self.signals.stops, pin=pin))
        else:
            stops = self.signals.stops
            self.hear(going_back.edit(self.chat, index, text, self.sampling, stops, self.reading))

    def begin_edit(self, index: int) -> None:
        self._say_message(index)
        self.editing = index
        self.lines.note("what you type next is said instead; an empty line leaves it as it was.")

    def pin_next(self, on: bool) -> None:
        self.pins_next = on
        self.lines.note(f"the next message is {'pinned as it is sent' if on else 'not pinned'}.")

    def open_model(self, name: str, conversation: str | None = None) -> None:
        before = self.chat
        if before.keeper:
            before.keeper.leave()
        chat = self._opener_of(name, conversation)(self.lines.progress)
        before.close()
        self.opened(chat)
        self.lines.note(f"{chat.session.model} is ready.")

    def choose_model(self) -> None:
        raise UsageError("Which model?", "/model NAME; h2o-chat models lists them.")

    def choose_conversation(self) -> None:
        assert self.chat.keeper is not None
        for about in self.chat.keeper.store.list(LISTED):
            title = one_line(about.title) or "no title"
            self.say(f"{about.id}: {title}, {when(about.updated)}, {about.messages:,} messages")
        self.say("/open ID goes on with one of them")

    def choose_setting(self) -> None:
        for name, value in settable.values(self.chat, self.sampling).items():
            self.say(f"{name} = {settable.typed(value) or 'none'}")

    def find(self, words: str) -> None:
        told = [_told(message, self.chat.template.thinking)[1] for message in self.chat.messages]
        found = [index for index, text in enumerate(told) if words.lower() in text.lower()]
        if not found:
            raise UsageError(f"{words!r} stands in no message.", "/find WORDS")
        for index in found:
            self._say_message(index)

    def help(self) -> None:
        for command in table.commands("plain"):
            self.say(f"/{command.name} {command.arguments}".rstrip() + f": {command.help}")
        self.say(f"{HOW}.")
        self.say(
            "@FILE in a message sends a file along. ctrl+c stops an answer, once more leaves; ctrl+d leaves."
        )

    def leave(self) -> None:
        self._left = True

    # Events

    def hear(self, events: Iterator[Event]) -> None:
        """Write events as they come."""
        form = ToolForm(thinking=self.chat.template.thinking)
        who, kind, splitter = "", "", Splitter(form, False)
        for event in events:
            self.memory.add(event)
            if self._recorder and (note := self._recorder.write(event)):
                self.note(note)
            match event:
                case Said():
                    who = f"#{event.index + 2} {speaker('assistant', self.chat.session.model)}"
                    kind, splitter = "", Splitter(form, False)
                    if event.role == "tool":
                        self._say_message(event.index)
                case ReadSoFar():
                    self.reading(event)
                case Note():
                    self.note(event)
                case Error():
                    self.lines.error(event.message, event.hint)
                case Token():
                    kind = _answer(self.lines, who, kind, splitter.add(event.text))
                case Turn():
                    _answer(self.lines, who, kind, splitter.end(form.read(event.text, False)))
                    self.lines.end_line()
                    unread = event.finish == "stopped" and not event.prompt_tokens
                    mark = (
                        "stopped while it was read: nothing was sent" if unread else MARKS.get(event.finish)
                    )
                    if mark:
                        self.lines.note(f"{mark}.")

    def reading(self, so_far: ReadSoFar) -> None:
        self.lines.say_if_quiet(f"reading {progress_words(so_far)} · ctrl+c stops")

    def opened(self, chat: Chat, rebuilt: bool = False) -> None:
        """Go on with another conversation, or with another cache for this one."""
        self.chat, self.sampling = chat, chat.makers.complete(self.sampling)
        if rebuilt:
            self.memory.begin(chat.session, chat.state, chat.messages)
            return
        self.editing, self.pins_next = None, False
        if not chat.begun:
            self.lines.note("another conversation begins.")
        self.show()

    def show(self) -> None:
        """Write the last messages of the conversation, and its notes."""
        chat = self.chat
        if self._recorder:
            for event in chat.opening():
                self._recorder.write(event)
        self.memory.begin(chat.session, chat.state, chat.messages)
        earlier = max(0, len(chat.messages) - SHOWN_MESSAGES)
        if earlier:
            self.lines.note(f"{earlier} earlier messages are not shown; h2o-chat sessions show has them all.")
        for index in range(earlier, len(chat.messages)):
            self._say_message(index)
        for note in chat.take_notes():
            self.note(note)

    def _say_message(self, index: int) -> None:
        message = self.chat.messages[index]
        pinned = " (pinned)" if message.pinned else ""
        thinks, text = _told(message, self.chat.template.thinking)
        who = speaker(message.role, self.chat.session.model)
        self.lines.say(f"{numbered(index)} {who}{thinks}{pinned}: {text}")


def _answer(lines: Lines, who: str, before: str, pieces: Iterable[tuple[str, str]]) -> str:
    """Writes pieces of an answer. `before` and the result: the kind written last, thought or content."""
    for kind, text in pieces:
        if kind != before:
            lines.end_line()
            lines.write(f"{who}{' thinks' if kind == 'thought' else ''}: ")
        lines.write(text)
        before = kind
    return before


def _told(message: Message, thinking: Thinking) -> tuple[str, str]:
    """("", the text without its thought); (" thinks", the thought) where an answer ended within it."""
    if message.role != "assistant":
        return "", message.text
    thought, text = thinking.divide(message.text)
    return (" thinks", thought) if thought and not text else ("", text)


def _ask(lines: Lines, signals: Signals, call: Call, cancel: ShouldStop) -> Literal["once", "always", "no"]:
    lines.say(f"May it call {call.name}? y: yes, a: always until you leave, anything else: no")
    try:
        with signals.waiting():
            said = (lines.read() or "").strip().lower()
    except (KeyboardInterrupt, SignalEnd):
        signals.stopped = True
        return "no"
    return "once" if said == "y" else "always" if said == "a" else "no"


def run(
    open_chat: Opener,
    opener_of: Callable[[str, str | None], Opener],
    name: str,
    sampling: Sampling,
    servers: McpServers,
    recorder: Recorder | None = None,
) -> ExitCode:
    """Holds a conversation from the opening of the model `name` to its end.

    Raises:
        H2OChatError: it cannot be opened, or not all of it is stored.
    """
    lines, signals = Lines(), Signals()
    servers.ask = partial(_ask, lines, signals)
    lines.note(f"opening {name}")
    chat = open_chat(lines.progress)
    talk = PlainChat(chat, sampling, lines, signals, opener_of, recorder)
    try:
        with signals.taken():
            code = talk.converse()
    except BrokenPipeError:
        code = ExitCode.OK
        discard_stdout()
    finally:
        release_chat(talk.chat)
        if recorder:
            recorder.end()
    return code
