"""Records the conversations that the snapshot tests replay: the bundled model, on the real engine.

    python tools/make/make_recordings.py

writes tests/tui/recordings/*.jsonl. Times, threads and versions are made the same everywhere; nothing else is
touched. Afterwards: pytest tests/tui/test_snapshots.py --snapshot-update, and look at what has changed.
"""

import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from h2o_chat.events.events import End, Event, Prompt, Session, Token, Turn, to_json
from h2o_chat.events.recording import read

FOLDER = Path(__file__).parents[2] / "tests" / "tui" / "recordings"
CHAT = """My name is Priya and my locker code is K7Q2.
---
I would like to find a restaurant in San Jose for two people.
---
What is my locker code?
---
Thank you, that is all.
"""
STORY = """Tell me a story about a red key, please.
"""


def record(name: str, script: str, *flags: str) -> None:
    """One conversation of the real program, as a file that is the same wherever it is made."""
    with tempfile.TemporaryDirectory() as folder:
        turns, path = Path(folder, "turns.txt"), Path(folder, "recorded.jsonl")
        turns.write_text(script)
        command = [sys.executable, "-m", "h2o_chat", "run", "-m", "pocket", "--script", str(turns)]
        command += ["--record", str(path), *flags]
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
        lines = [to_json(_timeless(event)) + "\n" for event in read(path)]
    (FOLDER / f"{name}.jsonl").write_text("".join(lines))
    print(f"{name}: {sum(map(len, lines)) / 1000:.0f} kB")


def _timeless(event: Event) -> Event:
    match event:
        case Session():
            return replace(event, threads=1, versions={}, device="cpu", model="pocket")
        case Prompt() | Token():
            return replace(event, ms=8.0)
        case Turn():
            return replace(event, ttft_ms=80.0, tok_s=125.0)
        case End():
            return replace(event, seconds=1.0)
    return event


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    record(
        *("chat", CHAT, "--budget", "64", "--seed", "1", "--events", "8", "--max-tokens", "40"),
        *("--temperature", "0", "--system", "You are a helpful assistant."),
    )
    record("story", STORY, "--budget", "24", "--seed", "1", "--events", "8", "--max-tokens", "30")


if __name__ == "__main__":
    main()
