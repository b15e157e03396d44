"""Perplexity of one GGUF file here and in llama.cpp: the same tokens, the full cache, in windows of 512.

    tools/peers/perplexity.py FILE.gguf [...] --text FILE [--tokens 10000] --folder DIR

DIR has the environment of `make_environments.py`. Each window begins with the model's first
token, if it has one; all others are predicted. Prints one JSON object for each file. Times mean nothing.
"""

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path

WINDOW_TOKENS = 512


def of_llama(file: str, windows: list[list[int]]) -> list[float]:
    """The mean negative log-likelihood of each window; runs in llama.cpp's environment."""
    import numpy as np
    from llama_cpp import Llama

    model = Llama(file, n_ctx=WINDOW_TOKENS, n_batch=WINDOW_TOKENS, logits_all=True, verbose=False)
    means = []
    for ids in windows:
        model.reset()
        model.eval(ids)
        logits = model.scores[: len(ids) - 1].astype(np.float64)
        whole = np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1)) + logits.max(1)
        means.append(float((whole - logits[np.arange(len(ids) - 1), ids[1:]]).mean()))
    return means


def ours(file: str, text: str, tokens: int) -> tuple[list[list[int]], dict[str, float]]:
    """The windows, and the perplexity where they are read token by token, and as a prompt."""
    import torch

    from h2o_chat.base.config import Settings
    from h2o_chat.engine.runner import trained_positions
    from h2o_chat.lab.eval.perplexity import feed_of, nll
    from h2o_chat.native.native_model import open_model
    from h2o_chat.transformers_cache.cache import H2OCache

    loaded = open_model(Settings(model=file), lambda *_: None)
    first = loaded.tokenizer.bos_token_id
    begins = [] if first is None else [first]
    ids = loaded.tokenizer(text, add_special_tokens=False).input_ids[:tokens]
    size = WINDOW_TOKENS - len(begins)
    windows = [begins + ids[at : at + size] for at in range(0, len(ids) - size + 1, size)]
    found = dict[str, float]()
    for name, prompt in (("token_by_token", 0), ("as_prompt", WINDOW_TOKENS - 1)):
        cache = H2OCache(positions=trained_positions(loaded), policy="full")
        parts = [*nll(feed_of(loaded), torch.tensor(windows), cache, 1, prompt)]
        found[name] = math.exp(torch.cat(parts, 1).mean())
    return windows, found


def main() -> None:
    if sys.argv[1:2] == ["--llama"]:
        print(json.dumps(of_llama(sys.argv[2], json.load(sys.stdin))))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+")
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, required=True)
    asked = parser.parse_args()
    python = asked.folder / "envs" / "llama.cpp" / "bin" / "python"
    for file in asked.files:
        windows, found = ours(file, asked.text.read_text("utf-8"), asked.tokens)
        command = [python, __file__, "--llama", file]
        peer = subprocess.run(command, input=json.dumps(windows), capture_output=True, text=True, check=True)
        means = json.loads(peer.stdout.splitlines()[-1])
        theirs = math.exp(sum(means) / len(means))
        shares = {f"{name}_share": round(value / theirs, 5) for name, value in found.items()}
        print(
            json.dumps(
                {"file": Path(file).name, "windows": len(windows), **found, "llama.cpp": theirs} | shares
            )
        )


if __name__ == "__main__":
    main()
