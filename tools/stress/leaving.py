"""Trouble in the middle of an answer, on the real program: how soon it is left, and what it kept.

    tools/stress/leaving.py [--model FOLDER] [--rounds 1]

A full disk, a read-only one, no memory, a stopped engine, a terminal that vanishes: each comes once tokens of
an answer were delivered. Then it is left as a person would. A row for each: seconds until no process was
left, exit code, tokens delivered and stored, whether those not stored were named. Ends with exit code 1 where
one breaks what docs/PROMISES.md says. The disks are small ones, which root alone may mount. Linux only.
"""

import argparse
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from leaving_programs import Program, run, screen

from h2o_chat.base.errors import ExitCode, H2OChatError
from h2o_chat.models.resolve import POCKET
from h2o_chat.store import Store

LONGEST_S = 3.0
TOKENS = 30
"""Delivered before the trouble comes, and again before somebody leaves a disk that takes nothing more."""
NOTICED_S = 1.0
"""After so long somebody leaves who has no memory."""
DISK_BYTES = 24 << 20


@dataclass(frozen=True)
class Situation:
    """A program, what happens to it in the middle of an answer, how it is left and how it should end."""

    name: str
    start: Callable[[Path, Path, str], Program]
    """Given the folder of its conversations, one for files of this row, and the model that answers."""
    trouble: Callable[[Program], None]
    leave: Callable[[Program], None]
    codes: Sequence[ExitCode]
    """It may end with one of these."""
    disk: str = ""
    """A file system of its own for the conversation."""


def nothing(program: Program) -> None:
    """No trouble but how it is left."""


def ctrl_c_twice(program: Program) -> None:
    program.type("\x03\x03")


def interrupt(program: Program) -> None:
    program.process.send_signal(signal.SIGINT)


def hang_up(program: Program) -> None:
    """Sends what the system sends to a program whose terminal is gone."""
    program.process.send_signal(signal.SIGHUP)


def fill_disk(program: Program) -> None:
    """Not a byte is left; and the answer goes on."""
    with (program.data.parent / "filler").open("wb", buffering=0) as filler:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    filler.write(bytes(size))
            except OSError:
                continue
    go_on(program)


def make_read_only(program: Program) -> None:
    """Turns the disk read-only as the system does after a failure, also while files on it are written."""
    subprocess.run(["mount", "-o", "remount,abort", str(program.data.parent)], check=True)
    go_on(program)


def go_on(program: Program) -> None:
    """More of the answer is delivered."""
    before = program.delivered()
    program.until(lambda: program.delivered() > before + TOKENS, "the answer goes on")


def stop_engine(program: Program) -> None:
    engine(program).suspend()


def no_memory_for_engine(program: Program) -> None:
    no_memory(engine(program).pid)
    program.until(lambda: program.failed(), "the engine says that memory is short")


def kill_engine(program: Program) -> None:
    """Kills as the system does where memory is short."""
    engine(program).kill()
    program.until(lambda: program.failed(), "the screen says that the engine has ended")


def no_memory_for_all(program: Program) -> None:
    for one in program.processes():
        no_memory(one.pid)


def no_memory_for_a_while(program: Program) -> None:
    """The outcome is by chance."""
    no_memory_for_all(program)
    end = time.monotonic() + NOTICED_S
    while time.monotonic() < end:
        program.read()


def no_memory(process: int) -> None:
    """It gets no more from the system than it has."""
    _, most = resource.prlimit(process, resource.RLIMIT_AS)
    resource.prlimit(process, resource.RLIMIT_AS, (1 << 20, most))


def engine(program: Program) -> psutil.Process:
    return max(program.processes(), key=lambda one: one.memory_info().rss)


EITHER = [ExitCode.OK, ExitCode.MEMORY]
"""The screen is left, or it has met the lack of memory itself and says so."""
SITUATIONS = [
    Situation("screen, full disk", screen, fill_disk, ctrl_c_twice, [ExitCode.FAILED], "tmpfs"),
    Situation("run --save, full disk", run, fill_disk, interrupt, [ExitCode.FAILED], "tmpfs"),
    Situation("screen, read-only disk", screen, make_read_only, ctrl_c_twice, [ExitCode.FAILED], "ext4"),
    Situation("run --save, read-only disk", run, make_read_only, interrupt, [ExitCode.FAILED], "ext4"),
    Situation("screen, no memory for the engine", screen, no_memory_for_engine, ctrl_c_twice, [ExitCode.OK]),
    Situation("screen, no memory at all", screen, no_memory_for_a_while, ctrl_c_twice, EITHER),
    Situation("screen, engine killed for its memory", screen, kill_engine, ctrl_c_twice, [ExitCode.OK]),
    Situation("run --save, no memory", run, nothing, no_memory_for_all, [ExitCode.MEMORY]),
    Situation("screen, stopped engine", screen, stop_engine, ctrl_c_twice, [ExitCode.OK]),
    Situation("screen, vanished terminal", screen, nothing, Program.vanish, [ExitCode.HUNG_UP]),
    Situation("run --save, vanished terminal", run, nothing, hang_up, [ExitCode.HUNG_UP]),
    Situation(
        "screen, stopped engine, vanished terminal", screen, stop_engine, Program.vanish, [ExitCode.HUNG_UP]
    ),
]


@dataclass(frozen=True)
class Row:
    """Outcome of a situation."""

    left_s: float
    code: int | None
    delivered: int
    stored: int
    named: str
    wrong: list[str]


def happen(situation: Situation, folder: Path, model: str) -> Row:
    """One situation, from the start of the program to the look at what it left.

    Raises:
        AssertionError: it did not come to the middle of an answer.
    """
    data = folder / "disk" / "data"
    program = situation.start(data, folder, model)
    try:
        program.until(lambda: program.delivered() > TOKENS, "an answer")
        situation.trouble(program)
        began = time.monotonic()
        situation.leave(program)
        end = began + LONGEST_S + 20  # if it takes longer than it may, the row says how long
        while program.processes() and time.monotonic() < end:
            program.read()
        left_s = time.monotonic() - began
        wrong = [f"still running: {program.processes()}"] if program.processes() else []
        code = program.end() if not wrong else None
    finally:
        program.kill()
    ids, delivered, said = program.ids(), program.delivered(), program.said()
    stored, cannot = look(data, folder, situation.disk)
    lost = delivered - len(stored)
    named = re.search(r"Not stored: [^\n]*?([\d,]+) tokens?", said)
    if left_s > LONGEST_S:
        wrong.append("too late")
    if code not in situation.codes:
        wrong.append(f"exit code {code}")
    if cannot:
        wrong.append(cannot)
    if stored[: len(ids)] != ids[: len(stored)]:
        wrong.append("other tokens are stored")
    if lost > (int(named[1].replace(",", "")) if named else 0):
        wrong.append(f"{lost} tokens are lost")
    if wrong:
        wrong.append(f"it said: {said[-600:]!r}")
    return Row(left_s, code, delivered, len(stored), named[0] if named else "", wrong)


def look(data: Path, folder: Path, disk: str) -> tuple[list[int], str]:
    """The ids that are stored of the answer, and why the conversation cannot be gone on with."""
    (data.parent / "filler").unlink(missing_ok=True)  # somebody makes room
    if disk == "ext4":  # what failed is repaired, and read elsewhere
        data = shutil.copytree(data, folder / "copy")
    try:
        with closing(Store(data)) as store:
            conversation = store.find("last")
            store.claim(conversation).close()
            answers = [one for one in store.path(conversation) if one.role == "assistant"]
            return list(answers[-1].ids), ""
    except H2OChatError as error:
        return [], error.message


@contextmanager
def disk(kind: str, folder: Path) -> Iterator[None]:
    """A small file system at `disk`; with no kind a folder as any other."""
    place = folder / "disk"
    place.mkdir()
    if kind == "tmpfs":
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(place)], check=True)
    elif kind:
        image = folder / "image"
        with image.open("wb") as file:
            file.truncate(DISK_BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
        subprocess.run(["mount", "-o", "loop,errors=remount-ro", str(image), str(place)], check=True)
    try:
        yield
    finally:
        if kind:
            subprocess.run(["umount", str(place)], check=True)


def may_mount(kind: str) -> bool:
    with tempfile.TemporaryDirectory() as name:
        try:
            with disk(kind, Path(name)):
                return True
        except (OSError, subprocess.CalledProcessError):
            return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=str(POCKET))
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    load = psutil.getloadavg()[0] / (os.cpu_count() or 1)
    print(f"load {load:.1f} per core\n")
    print("| situation | left after s | exit code (expected) | delivered | stored | named as not stored | |")
    print("|---|---|---|---|---|---|---|", flush=True)
    failed = skipped = 0
    for situation in SITUATIONS * arguments.rounds:
        if not may_mount(situation.disk):
            print(f"| {situation.name} | skipped: no {situation.disk} can be mounted here | | | | | |")
            skipped += 1
            continue
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            with disk(situation.disk, folder):
                row = happen(situation, folder, arguments.model)
        failed += bool(row.wrong)
        expected = " or ".join(map(str, situation.codes))
        print(
            f"| {situation.name} | {row.left_s:.2f} | {row.code} ({expected}) | {row.delivered:,} |"
            f" {row.stored:,} | {row.named or 'no'} | {'; '.join(row.wrong) or 'ok'} |",
            flush=True,
        )
    if skipped:
        print(f"\n{skipped} skipped")
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
