"""Does the program work on this GPU, and how fast is it there? One call of under ten minutes.

    tools/gpu_check.py [--model FOLDER | --shape tinyllama-1.1b] [--device cuda]

Runs those tests of `tests/` that are marked `gpu` (the literal algorithm and stock transformers against the
cache, family by family; one value read per token; the bundled model's answers), then what `h2o-chat bench
speed` measures, in bfloat16 and in nf4, on a model folder or on random weights of a shape (lab/shapes.py).
Prints a table, and as the last line the same as JSON.

What a missing package prevents is left out, and said. Without CUDA it ends with exit code 2; with `--device
cpu` it does the same there, with a tiny shape, to try this script itself. Exit code 1: something failed.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import H2OChatError
from h2o_chat.lab.racers import Wanted
from h2o_chat.lab.shapes import SHAPES, byte_tokenizer, make
from h2o_chat.lab.speed import run_speed

ROOT = Path(__file__).parents[1]
TESTS = (
    "tests/cache/test_exactness.py",
    "tests/cache/test_families.py",
    "tests/cache/test_reads.py",
    "tests/engine/test_pocket.py",
)
TESTS_S = 360.0
"""For all of them; then they are ended, and have failed."""
PROCESSES = 8
"""That share the tests, if there are so many cores: the literal algorithm is a loop of Python."""
TINY = LlamaConfig(
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=320,
    max_position_embeddings=512,
)


def run_tests(device: str) -> dict[str, Any]:
    """How many passed, failed and were skipped, and the end of what pytest said."""
    marked = "gpu" if device == "cuda" else "not gpu"
    command = [sys.executable, "-m", "pytest", *TESTS, "-m", f"{marked} and not sweep", "-q", "-r", "fE"]
    if find_spec("xdist"):
        command += ["-n", str(min(PROCESSES, os.cpu_count() or 1))]
    began = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TESTS_S
        )
        said, ended = done.stdout, done.returncode == 0
    except subprocess.TimeoutExpired as late:
        said = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else str(late.stdout)
        said, ended = f"{said}\nnot done after {TESTS_S:.0f} s", False
    counts = dict.fromkeys(("passed", "failed", "skipped", "error"), 0)
    counts |= {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|skipped|error)", said[-500:])}
    ok = ended and counts["passed"] > 0
    return {"ok": ok, "s": round(time.monotonic() - began, 1), **counts} | (
        {} if ok else {"said": said[-3000:]}
    )


def measure(device: str, quantize: Literal["none", "nf4"], folder: Path) -> list[dict[str, Any]]:
    """Of stock transformers and of two policies, what `bench speed` says of each.

    Raises:
        H2OChatError: the model cannot be opened, or there is no room.
    """
    small = device == "cpu"
    settings = Settings(
        model=str(folder), budget=32 if small else 512, dtype="bfloat16", quantize=quantize, device=device
    )
    tokens, turns = (40, 2) if small else (640, 12)
    found = run_speed(Wanted(settings, ("h2o", "window"), (quantize,), (tokens,), prompt=tokens, turns=turns))
    if device == "cuda":
        torch.cuda.empty_cache()
    to_stock = {one.contestant: (one.token, one.first) for one in found.ratios}
    rows = []
    for row in found.rows:
        token, first = to_stock.get(row.contestant, (1.0, 1.0))
        rows.append(asdict(row) | {"token_to_stock": token, "first_to_stock": first})
    return rows


def make_tiny(folder: Path) -> None:
    """A model that a CPU answers with in no time."""
    torch.manual_seed(0)
    LlamaForCausalLM(TINY).to(torch.bfloat16).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)


def check(device: str, model: Path | None, shape: str) -> dict[str, Any]:
    """All of it: what was found, what was left out, what failed."""
    left_out, failed, speed = [], [], {}
    tests: dict[str, Any] = {}
    missing = [name for name in ("pytest", "hypothesis") if find_spec(name) is None]
    if missing:
        left_out.append(f"tests: {' and '.join(missing)} not installed")
    else:
        tests = run_tests(device)
        failed += [] if tests["ok"] else ["tests"]
    with tempfile.TemporaryDirectory() as name:
        folder = model or Path(name)
        if model is None and device == "cpu":
            make_tiny(folder)
        elif model is None:
            make(shape, folder)
        rows: tuple[tuple[str, Literal["none", "nf4"]], ...] = (("bfloat16", "none"), ("nf4", "nf4"))
        for label, quantize in rows:
            if quantize == "nf4" and find_spec("bitsandbytes") is None:
                left_out.append("nf4: bitsandbytes is not installed")
                continue
            try:
                speed[label] = measure(device, quantize, folder)
            except H2OChatError as error:
                failed.append(f"speed in {label}: {error.message} {error.hint}")
    if find_spec("textual") is None:
        left_out.append("nothing more: textual is not installed, and only the screen needs it")
    of = str(model) if model else "tiny" if device == "cpu" else shape
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    return {
        **{"device": name, "torch": torch.__version__, "cuda": torch.version.cuda, "model": of},
        **{"tests": tests, "speed": speed, "left_out": left_out, "failed": failed},
    }


def show(found: dict[str, Any]) -> None:
    tests: dict[str, Any] = found["tests"]
    print(f"{found['device']}, torch {found['torch']}, CUDA {found['cuda']}\n")
    if tests:
        print(f"tests: {tests['passed']} passed, {tests['failed'] + tests['error']} failed in {tests['s']} s")
    print(f"\n{found['model']}, tokens in ms:\n")
    print("| | contestant | seen | a token | to stock | first after prompt | to stock |")
    print("|---|---|---|---|---|---|---|")
    for label, rows in found["speed"].items():
        for row in rows:
            print(
                f"| {label} | {row['contestant']} | {row['seen_tokens']} | {row['token_ms']:.2f} |"
                f" {row['token_to_stock']:.2f} | {row['first_ms']:.1f} | {row['first_to_stock']:.2f} |"
            )
    for line in found["left_out"]:
        print(f"left out: {line}")
    for line in found["failed"]:
        print(f"failed: {line}")
    if "said" in tests:
        print(tests["said"], file=sys.stderr)
    print(json.dumps(found))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    of = parser.add_mutually_exclusive_group()
    of.add_argument("--model", type=Path, metavar="FOLDER")
    of.add_argument("--shape", choices=SHAPES, default="tinyllama-1.1b")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    asked = parser.parse_args(arguments)
    if asked.device == "cuda" and not torch.cuda.is_available():
        print("There is no CUDA device here. To try this script on the CPU: --device cpu", file=sys.stderr)
        return 2
    found = check(asked.device, asked.model, asked.shape)
    show(found)
    return 1 if found["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
