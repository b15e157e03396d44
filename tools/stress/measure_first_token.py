"""Time that recall adds before the first token, in a chat whose slots are full.

    tools/stress/measure_first_token.py [-m MODEL] [-b 512] [--turns 240] [--seed 0]

A conversation as `h2o-chat lab eval recall --generate` makes them up is held with the program, a turn a
message. Then each question is asked with recall switched on and off, in turns, and taken back. Times are from
the message to the first token of its answer; where words are recalled, more tokens are read.
"""

import argparse
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from h2o_chat.base.config import Sampling, Settings  # noqa: E402
from h2o_chat.chat.conversation.chat import Chat  # noqa: E402
from h2o_chat.engine.engine import Engine  # noqa: E402
from h2o_chat.events.events import Event, Said, Token  # noqa: E402
from h2o_chat.lab.eval.synthetic_talk import FACTS, VALUES, between  # noqa: E402
from h2o_chat.native.native_model import open_model  # noqa: E402

SMALL_TALK = "That is nice to hear, I will think about it tomorrow."
FACTS_APART = 10
"""One message of so many tells a fact."""
ROUNDS = 6
"""How often each question is asked, with recall and without."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", default=str(ROOT / "assets" / "pocket"))
    parser.add_argument("-b", "--budget", type=int, default=512)
    parser.add_argument("--turns", type=int, default=240, help="messages of both sides")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    settings = Settings(model=asked.model, budget=asked.budget, seed=1)
    engine = Engine(open_model(settings, lambda *_: None), settings)
    chat, rng = Chat(engine, settings), random.Random(asked.seed)
    questions = list(converse(chat, rng, asked.turns))
    state, messages = engine.snapshot(), list(chat.messages)
    modes = [("recall on", settings), ("recall off", replace(settings, recall="off"))]
    times: dict[tuple[str, str], list[float]] = {}
    for _ in range(ROUNDS):
        for question in (*questions, SMALL_TALK):
            for mode, how in rng.sample(modes, 2):
                engine.restore(state)
                chat.messages, chat.settings = list(messages), how
                first_ms, again = first_token(chat.send(question, Sampling(max_tokens=1)))
                kind = "asks for nothing" if question is SMALL_TALK else "asks for a fact"
                times.setdefault((kind, "recalled" if again else mode), []).append(first_ms)
    print(f"{len(messages)} messages, {engine.seen:,} tokens, {asked.budget} slots; ms to the first token:")
    for (kind, mode), taken in sorted(times.items()):
        print(f"{kind:18} {mode:11} {median(taken):6.2f}  ({quartiles(taken)}; {len(taken)} times)")
    chat.close()


def converse(chat: Chat, rng: random.Random, turns: int) -> Iterator[str]:
    """Holds the conversation; the questions for what was told in it."""
    talk, facts = between(rng), rng.sample(sorted(FACTS), min(len(FACTS), turns // FACTS_APART))
    for turn in range(turns // 2):
        text = next(talk)
        if turn % FACTS_APART == 0 and turn // FACTS_APART < len(facts):
            tell, ask, space = FACTS[facts[turn // FACTS_APART]]
            text = tell.format(v=VALUES[space](rng))
            yield ask
        for _ in chat.send(text, Sampling(max_tokens=24)):
            pass


def first_token(events: Iterator[Event]) -> tuple[float, bool]:
    """Milliseconds to the first token, and whether words were recalled."""
    began, taken_ms, again = time.perf_counter(), 0.0, False
    for event in events:
        again |= isinstance(event, Said) and bool(event.recalled)
        if isinstance(event, Token) and not taken_ms:
            taken_ms = 1000 * (time.perf_counter() - began)
    return taken_ms, again


def quartiles(taken: Sequence[float]) -> str:
    ordered = sorted(taken)
    return f"{ordered[len(ordered) // 4]:.2f} to {ordered[3 * len(ordered) // 4]:.2f}"


if __name__ == "__main__":
    main()
