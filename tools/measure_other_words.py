"""Facts told once in long conversations, and asked for in words of which none stands in the fact.

    tools/measure_other_words.py [--book held-out] [--conversations 12] [--tokens 20000] [--seed 0]

With `--book everyday` facts are of everyday life, written for this by somebody who had seen no others
(`pocket/held_out_everyday.jsonl`), and asked for in any words.

Else phrases are those that `pocket` learned from (`own`), or those written for its tests by somebody who had
seen no other (`held-out`). Of each way to tell a fact and each way to ask for it those pairs count that share
no word but such as "I", "my", "what" and "called". Finding and reading are told apart: whether the words told
again are the fact, and whether the answer is right; the answer with nothing in between says what the model
can read at all.
"""

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from pocket.everyday import draw_everyday  # noqa: E402
from pocket.phrases import Fact, PhraseBook, expand  # noqa: E402

from h2o_chat.base.config import Settings  # noqa: E402
from h2o_chat.chat.finding import WORD, Finder  # noqa: E402
from h2o_chat.chat.personal import NOTHING, wanted  # noqa: E402
from h2o_chat.chat.templates import choose  # noqa: E402
from h2o_chat.chat.told import told as tells  # noqa: E402
from h2o_chat.lab import rows  # noqa: E402
from h2o_chat.lab.contestant import crossed, full_cache  # noqa: E402
from h2o_chat.lab.conversations import LAST  # noqa: E402
from h2o_chat.lab.figures import wilson  # noqa: E402
from h2o_chat.lab.recall import ANSWER_TOKENS, holds  # noqa: E402
from h2o_chat.lab.script import Script  # noqa: E402
from h2o_chat.lab.talk import NOTED, between  # noqa: E402
from h2o_chat.models.load import load  # noqa: E402
from h2o_chat.transformers_cache.probe import probe  # noqa: E402

KINDS = ("name", "town", "job", "trip")
"""Others name their thing both times: "my dog"."""
ASKED = 4
"""Ways to ask for each fact."""
TRIES = 200
"""Until a pair of phrases with no word in common is drawn."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--book", choices=["own", "held-out", "everyday"], default="held-out")
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--conversations", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=20_000, help="of a conversation")
    parser.add_argument("--budget", type=int, default=512)
    parser.add_argument("--policy", default="h2o")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--wrong", type=int, default=0, help="print so many that were not found")
    asked = parser.parse_args()
    loaded = load(Settings(model=asked.model, threads=asked.threads), lambda *_: None)
    positions = probe(loaded.model, loaded.chats)
    book, rng = PhraseBook(asked.book == "held-out"), random.Random(asked.seed)
    everyday = asked.book == "everyday"
    told = [[*(of_everyday(rng) if everyday else facts(book, rng))] for _ in range(asked.conversations)]
    scripts = [
        conversation(loaded.tokenizer, one, asked.tokens, f"{asked.seed} {n}") for n, one in enumerate(told)
    ]
    alone = [[conversation(loaded.tokenizer, [fact], 0, "0") for fact in one] for one in told]
    [contestant] = crossed([asked.policy], [])
    long = rows.answers(loaded, scripts, contestant.cache(asked.budget, positions), ANSWER_TOKENS)
    bare = rows.answers(loaded, [s for one in alone for s in one], full_cache(positions), ANSWER_TOKENS)
    counts: Counter[str] = Counter()
    missed = []
    for number, (script, one, answers) in enumerate(zip(scripts, told, long, strict=True)):
        finder = Finder()
        for index, message in enumerate(script.messages):
            if message.role == "user":
                finder.add(index, message.text)
        held, again = answers[: len(answers) // 2], answers[len(answers) // 2 :]
        at = 0
        for (_, value, asks), short in zip(one, bare[number * len(KINDS) :], strict=False):
            for ask, read in zip(asks, short, strict=False):
                found = tells(finder, ask, what) if (what := wanted(ask)) else None
                right = [holds(said or "", value) for said in (read, held[at], again[at])]
                is_found = found is not None and holds(found.text, value)
                counts.update(
                    {"asked": 1, "found": is_found, "read": right[0], "held": right[1], "again": right[2]}
                )
                counts.update({"held, read": all(right[:2]), "again, read": right[0] and right[2]})
                counts.update({"found, read": right[0] and is_found, "found, again": is_found and right[2]})
                if not is_found:
                    missed.append(f"{ask!r}: found {found.text if found else None!r}")
                at += 1
    print(
        f"{asked.conversations} conversations of about {asked.tokens:,} tokens, {asked.budget} slots,"
        f" {asked.policy}, {asked.model}, seed {asked.seed}, phrases {asked.book}:"
        f" {counts['asked']} questions" + (" in any words" if everyday else " with no word of the fact")
    )
    show("answered with nothing in between", counts["read"], counts["asked"])
    show("found", counts["found"], counts["asked"])
    show("right, held alone", counts["held"], counts["asked"])
    show("right, told again", counts["again"], counts["asked"])
    print("of what is answered with nothing in between:")
    show("found", counts["found, read"], counts["read"])
    show("right, held alone", counts["held, read"], counts["read"])
    show("right, told again", counts["again, read"], counts["read"])
    show("right, of what is found", counts["found, again"], counts["found"])
    for line in rng.sample(missed, min(asked.wrong, len(missed))):
        print("  " + line)


def show(what: str, right: int, of: int) -> None:
    low, high = wilson(right, of) if of else (0.0, 1.0)
    print(f"  {what}: {right} of {of}" + (f" ({right / of:.2f} [{low:.2f}, {high:.2f}])" if of else ""))


def facts(book: PhraseBook, rng: random.Random) -> Iterator[tuple[str, str, list[str]]]:
    """(what is told, the value, questions for it) of each kind."""
    for kind in KINDS:
        fact = book.draw_fact(rng, kind)
        for _ in range(TRIES):
            tell = phrase(book, rng, fact, "tell")
            asks = {
                ask for ask in (phrase(book, rng, fact, "ask") for _ in range(TRIES)) if not shares(tell, ask)
            }
            if len(asks) >= ASKED:
                yield tell, fact.value, rng.sample(sorted(asks), ASKED)
                break
        else:
            raise SystemExit(f"No way to tell and to ask for a {kind} has no word in common.")


def of_everyday(rng: random.Random) -> Iterator[tuple[str, str, list[str]]]:
    """As many facts of everyday life."""
    for _ in KINDS:
        fact = draw_everyday(rng, held_out=True)
        letter = rng.choice(list(fact.values))
        yield fact.tell(rng), fact.values[letter], fact.line["ask"][letter]


def phrase(book: PhraseBook, rng: random.Random, fact: Fact, what: str) -> str:
    """One of the book's, without noise: a sentence."""
    text = expand(rng, rng.choice(book.source["kinds"][fact.kind][what])).replace("{v}", fact.value)
    text = text[:1].upper() + text[1:]
    return text if text[-1] in ".?!" else text + ("?" if what == "ask" else ".")


def shares(tell: str, ask: str) -> bool:
    """Whether a word stands in both that says something, in whatever form."""
    one, other = (
        {word for word in WORD.findall(text.casefold()) if word not in NOTHING and len(word) > 2}
        for text in (tell, ask)
    )
    return any(a[:4] == b[:4] or a.startswith(b) or b.startswith(a) for a in one for b in other)


def conversation(tokenizer: Any, told: list[tuple[str, str, list[str]]], tokens: int, seed: str) -> Script:
    """Talk in which these are told, in its first nine tenths; each is asked for at the end.

    Then once more, with what is gone told again.
    """
    script, talk, rng = (
        Script(tokenizer, choose(tokenizer, "auto")),
        between(random.Random(seed)),
        random.Random(seed),
    )
    places = sorted((rng.uniform(0, LAST * tokens), tell) for tell, _, _ in told)
    for at, tell in [*places, (float(tokens), "")]:
        while script.tokens < at:
            for role, text in zip(("user", "assistant"), next(talk), strict=True):
                script.say(role, text)
        if tell:
            script.say("user", tell)
            script.say("assistant", rng.choice(NOTED))
    for recall in (False, True) if tokens else (False,):
        for _, _, asks in told:
            for ask in asks:
                script.ask(ask, recall)
    return script


if __name__ == "__main__":
    main()
