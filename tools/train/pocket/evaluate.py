"""Held-out bits per byte, recall of planted facts, dialogues continued: JSON and Markdown."""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, PreTrainedModel

from h2o_chat.lab.eval.synthetic_talk import Question, is_right
from h2o_chat.lab.shared.intervals import wilson

from .data import Corpus, Encoder
from .memory_dialogues import EVERYDAY_KINDS, Exchange, Turn, everyday_questions, recall_questions
from .tokenizer import ASSISTANT, BOS, END, PAD, WINDOW

RANGES = [(20, 300), (300, 1000), (1000, 1500), (1500, 1900)]
_ANSWER_TOKENS = 32


def prompt_ids(encoder: Encoder, messages: Iterable[dict[str, str]]) -> list[int]:
    """The chat template's tokens, with the assistant's turn opened."""
    turns = [Turn(message["role"], message["content"]) for message in messages]
    return [BOS, *(token for turn in turns for token in encoder.encode(turn)[0]), ASSISTANT]


@torch.inference_mode()
def greedy(
    model: PreTrainedModel, tokenizer: Tokenizer, prompts: list[list[int]], rows: int = 8
) -> list[str]:
    """Greedy answers with the full cache, in batches of prompts of similar length."""
    answers = [""] * len(prompts)
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    for first in range(0, len(order), rows):
        batch = order[first : first + rows]
        longest = max(len(prompts[i]) for i in batch)
        ids = torch.tensor([[PAD] * (longest - len(prompts[i])) + prompts[i] for i in batch])
        ids = ids.to(model.device)
        out = model.generate(
            ids, attention_mask=(ids != PAD).long(), max_new_tokens=_ANSWER_TOKENS, do_sample=False
        )
        for i, row in zip(batch, out[:, longest:].tolist(), strict=True):
            stop = row.index(END) if END in row else len(row)
            answers[i] = tokenizer.decode(row[:stop], skip_special_tokens=False)
    return answers


def dialogue_questions(
    corpus: Corpus, encoder: Encoder, ranges: list[tuple[int, int]], per_cell: int
) -> list[Question]:
    """Recall questions with held-out task dialogues and chit-chat in between."""
    sources = [corpus.held_out["sgd_test"][:1000], corpus.held_out["self_dialogue"]]
    exchanges: list[Exchange] = []
    for pair in zip(*sources, strict=False):
        exchanges += [exchange for dialogue in pair for exchange in dialogue]
    asked = recall_questions(exchanges, encoder.length, ranges, per_cell)
    return asked + everyday_questions(exchanges, encoder.length, ranges, 4 * per_cell)


def recall(
    model: PreTrainedModel, tokenizer: Tokenizer, questions: list[Question], rows: int = 8
) -> list[dict[str, Any]]:
    """Every question with its answer and whether that was right; so many `rows` are answered at once."""
    encoder = Encoder(tokenizer)
    prompts = [prompt_ids(encoder, question.messages) for question in questions]
    return [
        {
            "kind": question.kind,
            "distance": question.distance,
            "said": question.messages[-1]["content"],
            "expected": question.expected,
            "answer": answer,
            "right": is_right(question, answer),
        }
        for question, answer in zip(questions, greedy(model, tokenizer, prompts, rows), strict=True)
    ]


def share(results: list[dict[str, Any]]) -> dict[str, Any]:
    right, total = sum(row["right"] for row in results), len(results)
    low, high = wilson(right, total)
    return {
        "right": right,
        "of": total,
        "share": round(right / total, 3),
        "interval": [round(low, 3), round(high, 3)],
    }


def summarize(results: list[dict[str, Any]], ranges: list[tuple[int, int]]) -> dict[str, dict[str, Any]]:
    """Shares by distance (facts only), and by kind."""
    facts = [row for row in results if row["kind"] not in ("not told", *EVERYDAY_KINDS)]
    tables: dict[str, dict[str, Any]] = {"distance": {}, "kind": {}}
    for low, high in ranges:
        name = f"{low} to {high}"
        inside = [row for row in facts if low <= row["distance"] < high]
        if inside:
            tables["distance"][name] = share(inside)
    for kind in dict.fromkeys(row["kind"] for row in results):
        tables["kind"][kind] = share([row for row in results if row["kind"] == kind])
    return tables


@torch.inference_mode()
def bits_per_byte(model: PreTrainedModel, encoder: Encoder, dialogues: list[list[Exchange]]) -> float:
    """Bits for contents and end-of-turn tokens over the bytes of the contents.

    Each dialogue starts afresh and is cut at the window. Role tokens are given, not predicted.
    """
    bits, size = 0.0, 0
    for dialogue in dialogues:
        ids, counted = [BOS], [False]
        for turn in (turn for exchange in dialogue for turn in exchange):
            more = encoder.encode(turn)[0]
            if len(ids) + len(more) > WINDOW:
                break
            ids += more
            counted += [False] + [True] * (len(more) - 1)
            size += len(turn.content.encode())
        row = torch.tensor([ids], device=model.device)
        loss = torch.nn.functional.cross_entropy(
            model(row).logits[0, :-1].float(), row[0, 1:], reduction="none"
        )
        bits += loss[torch.tensor(counted[1:])].sum().item() / math.log(2)
    return bits / size


def held_out_bits(model: PreTrainedModel, corpus: Corpus, encoder: Encoder, count: int) -> dict[str, float]:
    """Bits per byte of `count` held-out dialogues of each source."""
    return {
        name: round(bits_per_byte(model, encoder, dialogues[:count]), 3)
        for name, dialogues in corpus.held_out.items()
    }


def continuations(
    model: PreTrainedModel, tokenizer: Tokenizer, corpus: Corpus, count: int
) -> list[dict[str, Any]]:
    """`count` held-out dialogues, spread evenly, each cut in its middle and answered greedily."""
    encoder = Encoder(tokenizer)
    sources = list(corpus.held_out.values())
    each = -(-count // len(sources))
    picked = [source[i * (len(source) // each)] for i in range(each) for source in sources]
    chosen = picked[:count]
    contexts = []
    for dialogue in chosen:
        middle = len(dialogue) // 2
        turns = [turn for exchange in dialogue[:middle] for turn in exchange]
        turns.append(dialogue[middle][0])
        contexts.append([{"role": turn.role, "content": turn.content} for turn in turns])
    replies = greedy(model, tokenizer, [prompt_ids(encoder, c) for c in contexts])
    return [{"messages": context, "reply": reply} for context, reply in zip(contexts, replies, strict=True)]


def evaluate(folder: Path, corpus: Corpus, per_cell: int = 9) -> dict[str, Any]:
    """All figures of the model card, from an exported folder."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    encoder = Encoder(tokenizer)
    report: dict[str, Any] = {"bits_per_byte": held_out_bits(model, corpus, encoder, 250)}
    questions = dialogue_questions(corpus, encoder, RANGES, per_cell)
    results = recall(model, tokenizer, questions, rows=72 if device == "cuda" else 8)
    report["recall"] = summarize(results, RANGES)
    report["answers"] = results
    report["dialogues"] = continuations(model, tokenizer, corpus, 20)
    return report


def write_report(report: dict[str, Any], folder: Path) -> None:
    """Writes evaluation.json and evaluation.md."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(report, indent=1, ensure_ascii=False)
    (folder / "evaluation.json").write_text(text + "\n", "utf-8")
    (folder / "evaluation.md").write_text(to_markdown(report), "utf-8")


def to_markdown(report: dict[str, Any]) -> str:
    lines = ["| held-out text | bits per byte |", "|---|---|"]
    lines += [f"| {name} | {bits:.3f} |" for name, bits in report["bits_per_byte"].items()]
    for name in ("distance", "kind"):
        lines += ["", f"| recall by {name} | right | of | share | 95% interval |"]
        lines.append("|---|---|---|---|---|")
        for label, row in report["recall"][name].items():
            low, high = row["interval"]
            lines.append(
                f"| {label} | {row['right']} | {row['of']} | {row['share']:.2f} | {low:.2f} to {high:.2f} |"
            )
    lines += ["", "Twenty held-out dialogues, the last message answered greedily, unedited:", ""]
    for number, dialogue in enumerate(report["dialogues"], 1):
        lines += [f"{number}.", "", "   ```"]
        shown = [*dialogue["messages"][-3:], {"role": "**pocket", "content": dialogue["reply"]}]
        lines += [f"   {m['role'].lstrip('*')}: {m['content']}" for m in shown]
        lines += ["   ```", ""]
    return "\n".join(lines)
