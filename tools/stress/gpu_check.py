"""Does the program work on this GPU, and how fast is it there? Stages that each print a line as they end.

    tools/stress/gpu_check.py [--stages exact,tests,decode,...] [--shape 7b] [--device cuda] [--json FILE]

On a bare machine the usual stages take just under five minutes, and the others (`LONG`, which have to be
named) as long again.
Without CUDA it ends with exit code 2; `--device cpu` goes through the same stages with a tiny shape under
Triton's interpreter, to try this script itself. Exit code 1: a stage failed. docs/GPU.md has the figures of
a card, and the wheels that a machine without a network needs.
"""

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
STAGES = (
    *("about", "sampled", "process", "small_shapes", "decode", "rows", "prompt", "stock"),
    *("compiled", "paper", "four_bits", "command", "exact", "tests", "slots_in_bytes"),
)
"""Methods of `gpu_stages.Check`, in an order in which a model that is made serves as many as may be."""
LONG = ("compiled", "paper", "command", "slots_in_bytes")
"""Stages that are run where they are named: with them it would be ten minutes."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    usual = ",".join(name for name in STAGES if name not in LONG)
    parser.add_argument("--stages", default=usual, help=f"some of {', '.join(STAGES)}; else {usual}")
    parser.add_argument("--shape", default="7b")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all figures, written after each stage")
    asked = parser.parse_args(arguments)
    if asked.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    import torch

    if asked.device == "cuda" and not torch.cuda.is_available():
        print("There is no CUDA device here. To try this script on the CPU: --device cpu", file=sys.stderr)
        return 2
    chosen = asked.stages.split(",")
    if unknown := set(chosen) - set(STAGES):
        print(f"No such stage: {', '.join(sorted(unknown))}. There are {', '.join(STAGES)}.", file=sys.stderr)
        return 2
    from gpu_stages import Check  # Triton looks at its variable where kernels are defined

    check, failed = Check(asked.device, asked.shape), []
    for name in ["about", *(one for one in chosen if one != "about")]:
        began = time.monotonic()
        try:
            if name == "exact" and "tests" in chosen and find_spec("pytest"):
                check.start_tests()
            said = getattr(check, name)()
        except Exception as error:
            failed.append(name)
            said = f"FAILED: {type(error).__name__}: {error}\n{traceback.format_exc()[-3000:]}"
        print(f"{name} ({time.monotonic() - began:.0f} s): {said}", flush=True)
        if asked.json:
            asked.json.write_text(json.dumps(check.found | {"failed": failed}))
    print("failed: " + ", ".join(failed) if failed else "all stages passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
