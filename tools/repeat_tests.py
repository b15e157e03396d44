"""Runs again and again the tests that depend on memory, time, order or load; one failure is one too many.

    tools/repeat_tests.py [--times 20] [--busy 0] [--file PART] [--list]

Twenty times alone and five times beside two busy processes (--times 5 --busy 2) is what a change to such a
test, or to what it tests, has to pass. Every time is a fresh pytest, in another order of files. Ends with
exit code 1 if anything failed, and says which test, how often, and where its output is.
"""

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]

DEPENDS = {
    "limits of memory and disk": ["tests/cli/test_faults.py", "tests/test_store_faults.py"],
    "signals": ["tests/cli/test_exit_codes.py", "tests/cli/test_run.py"],
    "terminals that go away": ["tests/cli/test_hangup.py"],
    "processes that are killed": [
        "tests/test_crash.py",
        "tests/test_engine_apart.py",
        "tests/tui/test_apart.py",
    ],
    "processes and threads beside each other": [
        "tests/test_store_processes.py",
        "tests/cli/test_sessions.py",
    ],
    "sockets": ["tests/cli/test_web.py", "tests/test_hub.py", "tests/test_no_network.py"],
    "terminals": ["tests/cli/test_doctor.py"],
    "time taken": [
        "tests/test_prompts.py",
        "tests/test_readers.py",
        "tests/test_resolve.py",
        "tests/test_import_time.py",
        "tests/test_lab_commands.py",
        "tests/test_progress.py",
    ],
    "the screen beside an engine": [
        "tests/tui/test_commands.py",
        "tests/tui/test_first_use.py",
        "tests/tui/test_going_back.py",
        "tests/tui/test_replay.py",
        "tests/tui/test_screen.py",
        "tests/tui/test_snapshots.py",
        "tests/tui/test_tabs.py",
    ],
}
"""What tests depend on besides the code, and their files."""

BUSY = "import math\nwhile True: math.factorial(2000)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--busy", type=int, default=0, help="processes that compute beside the tests")
    parser.add_argument("--file", default="", help="only the files with this in their names")
    parser.add_argument("--list", action="store_true", help="only say what depends on what")
    arguments = parser.parse_args()
    if arguments.list:
        for what, files in DEPENDS.items():
            print(what, *files, sep="\n    ")
        return
    files = sorted({file for some in DEPENDS.values() for file in some if arguments.file in file})
    logs = Path(tempfile.mkdtemp(prefix="repeat-tests-"))
    failed: Counter[str] = Counter()
    with busy(arguments.busy):
        for number in range(1, arguments.times + 1):
            random.Random(number).shuffle(files)
            log, began = logs / f"{number}.log", time.monotonic()
            found = run(files, log)
            failed.update(found)
            print(f"{number}: {time.monotonic() - began:.0f} s, {len(found)} failed", *found, flush=True)
    for test, count in failed.most_common():
        print(f"failed {count} of {arguments.times} times: {test} (output in {logs})")
    sys.exit(1 if failed else 0)


def run(files: list[str], log: Path) -> list[str]:
    """One pytest; the tests that failed in it."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not sweep", "-p", "no:cacheprovider", *files]
    with log.open("w") as out:
        done = subprocess.run(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, check=False)
    found = re.findall(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", log.read_text(), re.MULTILINE)
    if done.returncode and not found:
        found = [f"pytest itself, exit code {done.returncode}"]
    return found


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Processes that leave no core idle."""
    started = [subprocess.Popen([sys.executable, "-c", BUSY], env=os.environ) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
