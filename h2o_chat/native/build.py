"""Compiles the native step: `src/*.cpp` to `_step.so`, beside this file.

    python -m h2o_chat.native.build [SYSTEM MACHINE]

SYSTEM and MACHINE, by their names in `platform` (`Linux aarch64`), are for a $CXX that compiles for another
system. It runs while the package is installed (`hatch_build.py`), by `make` when a source is newer, or by
hand. It needs only the standard library and imports nothing of h2o_chat, because it runs before installation.

The library runs on every processor of its kind, without `-march=native`. A form (instruction set) that needs
a newer processor is a separate file, and only that file gets the flags for it.
"""

import ctypes
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
SOURCES = FOLDER / "src"
FAILURE = FOLDER / "_step.failed.txt"
"""File with the reason why the last attempt failed."""

COMPILERS = ("c++", "g++", "clang++")
"""Compilers searched on PATH in this order, if $CXX names none."""

FLAGS = (
    *("-O3", "-std=c++17", "-fPIC", "-pthread", "-ffp-contract=off", "-fno-exceptions"),
    *("-fvisibility=hidden", "-Wall", "-Wextra"),
)
"""Flags of all files. $CXXFLAGS is not read: results would depend on it (`-ffast-math`, `-march=native`)."""

AVX2 = ("-mavx2", "-mfma", "-mf16c")
AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni", *AVX2)
AMX = ("-mamx-tile", "-mamx-int8")
X86_FORMS: dict[str, tuple[str, ...]] = {
    "step_avx2": AVX2,
    "step_avx512": AVX512,
    "step_amx": (*AVX512, *AMX),
}
ARM_FORMS: dict[str, tuple[str, ...]] = {"step_neon": ("-march=armv8.2-a+dotprod",)}
FORMS = {"x86_64": X86_FORMS, "amd64": X86_FORMS, "aarch64": ARM_FORMS, "arm64": ARM_FORMS}
"""Files for one kind of processor, by its names, with their own flags."""

ZIG_SAYS = {"-march=armv8.2-a+dotprod": "-mcpu=generic+v8_2a+dotprod"}
"""Flags with another name in `zig c++`."""

RUNTIMES = (("-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL"), ())
"""Flags to link C++'s runtime: statically if possible, since some Pythons bring an older one."""

LIMIT_S = 600
"""Seconds after which a compiler is killed."""

SAID = 4000
"""Characters kept of a compiler's output."""


@dataclass(frozen=True)
class Target:
    """The system that a library is for."""

    system: str  # Its `platform.system()`
    machine: str  # Its `platform.machine()`

    @property
    def library(self) -> Path:
        """Path of the library, which need not exist."""
        return FOLDER / ("_step" + {"Darwin": ".dylib", "Windows": ".dll"}.get(self.system, ".so"))

    @property
    def forms(self) -> dict[str, tuple[str, ...]]:
        """Files for this kind of processor, and their flags."""
        return FORMS.get(self.machine.lower(), {})


HERE = Target(platform.system(), platform.machine())
LIBRARY = HERE.library


@dataclass(frozen=True)
class Made:
    """How a library was built; stored in it."""

    sources: str  # Digest of sources and flags
    date: str
    compiler: str


class BuildError(Exception):
    """Building failed; the text says why."""


def main() -> int:
    """Builds and prints the result; the exit code is 1 if there is no library in the end."""
    if len(sys.argv) not in (1, 3):
        print(f"usage: {sys.argv[0]} [SYSTEM MACHINE]", file=sys.stderr)
        return 2
    target = Target(*sys.argv[1:]) if sys.argv[1:] else HERE
    failure = build(target)
    if failure is not None:
        print(f"The native step could not be compiled.\n{failure}", file=sys.stderr)
        print("Everything works without it, slower.", file=sys.stderr)
        return 1
    print(f"{target.library} is up to date.")
    return 0


def build(target: Target = HERE) -> str | None:
    """Makes the library, where there is none of these sources that loads, and puts it in place in one move.

    Returns None, or why there is no library: an old one is gone then, and the text is in `FAILURE` where that
    can be.
    """
    try:
        if not (is_current(target) and (target != HERE or _loads())):
            with tempfile.TemporaryDirectory(prefix="h2o-chat-") as folder:
                _move(link(compile_sources(Path(folder), target=target), target), target.library)
        FAILURE.unlink(missing_ok=True)
    except (BuildError, OSError) as error:
        said = str(error)
        try:
            target.library.unlink(missing_ok=True)
            FAILURE.write_text(f"{said}\n", "utf-8")
        except OSError as unwritable:
            said += f"\n{unwritable}"
        return said
    return None


def compile_sources(folder: Path, more: tuple[str, ...] = (), target: Target = HERE) -> list[Path]:
    """Compiles all sources in parallel into `folder`, one compiler per core; returns the object files.

    `more` are flags for every file. Raises BuildError if there is no compiler, or a file does not compile.
    """
    command = compiler()
    sources = _sources(target)
    if not sources:
        raise BuildError(f"{SOURCES} holds no sources.")
    if "step_amx" in target.forms and not (target.system == "Linux" and _knows_amx(command, folder)):
        sources = [file for file in sources if file.stem != "step_amx"]
        more = (*more, "-DH2O_NO_AMX")
    about = folder / "made.cpp"
    about.write_text(_about(command, target), "utf-8")
    files = [*sources, about]
    objects = [folder / f"{file.stem}.o" for file in files]
    commands = [
        [*command, *_flags(command, file.stem, target), *more, "-c", str(file), "-o", str(to)]
        for file, to in zip(files, objects, strict=True)
    ]
    with ThreadPoolExecutor(os.cpu_count() or 1) as several:
        list(several.map(run, commands))
    return objects


def link(objects: list[Path], target: Target = HERE) -> Path:
    """Links object files; returns the library, beside them. Raises BuildError if they cannot be linked."""
    library = objects[0].parent / target.library.name
    command = [*compiler(), "-shared", "-pthread", *map(str, objects), "-o", str(library)]
    runtimes: tuple[tuple[str, ...], ...] = RUNTIMES
    if target.system == "Windows":
        runtimes = (("-static",), ())
    if _is_zig(command):  # it links its own runtime, with debug symbols
        (library.parent / "exports").write_text("{ global: h2o_*; local: *; };")
        hidden = (f"-Wl,--version-script={library.parent}/exports",) if target.system == "Linux" else ()
        runtimes = (("-s", *hidden),)
    for runtime in runtimes:
        try:
            run([*command, *runtime])
            return library
        except BuildError as error:
            failed = error
    raise failed


def compiler() -> list[str]:
    """The command that compiles C++. Raises BuildError if there is none."""
    asked = shlex.split(os.environ.get("CXX", ""))
    for name in asked[:1] or COMPILERS:
        if shutil.which(name):
            return asked or [name]
    if asked:
        raise BuildError(f"There is no C++ compiler: $CXX is {asked[0]!r}, which is not there.")
    raise BuildError(f"There is no C++ compiler: none of {', '.join(COMPILERS)} is on PATH.")


def form_flags(command: list[str], stem: str, target: Target) -> tuple[str, ...]:
    """Flags of a form's file for this compiler."""
    flags = target.forms.get(stem, ())
    return tuple(ZIG_SAYS.get(flag, flag) for flag in flags) if _is_zig(command) else flags


def run(command: list[str]) -> str:
    """Runs a compiler; returns its stdout. Raises BuildError if it fails, or is not done after `LIMIT_S`."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        raise BuildError(f"{shlex.join(command)}\nwas not done after {LIMIT_S} s.") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[:SAID]
        raise BuildError(f"{shlex.join(command)}\nended with exit code {done.returncode}:\n{said}")
    return done.stdout


def made(target: Target = HERE) -> Made | None:
    """How the library was built, read from its file without loading it. None: there is no library."""
    try:
        found = re.search(rb"h2o_made ([0-9a-f]{64}) (\S+) ([^\0]*)\0", target.library.read_bytes())
    except FileNotFoundError:
        return None
    if found is None:
        return Made("", "", "")
    sources, date, by = (part.decode("utf-8", "replace") for part in found.groups())
    return Made(sources, date, by)


def is_current(target: Target = HERE) -> bool:
    """Whether the library was built from these sources, with these flags, for this machine."""
    found = made(target)
    return found is not None and found.sources == digest(target)


def digest(target: Target = HERE) -> str:
    """SHA-256 of the sources, of this file with its flags, and of the kind of machine, in hexadecimal."""
    known = hashlib.sha256(f"{target.system} {target.machine}".encode())
    for file in (Path(__file__), *sorted(SOURCES.glob("*"))):
        known.update(f"\0{file.name}\0".encode() + file.read_bytes())
    return known.hexdigest()


def failure() -> str:
    """Why the last attempt failed; empty if it succeeded, or there was none."""
    try:
        return FAILURE.read_text("utf-8").strip()
    except FileNotFoundError:
        return ""


def _is_zig(command: list[str]) -> bool:
    return not {"zig", "ziglang", "python-zig"}.isdisjoint(Path(part).stem for part in command)


def _knows_amx(command: list[str], folder: Path) -> bool:
    """Whether the compiler and its assembler support AMX (from 2020 on)."""
    tiles = folder / "tiles.cpp"
    tiles.write_text('void tiles() { __asm__ volatile("tilerelease"); }', "utf-8")
    try:
        run([*command, *AMX, "-c", str(tiles), "-o", str(folder / "tiles.o")])
    except BuildError:
        return False
    return True


def _loads() -> bool:
    """Whether this system can load a library; not if it was built on a system with newer libraries."""
    try:
        ctypes.CDLL(str(LIBRARY))
    except OSError:
        return False
    return True


def _sources(target: Target) -> list[Path]:
    of_others = {stem for forms in FORMS.values() for stem in forms} - set(target.forms)
    return [file for file in sorted(SOURCES.glob("*.cpp")) if file.stem not in of_others]


def _flags(command: list[str], stem: str, target: Target) -> tuple[str, ...]:
    # If a thread cannot be started, pool.cpp catches the exception and does with fewer threads.
    thrown = ("-fexceptions",) if stem == "pool" else ()
    plain = () if target.forms else ("-DH2O_PLAIN_ONLY",)
    return (*FLAGS, *form_flags(command, stem, target), *thrown, *plain)


def _about(command: list[str], target: Target) -> str:
    """One line of C++ with the text that `made` reads."""
    by = re.sub(r"[^ -~]|[\"\\]", "", run([*command, "--version"]).partition("\n")[0])
    text = f"h2o_made {digest(target)} {datetime.now(UTC).date()} {by}"
    return f'extern "C" __attribute__((visibility("default"))) const char h2o_made[] = "{text}";\n'


def _move(library: Path, to: Path) -> None:
    """Moves the library into its place atomically; processes with the old one open keep it."""
    beside = to.with_name(f"_step.{os.getpid()}.part")
    try:
        shutil.copyfile(library, beside)
        os.replace(beside, to)
    finally:
        beside.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
