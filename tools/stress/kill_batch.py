"""Kills `run --batch` with SIGKILL again and again, and checks that every answer is there once, and the same.

    tools/stress/kill_batch.py [--model FOLDER] [--prompts 1000] [--kills 10] [--seed 1]

The same prompts are answered once without a kill and with other rows. Ends with exit code 1 if an id is
missing or there twice, or an answer differs.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from h2o_chat.base.progress import Progress, progress_bar

NAMES = ("Ada", "Tom", "Mia", "Ben", "Eva")
THINGS = ("a cat", "a red ball", "two sisters", "an old boat", "a garden")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="The bundled one, if none is named.")
    parser.add_argument("--prompts", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, progress_bar() as progress:
        said = check(
            Path(name), arguments.model, arguments.prompts, arguments.kills, arguments.seed, progress
        )
    print(said)


def check(folder: Path, model: str | None, prompts: int, kills: int, seed: int, progress: Progress) -> str:
    """What was found, in words.

    Raises:
        AssertionError: an answer is missing, is there twice, or differs.
    """
    rng = random.Random(seed)
    lines, killed, whole = folder / "in.jsonl", folder / "killed.jsonl", folder / "whole.jsonl"
    lines.write_text("".join(json.dumps(line_of(number, rng)) + "\n" for number in range(prompts)))
    command = [sys.executable, "-m", "h2o_chat", "run", "--batch", str(lines), "-b", "64"]
    command += ["-m", model] if model else []
    fell = []
    for number in range(kills):
        progress("kills", number / (kills + 1))
        more = rng.randint(0, 2 * (prompts - count(killed)) // (kills + 1 - number))
        fell.append(
            run_and_kill([*command, "-o", str(killed), "--rows", str(rng.randint(1, 24))], killed, more)
        )
    progress("last run", kills / (kills + 1))
    subprocess.run([*command, "-o", str(killed)], check=True, capture_output=True)
    subprocess.run([*command, "-o", str(whole), "--rows", "5"], check=True, capture_output=True)
    found, wanted = answers(killed), answers(whole)
    assert len(wanted) == prompts, f"{len(wanted)} of {prompts} ids without a kill"
    missing = wanted.keys() - found.keys()
    assert not missing, f"missing: {sorted(missing)[:9]}"
    differ = [one for one in wanted if found[one] != wanted[one]]
    assert not differ, f"{len(differ)} answers differ: {differ[:9]}"
    tokens = sum(one["usage"]["completion_tokens"] for one in wanted.values())
    torn = sum(tail for _, tail in fell)
    return (
        f"{prompts:,} prompts, {kills} kills, at lines {[at for at, _ in fell]}, {torn} in the middle of a"
        f" line: every id once, {tokens:,} tokens, the same answers as without kills"
    )


def line_of(number: int, rng: random.Random) -> dict[str, Any]:
    """A prompt: of one message or of a conversation, greedy or drawn."""
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    line: dict[str, Any] = {"id": f"p{number}", "max_tokens": rng.randint(4, 60)}
    if rng.random() < 0.5:
        line["temperature"] = 0.8
    if rng.random() < 0.7:
        return line | {"prompt": f"Tell me a story about {name} and {thing}."}
    said = [f"My name is {name}.", f"Hello, {name}.", f"I have {thing}. What is my name?"]
    roles = ("user", "assistant", "user")
    return line | {"messages": [{"role": r, "content": text} for r, text in zip(roles, said, strict=True)]}


def run_and_kill(command: list[str], out: Path, more: int) -> tuple[int, bool]:
    """Kills it once it has written so many lines more (0: while it begins).

    Returns:
        How many whole lines there are then, and whether the last one is torn.
    """
    before = count(out)
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and count(out) < before + more:
            time.sleep(0.01)
        process.kill()
    raw = out.read_bytes() if out.exists() else b""
    return raw.count(b"\n"), bool(raw) and not raw.endswith(b"\n")


def count(file: Path) -> int:
    """Its lines."""
    return file.read_bytes().count(b"\n") if file.exists() else 0


def answers(file: Path) -> dict[str, Any]:
    """By id.

    Raises:
        AssertionError: one is there twice.
    """
    found: dict[str, Any] = {}
    for line in file.read_text().splitlines():
        answer = json.loads(line)
        assert answer["id"] not in found, f"{answer['id']} is there twice"
        found[answer["id"]] = answer
    return found


if __name__ == "__main__":
    main()
