"""Facts in everyday words after a long conversation: are they recalled, and what is recalled for small talk?

    tools/stress/measure_recall.py --talk FILE [--world FILE ...] [--budget 512] [--tokens 20000] [--seed 0]
                                   [--facts 0:84] [--tokenizer MODEL] [--languages] [--echo]
                                   [--pages FILE] [--book FILE]

`recall_facts.txt`: a fact, three questions for it (in its own words, with one rare word of it, with none),
the value; for a corrected fact also the correction and its value. TALK: a JSON list of conversations; the
first five of every seven are said in between, with their answers. All questions are asked of the same
conversation.

The user's messages of the other two of seven, and the questions of WORLD (JSON lines with `turns` or `goal`),
are looked up in the same conversation: how many recall something? With --pages each fact is told inside a
page of FILE; with --languages those of `recall_languages.txt` are told; with --echo the answer to a fact says
it again, as models do; with --book a story was pasted before. No model computes; nothing of the conversation
counts as held, and a token has four characters. `h2o-chat lab eval recall` asks a model.
"""

import argparse
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from h2o_chat.base.config import Settings
from h2o_chat.chat.conversation.message import Message
from h2o_chat.chat.recall.index import rarity_of
from h2o_chat.chat.recall.recall import Recall
from h2o_chat.chat.templates.chat_template import literal
from h2o_chat.models.load import check_family
from h2o_chat.models.load_tokenizer import load_tokenizer
from h2o_chat.models.resolve import POCKET, find

FACTS, LANGUAGES = (Path(__file__).with_name(f"recall_{name}.txt") for name in ("facts", "languages"))
KINDS = ("plain", "one", "none")
LAST = 0.9
"""Share of the conversation in which facts are told."""


def main() -> None:
    parser = parser_of(__doc__, facts="0:84")
    parser.add_argument("--world", type=Path, action="append", default=[])
    parser.add_argument("--budget", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--of", type=int, default=200, help="messages of small talk, and of WORLD")
    parser.add_argument("--pages", type=Path)
    parser.add_argument("--languages", action="store_true")
    parser.add_argument("--echo", action="store_true")
    parser.add_argument("--book", type=Path)
    parser.add_argument("--tokenizer", metavar="MODEL", help="tells how rare words are; else pocket's")
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    facts, between, small = material(asked)
    rows = questions(facts)
    if asked.languages:
        facts, rows = foreign()
    if asked.pages:
        text = " ".join(asked.pages.read_text("utf-8").split())
        facts = [[inside(text, fact, rng), *more] for fact, *more in facts]
    recall = Recall(lambda text: len(text) // 4, rarity=rarity_by(asked.tokenizer))
    said = list(conversation(facts, between, asked.tokens, rng, asked.echo))
    if asked.book:
        said[:0] = [("user", asked.book.read_text("utf-8")[:52_000])]  # thirty pages
    recalled = recall_of(recall, said, asked.budget)
    for kind in sorted({row["kind"] for row in rows}, reverse=True):
        of_kind = [row for row in rows if row["kind"] == kind]
        found = sum(any(row["told"][-1] in words for words in recalled(row["question"])) for row in of_kind)
        print(f"{kind}: recalled {found} of {len(of_kind)}")
    for name, texts in (("small talk", small), ("the world", knowledge(asked.world))):
        some = rng.sample(texts, min(asked.of, len(texts)))
        print(f"{name}: recalled for {sum(bool(recalled(text)) for text in some)} of {len(some)}")


def foreign() -> tuple[list[list[str]], list[dict[str, Any]]]:
    """Facts and small talk of other languages, in turns, and the questions for the facts."""
    lines = [line.split(" | ") for line in LANGUAGES.read_text("utf-8").splitlines()]
    facts, small = ([one for one in lines if len(one) == parts] for parts in (4, 3))
    said = [text for fact, talk in zip(facts, small, strict=False) for text in (fact[1], talk[2])]
    rows: list[dict[str, Any]] = [{"kind": one[0], "question": one[2], "told": one[1:2]} for one in facts]
    return [[text] for text in said], rows


def inside(text: str, fact: str, rng: random.Random) -> str:
    """A page of 1,500 to 4,000 characters of a text, with a fact between two of its sentences."""
    before, after = (rng.randint(800, 2000) for _ in range(2))
    at = text.find(". ", rng.randrange(before, len(text) - 2 * after)) + 2
    return f"{text[at - before : at]}{fact} {text[at : at + after]}"


def parser_of(about: str, facts: str) -> argparse.ArgumentParser:
    """The flags of every measurement of recall."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--talk", type=Path, required=True)
    parser.add_argument("--facts", default=facts, help="lines of recall_facts.txt")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def material(asked: argparse.Namespace) -> tuple[list[list[str]], list[Any], list[str]]:
    """Facts with their questions, messages of TALK to be said in between, the user's messages of its rest."""
    talk = json.loads(asked.talk.read_text("utf-8"))
    between = [one for at, each in enumerate(talk) if at % 7 < 5 for one in each]
    small = [one["content"] for at, each in enumerate(talk) if at % 7 >= 5 for one in each[::2]]
    lines = FACTS.read_text("utf-8").splitlines()[slice(*map(int, asked.facts.split(":")))]
    return [[part.strip() for part in line.split("|")] for line in lines], between, small


class Nothing:
    """A cache that holds nothing."""

    def held(self, positions: range) -> float:
        return 0.0


def rarity_by(model: str | None) -> Callable[[str], float]:
    """How rare words are, by the tokenizer of a model on this machine."""
    folder = find(model or POCKET).folder
    tokenizer = load_tokenizer(folder, check_family(folder).vocab_size)
    return lambda text: rarity_of(literal(tokenizer, text))


def recall_of(recall: Recall, said: list[tuple[str, str]], budget: int) -> Callable[[str], list[str]]:
    """Holds the conversation; returns a function from a text to the pieces that are recalled for it."""
    messages = list[Message]()
    for role, text in said:
        first = messages[-1].last + 1 if messages else 0
        messages.append(Message(role, text, first, first + len(text) // 4))

    def recalled(text: str) -> list[str]:
        found, *_ = recall.for_message(text, messages, Nothing(), Settings(), budget)
        return [one.words for one in found]

    return recalled


def questions(facts: list[list[str]]) -> list[dict[str, Any]]:
    """Each question, with the messages that told its fact; the last one is right."""
    return [
        {
            "kind": kind + (", corrected" if more else ""),
            "question": fact[1 + KINDS.index(kind)],
            "told": [told, *more[:1]],
        }
        for fact in facts
        for told, _, _, _, _, *more in [fact]
        for kind in KINDS
    ]


def conversation(
    facts: list[list[str]], between: list[Any], tokens: int, rng: random.Random, echo: bool = False
) -> Iterator[tuple[str, str]]:
    """(role, text) of all messages: facts evenly, corrections at any time after them."""
    events = []
    for number, fact in enumerate(facts):
        when = LAST * number / len(facts)
        events.append((when, fact[0]))
        if len(fact) > 5:
            events.append((rng.uniform(when + 0.02, LAST + 0.05), fact[5]))
    events.sort()
    seen, told = 0, ""
    for one in between * (1 + tokens // 5000):
        role, text = one["role"], one["content"]
        if role == "user" and seen >= tokens and not events:
            return
        if role == "user" and events and seen >= events[0][0] * tokens:
            text = told = events.pop(0)[1]
        elif told and echo:  # else it is answered as what it replaces was
            text, told = f"I see: {told}", ""
        seen += len(text) // 4 + 1
        yield role, text


def knowledge(files: list[Path]) -> list[str]:
    rows = [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]
    return [row["turns"][0] if "turns" in row else row["goal"] for row in rows]


if __name__ == "__main__":
    main()
