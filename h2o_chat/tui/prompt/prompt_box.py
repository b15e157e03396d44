"""The prompt box: several lines, sent with enter, with a history and a completion menu."""

import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from textual import events, on
from textual.app import SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.widgets import TextArea

from h2o_chat.base.errors import H2OChatError, StoreError, UsageError, refusal
from h2o_chat.base.private_files import open_own
from h2o_chat.base.safe import safe_text
from h2o_chat.chat.commands import table
from h2o_chat.chat.files.export import write_file
from h2o_chat.tui.prompt.completion_menu import Completion, Menu, choices

KEPT = 1000
"""Most prompts; the oldest are dropped."""
FILE = "prompts.jsonl"
LIMIT_BYTES = 8 << 20
"""A longer file is not read: it is no history of ours."""


class PromptHistory:
    """The prompts, oldest first, and which of them stands in the box; without a folder in memory alone."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._path = None if folder is None else folder / FILE
        self._texts = self._load()
        self._at = len(self._texts)
        self._edited: dict[int, str] = {}
        """Edited texts by index of their prompt, until something is sent."""

    def add(self, text: str) -> None:
        if not self._texts or self._texts[-1] != text:
            self._texts = [*self._texts, text][-KEPT:]
            self._write(text)
        self._at, self._edited = len(self._texts), {}

    def older(self, shown: str) -> str | None:
        """The prompt before the one shown; None if there is none."""
        return None if self._at == 0 else self._go(-1, shown)

    def newer(self, shown: str = "") -> str | None:
        """The prompt after the one shown, at last what was being typed; None if that is shown."""
        return None if self._at == len(self._texts) else self._go(1, shown)

    def _go(self, step: int, shown: str) -> str:
        texts = [*self._texts, ""]
        if shown and shown != texts[self._at]:
            self._edited[self._at] = shown
        self._at += step
        return self._edited.get(self._at, texts[self._at])

    def _load(self) -> list[str]:
        if self._path is None:
            return []
        try:
            if self._path.is_symlink() or self._path.stat().st_size > LIMIT_BYTES:
                return []
            lines = self._path.read_text("utf-8", "replace").splitlines()
        except OSError:
            return []
        texts = []
        for line in lines[-KEPT:]:
            try:
                text = json.loads(line)
            except (ValueError, RecursionError):
                continue  # the end of a line that was being written when the power went
            if isinstance(text, str):
                texts.append(text)
        if len(lines) > 2 * KEPT:
            with suppress(H2OChatError):
                write_file(self._path, "".join(json.dumps(text) + "\n" for text in texts), force=True)
        return texts

    def _write(self, text: str) -> None:
        """Append a line. A failing disk is reported where conversations are stored."""
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = open_own(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            with open(descriptor, "a", encoding="ascii") as file:
                file.write(json.dumps(text) + "\n")
        except (OSError, StoreError):
            self._path = None


NEW_LINE = ("shift+enter", "ctrl+j")
"""Two keys, because shift+enter does not reach every terminal."""
EMPTY = "ask something; @ for a file, / for commands"
PAGES = ("pageup", "pagedown")
KEYS = ("enter", *NEW_LINE, *PAGES, "up", "down", "tab", "escape")


class PromptBox(TextArea):
    """Grows with its text up to a third of the screen. Keeps a text that was refused."""

    BINDINGS: ClassVar[list[BindingType]] = [
        # The app's own meaning of ctrl+c comes first: here it copied.
        Binding("ctrl+c", "app.interrupt", show=False),
        Binding("ctrl+g", "editor", "write in $EDITOR", show=False),
    ]

    OWN_KEYS: ClassVar[dict[str, str]] = {
        "enter": "send",
        "shift+enter, ctrl+j": "a new line",
        "up, down": "what was typed before, from the first and the last line; up first takes back what waits",
        "tab": "take what the menu proposes; without a menu: on to the transcript",
        "escape": "close the menu",
    }
    """Keys in the help that `_took` handles."""

    def __init__(self, send: Callable[[str], bool], menu: Menu, history: PromptHistory | None) -> None:
        """`send` takes a text that is more than blanks, and returns whether it was taken."""
        super().__init__(id="prompt", highlight_cursor_line=False, placeholder=EMPTY)
        self._send = send
        self.return_newest: Callable[[], bool] = lambda: False
        """Puts the newest waiting text here; False where nothing waits."""
        self._refused = ""  # a command that failed: it is selected, though nobody has selected it
        self._menu = menu
        self._history = history or PromptHistory(None)
        self.take_offer: Callable[[], None] | None = None
        """Called by enter in the empty box, while a line is offered there."""
        self._closed_for: str | None = None  # the text for which the menu was closed

    def put(self, text: str) -> None:
        self.text = text
        self.move_cursor(self.document.end)

    def put_before(self, text: str) -> None:
        """Put a text before what was typed meanwhile, on lines of its own."""
        if self.text:
            self.insert(f"{text}\n", (0, 0))
        else:
            self.put(text)

    def clear_to_history(self) -> None:
        """Empty the box; `up` brings its text back."""
        self.keep()
        self.clear()

    def keep(self, draft: str = "") -> None:
        """Keep a draft and the text in the history, whatever becomes of the box."""
        for text in (draft, self.text):
            if text.strip():
                self._history.add(text)

    @property
    def selected_by_hand(self) -> str:
        """The text that a person has selected."""
        return "" if self.selected_text == self._refused else self.selected_text

    def offer(self, shown: str, take: Callable[[], None] | None = None) -> None:
        """Show a faint line while the box is empty (none: the usual one); enter calls `take` then."""
        self.placeholder, self.take_offer = f"{shown} ↵" if take else shown or EMPTY, take

    def action_editor(self) -> None:
        try:
            with self.app.suspend():
                text = edited(self.text)
        except SuspendNotSupported:
            self.app.notify("This terminal cannot be lent to an editor.", severity="warning", markup=False)
        except H2OChatError as error:
            self.app.notify(f"{error.message} {error.hint}".strip(), severity="error", markup=False)
        else:
            self.put(safe_text(text))

    async def _on_key(self, event: events.Key) -> None:
        # Not bindings: those run ahead of the keys typed just before, and a message to the app behind the
        # keys typed just after, so fast typing would send half a text or lose the next one's beginning.
        if event.key not in KEYS or not self._took(event.key):
            await super()._on_key(event)
            return
        event.stop()
        event.prevent_default()

    def _took(self, key: str) -> bool:
        """True if the key was handled here."""
        if key in NEW_LINE:
            self.insert("\n")
            return True
        if key in PAGES:
            if not self.max_scroll_y:  # the box needs none of it
                getattr(self.screen.query_one("#transcript"), f"scroll_{key[:4]}_{key[4:]}")()
            return not self.max_scroll_y
        if found := self._choices():
            return self._chose(key, found)
        match key:
            case "enter":
                if self.text.strip():
                    self._send_text()
                elif self.take_offer and not self.text:
                    self.take_offer()
                return True
            case "up" if not self.text and self.return_newest():
                return True
            case "up" if self.cursor_at_first_line:
                return self._show_from_history(self._history.older(self.text))
            case "down" if self.cursor_at_last_line:
                return self._show_from_history(self._history.newer(self.text))
        return False

    def _chose(self, key: str, found: list[Completion]) -> bool:
        at = min(self._menu.at, len(found) - 1)
        match key:
            case "up" | "down":
                self._menu.at = (at + (1 if key == "down" else -1)) % len(found)
                self._menu.show(found)
            case "escape":
                self._closed_for = self.text
                self._show_menu()
            case "enter" if at == 0 and self._before().endswith("/"):
                self._send_text()  # the folder itself
            # at 0 nobody has moved: any of them
            case "enter" if any(self._typed_out(one) for one in (found if at == 0 else [found[at]])):
                self._send_text()
            case _:
                self._complete(found[at], send=key == "enter")
        return True

    def _typed_out(self, choice: Completion) -> bool:
        """Whether the choice is typed already, so that there is nothing to complete."""
        return self._before()[choice.begin :] == choice.text.strip()

    def _complete(self, choice: Completion, send: bool) -> None:
        row, column = self.cursor_location
        start = column - (len(self._before()) - choice.begin)
        self.replace(choice.text, (row, start), (row, column))
        self.move_cursor((row, start + len(choice.text)))
        if send and choice.final:
            self._send_text()

    def _send_text(self) -> None:
        text = self.text
        self.clear()  # before: what it does may put another text here
        failed = not self._send(text)
        if not failed or table.is_command(text):
            self._history.add(text)
        if failed and not table.is_command(text):
            self.put_before(text)
        elif failed and not self.text:
            self.put(text)
            self.select_all()  # typing replaces it
            self._refused = self._closed_for = text

    def _show_from_history(self, text: str | None) -> bool:
        if text is None:
            return False
        self.put(text)
        self._closed_for = text
        return True

    def _before(self) -> str:
        """The text before the cursor, on its line; commands stand on the first."""
        row, column = self.cursor_location
        return self.document.get_line(row)[:column]

    def _choices(self) -> list[Completion]:
        if self.text == self._closed_for:
            return []
        before = self._before()
        if before.startswith("/") and self.cursor_location[0]:
            return []  # the menu opens at the very beginning alone
        return choices(before, sorted(self.app.available_themes), self._history.folder)

    @on(TextArea.Changed)
    def _show_menu(self) -> None:
        if self.text != self._closed_for:
            self._closed_for = None
        self._menu.show(self._choices())

    async def _on_paste(self, event: events.Paste) -> None:
        # A pasted escape sequence must reach neither the terminal nor, unseen, the model; and terminals
        # send the line breaks of a paste as carriage returns. Textual calls the inherited method, which
        # inserts the text, by itself.
        event.text = safe_text(event.text.replace("\r\n", "\n").replace("\r", "\n"))


def edited(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """The text as the editor leaves it (VISUAL, EDITOR, else vi), which has the terminal meanwhile.

    Raises:
        UsageError: the editor cannot be started.
        H2OChatError: it failed, left no text, or there is no room for it; the prompt stays as it was.
    """
    named = environment.get("VISUAL") or environment.get("EDITOR") or "vi"
    try:
        command = shlex.split(named)
    except ValueError as error:
        raise UsageError(f"EDITOR is {named!r}: {error}.") from error
    try:
        with tempfile.TemporaryDirectory(prefix="h2o-chat-", ignore_cleanup_errors=True) as folder:  # 0700
            path = Path(folder) / "prompt.md"
            path.write_text(text, "utf-8", "replace")
            return _left_by(command, named, path)
    except OSError as error:
        raise H2OChatError(f"The prompt cannot be lent to an editor: {refusal(error)}.") from error


def _left_by(command: list[str], named: str, path: Path) -> str:
    """Starts the editor on the file; returns the text that it leaves there."""
    try:
        code = subprocess.run([*command, str(path)]).returncode
    except OSError as error:
        raise UsageError(
            f"The editor {named!r} cannot be started: {error.strerror}.",
            "Set EDITOR to one that is here.",
        ) from error
    if code:
        raise H2OChatError(f"The editor {named!r} ended with {code}: the prompt stays as it was.")
    try:
        return path.read_text("utf-8").rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise H2OChatError(f"What the editor left cannot be read: {refusal(error)}.") from error
