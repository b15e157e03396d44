"""Learns which sentences ask for what only the person can have told; writes `h2o_chat/chat/learned.txt`.

    pip install scikit-learn  (elsewhere than where the tests run: they mind the variables that it sets)
    tools/train_personal.py [--talk FILE ...] [--questions FILE ...] [--strength 1] [--held-out]

The examples stand in `personal_examples`: `asks.txt` asks for such things; `others.txt` speaks of the person
too, but asks for advice, help or an opinion; `pairs.txt` has one of each in a line; `facts.txt` what was
told, what it answers, and what is like it. More of both: the phrases that `pocket` learned from, and the
lists of `measure_gone.py` but those on which nothing is chosen. TALK: conversations, JSONL or a JSON list, of
which every sentence is an example of the others; QUESTIONS: JSONL with a "question" or "goal", the same. The
table that is there was made with Self-dialogue and SODA, and the questions of FairytaleQA. With `--held-out`
each eighth of all is left out, and how much of it has more than 0, 1 and 2 is printed; nothing is written.
"""

import argparse
import gzip
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

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
from measure_gone import drawn, lines, listed, pairs
from pocket.phrases import PhraseBook
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from h2o_chat.chat.asking import sentences  # noqa: E402
from h2o_chat.chat.learned import ALWAYS, TABLE, features, words  # noqa: E402

EXAMPLES = Path(__file__).with_name("personal_examples")
OFTEN = 10
"""A word is known that stands in so many examples."""
MOST = 3
"""Of a feature that stands in fewer nothing is learned."""
WRITTEN_FOR_THIS = 2.0
"""So much more these examples count than talk."""
OF_PHRASES = 800
"""Ways to ask and to tell, of those that `pocket` learned from."""
OF_TALK = 6000
"""Sentences of each file, at most."""
LISTS = (
    personal,
    personal_later,
    personal_unseen,
    personal_fresh,
    personal_blind,
    personal_months,
    personal_forty,
    personal_year,
    personal_people,
)
REPORTED = (personal_stranger, personal_letters, personal_trades)
"""Nothing that stands in these is learned from."""
OWN = frozenset(("i", "my", "me", "mine", "our", "we", "us", "myself", "im", "ive", "id"))
Example = tuple[str, float]
"""A sentence, and how much it counts."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--talk", type=Path, nargs="*", default=[])
    parser.add_argument("--questions", type=Path, nargs="*", default=[])
    parser.add_argument(
        "--strength", type=float, default=1.0, help="smaller: fewer weights, nearer to nothing"
    )
    parser.add_argument("--held-out", action="store_true")
    asked = parser.parse_args()
    personal_ones, others = asks(), {**not_asking(), **talked(asked.talk, asked.questions)}
    if asked.held_out:
        kept, left = split(personal_ones, 0), split(others, 0)
        tells = learn(kept[0], left[0], asked.strength)
        for name, examples in (*kept[1].items(), *left[1].items()):
            if not examples:
                continue
            shares = [sum(tells(one) > least for one, _ in examples) / len(examples) for least in (0, 1, 2)]
            print(f"{name:20} {len(examples):5}  " + " ".join(f"{share:.3f}" for share in shares))
    else:
        learn(personal_ones, others, asked.strength, TABLE)


def asks() -> dict[str, list[Example]]:
    """What asks for such things, by where it comes from."""
    found = {"asks": [last(text) for text in read("asks")], "pairs, asking": [last(a) for a, _ in paired()]}
    found["facts"] = [one for _, answered, like in facts() for one in (*answered, *like) if of_her(one)]
    rng, book = Random(1), PhraseBook()
    found["phrases"] = [book.ask(rng, book.draw_fact(rng)) for _ in range(OF_PHRASES)]
    for list_ in LISTS:
        told = ("IN_OTHER_WORDS", "LIKE", "HELD")
        found[list_.__name__] = [ask for name in told for _, ask in pairs(getattr(list_, name, ""))]
        found[list_.__name__] += drawn(rng, list_, 400)
    reported = {tuple(words(one)) for list_ in REPORTED for one in lines(list_.NEVER_TOLD)}
    return {
        name: [
            (one, 1.0 if name in ("facts", "phrases") else WRITTEN_FOR_THIS)
            for one in dict.fromkeys(all_of)
            if tuple(words(one)) not in reported
        ]
        for name, all_of in found.items()
    }


def not_asking() -> dict[str, list[Example]]:
    """What does not, by where it comes from."""
    found = {
        "others": [one for text in read("others") for one in nothing_asked(text)],
        "pairs, others": [one for _, text in paired() for one in nothing_asked(text)],
        "advice": [*lines(listed(personal, "ADVICE")), *lines(listed(personal_later, "ADVICE"))],
    }
    rng, book = Random(2), PhraseBook()
    told = [one for text, _, _ in facts() for one in sentences(text) if not one.endswith("?")]
    return {
        **{name: [(one, WRITTEN_FOR_THIS) for one in all_of] for name, all_of in found.items()},
        "told": [(one, 1.0) for one in told],
        "phrases, telling": [(book.tell(rng, book.draw_fact(rng)), 1.0) for _ in range(OF_PHRASES)],
    }


def talked(talk: Sequence[Path], questions: Sequence[Path]) -> dict[str, list[Example]]:
    """Sentences of conversations, and questions about the world."""
    found: dict[str, list[Example]] = {}
    for file in talk:
        all_of = rows(file)
        # Of a JSON list each other conversation: with the rest it is measured.
        chosen = all_of[::2] if isinstance(all_of[0], list) else [one["messages"] for one in all_of]
        said = [(one, 1.0) for turns in chosen for turn in turns for one in sentences(turn["content"])]
        asking = [one for one in said if one[0].endswith("?")]
        found[file.stem] = some(asking) + some([one for one in said if not one[0].endswith("?")])
    for file in questions:
        asked = [one.get("question") or one.get("goal") or one["turns"][0] for one in rows(file)]
        found[file.stem] = some([(one, 1.0) for one in asked if one.rstrip().endswith("?")])
    return found


def some(examples: Sequence[Example]) -> list[Example]:
    """OF_TALK of them, drawn."""
    return Random(0).sample(examples, min(OF_TALK, len(examples)))


def rows(file: Path) -> list[Any]:
    """The rows of a JSON list, or of JSONL, gzipped or not."""
    raw = file.read_bytes()
    text = (gzip.decompress(raw) if file.suffix == ".gz" else raw).decode()
    return json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.splitlines()]


def read(name: str) -> list[str]:
    return lines((EXAMPLES / f"{name}.txt").read_text("utf-8"))


def paired() -> list[tuple[str, str]]:
    return [(a, b) for a, b in (line.split(" | ") for line in read("pairs"))]


def facts() -> Iterator[tuple[str, list[str], list[str]]]:
    """(what was told, what it answers, what is like it)."""
    for line in read("facts"):
        told, answered, like = line.split(" | ")
        yield told, answered.split(" ; "), like.split(" ; ")


def last(text: str) -> str:
    """The last sentence with a question mark, else the last."""
    said = list(sentences(text))
    return ([one for one in said if one.endswith("?")] or said)[-1]


def nothing_asked(text: str) -> list[str]:
    """Its sentences; without the last where those before tell it: "I have 3 dogs. How many do I have?"."""
    *before, end = sentences(text)
    return before if of_her(end) and any(map(of_her, before)) else [*before, end]


def of_her(sentence: str) -> bool:
    return not OWN.isdisjoint(words(sentence))


def split(
    examples: dict[str, list[Example]], seed: int
) -> tuple[dict[str, list[Example]], dict[str, list[Example]]]:
    """Seven eighths to learn from, and the rest."""
    kept, left = {}, {}
    for name, all_of in examples.items():
        drawn_ = Random(seed).sample(all_of, len(all_of))
        left[name], kept[name] = drawn_[: len(drawn_) // 8], drawn_[len(drawn_) // 8 :]
    return kept, left


def learn(
    asking: dict[str, list[Example]],
    others: dict[str, list[Example]],
    strength: float,
    out: Path | None = None,
) -> Callable[[str], float]:
    """What tells them apart. Learned twice: the second time of the words alone that have a weight."""
    yes, no = ([one for all_of in some_.values() for one in all_of] for some_ in (asking, others))
    counts = Counter(word for one, _ in (*yes, *no) for word in set(words(one)))
    known = {word for word, count in counts.items() if count >= OFTEN}
    for _ in range(2):
        seen = known
        vectors = CountVectorizer(analyzer=lambda row: row, min_df=MOST, binary=True)
        found = vectors.fit_transform([list(features(words(one), seen)) for one, _ in (*yes, *no)])
        model = LogisticRegression(C=strength, l1_ratio=1.0, solver="liblinear", random_state=0)
        model.fit(found, [1] * len(yes) + [0] * len(no), sample_weight=[weight for _, weight in (*yes, *no)])
        weights = {
            feature: round(float(model.coef_[0][at]), 2) for feature, at in vectors.vocabulary_.items()
        }
        used = {feature: weight for feature, weight in weights.items() if weight}
        known = {word for feature in used for word in re.split(" |~+", feature)}
    # A word that was known as it was learned, and has no weight, is not one of which nothing was learned.
    used |= {ALWAYS: round(float(model.intercept_[0]), 2), **dict.fromkeys(seen - known, 0.0)}
    if out:
        out.write_text("".join(f"{one}\t{weight:g}\n" for one, weight in sorted(used.items())), "utf-8")
    print(f"{len(yes)} ask, {len(no)} do not; {len(used)} weights", file=sys.stderr)
    return lambda one: used[ALWAYS] + sum(used.get(f, 0.0) for f in set(features(words(one), seen)))


if __name__ == "__main__":
    main()
