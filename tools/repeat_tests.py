"""Runs again and again the tests that depend on memory, time, order or load; one failure is one too many.

    tools/repeat_tests.py [--times 20] [--busy 0] [--only PART] [--list]

Twenty times alone and five times beside two busy processes (--times 5 --busy 2) is what a change to such a
test, or to what it tests, has to pass. Every time is a fresh pytest. Ends with exit code 1 if
anything failed, and says which test, how often, and where its output is.
"""

import argparse
import os
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
    "limits of memory and disk": [
        "tests/cli/test_faults.py",
        "tests/cli/test_exit_codes.py::test_out_of_memory",
        "tests/store/test_store_faults.py",
    ],
    "signals and pipes in the middle of an answer": [
        "tests/cli/test_exit_codes.py::test_a_screen_told_to_end_keeps_the_answer",
        "tests/cli/test_run.py::test_what_was_said_is_kept",
        "tests/cli/test_run.py::test_a_pipe_that_closes_early_ends_quietly",
        "tests/cli/test_run.py::test_a_pipe_that_says_nothing_is_told_of",
    ],
    "terminals": [
        "tests/cli/test_hangup.py",
        "tests/cli/test_doctor.py::test_a_small_terminal",
        "tests/cli/test_sessions.py::test_a_terminal_is_not_obeyed",
        "tests/cli/test_sessions.py::test_removing_is_confirmed",
        "tests/models/test_hub.py::test_a_terminal_sees_bytes_and_rate",
    ],
    "processes that are killed": [
        "tests/store/test_crash.py",
        "tests/remote/test_engine_apart.py",
        "tests/remote/test_engine_process.py",
        "tests/tui/test_apart.py",
    ],
    "processes and threads beside each other": [
        "tests/store/test_store_processes.py",
        "tests/cli/test_sessions.py::test_what_is_open_is_not_removed",
        "tests/tui/test_screen.py",
        "tests/tui/test_going_back.py",
        "tests/tui/test_snapshots.py",
    ],
    "sockets": [
        "tests/cli/test_web.py",
        "tests/models/test_hub.py::test_a_killed_download_goes_on_in_the_next_call",
        "tests/models/test_hub.py::test_broken_connection_goes_on",
    ],
    "time taken": [
        "tests/models/test_hub_refusals.py::test_offline_by_wish_is_said_at_once",
        "tests/models/test_hub_refusals.py::test_no_connection_is_tried_once",
        "tests/chat/test_prompts.py::test_a_long_turn_costs_its_length",
        "tests/chat/test_readers.py::test_code_that_would_stop_the_screen",
        "tests/models/test_resolve.py::test_a_look_takes_a_moment",
        "tests/lab/test_lab_commands.py::test_the_screen_is_measured",
    ],
}
"""What tests depend on besides the code, and which do."""

BUSY = "import math\nwhile True: math.factorial(2000)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--busy", type=int, default=0, help="processes that compute beside the tests")
    parser.add_argument("--only", default="", metavar="PART", help="only those with this in their names")
    parser.add_argument("--list", action="store_true", help="only say what depends on what")
    arguments = parser.parse_args()
    if arguments.list:
        for what, some in DEPENDS.items():
            print(what, *some, sep="\n    ")
        return
    tests = sorted({test for some in DEPENDS.values() for test in some if arguments.only in test})
    logs = Path(tempfile.mkdtemp(prefix="repeat-tests-"))
    failed: Counter[str] = Counter()
    with busy(arguments.busy):
        for number in range(1, arguments.times + 1):
            log, began = logs / f"{number}.log", time.monotonic()
            found = run(tests, log)
            failed.update(found)
            print(f"{number}: {time.monotonic() - began:.0f} s, {len(found)} failed", *found, flush=True)
    for test, count in failed.most_common():
        print(f"failed {count} of {arguments.times} times: {test} (output in {logs})")
    sys.exit(1 if failed else 0)


def run(tests: list[str], log: Path) -> list[str]:
    """One pytest; the tests that failed in it."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not sweep", "-p", "no:cacheprovider", *tests]
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
