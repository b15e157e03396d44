"""Finding words in the conversation."""

import re
from dataclasses import dataclass

from textual.content import Content

from h2o_chat.tui.transcript.turn import TurnView

MOST_MATCHES = 10_000
FOUND = "$found on $found-ground"
CURRENT = "bold underline $background on $primary"


@dataclass(frozen=True)
class Match:
    view: TurnView
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

    def look(self, words: str, views: list[TurnView]) -> None:
        """Find all places; messages that have the words are unfolded."""
        self.words, self.matches, self.current = words, [], None
        self.version += 1
        pattern, parts = re.compile(re.escape(words), re.IGNORECASE), words.lower().split()
        for view in views if words else ():
            source = view.source.lower()
            if not all(part in source for part in parts):
                continue  # before it is wrapped and drawn for that
            if view.folded:
                view.folded = False
                view.changed()
            found = (Match(view, match.start()) for match in pattern.finditer(view.plain))
            self.matches += found
            if len(self.matches) >= MOST_MATCHES:
                return

    def step(self, step: int) -> Match | None:
        """The next or the previous match; it wraps around."""
        if not self.matches:
            return None
        self.version += 1
        first = len(self.matches) - 1 if step < 0 else 0
        self.current = first if self.current is None else (self.current + step) % len(self.matches)
        return self.matches[self.current]

    def mark(self, view: TurnView, at: int, content: Content) -> Content:
        """Content with the matches marked, the current one differently.

        Args:
            at: index of the content in the shown text of the message.
        """
        if not self.words:
            return content
        content = content.highlight_regex(re.compile(re.escape(self.words), re.IGNORECASE), style=FOUND)
        if self.current is not None:
            match = self.matches[self.current]
            if match.view is view and at <= match.at < at + len(content):
                start = match.at - at
                content = content.stylize(CURRENT, start, start + len(self.words))
        return content

    @property
    def count(self) -> str:
        """`3 of 12`, or how many there are."""
        if not self.matches:
            return "nothing found" if self.words else ""
        many = f"{len(self.matches):,}" + ("+" if len(self.matches) >= MOST_MATCHES else "")
        return many if self.current is None else f"{self.current + 1:,} of {many}"
