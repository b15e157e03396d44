"""Whether recall finds what a question asks for, leaves alone what asks for nothing told, and what it costs.

    tools/measure_recall.py --small-talk FILE --knowledge FILE [--knowledge FILE] [--seed 0]

Facts of which the question has no content word in common ("What is my job?" for "I work as a carpenter.") are
those of `personal.py`, `personal_later.py`, `personal_unseen.py` and `personal_fresh.py`, counted apart, and
those of `personal_blind.py` and `personal_stranger.py`, on which nothing was chosen.

No model computes here: of conversations as `h2o-chat eval recall --generate` makes them up the words alone
are looked at, as if nothing of them were held. SMALL-TALK: a JSON list of conversations; what one half of
them say is said in between as well, what the others say is sent. KNOWLEDGE: a JSON object a line with `turns`
(as MT-bench has) or `goal` (PIQA): things that nobody has told.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from transformers import AutoTokenizer

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import personal  # noqa: E402
import personal_blind  # noqa: E402
import personal_fresh  # noqa: E402
import personal_later  # noqa: E402
import personal_stranger  # noqa: E402
import personal_unseen  # noqa: E402

from h2o_chat.chat.asking import question_of  # noqa: E402
from h2o_chat.chat.finding import BEGINNING, WORD, Finder, Found  # noqa: E402
from h2o_chat.chat.personal import NOTHING, wanted  # noqa: E402
from h2o_chat.chat.templates import choose  # noqa: E402
from h2o_chat.chat.told import told as tells  # noqa: E402
from h2o_chat.lab.conversations import draw  # noqa: E402
from h2o_chat.lab.recall import holds  # noqa: E402

FIRST = 5
SEEN = (personal, personal_later, personal_unseen, personal_fresh)
TOLD = ("plain", "pinned", "corrected")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small-talk", type=Path, required=True)
    parser.add_argument("--knowledge", type=Path, action="append", required=True)
    parser.add_argument("--of", type=int, default=200, help="messages of each kind")
    parser.add_argument("--conversations", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=20_000, help="of a made-up conversation")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    talk = json.loads(asked.small_talk.read_text("utf-8"))
    said_between = [one["content"] for each in talk[::2] for one in each if one["role"] == "user"]
    sent = [one["content"] for each in talk[1::2] for one in each if one["role"] == "user"]
    world = list(dict.fromkeys(knowledge(asked.knowledge)))
    small, known = (rng.sample(all_of, min(asked.of, len(all_of))) for all_of in (sent, world))

    tokenizer = AutoTokenizer.from_pretrained(ROOT / "assets" / "pocket")
    first = among = told = invented = never = 0
    apart = {
        f"{common} in common{unseen}": [0, 0, 0]
        for common in ("a word", "none")
        for unseen in ("", ", unseen")
    }  # first, among, of
    fetched = {"small talk": 0, "knowledge": 0}
    examples: list[str] = []
    find_ms: list[float] = []
    for number in range(asked.conversations):
        script, questions = draw(tokenizer, choose(tokenizer, "auto"), asked.tokens, f"{asked.seed} {number}")
        said = [message.text for message in script.messages if message.role == "user"]
        finder = Finder()
        for index, text in enumerate(mixed(said, said_between)):
            finder.add(index, text)
        for question in questions:
            began = time.perf_counter()
            found = fitting(finder, question.messages[0]["content"])
            find_ms.append(1000 * (time.perf_counter() - began))
            if question.expected is None:
                never, invented = never + 1, invented + bool(found)
                continue
            told, first = told + 1, first + any(holds(one.text, question.expected) for one in found[:1])
            nearest = finder.find(question.messages[0]["content"])[:FIRST]
            among += any(holds(one.text, question.expected) for one in nearest)
        middle = len(said) // 2
        unseen = others(personal_blind.IN_OTHER_WORDS) + others(personal_stranger.IN_OTHER_WORDS)
        for tell, ask in [pair for each in SEEN for pair in others(each.IN_OTHER_WORDS)] + unseen:
            with_it = Finder()
            for index, text in enumerate(mixed([*said[:middle], tell, *said[middle:]], said_between)):
                with_it.add(index, text)
            name = "a word in common" if content(tell) & content(ask) else "none in common"
            counts = apart[f"{name}, unseen" if (tell, ask) in unseen else name]
            counts[0] += any(one.text == tell for one in fitting(with_it, ask))
            counts[1] += any(one.text == tell for one in with_it.find(ask)[:FIRST])
            counts[2] += 1
        for kind, texts in (("small talk", small), ("knowledge", known)):
            for text in texts:
                if found := fitting(finder, question_of(text)):
                    fetched[kind] += 1
                    examples.append(f"{kind}: {question_of(text)!r} found {found[0].text!r}")
    print(f"{asked.conversations} conversations of about {asked.tokens:,} tokens, seed {asked.seed}")
    print(f"facts told ({', '.join(TOLD)}): found first {first}/{told}, among {FIRST} {among}/{told}")
    for name, (right, near, of) in apart.items():
        print(f"facts told in other words, {name}: found first {right}/{of}, among {FIRST} {near}/{of}")
    print(f"never told: something found for {invented}/{never}")
    for kind, texts in (("small talk", small), ("knowledge", known)):
        of = asked.conversations * len(texts)
        print(f"{kind}: something found for {fetched[kind]}/{of} ({fetched[kind] / of:.1%})")
    print(f"to find: {median(find_ms):.2f} ms, at most {max(find_ms):.2f}")
    for example in rng.sample(examples, min(10, len(examples))):
        print("  " + example)


def fitting(finder: Finder, question: str) -> list[Found]:
    """What would be told again, at its head, as `Recall` decides it."""
    if what := wanted(question):
        found = tells(finder, question, what)
        return [found] if found else []
    return [one for one in finder.find(question)[:1] if one.fits] if question else []


def others(pairs: str) -> list[tuple[str, str]]:
    """(what is told, the question for it), a line each."""
    return [(tell, ask) for tell, ask in (line.split(" | ") for line in pairs.splitlines() if line)]


def content(text: str) -> set[str]:
    """The words that say something, by their beginnings."""
    return {word[:BEGINNING] for word in WORD.findall(text.casefold()) if word not in NOTHING}


def mixed(said: Sequence[str], between: Sequence[str]) -> Iterator[str]:
    """All of both, in their order, as evenly as they go."""
    places = [(at / len(texts), text) for texts in (said, between) for at, text in enumerate(texts)]
    return (text for _, text in sorted(places, key=lambda one: one[0]))


def knowledge(files: Sequence[Path]) -> Iterator[str]:
    for file in files:
        for line in file.read_text("utf-8").splitlines():
            row = json.loads(line)
            yield from row["turns"][:1] if "turns" in row else [row["goal"]]


if __name__ == "__main__":
    main()
