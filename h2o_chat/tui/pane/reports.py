"""Shows the reports of the thread: one case for each."""

import tempfile
import traceback
from pathlib import Path

from platformdirs import user_log_path

from h2o_chat.base.errors import H2OChatError
from h2o_chat.chat.commands.surface import Opened
from h2o_chat.chat.conversation.message import all_numbered, progress_words
from h2o_chat.chat.files.attached import AttachedFiles
from h2o_chat.events.events import CacheState, Error, Note, Prompt, ReadSoFar, Said, Token, Turn
from h2o_chat.tui.pane import jobs
from h2o_chat.tui.pane.pane import Pane


def show(report: jobs.Report, pane: Pane) -> None:
    messages, memory = pane.transcript.messages, pane.memory
    if not isinstance(report, CacheState):  # these come while a prompt is read, too
        pane.is_reading = isinstance(report, ReadSoFar)
    match report:
        case jobs.Stage() if (stages := pane.stages) is not None:
            stopped = stages.stops
            stages.stage(report)
            messages.redraw(stages)
            if stages.stops != stopped:
                pane.app.refresh_bindings()
        case jobs.Stage(name, share) if share is not None:
            pane.divider.doing(f"{name}{pane.STOP_HINT}")
        case Opened():
            memory.begin(report.chat.session, report.chat.state, report.chat.messages)
            pane.on_opened(report.chat)
        case jobs.JoinedTokens():
            messages.stream(report)
        case Token():
            memory.add(report)
            messages.token()
        case CacheState():
            memory.add(report)
            messages.remembered()
            pane.pointed()
        case Said():
            memory.add(report)
            pane.on_said(report)
            if report.recalled and (view := messages.by_index.get(report.index)):
                view.remark = f"recalled {all_numbered(index for index, _ in report.recalled)}"
                messages.redraw(view)
        case ReadSoFar():
            pane.divider.doing(f"reading {progress_words(report)}{pane.STOP_HINT}")
        case Prompt():
            memory.add(report)
            messages.read(report)
            pane.divider.doing(f"answering{pane.STOP_HINT}")
        case Turn(finish="stopped", prompt_tokens=0):
            memory.add(report)
            messages.views[:] = [view for view in messages.views if view not in pane.about_prompt]
            pane.on_withdrawn()
        case Turn():
            memory.add(report)
            pane.on_turn(report)
        case Note(code="long-prompt" | "recalled"):
            pane.about_prompt.append(messages.note(report.message, report.hint))
        case Note():
            pane.on_note(report)
        case Error():
            messages.error(report.code, report.message, report.hint)
        case jobs.Stopped():
            pane.on_not_opened()
        case H2OChatError(code=code, message=message, hint=hint):
            messages.error(code, message, hint)
            pane.on_not_opened()
        case BaseException() as error:
            file = save_trace("".join(traceback.format_exception(error)))
            hint = f"This is a bug of h2o-chat. The traceback is in {file}"
            messages.error("bug", f"{type(error).__name__}: {error}", hint)
            pane.on_not_opened()
        case jobs.Done():
            pane.on_done()
        case AttachedFiles():
            pane.on_files_read(report)
    pane.on_report(report)


def save_trace(trace: str) -> Path:
    """Writes a traceback to the log folder of the user, or to the temporary one; returns the file."""
    for folder in (user_log_path("h2o-chat"), Path(tempfile.gettempdir())):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(
                "w", dir=folder, prefix="h2o-chat-bug-", suffix=".log", delete=False, encoding="utf-8"
            ) as file:
                file.write(trace)
                return Path(file.name)
        except OSError:
            continue
    raise OSError("no folder to write a traceback to")
