"""Eight processes on one data folder for some minutes, some of which are killed, and what is left of it.

    tools/stress/storm.py --model FOLDER [--minutes 5] [--seed 1]

Four conversations (`run --save --script`, half of them resumed), an import and a removal of large
conversations over and over, listing and searching, and a foreign transaction that holds the database for up
to 30 seconds. A third of the conversations, imports and removals is killed (SIGKILL).

Checked: every token that came out of a run that ended with exit code 0 is stored in its place; so is every
token of one that was killed, unless it had said that words stand only in memory; every other run said what
was not stored. In the end the database is whole (PRAGMA integrity_check), every import is listed whole or not
at all, no word of what was removed is left in the files, and no process is left. Ends with exit code 1 else.
"""

import argparse
import json
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psutil
from crash_test import TURNS, delivered, run_script

from h2o_chat.store import DATABASE, Store

MESSAGES = 20_000
"""Messages of a large conversation."""
WORD = "kweluzebra"
"""Said in large conversations alone."""
LONGEST_S = 30.0
"""Longest foreign transaction, in seconds."""
KILLED = 0.33
HOLD = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
time.sleep(float(sys.argv[2]))
connection.execute("ROLLBACK")
"""


class Storm:
    """Work on one data folder, and what was found wrong."""

    def __init__(self, folder: Path, model: str, seconds: float, seed: int) -> None:
        self.data = folder / "data"
        self.script = folder / "script.txt"
        self.large = folder / "large.json"
        self.model = model
        self.seconds = seconds
        self.seed = seed
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()
        self.said: set[str] = set()
        """By runs that failed."""
        self._end = time.monotonic() + seconds
        self._locked = threading.Lock()
        self.script.write_text(TURNS)
        said = [{"role": "user", "content": f"{WORD} number {number}"} for number in range(MESSAGES)]
        self.large.write_text(json.dumps({"messages": said}))
        Store(self.data).close()

    def blow(self) -> None:
        """Everything at once, until the time is over and all have ended."""
        jobs = [self.talk] * 4 + [self.bring, self.remove, self.look, self.hold]
        threads = [
            threading.Thread(target=self._over_and_over, args=(job, random.Random(self.seed * 100 + number)))
            for number, job in enumerate(jobs)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def talk(self, rng: random.Random, mine: list[str]) -> None:
        """One conversation of four turns, begun or gone on with."""
        resumed = mine[-1] if mine and rng.random() < 0.5 else None
        out, err, code, killed = self.run(
            *(*run_script(self.script, self.model, 64, 100, resumed), "--ignore-eos"),
            kill_after_s=rng.uniform(1, 20) if rng.random() < KILLED else None,
        )
        events = [json.loads(line) for line in out.splitlines(keepends=True) if line.endswith("\n")]
        answers = [ids for ids in delivered(events) if ids]
        only_in_memory = any(
            one["event"] == "note" and one["code"] in ("store", "store-busy") for one in events
        )
        conversation = resumed or next(
            (one["conversation"] for one in events if one["event"] == "end" and one["conversation"]), None
        )
        if killed:
            self.count("runs killed")
            if not only_in_memory:
                self.check_stored(conversation, answers, "a run that was killed")
        elif code == 0:
            self.count("runs that ended with 0")
            if only_in_memory:
                self.count("of these, with words that had to wait")
            if conversation is None:
                self.fail(f"a run ended with 0 and named no conversation: {err}")
            else:
                self.check_stored(conversation, answers, "a run that ended with 0")
                mine.append(conversation)
        else:
            self.count("runs that failed")
            self.said.add(err.strip().rsplit("h2o-chat: ", 1)[-1])
            if not any(
                said in err for said in ("Not stored: ", "Nothing of this conversation is stored", "busy")
            ):
                self.fail(f"a run ended with {code} and did not say what was not stored: {err}")

    def bring(self, rng: random.Random, _mine: list[str]) -> None:
        """Imports a large conversation."""
        kill = rng.uniform(0.5, 10) if rng.random() < KILLED else None
        _, err, code, killed = self.run("sessions", "import", str(self.large), kill_after_s=kill)
        self.count("imports killed" if killed else "imports")
        if code and not killed:
            self.fail(f"an import ended with {code}: {err}")

    def remove(self, rng: random.Random, _mine: list[str]) -> None:
        """Removes a large conversation."""
        if not (large := self.imported()):
            time.sleep(0.5)
            return
        kill = rng.uniform(0.5, 5) if rng.random() < KILLED else None
        _, err, code, killed = self.run("sessions", "rm", "--yes", large[0], kill_after_s=kill)
        self.count("removals killed" if killed else "removals")
        if code and not killed:
            self.fail(f"a removal ended with {code}: {err}")

    def look(self, rng: random.Random, _mine: list[str]) -> None:
        """Lists, or searches."""
        how = rng.choice([("list",), ("search", "story"), ("search", WORD, "--limit", "3")])
        _, err, code, _killed = self.run("sessions", *how, "--json")
        self.count("listed or searched")
        if code:
            self.fail(f"sessions {how[0]} ended with {code}: {err}")

    def hold(self, rng: random.Random, _mine: list[str]) -> None:
        """A transaction of somebody else, now and then."""
        held = min(LONGEST_S, self.seconds / 5)
        time.sleep(rng.uniform(0.2, 1) * held)
        subprocess.run([sys.executable, "-c", HOLD, str(self.data / DATABASE), str(held)], check=False)
        self.count(f"foreign transactions of {held:.0f} s")

    def run(self, *arguments: str, kill_after_s: float | None = None) -> tuple[str, str, int, bool]:
        """stdout, stderr, exit code, whether we killed it."""
        command = [sys.executable, "-m", "h2o_chat", *arguments, "--data", str(self.data)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            killer = threading.Timer(kill_after_s or 0.0, process.kill)
            if kill_after_s is not None:
                killer.start()
            out, err = process.communicate()
            killer.cancel()
        return out, err, process.returncode, process.returncode == -signal.SIGKILL

    def check_stored(self, conversation: str | None, answers: list[list[int]], who: str) -> None:
        """All that was delivered is stored, answer after answer; in any conversation if none is given."""
        with closing(Store(self.data)) as store:
            small = [one.id for one in store.list() if one.messages < MESSAGES]
            places = [conversation] if conversation else small
            found = any(_in_order(answers, _stored(store, one)) for one in places)
        self.count("tokens checked", sum(map(len, answers)))
        if answers and not found:
            self.fail(f"{who}: what was delivered is not in {conversation or 'any conversation'}: {answers}")

    def imported(self) -> list[str]:
        """Conversations with the word; a part of one is wrong."""
        with closing(Store(self.data)) as store:
            large = [one for one in store.list() if one.title.startswith(WORD)]
        for one in large:
            if one.messages != MESSAGES:
                self.fail(f"{one.messages} of {MESSAGES} messages of an import are listed")
        return [one.id for one in large]

    def settle(self) -> None:
        """Checks what is left when all have ended."""
        while large := self.imported():
            self.run("sessions", "rm", "--yes", large[0])
        small = self.data.parent / "small.json"
        small.write_text(json.dumps({"messages": [{"role": "user", "content": "hello"}]}))
        self.run("sessions", "import", str(small))  # sweeps out what killed ones left
        with closing(sqlite3.connect(self.data / DATABASE)) as connection:
            verdict = connection.execute("PRAGMA integrity_check").fetchall()
            [[hidden]] = connection.execute("SELECT count(*) FROM conversations WHERE hidden").fetchall()
        if verdict != [("ok",)]:
            self.fail(f"integrity_check: {verdict}")
        if hidden:
            self.fail(f"{hidden} halves of conversations are left")
        for file in self.data.glob(f"{DATABASE}*"):
            if WORD.encode() in file.read_bytes():
                self.fail(f"{file.name} still has words of what was removed")
        if left := psutil.Process().children(recursive=True):
            self.fail(f"processes are left: {left}")

    def count(self, what: str, many: int = 1) -> None:
        with self._locked:
            self.counts[what] += many

    def fail(self, what: str) -> None:
        with self._locked:
            self.wrong.append(what)

    def _over_and_over(self, job: Callable[[random.Random, list[str]], None], rng: random.Random) -> None:
        mine: list[str] = []
        while time.monotonic() < self._end:
            try:
                job(rng, mine)
            except Exception as error:  # a fault that is found must not stop the others
                self.fail(f"{job.__name__}: {type(error).__name__}: {error}")


def _stored(store: Store, conversation: str) -> list[list[int]]:
    """Token ids of every stored answer."""
    return [list(one.ids) for one in store.messages(conversation) if one.role == "assistant"]


def _in_order(answers: list[list[int]], stored: list[list[int]]) -> bool:
    rest = iter(stored)
    return all(any(found[: len(ids)] == ids for found in rest) for ids in answers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        storm = Storm(Path(name), arguments.model, 60 * arguments.minutes, arguments.seed)
        storm.blow()
        storm.settle()
    for what, many in sorted(storm.counts.items()):
        print(f"{many:8,} {what}")
    for said in sorted(storm.said):
        print(f"a run failed: {said}")
    for one in storm.wrong:
        print(f"WRONG: {one}")
    if storm.wrong or not storm.counts["runs that ended with 0"]:
        sys.exit(1)
    print("nothing was lost, nothing was left")


if __name__ == "__main__":
    main()
