"""Does anything grow with the length of a conversation?

    tools/stress/growth.py [-m MODEL] [--budget 64] [--tokens 20000] [--threads N] [--dtype D] [--kv-dtype D]

The last 1,000 tokens of a long conversation are timed in turns with the first 1,000 of a fresh one after its
cache filled. Prints one JSON object. `h2o-chat lab bench bounded` up to 2026-11-27.
"""

import argparse
import json
import statistics
from collections.abc import Iterator
from typing import Any

import psutil

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.progress import progress_bar
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import Token
from h2o_chat.models.load import load
from h2o_chat.models.resolve import POCKET

WARM_UP, TIMED = 1000, 1000
"""Tokens after which memory is measured first, and those that are timed at the end."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", default=POCKET)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--budget", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=20_000)
    for flag in ("--dtype", "--kv-dtype"):
        parser.add_argument(flag, default="auto")
    asked = vars(parser.parse_args())
    tokens = asked.pop("tokens")
    print(json.dumps(measure(Settings(**asked, events_every=0), tokens)))


def measure(settings: Settings, tokens: int) -> dict[str, Any]:
    """Figures of one conversation of so many tokens, beside a fresh one."""
    most_kept = largest_index = rss_early = 0
    with progress_bar() as show:
        loaded = load(settings, show)

        def look(_: Any, __: Any, inputs: dict[str, Any]) -> None:
            nonlocal largest_index
            largest_index = max(largest_index, int(inputs["position_ids"].max()))

        hook = loaded.model.register_forward_pre_hook(look, with_kwargs=True)
        old, fresh = Engine(loaded, settings), Engine(loaded, settings)
        steps, fresh_steps = decoded(old), decoded(fresh)
        for done in range(1, tokens - TIMED + 1):
            next(steps)
            most_kept = max(most_kept, old.cache.most_kept)
            if done >= WARM_UP and not rss_early:
                rss_early = psutil.Process().memory_info().rss
            show("tokens", done / tokens)
        while fresh.seen <= settings.budget:
            next(fresh_steps)
        pairs = [(next(steps), next(fresh_steps)) for _ in range(TIMED)]
        hook.remove()
    rss_end = psutil.Process().memory_info().rss
    old_ms, fresh_ms = (statistics.median(pair[at] for pair in pairs) for at in (0, 1))
    return {
        **{"tokens": old.seen, "budget": settings.budget, "window_tokens": old.runner.trained.window},
        "most_kept_slots": max(most_kept, old.cache.most_kept, fresh.cache.most_kept),
        "largest_index": largest_index,
        **{"rss_after_1000_bytes": rss_early, "rss_end_bytes": rss_end},
        **{"old_ms": old_ms, "fresh_ms": fresh_ms, "old_over_fresh": old_ms / fresh_ms},
    }


def decoded(engine: Engine) -> Iterator[float]:
    """Milliseconds of one decode step after another, without end."""
    start = engine.tokenizer.bos_token_id
    sampling = Sampling(temperature=1.0, max_tokens=None, ignore_eos=True)
    for event in engine.generate([1 if start is None else start], sampling):
        if isinstance(event, Token):
            yield event.ms


if __name__ == "__main__":
    main()
