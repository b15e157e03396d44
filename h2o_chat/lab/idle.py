"""Whether this machine does anything else while something is timed."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import psutil

IDLE_SHARE = 0.1
"""Of one core: what other processes may take in a sample that counts as undisturbed."""
STILL_S = 0.03
"""Without processor time, which is counted in hundredths of a second: a process is still."""
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(100_000))"
"""A program that keeps a core busy for as long as who started it lives."""

Watched = Sequence[psutil.Process]
"""Processes whose time is known, and disturbs nothing."""


def others_s(known: Watched = ()) -> float:
    """Seconds of processor time that processes other than this one and the known ones have taken so far."""
    busy = psutil.cpu_times()
    all_s = busy.user + busy.nice + busy.system + getattr(busy, "irq", 0) + getattr(busy, "softirq", 0)
    own = os.times()
    return float(all_s) - own.user - own.system - sum(map(process_s, known))


def process_s(process: psutil.Process) -> float:
    """Seconds of processor time that a process has taken so far; 0 once it has ended."""
    try:
        took = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(took.user + took.system)


def wait_until_idle(most_s: float = 60.0) -> bool:
    """Waits until a second passes in which nothing else runs; False if none came in `most_s`."""
    give_up = time.monotonic() + most_s
    while time.monotonic() < give_up:
        before = others_s()
        time.sleep(1.0)
        if others_s() - before < IDLE_SHARE:
            return True
    return False


def wait_until_still(process: psutil.Process, most_s: float = 1.0) -> bool:
    """Waits until a process takes no processor time; False if it still does after `most_s`."""
    give_up = time.monotonic() + most_s
    while time.monotonic() < give_up:
        before = process_s(process)
        time.sleep(STILL_S)
        if process_s(process) == before:
            return True
    return False


@contextmanager
def busy_processes(count: int) -> Iterator[Watched]:
    """So many processes that each keep a core busy."""
    with ExitStack() as stack:
        started = []
        for _ in range(count):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", BUSY]))
            stack.callback(process.kill)
            started.append(psutil.Process(process.pid))
        yield started


class Sample:
    """A stretch of time, as a context manager: how long it took, and whether something disturbed it.

    Args:
        known: other processes that are meant to run meanwhile.
    """

    ms: float
    disturbed: bool

    def __init__(self, known: Watched = ()) -> None:
        self._known = known

    def __enter__(self) -> "Sample":
        self._others, self._clock = others_s(self._known), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        took_s = time.perf_counter() - self._clock
        self.ms = 1000 * took_s
        # Processor time is counted in hundredths of a second.
        self.disturbed = others_s(self._known) - self._others > max(0.02, IDLE_SHARE * took_s)
