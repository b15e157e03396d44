"""A cluster of 10^6 conversations on paper, by simulation: how busy each part is, and what breaks first.

    tools/stress/cluster_model.py

Messages come at random, at the peak of a day. Each goes to its conversation's replica, which has the memory
among its newest, or reads it; answers share the rows; then the memory is written. Once a replica dies: the
others read its conversations. A hundredth of the cluster is simulated for an hour. Tokens a
second are measured (docs/BATCH.md, docs/GPU.md); network, storage and prices are assumed.
"""

import heapq
import random
from collections import OrderedDict
from dataclasses import dataclass

HEAD = """| model, replica | replicas | TB | GB/s written / read | wait, s, p50 / p99 | moved by a death \
| $ a month, calls + TB | busy: the first breaks first |"""
CONVERSATIONS, SAMPLE = 1_000_000, 100
TOKENS, PROMPT_S, ACTIVE = 200, 0.15, 0.05
"""Tokens of an answer; seconds of reading a message; share of conversations that are active at the peak."""
EVERY_S, HOUR_S = 120.0, 3600.0
"""Seconds between two messages of an active conversation."""
NET_BYTES, STORE_S, PREFIX_CALLS, PUT_DOLLARS, GB_MONTH_DOLLARS = 3e9, 0.03, 3500, 5e-6, 0.023
"""Network of a replica or file server (25 Gbit/s); object storage: seconds, number of calls, prices."""
BUSY = 0.7
"""Share of the rows that replicas are planned for."""


@dataclass(frozen=True)
class Machine:
    """A replica with its model."""

    name: str
    memory_bytes: float
    rows: int
    tokens_s: float
    """Tokens each second for all rows together, measured."""
    kept: int
    """Memories in main memory."""


MACHINES = (
    Machine("135M, 2 cores", 11.8e6, 16, 392, 340),
    Machine("8B, one H100 (speed of the 7B measured)", 67e6, 32, 2649, 1000),
)


def simulated(machine: Machine, replicas: int, active: int) -> tuple[list[float], int, int, float]:
    """An hour in which a replica dies: waits, memories read, conversations that moved, their longest wait."""
    draw, waits, reads, moved, moved_wait_s = random.Random(1), list[float](), 0, 0, 0.0
    home = {one: draw.randrange(replicas) for one in range(active)}
    held = [OrderedDict[int, None]() for _ in range(replicas)]
    free = [[0.0] * machine.rows for _ in range(replicas)]
    answer_s = TOKENS * machine.rows / machine.tokens_s
    dead, lost = False, set[int]()
    coming = [(draw.expovariate(1 / EVERY_S), one) for one in range(active)]
    heapq.heapify(coming)
    while coming[0][0] < HOUR_S:
        now, one = heapq.heappop(coming)
        if not dead and now > HOUR_S / 2:
            dead, lost = True, {which for which, at in home.items() if at == 0}
            moved = len(lost)
            home |= {which: draw.randrange(1, replicas) for which in lost}
        at = home[one]
        read_s = 0.0
        if one not in held[at]:
            read_s = STORE_S + machine.memory_bytes / NET_BYTES
            reads += 1
        begin = max(now, heapq.heappop(free[at]))
        end = begin + read_s + PROMPT_S + answer_s
        heapq.heappush(free[at], end)
        held[at][one] = None
        held[at].move_to_end(one)
        if len(held[at]) > machine.kept:
            held[at].popitem(last=False)
        waits.append(begin - now + read_s)
        if one in lost:
            lost.remove(one)
            moved_wait_s = max(moved_wait_s, waits[-1])
        heapq.heappush(coming, (end + draw.expovariate(1 / EVERY_S), one))
    return waits, reads, moved, moved_wait_s


def row_of(machine: Machine) -> list[str]:
    a_second = CONVERSATIONS * ACTIVE / (EVERY_S + TOKENS * machine.rows / machine.tokens_s)
    replicas = max(2, round(a_second * TOKENS / (machine.tokens_s * BUSY)))
    some = max(8, round(replicas / SAMPLE))
    waits, reads, moved, moved_s = simulated(machine, some, round(CONVERSATIONS * ACTIVE * some / replicas))
    scale, answers = replicas / some, len(waits)
    waits.sort()
    written = answers * scale * machine.memory_bytes / HOUR_S
    read = reads * scale * machine.memory_bytes / HOUR_S
    puts, stored = 2 * answers * scale / HOUR_S, 2 * CONVERSATIONS * machine.memory_bytes
    parts = {
        "rows": BUSY,
        "a replica's network": (written + read) / replicas / NET_BYTES,
        "calls of one prefix": puts / PREFIX_CALLS,
        "one file server": (written + read) / NET_BYTES,
    }
    return [
        machine.name,
        f"{replicas:,}",
        f"{stored / 1e12:.0f}",
        f"{written / 1e9:.1f} / {read / 1e9:.2f}",
        f"{waits[answers // 2]:.2f} / {waits[int(0.99 * answers)]:.2f}",
        f"{moved:,}, {moved_s:.1f} s at most",
        f"{puts * PUT_DOLLARS * 2_592_000:,.0f} + {stored / 1e9 * GB_MONTH_DOLLARS:,.0f}",
        ", ".join(f"{part} {share:.0%}" for part, share in sorted(parts.items(), key=lambda one: -one[1])),
    ]


def main() -> None:
    print(HEAD, "|---" * (HEAD.count("|") - 1) + "|", sep="\n")
    for machine in MACHINES:
        print(f"| {' | '.join(row_of(machine))} |")


if __name__ == "__main__":
    main()
