"""Loads and runs a model folder at every quantisation, each in a process of its own: memory and time.

    python tools/measure_models.py FOLDER [FOLDER ...] [--tokens 32] [--threads 1] [--prompt TEXT]

int8 and int4 are packed weights (the native step), where it can compute the model; a first run packs them.

needed: what the program estimates before it reads a weight. own: what the process has grown by in memory of
its own, from before loading to the last token; mapped: pages of the weight files that it maps beside that,
which the system may take back; peak: its largest resident size, 0.3 GB of libraries included. first: after
torch and transformers are imported, the whole time until the first token; then ms per token, the median.
Linux only.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

WAYS = ("none", "nf4", "int8", "int4")
PROMPT = "The quick brown fox jumps over the lazy dog. " * 6
COLUMNS = (
    "model",
    "quantize",
    "dtype",
    "needed",
    "own",
    "mapped",
    "peak",
    "load s",
    "first s",
    "ms per token",
)


def main() -> None:
    """One row per folder and quantisation on stdout."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="+", type=Path)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prompt", default=PROMPT)
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.folder[0], asked.one, asked.tokens, asked.threads, asked.prompt)))
        return
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS), flush=True)
    for folder in asked.folder:
        for way in WAYS:
            command = [sys.executable, __file__, str(folder), "--one", way]
            flags = ["--tokens", str(asked.tokens), "--threads", str(asked.threads), "--prompt", asked.prompt]
            said = subprocess.run([*command, *flags], stdout=subprocess.PIPE, text=True, check=True).stdout
            print("| " + " | ".join(json.loads(said.splitlines()[-1])) + " |", flush=True)


def measure(folder: Path, quantize: str, tokens: int, threads: int, prompt: str) -> list[str]:
    """One row, in this process."""
    from h2o_chat.base.config import Sampling, Settings
    from h2o_chat.native.waiting import let_torch_sleep

    settings = Settings(model=str(folder), quantize=quantize, threads=threads, events_every=0)  # type: ignore[arg-type]
    let_torch_sleep(settings)
    import torch
    import transformers

    from h2o_chat.engine.engine import Engine
    from h2o_chat.events.events import Token
    from h2o_chat.models.fits import estimate
    from h2o_chat.models.resolve import check_weights
    from h2o_chat.native.loading import LoadedNative, needs_of, open_model

    assert transformers.AutoModelForCausalLM, "imported whole, as the clock starts after it"
    before = resident()
    start = time.perf_counter()
    loaded = open_model(settings, lambda stage, share: None)
    load_s = time.perf_counter() - start
    engine = Engine(loaded, settings)
    ids = loaded.tokenizer(prompt)["input_ids"]
    times, first_s = [], 0.0
    for event in engine.generate(ids, Sampling(max_tokens=tokens, ignore_eos=True)):
        if isinstance(event, Token):
            first_s = first_s or time.perf_counter() - start
            times.append(event.ms)
    itemsize = getattr(torch, loaded.dtype).itemsize
    weights = check_weights(folder)
    if isinstance(loaded, LoadedNative):
        need = needs_of(settings, loaded.sizes, weights)[quantize]
    else:
        need = estimate(loaded.sizes, weights, quantize, itemsize, settings.budget, as_stored=False)
    own, mapped = (after - earlier for after, earlier in zip(resident(), before, strict=True))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    memory = [f"{count / 1e6:,.0f} MB" for count in (need.total, own, mapped, peak)]
    median = statistics.median(times[1:])
    figures = [f"{load_s:.2f}", f"{first_s:.2f}", f"{median:.1f}"]
    return [folder.resolve().name, quantize, loaded.dtype, *memory, *figures]


def resident() -> tuple[int, int]:
    """Bytes of this process in memory: its own, and mapped from files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    anonymous, file = (1024 * int(fields[name].split()[0]) for name in ("RssAnon", "RssFile"))
    return anonymous, file


if __name__ == "__main__":
    main()
