"""Does anything grow with the length of a conversation, and what do many rows in one process gain?

    tools/stress/long_and_many.py long [-m MODEL] [--budget 64] [--tokens 20000] [--threads N]
    tools/stress/long_and_many.py many [-m MODEL] [--budget 512] [--rows 1 --rows 16] [--kv-dtype int8]

`long`: the last 1,000 tokens of a long conversation are timed in turns with the first 1,000 of a fresh one
after its cache filled. `many`: each number of rows is timed in turns, all slots in use from the beginning.
Prints one JSON object a line. `h2o-chat lab bench bounded` and `rows` up to 2026-11-27.
"""

import argparse
import json
import random
import statistics
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psutil

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.progress import progress_bar
from h2o_chat.engine.batch import Batch
from h2o_chat.engine.engine import Engine
from h2o_chat.engine.request import Request, RequestPiece
from h2o_chat.engine.row_capacity import row_bytes
from h2o_chat.events.events import Token
from h2o_chat.graph.loading import open_model
from h2o_chat.lab.bench.timed_programs import Sample
from h2o_chat.models.load import load
from h2o_chat.models.resolve import POCKET
from h2o_chat.native.spin_wait import let_torch_sleep

WARM_UP, TIMED = 1000, 1000
"""Tokens after which memory is measured first, and those that are timed at the end."""
STEPS = 32
"""Steps of all rows in one sample: twice the tokens between two settles at 512 slots."""
APART = 32
"""Tokens between the beginnings of rows at most: they settle at different steps, as they do in use."""
TURNS = 6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("long", "many"))
    parser.add_argument("-m", "--model", default=POCKET)
    for flag in ("--budget", "--threads"):
        parser.add_argument(flag, type=int)
    for flag in ("--dtype", "--kv-dtype", "--engine", "--quantize"):
        parser.add_argument(flag, default="auto")
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--rows", type=int, action="append")
    asked = vars(parser.parse_args())
    what, tokens, rows = (asked.pop(name) for name in ("what", "tokens", "rows"))
    budget = asked.pop("budget") or (64 if what == "long" else 512)
    settings = Settings(**asked, budget=budget, events_every=0)
    for found in [long(settings, tokens)] if what == "long" else many(settings, rows or [1, 4, 16, 64]):
        print(json.dumps(found))


def long(settings: Settings, tokens: int) -> dict[str, Any]:
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
        for done in range(tokens - TIMED):
            next(steps)
            most_kept = max(most_kept, old.cache.most_kept)
            if done == WARM_UP:
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


def many(settings: Settings, rows: list[int]) -> list[dict[str, Any]]:
    """Figures of each number of rows."""
    let_torch_sleep(settings)
    with progress_bar() as progress:
        loaded = open_model(settings, progress)
        engine, rng = Engine(loaded, settings), random.Random(0)
        vocabulary = loaded.sizes.vocabulary
        engine.feed([rng.randrange(3, vocabulary) for _ in range(settings.budget + 2 * APART)])
        batches = [Batch(loaded, settings, number) for number in rows]
        for batch in batches:
            fill(batch, engine, vocabulary, rng)
        samples: list[list[Sample]] = [[] for _ in batches]
        for turn in range(TURNS):
            progress("time", turn / TURNS)
            for batch, own in zip(batches, samples, strict=True):
                batch.step()  # its slots and the weights lie where they did
                with Sample() as sample:
                    tokens = sum(isinstance(told.event, Token) for _ in range(STEPS) for told in batch.step())
                assert tokens == STEPS * batch.runner.rows, "a row has ended"
                own.append(sample)
    session = engine.session
    step_ms = [statistics.median(sample.ms for sample in own) / STEPS for own in samples]
    return [
        {
            **{"rows": number, "tok_s": 1000 * number / ms, "step_ms": ms},
            "times_first": (number / ms) / (rows[0] / step_ms[0]),
            "row_mb": row_bytes(batch.runner) / 1e6,
            "disturbed": sum(sample.disturbed for sample in own),
            **{
                "quantization": session.quantization,
                "kv_dtype": session.kv_dtype,
                "threads": session.threads,
            },
        }
        for number, batch, own, ms in zip(rows, batches, samples, step_ms, strict=True)
    ]


def fill(batch: Batch, engine: Engine, vocabulary: int, rng: random.Random) -> None:
    """Fills every row with a conversation: they begin alike, and each reads some tokens more.

    Raises:
        Exception: that of a row which fails.
    """
    taken, sampling = engine.snapshot(), replace(Sampling(), max_tokens=None, ignore_eos=True)
    for number in range(batch.runner.rows):
        more = [rng.randrange(3, vocabulary) for _ in range(rng.randint(1, APART))]
        batch.add(Request([RequestPiece(more)], sampling, number, begin=taken))
    while batch.talking < batch.runner.rows:
        for told in batch.step():
            if told.error is not None:  # that row would be waited for for ever
                raise told.error


if __name__ == "__main__":
    main()
