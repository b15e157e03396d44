"""Feeds every reader of the program with inputs made of valid ones, and random bytes, and counts them.

    tools/stress/fuzz.py [--inputs 100000] [--seed 1] [--only NAME]     a table; some minutes on one core
    tools/stress/fuzz.py --only NAME --input FILE                       one input, as it was kept

An input may be taken or refused with an error that says something; whatever else happens is a violation: any
other exception, more than `LONGEST_S` seconds of work, more than `MORE_BYTES` of memory. The first one of a
reader is told, its input kept in `fuzz-NAME.input`, and the exit code is 1; one that kills the process leaves
its input too. Input N of a reader depends on the seed alone.
"""

import argparse
import faulthandler
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, NoReturn

LONGEST_S = 2  # one input, in seconds of this process: a busy machine is not a hang
WAITING_S = 60  # one input, by the clock: whoever waits does not work
STUCK_S = 300
"""Where nothing comes back to Python, the process ends."""
MORE_BYTES = 3 << 30
"""Address space, beyond that of the program once everything is imported."""

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the checkout, where nothing is installed


@dataclass
class Tally:
    """Counts of a reader's inputs."""

    accepted: int = 0
    refused: int = 0
    seconds: float = 0.0
    """Processor time of this process: others may use the machine."""
    slowest: float = 0.0


class Hang(BaseException):
    """An input took too long. Not an `Exception`: no reader may catch it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", metavar="NAME")
    parser.add_argument("--input", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    kept = Path.cwd()
    with _elsewhere() as folder:
        found = all_readers(folder)
        if arguments.only:
            found = [one for one in found if one.name == arguments.only] or parser.error("no such reader")
        _limit_memory()
        if arguments.input:
            place = kept / arguments.input
            sys.exit(not attempt(found[0], place.read_bytes(), Tally(), place))
        sys.exit(not fuzz(found, arguments.inputs, arguments.seed, kept))


def all_readers(folder: Path) -> list[Any]:
    """Every reader, each with what it needs in a folder of its own."""
    from fuzzing import files, folders, gguf, memory, packed, text

    folders.make(folder / "here")
    return [one for kind in (text, files, folders, memory, packed, gguf) for one in kind.readers(folder)]


def fuzz(found: list[Any], inputs: int, seed: str, kept: Path) -> bool:
    """A table; whether all inputs were taken or refused as they should be."""
    good = True
    shares = sum(one.share for one in found)
    print(f"{'reader':15}{'inputs':>9}{'accepted':>10}{'refused':>9}{'seconds':>9}{'slowest':>9}")
    total = Tally()
    for reader in found:
        tally, place = Tally(), kept / f"fuzz-{reader.name.replace(' ', '-')}.input"
        for number in range(max(1, round(inputs * reader.share / shares))):
            raw = reader.make(Random(f"{seed} {reader.name} {number}"), reader.examples)
            if not attempt(reader, raw, tally, place):
                print(f"{reader.name}: input {number} of seed {seed}", file=sys.stderr)
                good = False
                break
        else:
            place.unlink()
        _show(reader.name, tally)
        total.accepted += tally.accepted
        total.refused += tally.refused
        total.seconds += tally.seconds
        total.slowest = max(total.slowest, tally.slowest)
    _show("all", total)
    return good


def _show(name: str, tally: Tally) -> None:
    count = tally.accepted + tally.refused
    print(
        f"{name:15}{count:9,}{tally.accepted:10,}{tally.refused:9,}{tally.seconds:9.1f}{tally.slowest:9.2f}",
        flush=True,
    )


def attempt(reader: Any, raw: bytes, tally: Tally, place: Path) -> bool:
    """One input, which is written to `place` first; False where it was a violation, which is told."""
    from fuzzing.reader import accepts

    with _watched(place, raw):
        began = time.process_time()
        try:
            taken = accepts(reader, raw)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            _disarm()
            frames = "".join(traceback.format_tb(error.__traceback__)[2:])
            print(f"{frames}{type(error).__name__}: {ascii(str(error))[:500]}", file=sys.stderr)
            print(f"{reader.name}: a violation; its input is kept in {place}", file=sys.stderr)
            return False
    tally.accepted += taken
    tally.refused += not taken
    seconds = time.process_time() - began
    tally.seconds += seconds
    tally.slowest = max(tally.slowest, seconds)
    return True


@contextmanager
def _watched(place: Path, raw: bytes) -> Iterator[None]:
    """An alarm that becomes `Hang`, and the input where it can be found if the process dies."""
    place.write_bytes(raw)
    faulthandler.dump_traceback_later(STUCK_S, exit=True)
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, _ring)
    signal.setitimer(signal.ITIMER_REAL, WAITING_S)
    signal.setitimer(signal.ITIMER_PROF, LONGEST_S)
    try:
        yield
    finally:
        _disarm()


def _disarm() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.setitimer(signal.ITIMER_PROF, 0)
    faulthandler.cancel_dump_traceback_later()


def _ring(number: int, _: Any) -> NoReturn:
    worked = number == signal.SIGPROF
    raise Hang(f"it worked for {LONGEST_S} seconds" if worked else f"it did not end in {WAITING_S} seconds")


def _limit_memory() -> None:
    """Bounds the address space, where the system tells how much there is already."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return
    most = pages * os.sysconf("SC_PAGESIZE") + MORE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


@contextmanager
def _elsewhere() -> Iterator[Path]:
    """A folder that is removed at the end, in which names, caches and configuration lead nowhere else."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        (folder / "h2o-chat").mkdir()
        (folder / "h2o-chat" / "config.toml").write_text('[aliases]\nmine = "org/name"\nnome = "\\u0000"\n')
        os.environ |= {"XDG_CONFIG_HOME": name, "HF_HUB_CACHE": str(folder / "hub"), "HF_HUB_OFFLINE": "1"}
        os.environ |= {"HOME": name, "XDG_CACHE_HOME": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
        before = Path.cwd()
        os.chdir(folder)
        try:
            yield folder
        finally:
            os.chdir(before)


if __name__ == "__main__":
    main()
