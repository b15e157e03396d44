"""Whether this machine does anything else while something is timed."""

import os
import time

import psutil

IDLE_SHARE = 0.1
"""Of one core: what other processes may take in a sample that counts as undisturbed."""


def others_s() -> float:
    """Seconds of processor time that other processes have taken so far."""
    busy = psutil.cpu_times()
    all_s = busy.user + busy.nice + busy.system + getattr(busy, "irq", 0) + getattr(busy, "softirq", 0)
    own = os.times()
    return float(all_s) - own.user - own.system


def wait_until_idle(most_s: float = 60.0) -> bool:
    """Waits until a second passes in which nothing else runs; False if none came in `most_s`."""
    give_up = time.monotonic() + most_s
    while time.monotonic() < give_up:
        before = others_s()
        time.sleep(1.0)
        if others_s() - before < IDLE_SHARE:
            return True
    return False


class Sample:
    """A stretch of time, as a context manager: how long it took, and whether something disturbed it."""

    ms: float
    disturbed: bool

    def __enter__(self) -> "Sample":
        self._others, self._clock = others_s(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        took_s = time.perf_counter() - self._clock
        self.ms = 1000 * took_s
        # Processor time is counted in hundredths of a second.
        self.disturbed = others_s() - self._others > max(0.02, IDLE_SHARE * took_s)
