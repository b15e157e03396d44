"""Which families of transformers run with a bounded cache: `families.json`, made by trying each. No torch.

`tools/make/make_families.py` compares a tiny random model of every family with stock transformers, and writes
the table. A family outside of it does not generate text.
"""

import functools
import json
from pathlib import Path

TABLE = Path(__file__).with_name("families.json")

OPENS = "opens"

REFUSED = {
    "encoder": (
        "it does not continue a text one token after another",
        "Take a model that continues text: Llama, Qwen, Mistral, Gemma and others",
    ),
    "interface": (
        "its attention does not go through transformers' AttentionInterface, so nothing would be evicted",
        "Take a younger family: GPT-NeoX, Llama, Qwen, OLMo and others do",
    ),
    "fixed": (
        "it has no attention, so its memory is of a fixed size as it is",
        "Take one with attention too: Falcon-H1, Bamba, Nemotron-H; or run it with transformers alone",
    ),
    "grows": (
        "some of its layers keep an index or a summary of every token, which cannot be bounded",
        "Take one whose layers attend in the usual way: DeepSeek-V3, GLM-4-MoE, Qwen3-MoE",
    ),
    "forgets": (
        "transformers loses the state of its other layers when more than one token follows an answer",
        "Take another hybrid: Falcon-H1, Bamba, Granite 4, LFM2, Qwen3-Next",
    ),
    "untried": (
        "no tiny model of its family could be compared with stock transformers",
        "Take one that was tried: Llama, Qwen3-VL, Gemma 3, Mistral 3 and others",
    ),
    "own": (
        "its attention needs more than transformers' AttentionInterface hands over",
        "Take a family that attends in the usual way: Llama, Qwen, Mistral, Gemma",
    ),
}
"""By reason: why it is refused, and what to take instead."""


@functools.cache
def families() -> dict[str, str]:
    """By model type: `opens`, or the reason of a refusal."""
    table: dict[str, str] = json.loads(TABLE.read_text(encoding="utf-8"))
    return table


def refusal(family: str) -> tuple[str, str] | None:
    """Why a family is refused, and what to take instead; None if it opens."""
    verdict = families().get(family, "encoder")  # transformers' other families do not generate text
    return None if verdict == OPENS else REFUSED[verdict]
