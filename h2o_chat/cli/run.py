"""`h2o-chat run`: a conversation without a screen.

The contract: stdout is the answer (or, with --json, one event a line) and nothing else; notes, progress and
errors go to stderr, progress only where that is a terminal; nothing is ever asked; the exit code is one of
`ExitCode` and says what happened; a reader that closes the pipe ends the run quietly.
"""

import os
import re
import sys
import textwrap
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TextIO

from h2o_chat.base import errors
from h2o_chat.base.config import Sampling
from h2o_chat.base.errors import ExitCode, H2OChatError, OutOfMemoryError, StoreError, UsageError
from h2o_chat.base.progress import progress_bar
from h2o_chat.base.safe import safe_text
from h2o_chat.chat.conversation.keeper import Keeper
from h2o_chat.chat.conversation.opening import Opener
from h2o_chat.chat.conversation.release import release, stored_as
from h2o_chat.chat.conversation.rescue import NOWHERE_ELSE
from h2o_chat.chat.conversation.tool_rounds import MAY_CALL, send_and_call
from h2o_chat.chat.templates.tool_form import Splitter, ToolForm
from h2o_chat.chat.tools.tool_calls import ToolCalls
from h2o_chat.cli.interruptible import interruptible, with_progress
from h2o_chat.events.events import End, Error, Event, Note, Said, Session, Token, Turn, to_json
from h2o_chat.events.recording import Recorder
from h2o_chat.models.tokenizer_calls import is_panic

SEPARATOR = "---"
"""A line of this stands between the turns of a script, and between its answers."""
_SIGNALLED = (ExitCode.HUNG_UP, ExitCode.INTERRUPTED, ExitCode.TERMINATED)
_BETWEEN = re.compile(rf"^{SEPARATOR}[^\S\n]*$", re.MULTILINE)


def turns_of(script: str) -> list[str]:
    """The turns of a script: what stands between lines of `---`, without empty lines around it.

    Raises:
        UsageError: there are none.
    """
    turns = _BETWEEN.split(script.replace("\r\n", "\n"))
    spoken = [turn.strip("\n") for turn in turns if turn.strip()]
    if not spoken:
        raise UsageError("The script is empty.", f"Write turns separated by a line of {SEPARATOR}.")
    return spoken


Output = Callable[[Event], None]
"""Hands one event to the reader at once; raises BrokenPipeError where nobody reads any more."""


def json_line(event: Event) -> None:
    """Writes an event to stdout as one line of JSON."""
    line = to_json(event)
    sys.stdout.write((safe_text(line) if sys.stdout.isatty() else line) + "\n")
    sys.stdout.flush()


class PlainText:
    """Answers without thoughts and calls, each ended by a newline, with a line of `---` between two."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.form = ToolForm()
        self.tools: ToolCalls | None = None
        self._splitter = Splitter(self.form, False)
        self._answer = ""
        self._answers = 0
        self._thinks = False

    def write(self, event: Event) -> None:
        match event:
            case Said():
                self._splitter = Splitter(self.form, self.tools is not None)
            case Token():
                self._print(self._splitter.add(event.text))
            case Turn():
                parts = self.form.read(event.text, self.tools is not None and event.finish in MAY_CALL)
                self._print(self._splitter.end(parts))
                if self._answer or not parts.calls:
                    if not self._answer.endswith("\n"):
                        self._print([("content", "\n")])
                    self._answers += 1
                self._answer, self._thinks = "", False
            case _:
                return
        self._stream.flush()

    def _print(self, pieces: Iterable[tuple[str, str]]) -> None:
        for kind, text in pieces:
            if kind == "thought":
                if sys.stderr.isatty() and not self._thinks:
                    say("h2o-chat: the model thinks before it answers; --json has its thoughts")
                self._thinks = True
                continue
            if not self._answer and self._answers:
                self._stream.write(SEPARATOR + "\n")
            self._answer += text
            self._stream.write(safe_text(text) if self._stream.isatty() else text)


@dataclass
class _RunCounts:
    turns: int = 0
    tokens: int = 0
    began: float = field(default_factory=time.monotonic)
    keeper: Keeper | None = None
    unkept: str = ""
    """Why the conversation is not stored although it should have been."""

    def end(self) -> End:
        conversation = stored_as(self.keeper) if self.keeper else None
        return End(self.turns, self.tokens, time.monotonic() - self.began, conversation)


@dataclass(frozen=True)
class RunTask:
    """A checked task, before anything is loaded."""

    open_chat: Opener
    turns: Sequence[str]
    sampling: Sampling
    grammar: str = ""
    """All answers follow it (`Row.grammar`)."""


def run(prepare: Callable[[], RunTask], json: bool, recorder: Recorder | None = None) -> ExitCode:
    """A conversation from the first turn to the last, or to the first that fails.

    Args:
        prepare: checks the arguments; its errors are shown like all others.
        recorder: gets all events, whatever stdout gets; not opened yet.
    """
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    text = None if json else PlainText(sys.stdout)
    shown: Output = text.write if text else json_line
    tally = _RunCounts()

    def recorded(event: Event) -> None:
        note = recorder.write(event) if recorder else None
        shown(event)
        if note:
            _tell(note, shown)

    out = recorded if recorder else shown

    def work() -> ExitCode:
        job = prepare()
        if recorder:
            recorder.open()
        return _converse(job, out, tally, text)

    try:
        code = ending(work, out)
    except BrokenPipeError:
        discard_stdout()
        code, out = ExitCode.OK, PlainText(sys.stdout).write
    try:
        code = _store(tally, code, out)
        end = tally.end()
        if tally.keeper:
            tally.keeper.store.empty_log()
        out(end)
        if end.conversation:
            sys.stderr.write(f"h2o-chat: conversation {end.conversation}\n")
    except BrokenPipeError:
        discard_stdout()
    except OSError:  # said by `ending` already, when it happened first
        discard_stdout()
        return ExitCode.FAILED
    return code


def _store(tally: _RunCounts, code: ExitCode, out: Output) -> ExitCode:
    """Waits until everything is on disk; says what is not, and fails then."""
    unstored = f"Nothing of this conversation is stored. {tally.unkept}" if tally.unkept else ""
    if keeper := tally.keeper:
        try:
            unstored = release(keeper) or unstored
        except MemoryError:  # what came to stdout was stored before
            unstored = "There was no memory to store the end of this conversation."
        while keeper.notes:
            _tell(keeper.notes.pop(0), out)
    if not unstored:
        return code
    error = StoreError(unstored, keeper.rescue.way_back if keeper else NOWHERE_ELSE)
    _failed(error, out)
    return ExitCode.FAILED if code in (ExitCode.OK, *_SIGNALLED) else code


def _converse(job: RunTask, out: Output, tally: _RunCounts, text: PlainText | None) -> ExitCode:
    with progress_bar() as progress:
        chat = job.open_chat(progress)
    chat.engine.grammar = job.grammar
    tally.began, tally.keeper, tally.unkept = time.monotonic(), chat.keeper, chat.unkept
    if text:
        text.tools = chat.tools
        text.form = chat.tools.form if chat.tools else ToolForm(thinking=chat.template.thinking)
        note_session(chat.session, job.sampling)
    for event in chat.opening():
        out(event)
    for note in chat.take_notes():
        _tell(note, out)
    # The chat itself holds tensors, which no thread of ours may be the last to let go of.
    keeper = chat.keeper
    kept = "what was answered so far is kept"
    with interruptible(lambda: (keeper and keeper.unstored) or kept) as interrupted:
        for said in job.turns:
            try:
                code = _turn(send_and_call(chat, said, job.sampling, lambda: bool(interrupted())), out, tally)
            except H2OChatError as error:
                if not interrupted():
                    raise
                _failed(error, out)  # the exit code is that of the signal
            if interrupted():
                return interrupted()
            if code is not ExitCode.OK:
                return code
    return ExitCode.OK


def _turn(events: Iterator[Event], out: Output, tally: _RunCounts) -> ExitCode:
    """Writes a turn; an error among its events fails it, though its text may be complete up to there."""
    code = ExitCode.OK
    for event in with_progress(events):
        if isinstance(event, Note):
            _tell(event, out)
            continue
        out(event)
        if isinstance(event, Error):
            complain(event.message, event.hint)
            code = ExitCode.FAILED
        elif isinstance(event, Turn):
            tally.turns += 1
            tally.tokens += event.new_tokens
    return code


def _tell(note: Note, out: Output) -> None:
    out(note)
    complain(note.message, note.hint)


_SMALLER = "Try a smaller --budget or --chunk, a smaller model, or --quantize nf4."


def ending(work: Callable[[], ExitCode], out: Output | None = None) -> ExitCode:
    """Runs `work`; an error is shown on stderr, and as an event to `out`, and becomes an exit code.

    Raises:
        BrokenPipeError: whoever owns the pipe handles it.
    """
    try:
        return work()
    except OutOfMemoryError as error:
        return _failed(error if error.hint else OutOfMemoryError(error.message, _SMALLER), out)
    except H2OChatError as error:
        return _failed(error, out)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        raise
    except OSError as error:  # a full disk, a closed stream: the machine's fault, and nothing can be written
        return _failed(H2OChatError(f"{error}.", "Nothing more could be written or read there."), None)
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        if _out_of_memory(error):
            return _failed(OutOfMemoryError(f"Out of memory: {error}", _SMALLER), out)
        sys.stderr.write(errors.written_out(traceback.format_exc()))
        hint = "This is a bug of h2o-chat: please report it together with the lines above."
        message = f"{type(error).__name__}: {error}"
        complain(message, hint)
        if out is not None:
            out(Error("bug", message, hint))
        return ExitCode.BUG


def _failed(error: H2OChatError, out: Output | None) -> ExitCode:
    complain(error.message, error.hint)
    if out is not None:
        out(Error(error.code, error.message, error.hint))
    return error.exit_code


def _out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    if "torch" not in sys.modules:
        return False
    from h2o_chat.models.load import out_of_memory

    return out_of_memory(error)


def complain(message: str, hint: str) -> None:
    """Writes to stderr what is wrong, and below it what to do."""
    say(f"h2o-chat: {errors.name_of(message)}")  # notes quote names too
    if hint:
        say(f"  {errors.name_of(hint)}")


def say(line: str) -> None:
    """Writes a line to stderr; on a terminal it breaks between words."""
    if sys.stderr.isatty():
        columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80
        line = textwrap.fill(
            line, columns, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
    sys.stderr.write(f"{line}\n")


def note_session(session: Session, sampling: Sampling) -> None:
    """Writes to stderr what runs, for whoever wants to run it again."""
    budget = "" if session.budget is None else f", budget {session.budget}"
    kv = "" if session.kv_dtype == session.dtype else f", K/V {session.kv_dtype}"
    say(
        f"h2o-chat: {session.model} ({session.quantization}, {session.dtype}{kv}, {session.device},"
        f" {session.engine}),"
        f" template {session.template}, policy {session.policy}{budget},"
        f" {_drawn(sampling)}, seed {session.seed}"
    )


def _drawn(sampling: Sampling) -> str:
    """The sampling as flags; what is switched off is left out."""
    penalty = (
        f", repetition-penalty {sampling.repetition_penalty:g}" if sampling.repetition_penalty != 1 else ""
    )
    if not sampling.temperature:
        return f"temperature 0{penalty}"
    cuts = (("top-p", sampling.top_p, 1), ("top-k", sampling.top_k, 0), ("min-p", sampling.min_p, 0))
    on = "".join(f", {name} {value:g}" for name, value, off in cuts if value != off)
    return f"temperature {sampling.temperature:g}{on}{penalty}"


def discard_stdout() -> None:
    """Points stdout to nowhere: Python flushes it at exit, which must not raise again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
