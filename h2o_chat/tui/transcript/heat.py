"""Heat on the words: how much of each token is held, its rank, or how much was just evicted."""

from bisect import bisect_left
from collections.abc import Iterator
from math import ceil
from typing import Literal, get_args

from textual.content import Span

from h2o_chat.chat.conversation.spans import tokens_read
from h2o_chat.chat.memory.cache_view import CacheView
from h2o_chat.events.events import CacheState
from h2o_chat.tui.transcript.shown_tokens import Tokens

Mode = Literal["off", "hold", "score", "just evicted"]
MODES: tuple[Mode, ...] = get_args(Mode)

LEVELS = 8
GONE = "$gone strike"
"""Struck through and pale: evicted from every cache."""
KINDS = {"S": " bold underline", "H": " bold", "R": "", "·": ""}
"""Styles beside the colour: important tokens are bold, protected ones underlined too."""


class Heat:
    """The styles of the words, from the state of the cache."""

    def __init__(self) -> None:
        self.memory = CacheView()
        self.mode: Mode = "off"
        self.version = 0
        self._let_go: dict[int, float] = {}
        """Share of all caches that evicted a token, by position, in the last event."""
        self._octiles: list[float] | None = None

    def cycle(self) -> None:
        self.mode = MODES[(MODES.index(self.mode) + 1) % len(MODES)]
        self.version += 1

    def take(self, state: CacheState) -> None:
        """Take in a state that the memory does not have yet."""
        before = {} if state.whole else self.memory.hold
        self._let_go = {gone.position: 1.0 for gone in state.gone if gone.position not in before}
        for position, hold, _ in state.changed:
            if (was := before.get(position, 0.0)) > hold:
                self._let_go[position] = was - hold
        self._octiles = None
        self.version += 1

    def level(self, position: int) -> int | None:
        """0 to 8; None for a token that the model has not read yet."""
        memory = self.memory
        if position >= memory.seen:
            return None
        match self.mode:
            case "hold":
                return _level(memory.hold.get(position, 0.0))
            case "score":
                return self._score_level(position)
            case "just evicted":
                return _level(self._let_go.get(position, 0.0))
            case _:
                return None

    def _score_level(self, position: int) -> int:
        """The eighth of all held scores that its score is in."""
        if position not in self.memory.score:
            return 0
        if self._octiles is None:
            ranked = sorted(self.memory.score.values())
            self._octiles = [ranked[len(ranked) * eighth // LEVELS] for eighth in range(1, LEVELS)]
        return 1 + bisect_left(self._octiles, self.memory.score[position])

    def style(self, position: int) -> str:
        """The style of a token's word."""
        level = self.level(position)
        if level is None:
            return ""
        gone = position not in self.memory.hold
        if level == 0:
            return GONE if gone else ""
        kind = self.memory.kind(position)
        if self.mode == "hold" and kind == "R" and level == LEVELS:
            return ""  # new tokens are held by all: that needs no colour
        style = f"$heat-{level} on $heat-ground-{level}"  # `theme.py` has the ramp
        return style + (" strike" if gone else KINDS[kind])

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


def _level(share: float) -> int:
    return min(ceil(share * LEVELS - 1e-9), LEVELS)
