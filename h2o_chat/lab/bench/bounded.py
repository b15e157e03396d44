"""`h2o-chat lab bench bounded`: does anything grow with the length of a conversation?

One conversation goes on for `tokens` tokens. Then its last tokens are timed against a fresh conversation's
first ones after its cache filled, turn and turn about, so that the machine's moods hit both alike.
"""

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import psutil

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.progress import progress_bar
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import Token
from h2o_chat.models.load import Loaded, load

WARM_UP_TOKENS = 1000
TIMED_TOKENS = 1000


class PositionWatch:
    """Notes the largest position index that a model is fed, until `close`."""

    def __init__(self, model: Any) -> None:
        self.largest_index = 0
        self._hook = model.register_forward_pre_hook(self._look, with_kwargs=True)

    def _look(self, _: Any, __: Any, inputs: dict[str, Any]) -> None:
        self.largest_index = max(self.largest_index, int(inputs["position_ids"].max()))

    def close(self) -> None:
        self._hook.remove()


@dataclass(frozen=True)
class Bounded:
    """Figures of one long conversation, with their units in their names."""

    tokens: int
    budget: int
    most_kept_slots: int
    largest_index: int
    window_tokens: int
    rss_after_1000_bytes: int
    rss_end_bytes: int
    rss_growth_share: float
    old_ms: float
    """Median of the old conversation's last tokens."""
    fresh_ms: float
    """Median of the fresh conversation's first tokens after its cache filled."""
    old_over_fresh: float
    spread_ms: tuple[float, float]
    """Interquartile ranges of the two."""


def run_bounded(settings: Settings, tokens: int) -> list[Bounded]:
    """Loads the model and measures, with progress on stderr."""
    with progress_bar() as show:
        loaded = load(settings, show)
        return [measure(loaded, settings, tokens, lambda done: show("tokens", done / tokens))]


def measure(loaded: Loaded, settings: Settings, tokens: int, progress: Callable[[int], None]) -> Bounded:
    """Runs both conversations; `progress` is called with the tokens generated so far."""
    settings = replace(settings, events_every=0)
    old, fresh = Engine(loaded, settings), Engine(loaded, settings)
    watch = PositionWatch(loaded.model)
    most_kept = rss_early = 0
    steps = _steps(old)
    for done in range(tokens - TIMED_TOKENS):
        next(steps)
        most_kept = max(most_kept, old.cache.most_kept)
        if done == WARM_UP_TOKENS:
            rss_early = psutil.Process().memory_info().rss
        progress(done)
    fresh_steps = _steps(fresh)
    while fresh.seen <= settings.budget:
        next(fresh_steps)
    pairs = []
    for done in range(TIMED_TOKENS):
        pairs.append((next(steps), next(fresh_steps)))
        most_kept = max(most_kept, old.cache.most_kept, fresh.cache.most_kept)
        progress(tokens - TIMED_TOKENS + done)
    rss_end = psutil.Process().memory_info().rss
    watch.close()
    old_ms, fresh_ms = ([pair[i] for pair in pairs] for i in (0, 1))
    return Bounded(
        tokens=old.seen,
        budget=settings.budget,
        most_kept_slots=most_kept,
        largest_index=watch.largest_index,
        window_tokens=old.runner.trained.window,
        rss_after_1000_bytes=rss_early,
        rss_end_bytes=rss_end,
        rss_growth_share=rss_end / rss_early - 1,
        old_ms=statistics.median(old_ms),
        fresh_ms=statistics.median(fresh_ms),
        old_over_fresh=statistics.median(old_ms) / statistics.median(fresh_ms),
        spread_ms=(_spread(old_ms), _spread(fresh_ms)),
    )


def _steps(engine: Engine) -> Iterator[float]:
    """Milliseconds of one decode step after another, without end."""
    start = engine.tokenizer.bos_token_id
    first = [start if start is not None else 1]
    sampling = Sampling(temperature=1.0, max_tokens=None, ignore_eos=True)
    for event in engine.generate(first, sampling):
        if isinstance(event, Token):
            yield event.ms


def _spread(samples: list[float]) -> float:
    low, _, high = statistics.quantiles(samples, n=4)
    return high - low
