"""Greedy tokens after a prompt that the native step read, beside those after transformers read it.

    tools/compare_prompts.py MODEL=TEXTS [MODEL=TEXTS ...] [--prompts 100] [--tokens 32] [--bits 8]

Each prompt is a part of a text, 40 to 300 tokens. The native step rounds activations to 8 bits; the
transformers step has the same packed weights and leaves activations in fp32. The tokens after it are
computed by the native step, so that only the prompt differs, or by the same step. Nothing is evicted: 512
slots.
Then the same prompts are read into 64 slots, and the positions kept are compared, in slots that are neither
protected nor recent. TEXTS is a JSON list of strings or of conversations; MODEL=TEXTS:user takes the user's
messages of conversations as prompts, through the chat template.
"""

import argparse
import json
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "native")]

import torch  # noqa: E402
import transformers  # noqa: E402
from torch import Tensor  # noqa: E402
from twin import twin  # type: ignore[import-not-found]  # noqa: E402

from h2o_chat.cache.step import Step  # noqa: E402
from h2o_chat.native.loading import positions_of  # noqa: E402
from h2o_chat.native.packed import Packed  # noqa: E402
from h2o_chat.native.packing import packed_for  # noqa: E402
from h2o_chat.native.step import NativeStep  # noqa: E402
from h2o_chat.transformers_cache.cache import H2OCache  # noqa: E402

Compute = Callable[[H2OCache, Sequence[int]], Tensor]
"""Logits [V] after tokens that the cache was prepared for."""

BUDGET, SMALL = 512, 64
SHORTEST, LONGEST = 40, 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", nargs="+", metavar="MODEL=TEXTS")
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--bits", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    titles = ("first token", "first 8", f"first {asked.tokens}", "kept alike")
    print(f"{'model':16}{'prompts':>8}{'then':>18}" + "".join(f"{title:>13}" for title in titles))
    for pair in asked.pairs:
        folder, _, texts = pair.partition("=")
        prompts = prompts_of(Path(folder), texts, asked.prompts, asked.seed)
        packed = packed_for(Path(folder), asked.bits, lambda *_: None)
        ours, theirs = native(packed), plain(Path(folder), packed)
        alike = [kept_alike(ours, theirs, packed, one) for one in prompts if len(one) > 2 * SMALL]
        kept = f"{sum(alike) / len(alike):.2%}" if alike else "none long"
        for then, go_on in (("the native step", ours), ("the same step", None)):
            pairs = [
                [greedy(read, go_on or read, packed, one, asked.tokens) for read in (ours, theirs)]
                for one in prompts
            ]
            equal = [sum(a[:n] == b[:n] for a, b in pairs) / len(pairs) for n in (1, 8, asked.tokens)]
            shares = "".join(f"{one:13.1%}" for one in equal)
            print(f"{Path(folder).name:16}{len(pairs):8}{then:>18}{shares}{kept:>13}", flush=True)


def prompts_of(folder: Path, texts: str, count: int, seed: int) -> list[list[int]]:
    """Tokens of as many prompts, of different length."""
    path, _, user = texts.partition(":")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    drawn = random.Random(seed)
    texts_of = json.loads(Path(path).read_text("utf-8"))
    found: list[list[int]] = []
    for text in texts_of * -(-count // len(texts_of)):  # another part of a text, each time
        length = drawn.randrange(SHORTEST, LONGEST)
        if isinstance(text, str):
            ids = tokenizer(text)["input_ids"]
            ids = ids[:1] + ids[1 + drawn.randrange(max(1, len(ids) - LONGEST)) :][: length - 1]
        elif user:
            ids = template(tokenizer, [one for one in text if one["role"] == "user"][:1])
        else:
            ids = template(tokenizer, text)[:length]
        if len(ids) >= (4 if user else SHORTEST):
            found.append(ids)
        if len(found) == count:
            return found
    raise SystemExit(f"{path} has {len(found)} texts that are long enough, of {count}.")


def template(tokenizer: Any, talk: list[dict[str, str]]) -> list[int]:
    told = tokenizer.apply_chat_template(talk, tokenize=True, return_dict=True, add_generation_prompt=True)
    return list(told["input_ids"])


def native(packed: Packed) -> Compute:
    step = NativeStep(packed, 2)
    return lambda cache, ids: step.feed(cache, torch.tensor([list(ids)]), all_columns=False)[0, -1]


def plain(folder: Path, packed: Packed) -> Compute:
    model = twin(folder, packed, "h2o", torch.float32, activations=False)

    def compute(cache: H2OCache, ids: Sequence[int]) -> Tensor:
        told = {"past_key_values": cache, "use_cache": True, "position_ids": cache.position_ids()}
        return torch.as_tensor(model(input_ids=torch.tensor([list(ids)]), **told).logits[0, -1])

    return compute


def empty(packed: Packed, budget: int) -> H2OCache:
    return H2OCache(budget, positions=positions_of(packed.frame, chats=True), observe=True)


@torch.inference_mode()
def greedy(read: Compute, go_on: Compute, packed: Packed, prompt: Sequence[int], tokens: int) -> list[int]:
    cache, ids, found = empty(packed, BUDGET), list(prompt), []
    for number in range(tokens):
        cache.prepare(Step(len(ids), prompt=number == 0))
        ids = [int((go_on if number else read)(cache, ids).argmax())]
        found += ids
    return found


@torch.inference_mode()
def kept_alike(ours: Compute, theirs: Compute, packed: Packed, prompt: Sequence[int]) -> float:
    """Share of what may go or stay that both keep."""
    kept = []
    for compute in (ours, theirs):
        cache = empty(packed, SMALL)
        cache.prepare(Step(len(prompt), prompt=True))
        compute(cache, prompt)
        recent = len(prompt) - cache.plan.shares.recent
        kept.append([
            {int(at) for at, safe in zip(head, guarded, strict=True) if 0 <= at < recent and not safe}
            for arena in cache.arenas
            for head, guarded in zip(
                arena.slots.positions.flatten(0, 2).tolist(),
                arena.slots.protected.flatten(0, 2).tolist(),
                strict=True,
            )
        ])  # fmt: skip
    both = sum(len(a & b) for a, b in zip(*kept, strict=True))
    return both / max(1, sum(map(len, kept[0])))


if __name__ == "__main__":
    main()
