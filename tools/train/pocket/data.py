"""Raw text to training samples: the real dialogues, their held-out part, packed windows."""

import gzip
import json
import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from .memory_dialogues import Exchange, MemoryWriter, Turn
from .tokenizer import BOS, END, ROLES

# Loss weights. Values are what recall lives on; the words of a told fact are random, so
# learning to predict them is wasted.
ANSWER_WEIGHT, REPLY_WEIGHT, TOLD_WEIGHT, TOLD_VALUE_WEIGHT = 4.0, 1.5, 0.3, 0.05


@dataclass
class Corpus:
    """Dialogues by source; a dialogue is a list of exchanges."""

    train: dict[str, list[list[Exchange]]]
    held_out: dict[str, list[list[Exchange]]]

    def texts(self) -> Iterator[str]:
        """Every training message, for the tokenizer."""
        for dialogues in self.train.values():
            for dialogue in dialogues:
                for exchange in dialogue:
                    yield from (turn.content for turn in exchange)


def read_corpus(folder: Path) -> Corpus:
    """Reads the shared training folder; sgd_test and one in twenty others are held out."""
    sgd = [_exchanges(row["messages"]) for row in _rows(folder, "sgd_train")]
    sgd += [_exchanges(row["messages"]) for row in _rows(folder, "sgd_dev")]
    test = [_exchanges(row["messages"]) for row in _rows(folder, "sgd_test")]
    talks = [_exchanges(row["messages"]) for row in _rows(folder, "self_dialogue")]
    questions: dict[str, list[dict[str, Any]]] = {}
    for row in _rows(folder, "fairytaleqa_questions"):
        questions.setdefault(row["story"].replace("-questions", "-story"), []).append(row)
    stories: list[list[Exchange]] = []
    held_stories: list[list[Exchange]] = []
    for row in _rows(folder, "fairytaleqa_stories"):
        told = _story_dialogues(row["text"], questions.get(row["id"], []))
        (held_stories if zlib.crc32(row["id"].encode()) % 20 == 0 else stories).extend(told)
    return Corpus(
        train={
            "sgd": sgd,
            "self_dialogue": [talk for i, talk in enumerate(talks) if i % 20],
            "stories": stories,
        },
        held_out={
            "sgd_test": test,
            "self_dialogue": talks[::20],
            "stories": held_stories,
        },
    )


def _rows(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def _exchanges(messages: list[dict[str, str]]) -> list[Exchange]:
    turns = [Turn(m["role"], m["content"].strip()) for m in messages]
    pairs = zip(turns[::2], turns[1::2], strict=False)
    return [(said, reply) for said, reply in pairs if said.role == "user" != reply.role]


def _story_dialogues(text: str, questions: list[dict[str, Any]]) -> list[list[Exchange]]:
    """A story told passage by passage, with the questions whose answer the passage holds."""
    passages = [""]
    for paragraph in text.split("\n"):
        if len(passages[-1]) + len(paragraph) > 900 and passages[-1]:
            passages.append("")
        passages[-1] = f"{passages[-1]} {paragraph.strip()}".strip()
    dialogues = []
    waiting = list(questions)
    for first in range(0, len(passages), 3):
        dialogue: list[Exchange] = []
        for passage in passages[first : first + 3]:
            request = "Go on." if dialogue else "Tell me a story."
            dialogue.append((Turn("user", request), Turn("assistant", passage)))
            fitting = [q for q in waiting if q["answer"].lower().strip(". ") in passage.lower()]
            for row in fitting[:4]:
                waiting.remove(row)
                dialogue.append((Turn("user", row["question"]), Turn("assistant", row["answer"])))
        dialogues.append(dialogue)
    return dialogues


class Encoder:
    """Turns to token ids and loss weights, exactly as the chat template writes them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def length(self, turn: Turn) -> int:
        return len(self.tokenizer.encode(turn.content).ids) + 2

    def encode(self, turn: Turn) -> tuple[list[int], list[float]]:
        encoding = self.tokenizer.encode(turn.content)
        ids = [ROLES[turn.role], *encoding.ids, END]
        if turn.value is None:
            return ids, [0.0 if turn.role == "system" else 1.0] * len(ids)
        mine = turn.role == "assistant"
        plain, special = (REPLY_WEIGHT, ANSWER_WEIGHT) if mine else (TOLD_WEIGHT, TOLD_VALUE_WEIGHT)
        start = turn.content.find(turn.value) if turn.value else -1
        stop = start + len(turn.value) if start >= 0 else -1
        weights = [special if a < stop and b > start else plain for a, b in encoding.offsets]
        return ids, [0.1, *weights, plain]


class SampleStream:
    """Windows of `tokens + 1` ids with weights, drawn for ever; its state can be saved."""

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer, seed: int) -> None:
        self.rng = random.Random(seed)
        self.encoder = Encoder(tokenizer)
        self.sources = corpus.train
        # Each source is walked in a shuffled order, so no dialogue repeats before all came.
        self.walks = {name: _Walk(len(rows), seed) for name, rows in self.sources.items()}
        self.shares = {"sgd": 0.42, "self_dialogue": 0.46, "stories": 0.12}
        self.rest: list[Exchange] = []
        small = [d[0][0].content for d in corpus.train["self_dialogue"]]
        frames = [text for text in small if 20 < len(text) < 90][:4000]
        self.writer = MemoryWriter(self._exchanges(), frames, self.encoder.length)

    def state(self) -> dict[str, Any]:
        return {
            "rng": self.rng.getstate(),
            "walks": {name: vars(walk).copy() for name, walk in self.walks.items()},
            "rest": self.rest,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self.rng.setstate(state["rng"])
        self.rest = state["rest"]
        for name, walk in self.walks.items():
            vars(walk).update(state["walks"][name])

    def batch(self, rows: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids and weights, [rows, tokens + 1]."""
        samples = [self._sample(tokens + 1) for _ in range(rows)]
        ids = torch.tensor([sample[0] for sample in samples])
        return ids, torch.tensor([sample[1] for sample in samples])

    def _sample(self, tokens: int) -> tuple[list[int], list[float]]:
        ids: list[int] = []
        weights: list[float] = []
        while len(ids) < tokens:
            ids.append(BOS)
            weights.append(0.0)
            for turn in self._conversation(tokens - len(ids)):
                more, their_weights = self.encoder.encode(turn)
                ids += more
                weights += their_weights
        return ids[:tokens], weights[:tokens]

    def _conversation(self, room: int) -> list[Turn]:
        draw = self.rng.random()
        if draw < 0.3:
            return [turn for pair in self._dialogue() for turn in pair]
        if draw < 0.55 and room > 200:
            return self.writer.conversation(self.rng, self.rng.randint(60, room // 2))
        return self.writer.conversation(self.rng, room)

    def _dialogue(self) -> list[Exchange]:
        name = self.rng.choices(list(self.shares), list(self.shares.values()))[0]
        return self.sources[name][self.walks[name].step()]

    def _exchanges(self) -> Iterator[Exchange]:
        while True:
            while not self.rest:
                self.rest = list(self._dialogue())
            yield self.rest.pop(0)


class _Walk:
    """Indices in shuffled order, shuffled anew each round, restored from three numbers."""

    def __init__(self, size: int, seed: int) -> None:
        self.size, self.seed, self.count = size, seed, 0
        self.order: list[int] = []

    def step(self) -> int:
        place = self.count % self.size
        if place == 0:
            self.order = list(range(self.size))
            random.Random(self.seed + self.count).shuffle(self.order)
        self.count += 1
        return self.order[place]
