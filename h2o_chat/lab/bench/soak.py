"""`h2o-chat lab bench soak`: a conversation of a million tokens, stored and saved as a real one is.

It lives in a folder of its own and is resumed there: the command may be interrupted, or killed, and run
again until the tokens are reached. One row a stretch: what must not grow, did it?
"""

import json
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path

import psutil
import torch

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.progress import progress_bar
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.keeper import Keeper
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import Token
from h2o_chat.lab.bench.bounded import PositionWatch
from h2o_chat.models.load import load
from h2o_chat.store import DATABASE, Store

TURN_TOKENS = 1000
"""Tokens generated in a turn: some turns end and are saved in every stretch."""
STRETCH_TOKENS = 50_000
SINKS = 4
"""Sinks at any budget: the oldest keys, whose rounding is measured, must be there."""
SAID = ("Tell me more.", "And then?", "What happened next?", "Why?", "Go on.")


@dataclass(frozen=True)
class Stretch:
    """Figures after so many tokens, with their units in their names."""

    tokens: int
    token_ms: float
    """Median of the stretch."""
    resume_ms: float
    """Time from the files on disk to a conversation that goes on; 0 where this process began it."""
    rss_bytes: int
    database_bytes: int
    bytes_per_token: float
    """Bytes of the database divided by all tokens."""
    saved_cache_bytes: int
    open_files: int
    largest_index: int
    rounding: float
    """Largest error of the first token's keys, which are the oldest, as a share of the largest component."""
    busy: float
    """Load of the machine, processes per core: above 1 others took time."""


def run_soak(settings: Settings, folder: Path, tokens: int) -> list[Stretch]:
    """Goes on with the conversation in `folder`, or begins it, until `tokens` were fed; all rows so far."""
    rows = folder / "soak.jsonl"
    settings = replace(settings, sinks=SINKS)
    with progress_bar() as show:
        loaded = load(settings, show)
        store = Store(folder)
        conversation = store.find("last") if store.list() else None
        began = time.perf_counter()
        engine = Engine(loaded, settings)
        keeper = Keeper(store, conversation, engine.session, asdict(settings))
        chat = Chat(engine, settings, keeper)
        resume_ms = 0.0
        if conversation is not None:
            chat.resume(lambda so_far: show("remember", so_far.share))
            resume_ms = 1000 * (time.perf_counter() - began)
        watch = PositionWatch(loaded.model)
        fresh = Engine(loaded, settings)
        while engine.seen < tokens:
            times = list(_stretch(chat, engine, lambda: show("tokens", engine.seen / tokens)))
            row = _measure(engine, fresh, store, watch, times, resume_ms)
            with rows.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(row)) + "\n")
            resume_ms = 0.0
        watch.close()
        keeper.close()
        store.close()
    return [Stretch(**json.loads(line)) for line in rows.read_text(encoding="utf-8").splitlines()]


def _stretch(chat: Chat, engine: Engine, tick: Callable[[], None]) -> Iterator[float]:
    """Talks for about a stretch of tokens; milliseconds of every one."""
    end = engine.seen + STRETCH_TOKENS
    for turn in count():
        if engine.seen >= end:
            return
        said = random.Random(engine.seen + turn).choice(SAID)
        sampling = Sampling(temperature=1.0, max_tokens=TURN_TOKENS, ignore_eos=True)
        for event in chat.send(said, sampling):
            if isinstance(event, Token):
                yield event.ms
        list(chat.take_notes())
        tick()


def _measure(
    engine: Engine, fresh: Engine, store: Store, watch: PositionWatch, times: list[float], resume_ms: float
) -> Stretch:
    folder = store.folder
    assert folder is not None, "the soak is on disk"
    database = sum(file.stat().st_size for file in folder.glob(DATABASE + "*"))
    return Stretch(
        tokens=engine.seen,
        token_ms=statistics.median(times),
        resume_ms=resume_ms,
        rss_bytes=psutil.Process().memory_info().rss,
        database_bytes=database,
        bytes_per_token=database / engine.seen,
        saved_cache_bytes=sum(file.stat().st_size for file in folder.glob("caches/*/*")),
        open_files=psutil.Process().num_fds(),
        largest_index=watch.largest_index,
        rounding=_rounding(engine, fresh),
        busy=os.getloadavg()[0] / (os.cpu_count() or 1),
    )


def _rounding(old: Engine, fresh: Engine) -> float:
    """Distance of the first token's keys, a sink's, from those that a new conversation gives it."""
    first = old.observer.ids.get(0)
    if first is None:
        return float("nan")
    fresh.reset()
    fresh.forward([first])
    worst = 0.0
    new_keys = {number: a.slots.keys[at] for a in fresh.cache.arenas for at, number in enumerate(a.layers)}
    for arena in old.cache.arenas:
        if arena.rope is None:
            continue
        layer, row, head, slot = (arena.slots.positions == 0).nonzero().T
        index = arena.held_indices(arena.slots)[layer, row, head, slot]
        kept = arena.rope.rotate(arena.slots.keys[layer, row, head, slot], -index)
        numbers = [arena.layers[at] for at in layer.tolist()]
        exact = torch.stack([new_keys[n][0, h, 0] for n, h in zip(numbers, head.tolist(), strict=True)])
        worst = max(worst, float((kept - exact).abs().max() / exact.abs().max()))
    return worst
