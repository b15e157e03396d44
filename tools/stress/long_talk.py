"""One conversation of thousands of turns, killed on the way: does it live at its end, and is it the same?

    tools/stress/long_talk.py --model FILE --turns FILE [--count 2000] [--kills 10] [--tokens 24] [--data DIR]

`h2o-chat run --resume last` says the messages, in one process more than it is killed (SIGKILL). After each
kill the newest saved memory is removed from a copy of the folder. The copy feeds the last turns again; its
next three answers must be the same, token for token. Prints one JSON object.
"""

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from crash_test import path_of, run_script

from h2o_chat.cli.prompt_input import read_script
from h2o_chat.cli.run import SEPARATOR
from h2o_chat.lab.eval.stuck_eval import WORLD, repeated
from h2o_chat.lab.eval.synthetic_talk import holds

CHECKED = 3
"""Answers that are compared after each kill."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for flag in ("--model", "--turns"):
        parser.add_argument(flag, required=True)
    numbers = {"--count": 2000, "--kills": 10, "--seed": 1, "--tokens": 24, "--budget": 512}
    for flag, value in numbers.items():
        parser.add_argument(flag, type=int, default=value)
    parser.add_argument("--data", type=Path, help="kept, and gone on with; else a folder that is removed")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(talk(asked, asked.data or Path(folder) / "data", Path(folder))))


def talk(asked: argparse.Namespace, data: Path, scratch: Path) -> dict[str, object]:
    """Holds the conversation; what was found."""
    read = read_script(Path(asked.turns))
    messages = (read * (asked.count // len(read) + 1))[: asked.count] + [question for question, _ in WORLD]
    kills = sorted(random.Random(asked.seed).sample(range(20, asked.count), asked.kills))
    pace: list[tuple[int, float]] = []
    for kill in [*kills, None]:
        done = len(said(data))
        if kill is not None and done >= kill:
            continue
        pace += run(asked, data, messages[done:], None if kill is None else kill - done, done)
        if kill is not None:
            copy, again = (shutil.copytree(data, scratch / name) for name in ("copy", "again"))
            newest = sorted(again.glob("caches/*/*.safetensors"), key=lambda file: int(file.stem))[-1]
            newest.unlink()
            done = len(said(data))
            here, there = (
                [ids for _, _, ids in said(folder)[done:]]
                for folder in (copy, again)
                if run(asked, folder, messages[done : done + CHECKED], None, done) is not None
            )
            assert here == there, f"after turn {done} the memory fed again answers otherwise"
            shutil.rmtree(copy)
            shutil.rmtree(again)
    pairs = said(data)
    flags = repeated(*zip(*((message, answer) for message, answer, _ in pairs), strict=True))
    right = [
        any(holds(answer, word) for word in words)
        for (_, answer, _), (_, words) in zip(pairs[-len(WORLD) :], WORLD, strict=True)
    ]
    quarter = len(pairs) // 4
    first, last = (
        [ms for turn, ms in pace if low <= turn < low + quarter] for low in (20, len(pairs) - quarter)
    )
    return {
        "turns": len(pairs),
        "kills": len(kills),
        "repeated": sum(flags) / len(flags),
        "repeated_last_quarter": sum(flags[-quarter:]) / quarter,
        "world_right": sum(right),
        "ms_first_quarter": statistics.median(first or [0.0]),
        "ms_last_quarter": statistics.median(last or [0.0]),
    }


def run(
    asked: argparse.Namespace, data: Path, messages: list[str], kill_after: int | None, done: int
) -> list[tuple[int, float]]:
    """Says messages; (turn, ms per token) of each answer. Killed in the answer after so many, if at all."""
    script = data.parent / f"{data.name}.script"
    script.write_text(f"\n{SEPARATOR}\n".join(messages))
    how = run_script(script, asked.model, asked.budget, asked.tokens, "last" if done else None)
    command = [sys.executable, "-m", "h2o_chat", *how, "--temperature", "0", "--data", str(data)]
    pace, turns = [], 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "turn":
                turns += 1
                pace += [(done + turns, 1000 / event["tok_s"])] if event["tok_s"] else []
            elif event["event"] == "token" and turns == kill_after:
                process.kill()
                break
    assert kill_after is not None or process.returncode == 0, f"exit {process.returncode}"
    return pace


def said(data: Path) -> list[tuple[str, str, tuple[int, ...]]]:
    """(message, answer, its tokens) of the conversation; an answer that was cut off counts."""
    if not data.exists():
        return []
    path = iter(path_of(data))
    return [(one.text, answer.text, tuple(answer.ids)) for one, answer in zip(path, path, strict=False)]


if __name__ == "__main__":
    main()
