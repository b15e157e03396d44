"""The most memory that a process has while it decodes, and while it reads a long prompt.

    tools/prompt_memory.py FOLDER [--tokens 48000] [--budget 512] [--quantize auto]

Memory of its own, and resident size, which has the pages of mapped files too. Of a model whose head is not
its embedding a decoded token reads little of the embedding, and a long prompt of random tokens all of it:
those pages are the file's, and the system may take them back. Linux only.
"""

import argparse
import random
import threading
import time
from pathlib import Path

import psutil

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import Token
from h2o_chat.native.loading import open_model

DECODED_TOKENS = 600
EVERY_S = 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokens", type=int, default=48_000)
    parser.add_argument("--budget", type=int, default=512)
    parser.add_argument("--quantize", default="auto")
    asked = parser.parse_args()
    settings = Settings(model=str(asked.folder), budget=asked.budget, quantize=asked.quantize, threads=2)
    loaded = open_model(settings, lambda *_: None)
    engine = Engine(loaded, settings)
    vocabulary = loaded.sizes.vocabulary
    drawn = random.Random(0)
    ids = [drawn.randrange(3, vocabulary) for _ in range(asked.tokens)]
    decoding = peak_of(engine, ids[:100], DECODED_TOKENS)
    clock = time.perf_counter()
    reading = peak_of(engine, ids, 1)
    took_s = time.perf_counter() - clock
    for what, (own, resident), took in (
        (f"decoding {DECODED_TOKENS} tokens", decoding, ""),
        (f"reading {asked.tokens:,} tokens", reading, f", {took_s:,.1f} s"),
    ):
        print(f"{what}: {own / 1e6:,.0f} MB of its own at most, {resident / 1e6:,.0f} MB resident{took}")
    own, resident = (after - before for before, after in zip(decoding, reading, strict=True))
    print(f"more: {own / 1e6:+,.0f} MB of its own, {resident / 1e6:+,.0f} MB resident")


def peak_of(engine: Engine, ids: list[int], tokens: int) -> tuple[int, int]:
    """The most memory of its own and the largest resident size, bytes, from a new conversation until so many
    tokens were generated."""
    engine.reset()
    process, done, own, resident = psutil.Process(), threading.Event(), [0], [0]

    def look() -> None:
        now = process.memory_info()
        own[0] = max(own[0], now.rss - now.shared)
        resident[0] = max(resident[0], now.rss)

    def watch() -> None:
        while not done.wait(EVERY_S):
            look()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for event in engine.generate(ids, Sampling(max_tokens=tokens, temperature=0.0, ignore_eos=True)):
            if isinstance(event, Token):
                look()
    finally:
        done.set()
        watcher.join()
    return own[0], resident[0]


if __name__ == "__main__":
    main()
