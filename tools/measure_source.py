"""Whether the line under an answer names what the answer rested on, and what it costs.

    tools/measure_source.py MODEL [--weights FILE] [--conversations 24] [--seed 1901] [--small-talk FILE]
                            [--tokens 20000] [--long 0] [--price]

Short conversations, of which nothing is forgotten, are answered as the program answers them. The truth: each
answer's probability once more with each earlier message left out (`lab/left_out.py`). An answer rests on
nothing told where no message makes it e times as likely. SMALL-TALK: the half of it from which
`train_source.py` has not learned. --long: so many conversations of about TOKENS tokens with 512 slots,
what is gone told again. --price: a token with and without it, in thread time.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from h2o_chat.base.config import Sampling, Settings  # noqa: E402
from h2o_chat.chat.chat import Chat  # noqa: E402
from h2o_chat.chat.templates import choose  # noqa: E402
from h2o_chat.engine.engine import Engine  # noqa: E402
from h2o_chat.engine.source import FILE, Weights, read_weights  # noqa: E402
from h2o_chat.events.events import Source, Token, Turn  # noqa: E402
from h2o_chat.lab.left_out import RESTS, Answered, Drawn, drawn, lost_without, read, talked  # noqa: E402
from h2o_chat.lab.recall import ANSWER_TOKENS, Question, holds, is_right  # noqa: E402
from h2o_chat.models.load import Loaded  # noqa: E402
from h2o_chat.models.resolve import find  # noqa: E402
from h2o_chat.native.loading import open_model  # noqa: E402

Said = tuple[Question, str, Source, list[int]]
"""A question, its answer, what that rested on by the program, and its tokens."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--weights", type=Path, help=f"a folder with {FILE}; else that of the model")
    parser.add_argument("--conversations", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1901)
    parser.add_argument("--small-talk", type=Path)
    parser.add_argument("--of", type=int, default=200, help="conversations of SMALL-TALK, at most")
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--long", type=int, default=0)
    parser.add_argument("--price", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    settings = Settings(model=asked.model, budget=512, seed=0, threads=1)
    loaded = open_model(settings, lambda *_: None)
    weights = read_weights(asked.weights or find(settings.model).folder)
    if weights is None:
        sys.exit(f"{asked.model} has no {FILE}: tools/train_source.py makes it.")
    template = choose(loaded.tokenizer, "auto")
    roomy = Settings(model=asked.model, budget=1024, seed=0, threads=1)
    chat = Chat(Engine(loaded, roomy, weights), roomy)
    full = Engine(loaded, Settings(model=asked.model, policy="full"))
    short = [drawn(loaded.tokenizer, template, f"{asked.seed} {n}") for n in range(asked.conversations)]
    report(f"{len(short)} short conversations, seed {asked.seed}", chat, full, short)
    if asked.small_talk:
        talk = talked(loaded.tokenizer, template, asked.small_talk, 1)[: asked.of]
        report(f"{len(talk)} conversations of {asked.small_talk.name}", chat, full, talk)
    if asked.long:
        chat = Chat(Engine(loaded, settings, weights), settings)
        seeds = [f"{asked.seed} long {number}" for number in range(asked.long)]
        far = [drawn(loaded.tokenizer, template, seed, asked.tokens) for seed in seeds]
        report(f"{len(far)} conversations of {asked.tokens:,} tokens, 512 slots", chat, None, far)
    if asked.price:
        price(loaded, settings, weights)


def answers(chat: Chat, one: Drawn) -> list[Said]:
    """What the program answers to each question, asked at the end of the conversation."""
    engine = chat.engine
    assert isinstance(engine, Engine)
    read(engine, one)
    state, found = engine.snapshot(), []
    for question in one.questions:
        engine.restore(state)
        chat.messages, chat.state = list(one.messages), None
        chat.holds.forget()
        chat.look()
        sampling = Sampling(temperature=0.0, max_tokens=ANSWER_TOKENS)
        events = list(chat.send(question.messages[0]["content"], sampling))
        [turn] = [event for event in events if isinstance(event, Turn)]
        tokens = [event.id for event in events if isinstance(event, Token)]
        if turn.source is not None:
            found.append((question, turn.text, turn.source, tokens))
    return found


def report(name: str, chat: Chat, full: Engine | None, all_drawn: Sequence[Drawn]) -> None:
    """Counts what was named, of answers of each kind."""
    template = choose(chat.engine.tokenizer, "auto")
    count: Counter[str] = Counter()
    examples: list[str] = []
    for number, one in enumerate(all_drawn, 1):
        said = answers(chat, one)
        asked = [template.later(question.messages[0]["content"]).ids for question, *_ in said]
        pairs = [Answered(ids, tokens) for ids, (*_, tokens) in zip(asked, said, strict=True)]
        lost = lost_without(full, one, pairs) if full and said else None  # [Q, M]
        for at, (question, text, source, _) in enumerate(said):
            named = "" if source.index < 0 else one.messages[source.index].text
            line = f"{question.messages[0]['content']!r} {text!r}: {named!r}, {source.words!r}"
            if question.expected is not None and is_right(question, text):
                count["right"] += 1
                count["right, holds it"] += (held := holds(named, question.expected))
                count["right, words hold it"] += holds(source.words, question.expected)
                examples += [] if held else [f"right: {line}"]
            if question.expected is None and is_right(question, text):
                count["said that it was not told"] += 1
                count["said that it was not told, named"] += bool(named)
            if lost is not None and lost[at].max() < RESTS:
                count["nothing"] += 1
                count["nothing, named"] += bool(named)
                examples += [f"nothing: {line}"] if named else []
            elif lost is not None:
                count["something"] += 1
                count["something, the same"] += source.index == int(lost[at].argmax())
                count["something, none named"] += not named
        print(f"{number} of {len(all_drawn)}", file=sys.stderr)
    print(f"\n{name}")
    for what, part, whole in (
        ("right answers about facts: the message named holds the fact", "right, holds it", "right"),
        ("  and the words that are named hold it", "right, words hold it", "right"),
        ("answers that rest on nothing told: something is named", "nothing, named", "nothing"),
        ("answers that rest on a message: that one is named", "something, the same", "something"),
        ("  none is named", "something, none named", "something"),
        ("'you did not tell me': something is named", "said that it was not told, named",
         "said that it was not told"),
    ):  # fmt: skip
        if count[whole]:
            print(f"{what}: {count[part]}/{count[whole]} ({count[part] / count[whole]:.1%})")
    for example in examples[:8]:
        print("   " + example)


def price(loaded: Loaded, settings: Settings, weights: Weights) -> None:
    """Thread time of 256 tokens of an answer with full slots, in turn with and without, and of the end."""
    engines = [Engine(loaded, settings, each) for each in (weights, None)]
    ids = torch.randint(20, 900, (600,), generator=torch.Generator().manual_seed(0)).tolist()
    sampling = Sampling(temperature=0.0, max_tokens=256, ignore_eos=True)
    ms: list[list[float]] = [[], []]
    ends: list[float] = []
    for turn in range(41):
        for which, engine in enumerate(engines):
            engine.reset()
            events = engine.generate(ids, sampling)
            while not isinstance(next(events), Token):
                pass
            began = time.thread_time()
            for event in events:
                if isinstance(event, Token):
                    ended = time.thread_time()
            if turn:
                ms[which].append(1000 * (ended - began) / 255)
            began = time.thread_time()
            if which == 0 and engine.rested() and turn:
                ends.append(1000 * (time.thread_time() - began))
    with_it, without = (median(each) for each in ms)
    pairs = [one / other - 1 for one, other in zip(*ms, strict=True)]
    print(
        f"\na token: {without:.4f} ms without, {with_it:.4f} ms with: {median(pairs):+.2%} (median of pairs)"
    )
    print(f"at the end of an answer: {median(ends):.3f} ms")


if __name__ == "__main__":
    main()
