"""The chat screen: one conversation beside what the model still remembers of it.

It paints first and loads in a thread. Threads report through one queue, which a timer empties; every change
that is not the answer to a key starts in `reports.show`.
"""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from shutil import which
from subprocess import TimeoutExpired, run
from time import monotonic
from typing import Any, ClassVar, cast

from textual._compositor import Compositor
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.events import Event, Resize
from textual.filter import Monochrome, NoColor
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from h2o_chat.base.config import Look, Sampling, Settings
from h2o_chat.base.deadline import Deadline
from h2o_chat.base.errors import ExitCode, H2OChatError
from h2o_chat.chat.commands.surface import ChatLike, Opened
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.events.recording import Recorder
from h2o_chat.models.resolve import find
from h2o_chat.tui.help import Help
from h2o_chat.tui.key_routing import KeyRouting
from h2o_chat.tui.pane import reports
from h2o_chat.tui.pane.jobs import Jobs, OpenChat, Report, Stopped
from h2o_chat.tui.pane.pane import Pane
from h2o_chat.tui.prompt.prompt_box import PromptBox, PromptHistory
from h2o_chat.tui.prompt.screen_commands import CommandPane
from h2o_chat.tui.prompt.talk_pane import TalkPane
from h2o_chat.tui.side_panels import SidePanels
from h2o_chat.tui.transcript.choice import Pointed
from h2o_chat.tui.widgets.key_bar import KeyBar
from h2o_chat.tui.widgets.theme import H2O_DARK, OWN, variables

LOOK_S, BESIDE_ENGINE_S = 1 / 20, 1 / 12
"""Seconds between two looks at the reports; more while an engine answers, perhaps on the same core."""
LEAVE_SECONDS, LEAVE_STOPPED_SECONDS = 2.0, 1.0
"""A second ctrl+c within this time leaves; the shorter one where the first has stopped an answer."""


class ChatScreen(Screen[None]):
    """Sorts the focus chain: the prompt first, then the transcript, then the rest."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._compositor = PartialCompositor()

    @property
    def focus_chain(self) -> list[Widget]:
        return sorted(super().focus_chain, key=lambda widget: isinstance(widget, PromptBox))


class ChatApp(App[None], inherit_bindings=False):
    """The whole screen.

    Args:
        open_chat: opens the conversation; called in a thread, reports its progress, may take minutes.
        settings: shown while loading.
        pane: the conversation's half, where it is not a `TalkPane`.
        folder: where prompts are remembered; None remembers them while the app runs.
        opener_of: returns what opens a model, by its name, perhaps for a stored conversation.
        keep_look: remembers, by its name, what of it was changed.

    Attributes:
        exit_code: of the process: why no model could be opened, which signal ended it, or 0.
        deadline: for leaving; None where the process is not the screen's own (see `leaving.run`).
    """

    CSS_PATH = "app.tcss"
    ENABLE_COMMAND_PALETTE = False
    TITLE = "h2o-chat"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "stop", tooltip="stop; what there is of an answer is kept"),
        Binding("ctrl+c", "interrupt", "copy, else stop, else clear; else, twice, quit", system=True),
        Binding("escape", "home", "prompt", tooltip="back to the prompt"),
        Binding("ctrl+b", "toggle_panel", "memory", tooltip="the memory panel: shown, wide, hidden"),
        Binding("f1", "help", "help", tooltip="these keys and commands"),
        Binding("ctrl+q", "quit", "quit", priority=True),
        Binding("ctrl+z", "suspend_process", show=False, priority=True, tooltip="to the shell; fg returns"),
    ]
    OWN_KEYS: ClassVar[dict[str, str]] = {
        "any character": "goes to the prompt, wherever the keyboard is, unless a message is chosen",
        "tab, shift+tab": "on to the transcript, the memory panel, the strip, the prompt; or back",
    }
    """Keys in the help that are no bindings, or Textual's."""

    def __init__(
        self,
        open_chat: OpenChat,
        settings: Settings,
        sampling: Sampling,
        recorder: Recorder | None = None,
        pane: Pane | None = None,
        folder: Path | None = None,
        opener_of: Callable[[str, str | None], OpenChat] | None = None,
        look: Look = Look(),  # noqa: B008
        keep_look: Callable[[str, Any], None] | None = None,
    ) -> None:
        super().__init__()
        for own in OWN:
            self.register_theme(own)
        self._look, self._keep_look, self._open_chat = look, keep_look, open_chat
        self.theme = look.theme if look.theme in self.available_themes else H2O_DARK.name
        self.exit_code, self.deadline = ExitCode.OK, cast(Deadline | None, None)
        self.take_signals: Callable[[], None] = lambda: None
        self.pane = pane or CommandPane(Jobs(recorder), sampling, PromptHistory(folder), opener_of)
        self._memory = self.pane.memory
        self.jobs, self.transcript, self.divider = self.pane.jobs, self.pane.transcript, self.pane.divider
        self._key_routing = KeyRouting(self, self.pane) if isinstance(self.pane, TalkPane) else None
        self._first = settings.model or find(None).name
        self._side_panels, self._leaves_until = SidePanels(self._memory), float("-inf")
        self._side_panels.quiet = self.transcript.heat.quiet = look.quiet

    @property
    def chat(self) -> ChatLike | None:
        return self.pane.chat

    @property
    def busy(self) -> bool:
        return self.pane.busy

    @property
    def prompt(self) -> PromptBox:
        return self.query_one(PromptBox)

    def compose(self) -> ComposeResult:
        yield self._side_panels.status
        with Horizontal(id="middle"):
            yield self.pane
            yield self._side_panels.panel
        yield self._side_panels.line
        yield self._side_panels.strip
        yield KeyBar()

    def get_default_screen(self) -> Screen[None]:
        return ChatScreen(id="_default")

    def on_mount(self) -> None:
        if self.theme != self._look.theme:
            self.notify(f"There is no theme {self._look.theme!r}.", severity="warning", markup=False)
        self.pane.opening(self._first)
        self.set_timer(LOOK_S, self._drain)
        self.take_signals()
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))  # fg
        self.jobs.start(lambda: self.jobs.load(self._open_chat))

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return variables(self.current_theme)

    def watch_theme(self, theme: str) -> None:
        """Remember other colours, wherever they were chosen."""
        if self.no_color:
            # Textual chooses this once. Of a terminal's own colours its greys are black on black.
            grey = NoColor() if self.native_ansi_color else Monochrome()
            self._filters = [grey if isinstance(one, NoColor | Monochrome) else one for one in self._filters]
        if theme != self._look.theme and self.is_running:
            self._remember("theme", theme)

    def _remember(self, name: str, value: Any) -> None:
        """Keeps a change of the look for the next start."""
        self._look = replace(self._look, **{name: value})
        try:
            if self._keep_look is not None:
                self._keep_look(name, value)
        except H2OChatError as error:
            self.notify(f"{error.message} {error.hint}", severity="warning", markup=False)

    def exit(self, *args: Any, **kwargs: Any) -> None:
        self.jobs.cancel()  # the answer so far is kept
        if isinstance(self.pane, TalkPane):
            self.pane.editing.keep()
        if self.deadline:
            self.deadline.begin(self.exit_code)
        super().exit(*args, **kwargs)

    def _handle_exception(self, error: Exception) -> None:
        if self.deadline:  # where memory is short, what follows fails as well
            self.deadline.begin(ExitCode.MEMORY if isinstance(error, MemoryError) else ExitCode.BUG)
        super()._handle_exception(error)

    # Reports of the threads

    def _drain(self) -> None:
        if not self._side_panels.status.is_attached:
            return  # the screen is being taken down; nobody would see it
        reports = list(self.jobs.drain())
        for report in reports:
            self._take(report)
        if reports or (self._side_panels.behind and not self.busy):
            self._side_panels.refresh(busy=self.busy and not self.pane.is_reading)
        beside_engine = self.busy and isinstance(self.chat, Chat)
        self.set_timer(BESIDE_ENGINE_S if beside_engine else LOOK_S, self._drain)

    def _take(self, report: Report) -> None:
        """Show a report. An error decides how the process ends only while no chat was ever open."""
        match report:
            case _ if self.deadline and self.deadline.begun:
                pass  # a signal has decided it
            case Opened():
                self.exit_code = ExitCode.OK  # whatever could not be opened before
            case H2OChatError(exit_code=code) if self.chat is None:
                self.exit_code = code
            case BaseException() if self.chat is None and not isinstance(report, Stopped):
                self.exit_code = ExitCode.BUG
        reports.show(report, self.pane)
        if isinstance(report, Opened):
            self._watch()

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "stop":
            return self.pane.stoppable
        if action == "home":
            return self._key_routing is not None and self._key_routing.away
        return super().check_action(action, parameters)

    async def on_event(self, event: Event) -> None:
        if self._key_routing is None or not await self._key_routing.took(event):
            await super().on_event(event)

    def action_home(self) -> None:
        """Go back to the prompt: `KeyRouting` does it, whatever else escape does."""

    def action_stop(self) -> None:
        self.pane.stop_by_escape()

    def copy_to_clipboard(self, text: str) -> None:
        """Copy to the terminal's clipboard, and to tmux's buffer: it lets no program reach the other one."""
        super().copy_to_clipboard(text)
        _copy_to_tmux(text)

    def action_interrupt(self) -> None:
        """Copy a selection, else stop, else empty the prompt, else leave when pressed twice.

        Where a text stands in the prompt, stopping does not count as the first of these two presses.
        """
        talk = self.pane if isinstance(self.pane, TalkPane) else None
        in_prompt = talk.prompt.selected_by_hand if talk else ""
        if monotonic() < self._leaves_until:
            self.exit()
        elif selected := in_prompt or self.screen.get_selected_text():
            self.copy_to_clipboard(selected)
            self.divider.say("copied")
        elif self.pane.stoppable and not (self.busy and self.jobs.cancelled):
            typed = talk is not None and len(self.screen_stack) == 1 and talk.editing.has_text
            self.pane.stop()  # which may bring a text back
            if typed:
                self.divider.say("stopped · your text stays · ctrl+c again clears it")
            else:
                self._leaves_until = monotonic() + LEAVE_STOPPED_SECONDS
                self.divider.say("stopping · ctrl+c again leaves", LEAVE_STOPPED_SECONDS)
        elif talk and len(self.screen_stack) == 1 and talk.editing.clear_to_history():
            self.divider.say("cleared · up brings it back")
        else:
            self._leaves_until = monotonic() + LEAVE_SECONDS
            self.divider.say("ctrl+c again leaves", LEAVE_SECONDS)

    def action_toggle_panel(self) -> None:
        if self._look.quiet:
            self.toggle_quiet()
        else:
            self._side_panels.toggle_panel()
            self._watch()

    def toggle_quiet(self) -> None:
        """Shows the conversation alone, or again with what the memory holds."""
        self._remember("quiet", not self._look.quiet)
        self._side_panels.quiet = self.transcript.heat.quiet = self._look.quiet
        if self._look.quiet and self.transcript.heat.on:
            self.transcript.toggle_heat()
        self._side_panels.fold(self.size)
        self._watch()
        self.divider.say("quiet · ctrl+b or /quiet shows the memory" if self._look.quiet else "")

    def action_help(self) -> None:
        talks = isinstance(self.pane, TalkPane)
        places: list[tuple[str, object]] = [("the prompt", self.prompt)] if talks else []
        places += [("everywhere", self), ("the conversation", self.pane), ("the transcript", self.transcript)]
        places += [("the memory panel", self._side_panels.panel), ("the strip", self._side_panels.strip)]
        self.push_screen(Help(places, commands=talks))

    def on_pointed(self, message: Pointed) -> None:
        if (self._memory.cursor is None) != (message.position is None):
            self.call_next(self.refresh_bindings)
        self._memory.cursor = message.position
        self.pane.pointed()
        self._side_panels.refresh(moved=True)
        position = message.position if message.follow else None
        if position is not None and not self.transcript.inspector.show_place(position):
            self.divider.say("that message is not shown here")

    # Layout

    def on_resize(self, event: Resize) -> None:
        self._side_panels.fold(event.size)
        self._watch()

    def _watch(self) -> None:
        """Collect what only the panel shows while it is visible or recorded, and not otherwise."""
        if isinstance(self.chat, Chat):
            self.chat.engine.watch(self._side_panels.wanted or self.jobs.recorder is not None)


def _copy_to_tmux(text: str) -> None:
    if "TMUX" in os.environ and (tmux := which("tmux")):
        command = [tmux, "load-buffer", "-w", "-"]
        with suppress(TimeoutExpired):  # the terminal has got it
            run(command, input=text.encode("utf-8", "replace"), capture_output=True, timeout=1)


class PartialCompositor(Compositor):
    """Asks only the widgets that are drawn, and only for the rows that are.

    Textual's own (8.2.8) asks every visible widget for all its rows, though one is drawn: 2 ms of a frame,
    taken from the job's thread, which shares this interpreter; the engine computes in another process.
    """

    def _get_renders(self, crop: Region | None = None) -> Iterable[tuple[Region, Region, list[Strip]]]:
        crop = crop or self.size.region
        rows = Region(0, crop.y, self.size.width, crop.height)
        for widget, (region, clip) in self.visible_widgets.items():
            if region.overlaps(crop) and (shown := region.intersection(clip).intersection(rows)):
                yield region, clip.intersection(rows), widget.render_lines(shown.translate(-region.offset))
