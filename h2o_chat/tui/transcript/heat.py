"""Heat on the words: how much of each token is held."""

from collections.abc import Iterator
from math import ceil

from textual.content import Span

from h2o_chat.chat.conversation.spans import tokens_read
from h2o_chat.chat.memory.cache_view import CacheView
from h2o_chat.tui.transcript.shown_tokens import Tokens

LEVELS = 8
GONE = "$gone strike"
"""Struck through and pale: evicted from every cache."""
KINDS = {"S": " bold underline", "H": " bold", "R": "", "·": ""}
"""Styles beside the colour: important tokens are bold, protected ones underlined too."""


class Heat:
    """The styles of the words, from the state of the cache."""

    def __init__(self) -> None:
        self.memory = CacheView()
        self.on = False

    @property
    def version(self) -> object:
        """Changes whenever a style does."""
        return self.on, self.memory.states

    def level(self, position: int) -> int | None:
        """0 to 8; None for a token that the model has not read yet."""
        if position >= self.memory.seen or not self.on:
            return None
        return min(ceil(self.memory.hold.get(position, 0.0) * LEVELS - 1e-9), LEVELS)

    def style(self, position: int) -> str:
        """The style of a token's word."""
        level = self.level(position)
        if level is None:
            return ""
        if level == 0:
            return GONE
        kind = self.memory.kind(position)
        if kind == "R" and level == LEVELS:
            return ""  # new tokens are held by all: that needs no colour
        return f"$heat-{level} on $heat-ground-{level}{KINDS[kind]}"  # `theme.py` has the ramp

    def spans(self, tokens: Tokens, start: int, end: int) -> Iterator[Span]:
        """The styles of the characters from `start` to before `end`, counted from `start`.

        A character split over tokens takes the largest value among them.
        """
        begun, stop, running = start, start, ""
        for first, last, positions in tokens.groups(start, end):
            style = self.style(max(positions, key=lambda position: self.level(position) or 0))
            if style != running:
                if running:
                    yield Span(begun - start, stop - start, running)
                begun, running = first, style
            stop = last
        if running:
            yield Span(begun - start, stop - start, running)

    def held(self, first: int, last: int) -> float:
        read = range(first, min(last + 1, self.memory.seen))
        return sum(self.memory.hold.get(position, 0.0) for position in read) / len(read) if read else 1.0

    def gauges(self) -> dict[int, float]:
        """Mean hold by message, for those whose tokens were read."""
        memory = self.memory
        total = dict.fromkeys((span.index for span in memory.spans), 0.0)
        for position, hold in memory.hold.items():
            if span := memory.span(position):
                total[span.index] += hold
        read = {span.index: tokens_read(span.tokens, memory.seen) for span in memory.spans}
        return {index: total[index] / count if count > 0 else 1.0 for index, count in read.items()}
