"""Greedy tokens of models, and what the KV heads hold then: alone, or under torchrun.

    python tests/ranks/greedy.py TASKS          torchrun --nproc-per-node 2 tests/ranks/greedy.py TASKS

TASKS is a file of JSON: a list of {"model", "prompt": its tokens, "tokens": how many more, "settings"},
perhaps with "load" and "save" (files with a memory) and "protect" (the first tokens). Prints the results.
"""

import gc
import json
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import H2OChatError
from h2o_chat.base.system import RANKS
from h2o_chat.engine.engine import Engine
from h2o_chat.remote.engine_here import engine_here


@lru_cache(maxsize=1)
def _opened(settings: Settings) -> Engine:
    gc.collect()  # the model before this one
    return engine_here(settings, lambda *_: None)


def done(task: dict[str, Any]) -> dict[str, Any]:
    """The tokens, and the positions that each layer and KV head holds in the end."""
    settings = Settings(model=task["model"], dtype="float32", **{"engine": "transformers"} | task["settings"])
    try:
        engine = _opened(settings)
    except H2OChatError as error:
        return {"refused": f"{error}"}
    engine.reset()
    if "load" in task:
        engine.load(Path(task["load"]))
    engine.protect(task.get("protect", 0))
    logits, tokens = engine.feed(task["prompt"]), list[int]()
    while len(tokens) < task["tokens"]:
        tokens.append(int(logits.argmax()))
        if len(tokens) < task["tokens"] or "save" not in task:
            logits = engine.forward(tokens[-1:])
    if "save" in task:
        engine.pending = (tokens[-1],)  # chosen, and fed by whoever goes on
        engine.save(Path(task["save"]))
    kept = [engine.cache.kept(layer).sort(-1).values[0].tolist() for layer in range(engine.session.layers)]
    lost = engine.observer.lost_mark()[1]
    return {"tokens": tokens, "kept": kept, "seen": engine.seen, "in use": engine.kept, "lost": lost}


def main() -> int:
    print(json.dumps([done(task) for task in json.loads(Path(sys.argv[1]).read_text())]))
    return 0


if __name__ == "__main__":
    if RANKS > 1:
        from h2o_chat.engine.ranks import Rank

        rank = Rank()
        rank.end(rank.follow if rank.number else main)
    main()
