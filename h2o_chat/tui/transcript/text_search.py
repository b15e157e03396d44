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
    """Where the words stand."""

    view: TurnView
    at: int
    """The first character, in what the message shows."""


class Finder:
    """The words that are looked for, and where they stand; letters count the same, small and capital."""

    def __init__(self) -> None:
        self.words = ""
        self.matches: list[Match] = []
        self.current: int | None = None
        """Which of the matches is shown."""
        self.version = 0
        """Another one whenever something else is to be marked."""

    def look(self, words: str, views: list[TurnView]) -> None:
        """Find all of them; messages that have the words are unfolded."""
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
        """The next match, or the one before; at the end it begins anew."""
        if not self.matches:
            return None
        self.version += 1
        first = len(self.matches) - 1 if step < 0 else 0
        self.current = first if self.current is None else (self.current + step) % len(self.matches)
        return self.matches[self.current]

    def mark(self, view: TurnView, at: int, content: Content) -> Content:
        """With what was found marked; the current one apart.

        Args:
            at: where the content begins in what the message shows.
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
        """How many there are, and which is shown."""
        if not self.matches:
            return "nothing found" if self.words else ""
        many = f"{len(self.matches):,}" + ("+" if len(self.matches) >= MOST_MATCHES else "")
        return many if self.current is None else f"{self.current + 1:,} of {many}"
