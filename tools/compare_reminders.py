"""What is gone, told again in words, or its keys and values put back: which is answered better?

    tools/compare_reminders.py -m assets/pocket --generate 20000 --conversations 8 --seed 0 -b 512

Conversations as `h2o-chat eval recall --generate` makes them up are read by the engine; the keys and values
of every message are copied as it is read. Then each question is asked with nothing told again, with the words
found for it in front (as the program does it), with their keys and values put back, and with both. The
message is found by its words each time.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from h2o_chat.base.config import Sampling, Settings  # noqa: E402
from h2o_chat.chat.asking import question_of  # noqa: E402
from h2o_chat.chat.finding import Finder  # noqa: E402
from h2o_chat.chat.message import Recalled  # noqa: E402
from h2o_chat.chat.spans import tokens_of  # noqa: E402
from h2o_chat.chat.templates import Template, choose  # noqa: E402
from h2o_chat.engine.engine import Engine  # noqa: E402
from h2o_chat.events.events import Turn  # noqa: E402
from h2o_chat.lab.conversations import draw  # noqa: E402
from h2o_chat.lab.putting_back import Rows, put_back, rows_of  # noqa: E402
from h2o_chat.lab.recall import ANSWER_TOKENS, Question, is_right  # noqa: E402
from h2o_chat.lab.script import Script  # noqa: E402
from h2o_chat.models.load import load  # noqa: E402

HOW = ("nothing", "words", "rows", "both")
ASKED = ("plain", "corrected", "not told")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--generate", type=int, default=20_000, metavar="TOKENS")
    parser.add_argument("--conversations", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-b", "--budget", type=int, default=512)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    settings = Settings(model=asked.model, budget=asked.budget, seed=0)
    loaded = load(settings, lambda *_: None)
    template, engine = choose(loaded.tokenizer, "auto"), Engine(loaded, settings)
    right: Counter[tuple[str, str]] = Counter()
    of: Counter[str] = Counter()
    for number in range(asked.conversations):
        script, questions = draw(loaded.tokenizer, template, asked.generate, f"{asked.seed} {number}")
        rows = read(engine, script)
        state = engine.snapshot()
        finder = Finder()
        for index, message in enumerate(script.messages):
            if message.role == "user":
                finder.add(index, message.text)
        for question in questions:
            if question.kind not in ASKED:
                continue
            of[question.kind] += 1
            for how in HOW:
                engine.restore(state)
                said = answer(engine, template, question, finder, rows, how)
                right[question.kind, how] += is_right(question, said)
        print(f"{number + 1} of {asked.conversations}", file=sys.stderr)
    print("told again   " + "".join(f"{kind:>14}" for kind in ASKED))
    for how in HOW:
        print(f"{how:13}" + "".join(f"{right[kind, how]:>10}/{of[kind]:<3}" for kind in ASKED))


def read(engine: Engine, script: Script) -> dict[int, Sequence[Rows]]:
    """Reads a conversation; the keys and values of each message that was said to the model, by its place."""
    engine.reset()
    engine.protect(script.protected)
    engine.cache.pin(script.pins, 0)
    rows: dict[int, Sequence[Rows]] = {}
    said = iter(enumerate(script.messages))
    for feed in script.feeds:
        if feed.asks:
            break
        engine.feed(feed.ids, prompt=feed.prompt)
        if feed.prompt:
            index, message = next((at, one) for at, one in said if one.role == "user")
            rows[index] = rows_of(engine.cache, tokens_of(message))
    return rows


def answer(
    engine: Engine,
    template: Template,
    question: Question,
    finder: Finder,
    rows: dict[int, Sequence[Rows]],
    how: str,
) -> str:
    text = question.messages[0]["content"]
    found = next((one for one in finder.find(question_of(text))[:1] if one.fits), None)
    if found and how in ("rows", "both"):
        put_back(engine.cache, rows[found.index])
    if found and how in ("words", "both"):
        text = Recalled(found.index, found.text).before(text)
    events: list[Any] = list(
        engine.generate(template.later(text).ids, Sampling(temperature=0.0, max_tokens=ANSWER_TOKENS))
    )
    return next(event.text for event in events if isinstance(event, Turn))


if __name__ == "__main__":
    main()
