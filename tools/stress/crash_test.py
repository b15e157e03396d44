"""Kills the real program with SIGKILL while it streams, again and again, and checks the store after each.

    tools/stress/crash_test.py --model FOLDER [--kills 200] [--seed 1]

One conversation is resumed after every kill. Checked each time: the database is whole (PRAGMA
integrity_check), every token that came out of the program is stored in its place, and the next start goes on.
What was recalled is stored with its question, and names the messages it comes from.
After the last kill the program goes on to the end of its script, so that something is recalled however slow
the machine is. Ends with exit code 1 at the first thing that is lost.
"""

import argparse
import json
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

from h2o_chat.base.progress import Progress, progress_bar
from h2o_chat.store import DATABASE, Store, StoredMessage

TURNS = "My dog {0} barks at {1}.\n---\nTell me a story.\n---\nWhom does {0} bark at?\n---\nAnd then?\n"
"""Another dog in each process. Of 64 slots it is gone after the story, and is recalled."""
MAX_TOKENS = 150
MOST_EVENTS = 4 * MAX_TOKENS
"""A kill falls after as many events as this at most: the script's four answers, on any machine."""
LONGEST_S = 0.03
"""A kill falls so long after its event at most: an event may stand on its own or beside a write."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as name, progress_bar() as progress:
        tokens, partial, again = crash(Path(name), arguments.model, arguments.kills, rng, progress)
    print(
        f"{arguments.kills} kills: {tokens} tokens delivered, none lost; {partial} answers cut off and"
        f" marked; recalled {again} times, all stored"
    )


def crash(
    folder: Path, model: str, kills: int, rng: random.Random, progress: Progress
) -> tuple[int, int, int]:
    """Kills so often; returns tokens delivered, answers cut off, and how often something was recalled.

    Raises:
        AssertionError: something was lost, or the program did not start again.
    """
    script = folder / "script.txt"
    answers: list[list[int]] = []
    """Tokens delivered, answer by answer, over all processes."""
    recalled_ones: set[tuple[object, object]] = set()
    for number in range(kills + 1):
        progress("kills", number / (kills + 1))
        script.write_text(TURNS.format(f"{number:03}Rexo", f"{number:03}Milo"))
        kill_after = rng.randint(1, MOST_EVENTS) if number < kills else None
        wait_s = rng.uniform(0, LONGEST_S)
        resume = bool(whole(folder / "data"))
        events = run_and_kill(folder / "data", script, model, resume, kill_after, wait_s)
        # Nothing of an answer came: the kill fell before the first word. The store may know more.
        answers += [ids for ids in delivered(events) if ids]
        check(folder / "data", answers)
        said = [(one["index"], pieces_of(one["recalled"])) for one in events if one["event"] == "said"]
        again = {(at, words) for at, words in said if words}
        assert again <= recalled(folder / "data"), "what was recalled is not stored"
        recalled_ones |= again
    assert recalled_ones, "nothing was recalled"
    path = whole(folder / "data")
    return sum(map(len, answers)), sum(finish == "interrupted" for _, finish in path), len(recalled_ones)


def run_script(script: Path, model: str, budget: int, tokens: int, resume: str | None) -> list[str]:
    """Arguments of a run that says what a script has, in a stored conversation, and tells its events."""
    return [
        *("run", "--script", str(script), "--json", "--events", "0", "-m", model, "--budget", str(budget)),
        *("--max-tokens", str(tokens), "--threads", "1", *(["--resume", resume] if resume else ["--save"])),
    ]


def run_and_kill(
    data: Path, script: Path, model: str, resume: bool, kill_after: int | None, wait_s: float
) -> list[dict[str, object]]:
    """The events that the program gave out until it was killed, or all of them (`kill_after` None)."""
    how = run_script(script, model, 64, MAX_TOKENS, "last" if resume else None)
    command = [sys.executable, "-m", "h2o_chat", *how, "--ignore-eos", "--data", str(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        lines = list(islice(process.stdout, kill_after))
        if kill_after is not None:
            time.sleep(wait_s)
            process.kill()
            lines += process.stdout
        complaint = process.stderr.read().decode()
    if process.returncode not in (-9, 0):
        raise AssertionError(f"exit {process.returncode}: {complaint}")
    return [json.loads(line) for line in lines if line.endswith(b"\n")]


def pieces_of(recalled: Any) -> tuple[str, ...]:
    """Pieces that were recalled, without the numbers of their messages."""
    return tuple(words for _, words in recalled)


def delivered(events: list[dict[str, object]]) -> list[list[int]]:
    """Token ids of each answer."""
    answers: list[list[int]] = []
    for event in events:
        if event["event"] == "prompt":
            answers.append([])
        elif event["event"] == "token":
            answers[-1].append(int(str(event["id"])))
    return answers


def whole(data: Path) -> list[tuple[list[int], str | None]]:
    """Ids and finish of every stored answer."""
    return [(list(one.ids), one.finish) for one in path_of(data) if one.role == "assistant"]


def path_of(data: Path) -> list[StoredMessage]:
    """The newest conversation; empty where there is none."""
    with closing(Store(data)) as store:
        return store.path(store.find("last")) if store.list() else []


def recalled(data: Path) -> set[tuple[object, object]]:
    """(place, recalled pieces) of each message that has such, all of them from messages that are stored."""
    path = path_of(data)
    known = {message.id for message in path}
    return {
        (at, pieces_of(one.recalled))
        for at, one in enumerate(path)
        if one.recalled and all(number in known for number, _ in one.recalled)
    }


def check(data: Path, answers: list[list[int]]) -> None:
    """Every delivered answer is the beginning of a stored one, in order."""
    with closing(sqlite3.connect(data / DATABASE)) as connection:
        [[verdict]] = connection.execute("PRAGMA integrity_check")
    assert verdict == "ok", verdict
    stored = iter(whole(data))
    for number, ids in enumerate(answers):
        assert any(found[: len(ids)] == ids for found, _ in stored), f"answer {number} is not stored: {ids}"


if __name__ == "__main__":
    began = time.monotonic()
    main()
    print(f"{time.monotonic() - began:.0f} s")
