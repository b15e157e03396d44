"""Facts remembered by two versions of the program, fact by fact: was one better by more than chance?

    tools/compare_recall.py -m assets/pocket --generate 20000 --conversations 16 \\
        30:before.30.jsonl:now.30.jsonl 31:before.31.jsonl:now.31.jsonl

Each version has run `h2o-chat eval recall -m MODEL --generate TOKENS --conversations N --seed SEED -b SLOTS
--policy h2o --results FILE` with the same numbers; given are the seed and both files. Prints, of every kind
of fact, how many each knew, and the mean difference with its 95% bootstrap interval over conversations.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from transformers import AutoTokenizer

from h2o_chat.chat.templates import choose
from h2o_chat.lab.conversations import draw
from h2o_chat.lab.recall import is_right

RESAMPLED = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", type=Path, required=True)
    parser.add_argument("--generate", type=int, required=True, metavar="TOKENS")
    parser.add_argument("--conversations", type=int, required=True)
    parser.add_argument("--policy", default="h2o")
    parser.add_argument("pairs", nargs="+", metavar="SEED:BEFORE:NOW")
    asked = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(asked.model)
    template = choose(tokenizer, "auto")
    # Of each kind: of each conversation, what either version knew of its facts.
    found: dict[str, list[list[tuple[bool, bool]]]] = {}
    for pair in asked.pairs:
        seed, before, now = pair.split(":")
        versions = [_said(Path(file), asked.policy) for file in (before, now)]
        for number in range(asked.conversations):
            _, questions = draw(tokenizer, template, asked.generate, f"{seed} {number}")
            kinds: dict[str, list[tuple[bool, bool]]] = {}
            for at, question in enumerate(questions):
                was, is_ = (is_right(question, said[number][at] or "") for said in versions)
                kinds.setdefault(question.kind, []).append((was, is_))
            for kind, facts in kinds.items():
                found.setdefault(kind, []).append(facts)
    for kind, conversations in found.items():
        print(_compared(kind, conversations))


def _said(file: Path, policy: str) -> list[list[str | None]]:
    """The answers of one version, by conversation."""
    for line in file.read_text("utf-8").splitlines():
        row = json.loads(line)
        if row["key"]["contestant"] == policy:
            answers: list[list[str | None]] = row["value"]
            return answers
    raise SystemExit(f"{file}: no answers of the policy {policy}; it was run with other flags, or stopped.")


def _compared(kind: str, conversations: list[list[tuple[bool, bool]]]) -> str:
    sums = np.array([[len(facts), *np.sum(facts, 0)] for facts in conversations])  # [C, 3]
    facts, before, now = sums.sum(0)
    random = np.random.default_rng(0)
    drawn = sums[random.integers(len(sums), size=(RESAMPLED, len(sums)))].sum(1)  # [10,000, 3]
    low, high = np.quantile((drawn[:, 2] - drawn[:, 1]) / drawn[:, 0], (0.025, 0.975))
    return (
        f"{kind}: {facts} facts, before {before / facts:.3f}, now {now / facts:.3f},"
        f" difference {(now - before) / facts:+.3f} [{low:+.3f}, {high:+.3f}]"
    )


if __name__ == "__main__":
    main()
