"""Whether questions for what is neither held nor found are marked as such, and nothing else is.

    tools/measure_gone.py --small-talk FILE --knowledge FILE [--knowledge FILE] [--seed 0] [--lists chosen]

No model computes here: conversations are made up as `h2o-chat eval recall --generate` does, and that all of
them is held, or nothing, is taken as given. Files as for `measure_recall.py`. What a person asks stands in
`personal_later.py`, written when the rules were nearly final; with `--lists chosen` in `personal.py`, which
was looked at before; with `--lists unseen` in `personal_unseen.py`, which was looked at later; with
`--lists fresh` and `--lists blind` in `personal_fresh.py` and `personal_blind.py`, looked at since; with
`--lists stranger`, `months`, `forty`, `year`, `people`, `letters` and `trades` in `personal_stranger.py` and
so on, by people who had not seen the program: nothing was chosen on the last two. Dialogues and questions
about the world are cut in the same way. Whom a question names has been spoken of.
"""

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from types import ModuleType

import personal
import personal_blind
import personal_forty
import personal_fresh
import personal_later
import personal_letters
import personal_months
import personal_people
import personal_stranger
import personal_trades
import personal_unseen
import personal_year
from transformers import AutoTokenizer

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from measure_recall import knowledge, mixed  # noqa: E402

from h2o_chat.base.config import Settings  # noqa: E402
from h2o_chat.chat.asking import question_of  # noqa: E402
from h2o_chat.chat.message import Message, Recalled  # noqa: E402
from h2o_chat.chat.personal import of_somebody  # noqa: E402
from h2o_chat.chat.recalling import Recall  # noqa: E402
from h2o_chat.chat.templates import choose  # noqa: E402
from h2o_chat.events.events import Note  # noqa: E402
from h2o_chat.lab.conversations import draw  # noqa: E402
from h2o_chat.lab.figures import wilson  # noqa: E402

LISTS = {
    "chosen": personal,
    "reported": personal_later,
    "unseen": personal_unseen,
    "fresh": personal_fresh,
    "blind": personal_blind,
    "stranger": personal_stranger,
    "months": personal_months,
    "forty": personal_forty,
    "year": personal_year,
    "people": personal_people,
    "letters": personal_letters,
    "trades": personal_trades,
}
WANTED = {"never told": True, "never told, but something like it": True}
"""Whether a mark is right; of all other kinds it is not."""


class Held:
    """An engine that holds everything, or nothing."""

    def __init__(self, share: float) -> None:
        self.share = share

    def held(self, positions: range) -> float:
        return self.share


class Counts:
    """What was asked, by kind; what was marked, and what was told again."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.marked: Counter[str] = Counter()
        self.again: Counter[str] = Counter()
        self.right: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.ms: list[float] = []

    def ask(self, kind: str, text: str, messages: Sequence[Message], share: float, told: str = "") -> None:
        """Sends a message; `told` is what answers it."""
        notes: list[Note] = []
        self.recall._notes = notes
        began = time.perf_counter()
        again, _ = self.recall.before(text, messages, Held(share), Settings())
        self.ms.append(1000 * (time.perf_counter() - began))
        marked = any(note.code in ("gone", "doubtful") for note in notes)
        self.asked[kind] += 1
        self.marked[kind] += marked
        self.again[kind] += again is not None
        self.right[kind] += again is not None and bool(told) and told in again.words
        if marked != WANTED.get(kind, False):
            self.wrong.append(f"{kind}: {question_of(text) or text!r}" + _words(again))

    def begin(self, messages: Sequence[Message]) -> None:
        """Another conversation."""
        self.recall = Recall([])
        self.recall.read(messages)


def _words(again: Recalled | None) -> str:
    return f" found {again.words!r}" if again else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small-talk", type=Path, required=True)
    parser.add_argument("--knowledge", type=Path, action="append", required=True)
    parser.add_argument("--of", type=int, default=200, help="messages of each kind")
    parser.add_argument("--conversations", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=20_000, help="of a made-up conversation")
    parser.add_argument("--no-talk", action="store_true", help="say no small talk in between")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lists", choices=list(LISTS), default="reported")
    parser.add_argument("--wrong", type=int, default=0, help="print so many that were not as they should be")
    asked = parser.parse_args()
    rng, asks, part = random.Random(asked.seed), LISTS[asked.lists], min(1, list(LISTS).index(asked.lists))
    talk = json.loads(asked.small_talk.read_text("utf-8"))
    # What is sent is said by nobody in between.
    between, small = [] if asked.no_talk else spoken(talk[part::4]), spoken(talk[part + 2 :: 4])
    world = [text for text in dict.fromkeys(knowledge(asked.knowledge)) if question_of(text)][part::2]
    each = -(-asked.of // asked.conversations)
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "assets" / "pocket")
    counts = Counts()
    for number in range(asked.conversations):
        script, questions = draw(tokenizer, choose(tokenizer, "auto"), asked.tokens, f"{asked.seed} {number}")
        said = [message.text for message in script.messages if message.role == "user"]
        never = list(drawn(rng, asks, each))
        counts.begin(of_them := read(mixed(list(mixed(said, between)), naming(asks, never))))
        for text in never:
            counts.ask("never told", text, of_them, 0.0)
        counts.begin(plain := read(mixed(said, between)))
        for question in questions:
            kind = "told, held" if question.expected else "never told"
            counts.ask(kind, question.messages[0]["content"], plain, 1.0)
        for kind, all_of in (
            ("small talk", small),
            ("general", world),
            ("advice", lines(listed(asks, "ADVICE"))),
        ):
            for text in rng.sample(all_of, min(len(all_of), each)):
                counts.ask(kind, text, plain, 0.0)
        for kind, known in (
            ("told", pairs(listed(asks, "HELD"))),
            ("told in other words", pairs(listed(asks, "IN_OTHER_WORDS"))),
        ):
            told = rng.sample(known, min(len(known), each))
            messages = read(mixed(list(mixed(said, between)), [tell for tell, _ in told]))
            counts.begin(messages)
            for tell, text in told:
                counts.ask(f"{kind}, held", text, messages, 1.0, tell)
                counts.ask(f"{kind}, gone", text, messages, 0.0, tell)
        like = pairs(listed(asks, "LIKE"))
        for tell, text in rng.sample(like, min(len(like), each)):
            messages = read(mixed(list(mixed(said, between)), [tell]))
            counts.begin(messages)
            counts.ask("never told, but something like it", text, messages, 0.0)
    print(f"{asked.conversations} conversations of about {asked.tokens:,} tokens, seed {asked.seed}")
    for kind, of in counts.asked.items():
        low, high = wilson(counts.marked[kind], of)
        share = f"{counts.marked[kind]}/{of} ({counts.marked[kind] / of:.3f} [{low:.3f}, {high:.3f}])"
        rightly = f", rightly {counts.right[kind]}" if kind.startswith("told") else ""
        print(f"{kind}: marked {share}, told again {counts.again[kind]}{rightly}")
    print(f"to decide: {median(counts.ms):.2f} ms, at most {max(counts.ms):.2f}")
    for wrong in rng.sample(counts.wrong, min(asked.wrong, len(counts.wrong))):
        print("  " + wrong)


def naming(asks: ModuleType, questions: Sequence[str]) -> list[str]:
    """What was told of those whom these ask about by name: who asks where Milo lives has spoken of him."""
    names = {found[0] for text in questions if (found := of_somebody(text))}
    tells = [tell for tell, _ in pairs(listed(asks, "IN_OTHER_WORDS"))]
    told = {
        name: [tell for tell in tells if name in tell] or [f"{name} and I went for a walk."] for name in names
    }
    return [tell for several in told.values() for tell in several]


def listed(asks: ModuleType, name: str) -> str:
    """A list of questions; that of `personal_later` where these have none of the kind."""
    found: str = getattr(asks, name, None) or getattr(personal_later, name)
    return found


def read(texts: Iterable[str]) -> list[Message]:
    """They were said, and read."""
    return [Message("user", text, at, at) for at, text in enumerate(texts)]


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


def pairs(text: str) -> list[tuple[str, str]]:
    return [(tell, ask) for tell, ask in (line.split(" | ") for line in lines(text))]


def spoken(dialogues: Sequence[Sequence[dict[str, str]]]) -> list[str]:
    """What the users of these say."""
    return [one["content"] for each in dialogues for one in each if one["role"] == "user"]


def drawn(rng: random.Random, asks: ModuleType, count: int) -> Iterator[str]:
    """So many questions for what was never told."""
    for _ in range(count):
        words = {name: rng.choice(choices.split()) for name, choices in getattr(asks, "WORDS", {}).items()}
        text = rng.choice(lines(asks.NEVER_TOLD))
        yield text.format(**{name: word.replace("_", " ") for name, word in words.items()})


if __name__ == "__main__":
    main()
