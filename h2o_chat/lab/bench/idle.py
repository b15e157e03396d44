"""Checks that this machine does nothing else while something is timed."""

import os
import time
from collections.abc import Sequence

import psutil

IDLE_SHARE = 0.1
"""Share of one core that other processes may take in a sample that counts as undisturbed."""
STILL_S = 0.03
"""Seconds without processor time (which is counted in hundredths) after which a process is still."""

Watched = Sequence[psutil.Process]
"""Processes that are meant to run: their time disturbs nothing."""


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
