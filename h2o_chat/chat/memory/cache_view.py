"""The state of the cache as the screen and `--plain` show it, folded from the events. No widgets here.

Bounded: it knows the tokens that the cache holds, and a fixed number of points of the past.
"""

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from h2o_chat.base.glyphs import NAMES
from h2o_chat.chat.conversation.message import Message
from h2o_chat.chat.conversation.spans import Span, Spans
from h2o_chat.chat.memory.words import Word, Words
from h2o_chat.events.events import CacheState, Event, Gone, Heavy, Said, Session, Token, Turn

COLUMNS = 256
"""The most ranges of positions; beyond that, neighbours are merged."""
STEPS = 64
"""The most rows; beyond that, every second one is dropped."""


@dataclass
class SurvivalStep:
    seen: int
    held: list[float]
    """Sum of hold in each range."""


@dataclass
class Survival:
    """The history of a conversation in a fixed amount of memory."""

    width: int = 1
    """Positions per range: a power of two."""
    steps: list[SurvivalStep] = field(default_factory=list)
    _every: int = 1  # states per row: a power of two
    _skipped: int = 0

    def add(self, seen: int, hold: dict[int, float]) -> None:
        """Add a state: `hold` by position, for the tokens that are held."""
        while self.steps and self.steps[-1].seen > seen:  # the conversation went back
            self.steps.pop()
        while seen > self.width * COLUMNS:
            self.width *= 2
            for step in self.steps:
                step.held = [sum(step.held[at : at + 2]) for at in range(0, len(step.held), 2)]
        held = [0.0] * -(-seen // self.width)
        for position, share in hold.items():
            if 0 <= position < seen:
                held[position // self.width] += share
        if self._skipped and self.steps:
            self.steps.pop()  # the newest one stays only until the next, unless its turn has come
        self.steps.append(SurvivalStep(seen, held))
        self._skipped = (self._skipped + 1) % self._every
        if len(self.steps) > STEPS and not self._skipped:
            self.steps = self.steps[::2]
            self._every *= 2
            self._skipped = 0


LOST_KEPT = 64
PACE_TOKENS = 32
"""Steps over which tokens per second are averaged."""
LOG_KEPT = 200
MOST_CACHES = 1 << 16
"""A map of more (layer, KV head) pairs is not drawn: no model has them, but a recording may say so."""

Kind = Literal["S", "H", "R", "·"]
"""`S` pinned, `H` important, `R` newest, `·` forgotten by every head."""


@dataclass(frozen=True)
class Eviction:
    """A token that left the last cache that held it, and how many tokens had been seen by then."""

    seen: int
    token: Gone


@dataclass
class CacheView:
    """The newest of every event, and what no single event carries."""

    session: Session | None = None
    cache: CacheState | None = None
    tok_s: float | None = None
    answering: bool = False
    """Tokens of an answer are coming in."""
    cursor: int | None = None
    """Position of the token that the panel describes; set by `ChatApp.on_pointed` alone."""
    facts: str = ""
    """A line about that token."""
    hold: dict[int, float] = field(default_factory=dict)
    """Hold by position, for the tokens that some cache holds."""
    score: dict[int, float] = field(default_factory=dict)
    """Their scores, to a factor of two."""
    attended: dict[int, int] = field(default_factory=dict)
    """Tokens seen when a held token last got more than its even share of the attention."""
    places: Spans = field(default_factory=Spans)
    words: Words = field(init=False)
    lost: deque[float] = field(default_factory=lambda: deque(maxlen=LOST_KEPT))
    evictions: deque[Eviction] = field(default_factory=lambda: deque(maxlen=LOG_KEPT))
    survival: Survival = field(default_factory=Survival)
    states: int = 0
    """Number of `cache` events so far: whoever draws them sees whether there is another one."""
    _bitmaps: dict[int, str] = field(default_factory=dict)
    _told: dict[int, str] = field(default_factory=dict)
    """Texts of the heaviest tokens by position, from the newest state."""
    _steps_ms: deque[float] = field(default_factory=lambda: deque(maxlen=PACE_TOKENS))

    def __post_init__(self) -> None:
        self.words = Words(self.places)

    def begin(
        self, session: Session, cache: CacheState | None, messages: list[Message] | None = None
    ) -> None:
        self.__init__(session, states=self.states + 1)  # type: ignore[misc]
        self.words = Words(self.places, messages or [])
        for index, message in enumerate(messages or []):
            self.places.place(index, message.role, message.first, message.last)
        if cache is not None:
            self._take(cache)
            self.lost.clear()

    def add(self, event: Event) -> None:
        self.places.add(event)
        self.words.add(event)
        match event:
            case Said():
                self.answering = False
            case Token():
                self.answering = True
                self._steps_ms.append(event.ms)
                self.tok_s = 1000 * len(self._steps_ms) / max(sum(self._steps_ms), 1e-3)
            case CacheState():
                self._take(event)
            case Turn(finish="stopped", prompt_tokens=0):
                self.answering = False
                self._unread(event.seen)
            case Turn():
                self.answering = False
                self._steps_ms.clear()
                if event.new_tokens:
                    self.tok_s = event.tok_s

    # Questions

    @property
    def seen(self) -> int:
        return self.cache.seen if self.cache else 0

    @property
    def evicted(self) -> int:
        """Tokens that the fullest cache has evicted: `seen` minus `kept`."""
        return self.cache.seen - self.cache.kept if self.cache else 0

    @property
    def names(self) -> dict[str, str]:
        """The name of each kind; where nobody has pinned anything, only the first tokens are protected."""
        protected = self.cache.kinds.get("S", 0) if self.cache else 0
        nothing_pinned = self.session is not None and 0 < protected <= self.session.sinks
        return NAMES | ({"S": "first"} if nothing_pinned else {})

    @property
    def knows_lost(self) -> bool:
        """Whether `lost` is known: it is not for a conversation that was just resumed."""
        return bool(self.lost or not self.evicted or (self.cache and self.cache.lost))

    @property
    def caches(self) -> int:
        """Number of (layer, KV head) pairs, each of which decides alone."""
        return self.session.layers * self.session.kv_heads if self.session else 0

    @property
    def recent_from(self) -> int:
        """Position of the first token that is protected for being new."""
        if self.session is None or self.session.budget is None:
            return 0
        return max(0, self.seen - self.session.recent)

    def holders(self, hold: float) -> int:
        """Number of caches that a share of them is."""
        return round(hold * self.caches)

    def kind(self, position: int) -> Kind:
        if position not in self.hold:
            return "·"
        if self.is_protected(position):
            return "S"
        return "R" if position >= self.recent_from else "H"

    def is_protected(self, position: int) -> bool:
        if self.cache is None:
            return False
        runs = self.cache.protected
        if not runs and not self.cache.whole:  # recorded before they were told: those at the beginning
            return position < self.cache.kinds.get("S", 0)
        at = bisect_right(runs, position, key=lambda run: run[0]) - 1
        return at >= 0 and position <= runs[at][1]

    def which(self, position: int) -> list[list[bool]] | None:
        """[layers][KV heads] whether each cache holds the token; None where no event said it."""
        if self.session is None or self.cache is None or self.caches > MOST_CACHES:
            return None
        length = -(-self.caches // 8) * 2
        digits = self._bitmaps.get(position, "") if position in self.hold else "0" * length
        if len(digits) != length:
            return None
        bits = [bool(int(digit, 16) >> by & 1) for digit in digits for by in (3, 2, 1, 0)]
        heads = self.session.kv_heads
        return [bits[layer * heads : (layer + 1) * heads] for layer in range(self.session.layers)]

    def heavy(self, position: int) -> tuple[int, Heavy] | None:
        """(rank from 1, what is known) of a heavy hitter; None where the token is none."""
        heaviest = self.cache.heaviest if self.cache else []
        return next(((rank, one) for rank, one in enumerate(heaviest, 1) if one.position == position), None)

    @property
    def pointed(self) -> int | None:
        """The token under the cursor; without a cursor the heaviest that is not protected."""
        heaviest = self.cache.heaviest if self.cache else []
        if self.cursor is not None or not heaviest:
            return self.cursor
        return next((one.position for one in heaviest if one.kind == "H"), heaviest[0].position)

    def word(self, position: int) -> Word | None:
        """The word that a token belongs to; None where it is no part of one, or that is not known."""
        return self.words.at(position, self._told.get(position, ""))

    def hold_of(self, word: Word) -> float:
        """The hold of a word: that of its least held token."""
        return min(self.hold.get(position, 0.0) for position in word.tokens)

    def left(self, position: int) -> Eviction | None:
        """When a token left the last cache, where the log still has it."""
        return next((one for one in reversed(self.evictions) if one.token.position == position), None)

    def text(self, position: int) -> str | None:
        """The text of a single token, where that is known."""
        if (text := self.words.text(position)) is not None:
            return text
        if position in self._told:
            return self._told[position]
        went = self.left(position)
        return went.token.text if went else None

    @property
    def spans(self) -> list[Span]:
        return self.places.all

    def span(self, position: int) -> Span | None:
        return self.places.at(position)

    # Events

    def _take(self, cache: CacheState) -> None:
        self.cache = cache
        self.states += 1
        self._told = {one.position: one.text for one in cache.heaviest}
        self.lost.append(cache.lost)
        if cache.whole:
            for known in (self.hold, self.score, self.attended, self._bitmaps):
                known.clear()
        for position, hold, score in cache.changed:
            if self.hold.get(position) != hold:
                self._bitmaps.pop(position, None)  # unless it is told anew it is not known
            if hold > 0:
                self.hold[position], self.score[position] = hold, score
            else:
                for known in (self.hold, self.score, self.attended):
                    known.pop(position, None)
        self._bitmaps.update(cache.holders)
        if cache.heads:  # empty while nobody looks
            self.survival.add(cache.seen, self.hold)
        self.attended.update((position, cache.seen) for position in cache.attended if position in self.hold)
        self.evictions.extend(Eviction(cache.seen, token) for token in cache.gone)

    def _unread(self, seen: int) -> None:
        """Take back an unfinished prompt: its tokens were never there."""
        while self.evictions and self.evictions[-1].seen > seen:
            self.evictions.pop()
