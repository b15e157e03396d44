"""Perplexity with `H2OCache(budget, model=model)` in plain transformers, beside the lab's.

    tools/plain_perplexity.py MODEL TEXTS.json [--budget 64 --budget 128] [--length 512]

Documents are fed token by token without `position_ids`, as any script would; the lab feeds the cache's
own. Both as a ratio to transformers' own full cache, over the positions past the budget. The lab's command:
`h2o-chat eval perplexity -m MODEL --texts TEXTS.json -b BUDGET --policy h2o`.
"""

import argparse
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from h2o_chat import H2OCache
from h2o_chat.lab.perplexity import nll, through_transformers
from h2o_chat.lab.texts import documents
from h2o_chat.transformers_cache.probe import probe


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--budget", type=int, action="append")
    parser.add_argument("--length", type=int, default=512)
    asked = parser.parse_args()
    transformers.logging.set_verbosity_error()
    tokenizer = transformers.AutoTokenizer.from_pretrained(asked.model, local_files_only=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        asked.model, dtype=torch.float32, attn_implementation="h2o", local_files_only=True
    ).eval()
    ids = documents(json.loads(asked.texts.read_text("utf-8")), tokenizer, asked.length)
    model.set_attn_implementation("sdpa")
    full = fed(model, ids, transformers.DynamicCache(config=model.config))
    model.set_attn_implementation("h2o")
    print(f"{len(ids)} documents of {asked.length} tokens; ratios to the full cache", flush=True)
    print(f"{'slots':>6}{'plain':>9}{'lab':>9}{'apart':>9}")
    for budget in asked.budget or [64, 128]:
        plain = fed(model, ids, H2OCache(budget, model=model))
        cache = H2OCache(budget, positions=probe(model))
        lab = torch.cat(list(nll(partial(through_transformers, model), ids, cache)), 1)
        ratios = [math.exp(float((one - full)[:, budget:].mean())) for one in (plain, lab)]
        print(f"{budget:6}{ratios[0]:9.4f}{ratios[1]:9.4f}{ratios[0] - ratios[1]:+9.4f}", flush=True)


@torch.inference_mode()
def fed(model: Any, ids: Tensor, cache: Any) -> Tensor:
    """NLL [N, L - 1] of documents [N, L], token by token, without positions."""
    found = []
    for at in range(ids.shape[1] - 1):
        logits = model(input_ids=ids[:, at : at + 1], past_key_values=cache, use_cache=True).logits
        found.append(-logits.float().log_softmax(-1).gather(-1, ids[:, at + 1, None, None])[:, 0])
    return torch.cat(found, 1)


if __name__ == "__main__":
    main()
