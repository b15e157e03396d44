"""Facts in everyday words after a long conversation: answered? And what does recall bring for small talk?

    tools/stress/measure_recall.py [MODEL] --talk FILE [--world FILE ...] [--budget 512] [--tokens 20000]
                            [--facts 0:84] [--kinds plain one none] [--recall off] [--results FILE]

`recall_facts.txt`: a fact, three questions for it (in its own words, with one rare word of it, with none),
the value; for a corrected fact also the correction and its value. TALK: a JSON list of conversations; the
first five of every seven are said in between, with their answers. All questions are asked of the same memory.
First each is asked with nothing but its fact said before: what is answered then is counted after the slash.

The user's messages of the other two of seven, and the questions of WORLD (JSON lines with `turns` or `goal`),
are looked up in the same conversation: how many recall something? No model computes for these. Without MODEL
nothing else is done, as if nothing of the conversation were held, and a token has four characters.
"""

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from h2o_chat.base.config import Sampling, Settings  # noqa: E402
from h2o_chat.chat.conversation.chat import Chat  # noqa: E402
from h2o_chat.chat.conversation.exchange import turn_tokens  # noqa: E402
from h2o_chat.chat.conversation.message import Message  # noqa: E402
from h2o_chat.chat.recall.recall import Recall  # noqa: E402
from h2o_chat.chat.templates.chat_template import literal  # noqa: E402
from h2o_chat.events.events import Said, Turn  # noqa: E402
from h2o_chat.lab.eval.recall_questions import holds  # noqa: E402
from h2o_chat.remote.engine_here import engine_here  # noqa: E402

GREEDY = Sampling(temperature=0, max_tokens=32)
KINDS = ("plain", "one", "none")
LAST = 0.9
"""Share of the conversation in which facts are told."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?")
    parser.add_argument("--talk", type=Path, required=True)
    parser.add_argument("--world", type=Path, action="append", default=[])
    parser.add_argument("--budget", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--facts", default="0:84", help="lines of recall_facts.txt")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--policy", default="h2o")
    parser.add_argument("--recall", choices=("auto", "off"), default="auto")
    parser.add_argument("--of", type=int, default=200, help="messages of small talk, and of WORLD")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    talk = json.loads(asked.talk.read_text("utf-8"))
    between = [one for at, each in enumerate(talk) if at % 7 < 5 for one in each]
    small = [one["content"] for at, each in enumerate(talk) if at % 7 >= 5 for one in each[::2]]
    facts = facts_of(Path(__file__).with_name("recall_facts.txt"), *map(int, asked.facts.split(":")))
    rows = questions(facts, asked.kinds)
    if asked.model is None:
        recalled = by_words(facts, between, asked, rng)
        for row in rows:
            row["recalled"] = recalled(row["question"])
    else:
        chat = chat_of(asked)
        said = conversation(facts, between, asked.tokens, rng, lambda: chat.engine.seen)
        recalled = by_model(chat, rows, said)
        print(f"{chat.session.model}, {asked.budget} slots, {chat.engine.seen:,} tokens")
    for row in rows:
        row["found"] = any(row["told"][-1] in words for words in row["recalled"])
    if asked.results:
        asked.results.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    for kind in [f"{kind}{one}" for kind in asked.kinds for one in ("", ", corrected")]:
        show(kind, [row for row in rows if row["kind"] == kind])
    for name, texts in (("small talk", small), ("the world", list(knowledge(asked.world)))):
        some = rng.sample(texts, min(asked.of, len(texts)))
        print(f"{name}: recalled for {sum(bool(recalled(text)) for text in some)} of {len(some)}")


class Nothing:
    """Holds nothing."""

    def held(self, positions: range) -> float:
        return 0.0


def by_words(facts: Any, between: Any, asked: Any, rng: random.Random) -> Callable[[str], list[str]]:
    """Pieces that are recalled for a text."""
    messages, recall = list[Message](), Recall([], lambda text: len(text) // 4)

    def seen() -> int:
        return messages[-1].last + 1 if messages else 0

    for role, text in conversation(facts, between, asked.tokens, rng, seen):
        messages.append(Message(role, text, seen(), seen() + len(text) // 4))

    def recalled(text: str) -> list[str]:
        found, _ = recall.before(text, messages, Nothing(), Settings(), asked.budget)
        return [one.words for one in found]

    return recalled


def chat_of(asked: Any) -> Chat:
    settings = Settings(
        model=asked.model, budget=asked.budget, policy=asked.policy, seed=0, recall=asked.recall
    )
    return Chat(engine_here(settings, lambda *_: None), settings)


def by_model(chat: Chat, rows: Any, said: Iterator[tuple[str, str]]) -> Callable[[str], list[str]]:
    """Asks everything; what is recalled for a text."""
    for row in rows:
        chat.clear()
        for told in row["told"]:
            say(chat, "user", told)
            say(chat, "assistant", "I see, thank you for telling me.")
        row["bare"] = holds(ask(chat, row["question"])[0], row["value"])
    chat.clear()
    for role, text in said:
        say(chat, role, text)
    memory, messages = chat.engine.snapshot(), list(chat.messages)
    for row in rows:
        row["answer"], row["recalled"] = ask(chat, row["question"])
        row["right"] = holds(row["answer"], row["value"])
        chat.engine.restore(memory)
        chat.messages = list(messages)

    def recalled(text: str) -> list[str]:
        found, _ = chat.recall.before(text, messages, chat.engine, chat.settings, chat.session.budget)
        return [one.words for one in found]

    return recalled


def facts_of(file: Path, start: int, stop: int) -> list[list[str]]:
    lines = file.read_text("utf-8").splitlines()[start:stop]
    return [[part.strip() for part in line.split("|")] for line in lines]


def questions(facts: list[list[str]], kinds: list[str]) -> list[dict[str, Any]]:
    """Each question with what was told, what is right and what is not any more."""
    return [
        {
            "kind": kind + (", corrected" if more else ""),
            "question": fact[1 + KINDS.index(kind)],
            "told": [told, *more[:1]],
            "value": more[1] if more else value,
            "stale": value if more else "",
        }
        for fact in facts
        for told, _, _, _, value, *more in [fact]
        for kind in kinds
    ]


def say(chat: Chat, role: str, text: str) -> None:
    """A message that was said, with no answer of the model."""
    engine = chat.engine
    first = engine.seen + len(engine.pending)
    if role == "user":
        ids, _ = turn_tokens(engine, chat.template, chat.system, text, False)
    else:
        ids = literal(engine.tokenizer, text)
    engine.relive(ids, answer=role == "assistant", exact=False, cancel=lambda: False)
    chat.messages.append(Message(role, text, first, first + len(ids) - 1))


def ask(chat: Chat, question: str) -> tuple[str, list[str]]:
    """The answer, and what was recalled."""
    said, answer = [], ""
    for event in chat.send(question, GREEDY):
        if isinstance(event, Said):
            said = [words for _, words in event.recalled]
        elif isinstance(event, Turn):
            answer = event.text
    return answer, said


def conversation(
    facts: list[list[str]], between: list[Any], tokens: int, rng: random.Random, seen: Callable[[], int]
) -> Iterator[tuple[str, str]]:
    """(role, text) of all messages: facts evenly, corrections at any time after them."""
    events = []
    for number, fact in enumerate(facts):
        when = LAST * number / len(facts)
        events.append((when, fact[0]))
        if len(fact) > 5:
            events.append((rng.uniform(when + 0.02, LAST + 0.05), fact[5]))
    events.sort()
    for one in between * (1 + tokens // 5000):
        text = one["content"]
        if one["role"] == "user" and seen() >= tokens and not events:
            return
        if one["role"] == "user" and events and seen() >= events[0][0] * tokens:
            text = events.pop(0)[1]  # answered as what it replaces: "Noted." each time would be imitated
        yield one["role"], text


def show(kind: str, rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    print(f"{kind}: recalled {sum(row['found'] for row in rows)} of {len(rows)}", end="")
    if "right" in rows[0]:
        bare = [row for row in rows if row["bare"]]
        print(f", right {sum(row['right'] for row in rows)}", end="")
        print(
            f", {sum(row['right'] for row in bare)} / {len(bare)} of what is answered with nothing between",
            end="",
        )
    print()


def knowledge(files: list[Path]) -> Iterator[str]:
    for file in files:
        for line in file.read_text("utf-8").splitlines():
            row = json.loads(line)
            yield row["turns"][0] if "turns" in row else row["goal"]


if __name__ == "__main__":
    main()
