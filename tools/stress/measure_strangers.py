"""Questions about strangers' conversations (LoCoMo): is the message they rest on recalled?

    tools/stress/measure_strangers.py FOLDER [--budget 512] [--tokenizer MODEL]

FOLDER: its locomo10_v2, ten files. The questions are those that name one speaker, here "I", rest on one
message of theirs and share a rare word with it. Prints for each file how many of them have it recalled. As in
`measure_recall.py`, no model computes, nothing counts as held, and a token has four characters.
"""

import argparse
import json
import re
from collections.abc import Callable
from pathlib import Path

from measure_recall import rarity_by, recall_of

from h2o_chat.chat.recall.index import Index
from h2o_chat.chat.recall.recall import Recall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--budget", type=int, default=512)
    parser.add_argument("--tokenizer", metavar="MODEL", help="tells how rare words are; else pocket's")
    asked = parser.parse_args()
    rarity = rarity_by(asked.tokenizer)
    each = [strangers(file, rarity, asked.budget) for file in sorted(asked.folder.glob("*.json"))]
    print(*(f"{found} of {count}" for found, count in each), sep=", ")
    print(f"together {sum(one[0] for one in each)} of {sum(one[1] for one in each)}")


def strangers(file: Path, rarity: Callable[[str], float], budget: int) -> tuple[int, int]:
    """Questions for which the message they rest on is recalled, and all questions."""
    talk, found, count = json.loads(file.read_text("utf-8")), 0, 0
    turns = [one for n in range(1, 99) for one in talk.get(f"session_{n}", [])]
    at = {one["dia_id"]: number for number, one in enumerate(turns)}
    for me in (talk["speaker_a"], talk["speaker_b"]):
        other = talk["speaker_b"] if me == talk["speaker_a"] else talk["speaker_a"]
        index, recall = Index(rarity), Recall(lambda text: len(text) // 4, rarity=rarity)
        said = [("user" if one["speaker"] == me else "assistant", one["text"]) for one in turns]
        for number, (role, text) in enumerate(said):
            index.add(number, text, user=role == "user")
        recalled = recall_of(recall, said, budget)
        for one in talk["qa"]:
            place = at.get(one["evidence"][0]) if len(one["evidence"]) == 1 else None
            if place is None or said[place][0] != "user" or me not in one["question"] or "answer" not in one:
                continue
            question = re.sub(rf"\b{me}\b", "I", re.sub(rf"\b{me}'s\b", "my", one["question"]))
            shares = any(hit.piece.message == place for hit in index.find(question))
            if shares and other not in question:
                count += 1
                found += any(words in " ".join(said[place][1].split()) for words in recalled(question))
    return found, count


if __name__ == "__main__":
    main()
