"""Facts told in other conversations: are they found, is their source named, what does small talk bring?

    tools/stress/measure_elsewhere.py --talk FILE [--facts 0:100] [--seed 0] [--removed 10]

Fifty stored conversations of forty messages each from TALK, a JSON list of conversations; two facts of
`recall_facts.txt` in each. Another conversation asks for all of them with `--recall all`, then says a hundred
messages of small talk that none of them has, then `--removed` conversations are removed and all is asked
again. No model computes; a token has four characters.
"""

import random
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

from measure_recall import KINDS, Nothing, material, parser_of

from h2o_chat.base.config import Settings
from h2o_chat.chat.recall.elsewhere import TITLE_CHARACTERS, Elsewhere
from h2o_chat.chat.recall.recall import Recall
from h2o_chat.store import Store

CONVERSATIONS, MESSAGES = 50, 40


def main() -> None:
    parser = parser_of(__doc__, facts="0:100")
    parser.add_argument("--removed", type=int, default=10)
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    facts, between, small = material(asked)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        ids = fill(store, facts, between, rng)
        recall = Recall(lambda text: len(text) // 4)
        here = SimpleNamespace(store=store, conversation=None)
        recall.elsewhere = Elsewhere(here, len)  # type: ignore[arg-type]

        def found(text: str) -> list[str]:
            told, *_ = recall.for_message(text, [], Nothing(), Settings(recall="all"), 512)
            return [one.words for one in told]

        began = time.perf_counter()
        found("Is there anybody here at all?")
        print(f"the first question takes {1000 * (time.perf_counter() - began):.0f} ms more")
        for kind in KINDS:
            right = named = 0
            for fact, id_ in zip(facts, ids, strict=True):
                told = [one for one in found(fact[1 + KINDS.index(kind)]) if fact[0] in one]
                title = store.summary(id_).title[: TITLE_CHARACTERS // 2]
                right += bool(told)
                named += any(one.startswith(f"(from “{title}") for one in told)
            print(f"{kind}: found {right} of {len(facts)}, {named} with their conversation")
        some = rng.sample(small, 100)
        print(f"small talk: brings something for {sum(bool(found(text)) for text in some)} of {len(some)}")
        for id_ in (gone := list(dict.fromkeys(ids))[: asked.removed]):
            store.remove(id_)
        lost = [fact for fact, id_ in zip(facts, ids, strict=True) if id_ in gone]
        heard = sum(fact[0] in " ".join(found(fact[1])) for fact in lost)
        print(f"of {len(gone)} removed conversations: {heard} of {len(lost)} facts are told")
        store.close()


def fill(
    store: Store, facts: list[list[str]], between: list[dict[str, str]], rng: random.Random
) -> list[str]:
    """Stores the conversations; the id of the one that has each fact."""
    each = -(-len(facts) // CONVERSATIONS)
    told = [facts[at : at + each] for at in range(0, len(facts), each)]
    ids = list[str]()
    for at, some in enumerate(told):
        messages = (between * 3)[at * MESSAGES : (at + 1) * MESSAGES]
        texts = [one["content"] for one in messages]
        for place, fact in zip(rng.sample(range(1, MESSAGES // 2), len(some)), some, strict=True):
            texts[2 * place] = fact[0]
        with store.begin("none", {}) as writer:
            for number, text in enumerate(texts):
                writer.said(("user", "assistant")[number % 2], text)
            ids += [writer.conversation] * len(some)
    return ids


if __name__ == "__main__":
    main()
