"""What the events have said so far, as the panel and the status line show it. No widgets here."""

from collections import deque
from dataclasses import dataclass, field

from h2o_chat.events import CacheState, Event, Session, Token, Turn

LOST_KEPT = 64
"""Points of the history of `lost`."""
PACE_TOKENS = 32
"""Steps over which the running tokens per second are averaged."""


@dataclass
class Memory:
    """The newest of every event, and the two histories that no single event carries."""

    session: Session | None = None
    cache: CacheState | None = None
    tok_s: float | None = None
    lost: deque[float] = field(default_factory=lambda: deque(maxlen=LOST_KEPT))
    _steps_ms: deque[float] = field(default_factory=lambda: deque(maxlen=PACE_TOKENS))

    def begin(self, session: Session, cache: CacheState | None) -> None:
        """Forget all: another conversation is shown from here on, of which the cache holds this."""
        self.session, self.cache, self.tok_s = session, cache, None
        self.lost.clear()
        self._steps_ms.clear()

    def add(self, event: Event) -> None:
        """Take in one event; those that say nothing about memory change nothing."""
        if isinstance(event, Token):
            self._steps_ms.append(event.ms)
            self.tok_s = 1000 * len(self._steps_ms) / max(sum(self._steps_ms), 1e-3)
        elif isinstance(event, CacheState):
            self.cache = event
            self.lost.append(event.lost)
        elif isinstance(event, Turn):
            self._steps_ms.clear()
            if event.new_tokens:
                self.tok_s = event.tok_s

    @property
    def seen(self) -> int:
        return self.cache.seen if self.cache else 0

    @property
    def evicted(self) -> int:
        """Tokens that the fullest cache has let go; what `seen` and `kept` say, nothing guessed."""
        return self.cache.seen - self.cache.kept if self.cache else 0

    @property
    def caches(self) -> int:
        """(layer, KV head) pairs, each of which decides alone."""
        return self.session.layers * self.session.kv_heads if self.session else 0

    def holders(self, hold: float) -> int:
        """How many of the caches a share of them is."""
        return round(hold * self.caches)
