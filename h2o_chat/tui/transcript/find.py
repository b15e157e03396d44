"""Finding words in the conversation: their places, and the bar into which they are typed."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from h2o_chat.tui.transcript.message_view import MessageView
from h2o_chat.tui.widgets.line_input import LineInput

MOST_MATCHES = 10_000
FOUND = "$found on $found-ground"
CURRENT = "bold underline $background on $primary"


@dataclass(frozen=True)
class Match:
    view: MessageView
    at: int
    """Index of the first character, in the shown text."""


class Finder:
    """The searched words, and their places; case is ignored."""

    def __init__(self) -> None:
        self.words = ""
        self.matches: list[Match] = []
        self.current: int | None = None
        """Index of the shown match."""
        self.version = 0
        """Counts changes of what is marked."""
        self.stale = False
        """Something else is shown since: look again."""

    def look(self, words: str, views: list[MessageView], width: int = 0) -> None:
        """Find all places, as they are drawn in a width; messages that have the words are unfolded."""
        before = self.current if words == self.words else None
        self.words, self.matches, self.current, self.stale = words, [], None, False
        self.version += 1
        pattern, parts = re.compile(re.escape(words), re.IGNORECASE), words.lower().split()
        for view in views if words else ():
            source = view.source.lower()
            if not all(part in source for part in parts):
                continue  # before it is wrapped and drawn for that
            if view.folded:
                view.folded = False
                view.changed()
            view.make_room(width)
            found = (Match(view, match.start()) for match in pattern.finditer(view.plain))
            self.matches += found
            if len(self.matches) >= MOST_MATCHES:
                break
        if self.matches and before is not None:
            self.current = min(before, len(self.matches) - 1)

    def step(self, step: int) -> Match | None:
        """The next or the previous match; it wraps around."""
        if not self.matches:
            return None
        self.version += 1
        first = len(self.matches) - 1 if step < 0 else 0
        self.current = first if self.current is None else (self.current + step) % len(self.matches)
        return self.matches[self.current]

    def mark(self, view: MessageView, at: int, content: Content) -> Content:
        """Content, from `at` in the shown message, with the matches marked, the current one differently."""
        content = content.highlight_regex(re.compile(re.escape(self.words), re.IGNORECASE), style=FOUND)
        if self.current is not None:
            match = self.matches[self.current]
            if match.view is view and at <= match.at < at + len(content):
                start, end = match.at - at, match.at - at + len(self.words)
                if self.words.lower().startswith(content.plain[start:end].lower()):  # else it is stale
                    content = content.stylize(CURRENT, start, end)
        return content

    @property
    def count(self) -> str:
        """`3 of 12`, or how many there are."""
        if not self.matches:
            return "nothing found" if self.words else ""
        many = f"{len(self.matches):,}" + ("+" if len(self.matches) >= MOST_MATCHES else "")
        return many if self.current is None else f"{self.current + 1:,} of {many}"


class FindBar(Horizontal):
    """The line into which words to be found are typed.

    Args:
        find: marks words and goes to their next place, in a direction; returns how many there are.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "back"),
        Binding("down,ctrl+f", "step(1)", "next", priority=True),
        Binding("up", "step(-1)", "before", priority=True),
    ]

    def __init__(self, finder: Finder, find: Callable[[str, int], str]) -> None:
        super().__init__(id="find")
        self._finder, self._find = finder, find
        self._input = LineInput(placeholder="words in this conversation", select_on_focus=True)
        self._found = Static(id="found", markup=False)
        self._before: Widget | None = None

    def compose(self) -> ComposeResult:
        yield Static("find", id="find-label", markup=False)
        yield self._input
        yield self._found

    def open(self, words: str | None = None) -> None:
        """Ask for words, or look for these."""
        if self.has_class("-open") and words is None:
            self.action_step(1)
            return
        if not self.has_class("-open"):
            self._before = self.screen.focused
        self.add_class("-open")
        self.screen.set_focus(self._input)  # at once: what is typed next is for it
        if words is not None:
            self._input.value = words

    def action_close(self) -> None:
        self.remove_class("-open")
        self._found.update(self._find("", -1))
        self._input.value = ""
        if self._before is not None:
            self._before.focus()

    def action_step(self, step: int) -> None:
        self._found.update(self._find(self._input.value, step))

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        # Keys that came at once have come in one piece before: asked again, it would go on to the next place.
        if self._input.value != self._finder.words:
            self.action_step(-1)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_step(-1)
