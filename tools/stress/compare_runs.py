"""Two checkouts of this program beside each other: the wall time of a token of `h2o-chat run`.

    tools/stress/compare_runs.py BEFORE NOW [--model FOLDER] [--rounds 5] [--max-tokens 640 | --start]

Each round runs `h2o-chat run PROMPT --json --ignore-eos` once in each folder, in turn, with the Python that
runs this. The time is taken between the arrival of the first and of the last token line, so starting,
loading and reading the prompt are left out. One row for each checkout: the median over rounds and the
range; then the median of BEFORE's time by NOW's, round by round. The last line is the same as JSON.

With --start it is processor time, of a whole run that says one token: importing and loading. Each packs its
weights before the first round.

Other work on the machine slows both, not always alike: the load is printed, and belongs beside the figures.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

PROMPT = "Tell me a story."


def token_ms(checkout: Path, model: str, tokens: int) -> float:
    """Milliseconds of a token of one answer.

    Raises:
        SystemExit: the program failed, or told fewer tokens than it was asked for.
    """
    arrived = _arrivals(checkout, model, tokens)
    return 1000 * (arrived[-1] - arrived[0]) / (tokens - 1)


def start_ms(checkout: Path, model: str) -> float:
    """Milliseconds of processor time of a run that says one token, of all its threads.

    Raises:
        SystemExit: the program failed.
    """
    before = _processor_s()
    _arrivals(checkout, model, 1)
    return 1000 * (_processor_s() - before)


def _processor_s() -> float:
    """Of all processes that were started from here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _arrivals(checkout: Path, model: str, tokens: int) -> list[float]:
    """When each token line came, in seconds."""
    command = [sys.executable, "-m", "h2o_chat", "run", PROMPT, "--model", model, "--json", "--seed", "1"]
    command += ["--ignore-eos", "--max-tokens", str(tokens)]
    # Each is asked with its own defaults, not with those of whoever compares them.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("H2O_CHAT_")}
    environment |= {"PYTHONPATH": str(checkout), "XDG_CONFIG_HOME": str(checkout / "no configuration here")}
    arrived = []
    with subprocess.Popen(
        command, cwd=checkout, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["event"] == "token":
                arrived.append(time.perf_counter())
    if process.returncode or len(arrived) != tokens:
        sys.exit(
            f"{checkout}: exit code {process.returncode} after {len(arrived)} of {tokens} tokens;"
            f" what it said is above. The command was: {' '.join(command)}"
        )
    return arrived


def at_least_two(text: str) -> int:
    if int(text) < 2:
        raise argparse.ArgumentTypeError("needs 2 or more: the time is taken between tokens")
    return int(text)


def checkout(text: str) -> Path:
    folder = Path(text).resolve()
    if not (folder / "h2o_chat" / "__main__.py").is_file():
        raise argparse.ArgumentTypeError(f"{folder} holds no h2o_chat/__main__.py; name a checkout")
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=checkout)
    parser.add_argument("now", type=checkout)
    parser.add_argument("--model", default=str(Path(__file__).parents[2] / "assets" / "pocket"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--max-tokens", type=at_least_two, default=640)
    parser.add_argument("--start", action="store_true", help="processor time of a start, instead")
    asked = parser.parse_args()
    model = str(Path(asked.model).resolve()) if Path(asked.model).is_dir() else asked.model
    folders = {"before": asked.before, "now": asked.now}
    what = "ms of processor time" if asked.start else "ms a token"
    for folder in folders.values() if asked.start else ():
        start_ms(folder, model)  # packs
    load_before = os.getloadavg()[0]
    found: dict[str, list[float]] = {name: [] for name in folders}
    for number in range(asked.rounds):
        for name, folder in folders.items():
            one = start_ms(folder, model) if asked.start else token_ms(folder, model, asked.max_tokens)
            found[name].append(one)
            print(f"round {number + 1}: {name} {one:.2f} {what}", file=sys.stderr, flush=True)
    ratios = [before / now for before, now in zip(found["before"], found["now"], strict=True)]
    print(f"| checkout | {what}, median | lowest | highest |")
    print("|---|---|---|---|")
    for name, times in found.items():
        print(f"| {name} | {statistics.median(times):.2f} | {min(times):.2f} | {max(times):.2f} |")
    print(
        f"\nBEFORE takes {statistics.median(ratios):.2f} times NOW's time ({min(ratios):.2f} to"
        f" {max(ratios):.2f}). Load {load_before:.1f} when it began, {os.getloadavg()[0]:.1f} when it ended"
        f" (its own included), on {os.cpu_count()} cores."
    )
    print(
        json.dumps(
            {
                name: {"folder": str(folders[name]), "start_ms" if asked.start else "token_ms": times}
                for name, times in found.items()
            }
            | {"before_by_now": statistics.median(ratios), "model": model}
            | ({} if asked.start else {"tokens": asked.max_tokens})
        )
    )


if __name__ == "__main__":
    main()
