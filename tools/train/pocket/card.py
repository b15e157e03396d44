"""The model card: written from the run's log and evaluation, so that no figure is typed."""

import json
from pathlib import Path
from typing import Any

from .evaluate import to_markdown

_HEAD = """\
---
license: cc-by-sa-4.0
language: en
library_name: transformers
pipeline_tag: text-generation
---

# pocket

The model that `h2o-chat` opens when no other is named: a `LlamaForCausalLM` trained from nothing by
`tools/train/train_pocket.py`, small enough to ship, with a memory worth measuring. It chats a little, holds
simple task dialogues together, and recalls what it was told earlier in the conversation.

| | |
|---|---|
"""

_DATA = """
## Data

| text | share of real text | licence |
|---|---|---|
| Schema-Guided Dialogue, task dialogues (Rastogi et al., 2020, Google), train and dev | 42% | CC BY-SA 4.0 |
| Self-dialogue corpus, chit-chat (Fainberg et al., 2018, University of Edinburgh) | 46% | BSD-3-Clause |
| FairytaleQA, stories and questions (Xu et al., 2022) | 12% | Apache-2.0 |

Held out, never trained on: Schema-Guided Dialogue test, one in twenty self-dialogues and about one in
twenty stories. About seven in ten training conversations are memory dialogues that the recipe
generates: facts are told, corrected and asked for up to 1,900 tokens later, with the real dialogues above in
between; some 8% of the questions have a fact told again in front of them, as the program does it. More than
half of the facts are of fourteen kinds. The others are of everyday life: lines written by hand
(`everyday.jsonl`; the run of 2026-11-26 had 638 of its 1,383), and two thousand sentences
(`told_facts.txt`) that are answered in quotes: `You said: "..."`. They are drawn afresh for the
whole run. One value in eight, chosen by a hash, all phrasings in `held_out_phrases.toml` and all facts in
`held_out_everyday.jsonl` are for the test alone.

The test phrasings were written by somebody who had seen no training phrasing, in plain words as people type
them. A training sentence that comes out as one of them, whatever value and thing it names, is drawn again.
So no test sentence was trained on; most are close to one that was (nine in ten share four words in a row).
One decision was made with wrong answers of the test in view, after 200 million tokens: to ask less often for
what an everyday fact does not tell, since it was denied where it had been told.
"""

_LIMITS = """
## What it cannot do

It knows next to nothing about the world, cannot reason or count, understands English only, and repeats
the tone of its data. Chit-chat is shallow, and it sometimes invents a value instead of saying that it
was not told, or says so of what it was: what it has no kind for ("My code is ...") and what stands far back.
It sometimes answers for the wrong one of several facts. What it quotes may be garbled where the words have
been forgotten: `You said: "Can you recommend a good good good ..."`. Do not rely on it.
"""


def write_card(folder: Path, run: Path) -> None:
    """Writes README.md beside the exported weights.

    Raises:
        FileNotFoundError: if the run has not been evaluated.
    """
    report = json.loads((run / "evaluation.json").read_text("utf-8"))
    log = [json.loads(line) for line in (run / "log.jsonl").read_text("utf-8").splitlines()]
    config = json.loads((folder / "config.json").read_text("utf-8"))
    text = _HEAD + _facts(folder, config, log) + _DATA + "\n## Results\n\nFull cache, greedy, values and "
    text += "phrasings never trained on.\n\n" + to_markdown(report) + _curve(log) + _LIMITS
    (folder / "README.md").write_text(text, "utf-8")


def _facts(folder: Path, config: dict[str, Any], log: list[dict[str, Any]]) -> str:
    size = (folder / "model.safetensors").stat().st_size
    steps = [row for row in log if "loss" in row]
    final = sum(row["loss"] for row in steps[-10:]) / len(steps[-10:])
    rows = {
        "parameters": f"{size / 2e6:.2f} million, float16, {size / 2**20:.1f} MiB",
        "shape": f"width {config['hidden_size']}, {config['num_hidden_layers']} layers, "
        f"{config['num_attention_heads']} heads, {config['num_key_value_heads']} KV heads of "
        f"{config['head_dim']}, MLP {config['intermediate_size']}",
        "vocabulary": f"{config['vocab_size']}, byte-level BPE; a digit or a capital of a code is one token",
        "window": f"{config['max_position_embeddings']} tokens",
        "training": ", then ".join(
            f"{count / 1e6:.1f} million tokens on {device}" for device, count in _trained(log)
        )
        + "; windows 512, then up to 2,048; Muon and AdamW; warmup, stable, decay",
        "weighted loss": f"{steps[0]['loss']:.2f} at first, {final:.2f} at the end (nats a token)",
    }
    return "".join(f"| {name} | {value} |\n" for name, value in rows.items())


def _trained(log: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """(device, tokens) of each beginning, in order; what was resumed counts on."""
    found: list[tuple[str, int]] = []
    for row in log:
        if row.get("event") == "start" and not row["tokens"]:
            found.append((row["device"], 0))
        found[-1] = (found[-1][0], row["tokens"])
    return found


def _curve(log: list[dict[str, Any]]) -> str:
    """Recall against training tokens, from the small samples taken during the run."""
    rows = [row for row in log if row.get("event") == "recall"]
    if not rows:
        return ""
    names = list(rows[0]["distance"])
    lines = ["", "Recall on a small sample during training:", ""]
    lines.append("| million tokens | " + " | ".join(names) + " | not told |")
    lines.append("|---" * (len(names) + 2) + "|")
    began = last = 0
    for row in rows:
        began, last = (began, row["tokens"]) if row["tokens"] >= last else (began + last, row["tokens"])
        shares = [row["distance"].get(name, 0.0) for name in names] + [row["kind"]["not told"]]
        cells = " | ".join(f"{share:.2f}" for share in shares)
        lines.append(f"| {(began + last) / 1e6:.1f} | {cells} |")
    return "\n".join(lines) + "\n"
