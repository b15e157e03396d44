"""Compiles the native step: `src/*.cpp` to `_step.so`, beside this file.

    python -m h2o_chat.native.build

Run while the package is installed (`hatch_build.py`), by `make` when a source is newer, and by whoever got a
compiler since. It needs only the standard library and imports nothing of h2o_chat, because it runs before
anything is installed.

The library runs on every processor of its kind: no `-march=native`. A form that needs a newer processor is a
file of its own, and that file alone gets the flags for it.
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
LIBRARY = FOLDER / ("_step" + {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".so"))
FAILURE = FOLDER / "_step.failed.txt"
"""Why the last attempt gave no library, in words."""

COMPILERS = ("c++", "g++", "clang++")
"""Looked for on PATH in this order, where $CXX names none."""

FLAGS = (
    *("-O3", "-std=c++17", "-fPIC", "-pthread", "-ffp-contract=off", "-fno-exceptions"),
    *("-fvisibility=hidden", "-Wall", "-Wextra"),
)
"""For every file. $CXXFLAGS is not read: results would depend on it (`-ffast-math`, `-march=native`)."""

FORMS = {
    "step_avx2": ("-mavx2", "-mfma", "-mf16c"),
    "step_avx512": (
        *("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni"),
        *("-mavx2", "-mfma", "-mf16c"),
    ),
}
"""Files for x86-64 alone, and the flags that only they get."""

RUNTIMES = (("-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL"), ())
"""How C++'s own library is linked: into ours where it can be: some Pythons bring an older one."""

LIMIT_S = 600
"""A compiler that takes longer is ended."""

SAID = 4000
"""Characters of a compiler's output that are kept."""


@dataclass(frozen=True)
class Made:
    """What stands in a library about how it was made."""

    sources: str
    """Their digest, with all that is said to the compiler."""
    date: str
    compiler: str


class BuildError(Exception):
    """No library was made; the text says why."""


def main() -> int:
    """Says what it did; the exit code is 1 where there is no library in the end."""
    failure = build()
    if failure is not None:
        print(f"The native step could not be compiled.\n{failure}", file=sys.stderr)
        print("Everything works without it, slower.", file=sys.stderr)
        return 1
    print(f"{LIBRARY} is up to date.")
    return 0


def build() -> str | None:
    """Makes the library, where there is none of these sources that loads, and puts it in place in one move.

    Returns:
        None, or why there is no library: an old one is gone then. The text is kept in `FAILURE`, where
        that can be written.
    """
    try:
        if not (is_current() and _loads()):
            with tempfile.TemporaryDirectory(prefix="h2o-chat-") as folder:
                _move(link(compile_sources(Path(folder))))
        FAILURE.unlink(missing_ok=True)
    except (BuildError, OSError) as error:
        said = str(error)
        try:
            LIBRARY.unlink(missing_ok=True)
            FAILURE.write_text(f"{said}\n", "utf-8")
        except OSError as unwritable:
            said += f"\n{unwritable}"
        return said
    return None


def compile_sources(folder: Path, more: tuple[str, ...] = ()) -> list[Path]:
    """The object files of all sources, in this folder; as many compilers run at once as there are cores.

    Args:
        folder: where they go.
        more: flags for every file, after the others.

    Raises:
        BuildError: there is no compiler, or a file does not compile.
    """
    command = compiler()
    if not _sources():
        raise BuildError(f"{SOURCES} holds no sources.")
    about = folder / "made.cpp"
    about.write_text(_about(command), "utf-8")
    files = [*_sources(), about]
    objects = [folder / f"{file.stem}.o" for file in files]
    commands = [
        [*command, *_flags(file.stem), *more, "-c", str(file), "-o", str(to)]
        for file, to in zip(files, objects, strict=True)
    ]
    with ThreadPoolExecutor(os.cpu_count() or 1) as several:
        list(several.map(run, commands))
    return objects


def link(objects: list[Path]) -> Path:
    """The library of these object files, beside them.

    Raises:
        BuildError: it cannot be linked.
    """
    library = objects[0].parent / LIBRARY.name
    command = [*compiler(), "-shared", "-pthread", *map(str, objects), "-o", str(library)]
    for runtime in RUNTIMES:
        try:
            run([*command, *runtime])
            return library
        except BuildError as error:
            failed = error
    raise failed


def compiler() -> list[str]:
    """The command that compiles C++.

    Raises:
        BuildError: there is none.
    """
    asked = shlex.split(os.environ.get("CXX", ""))
    for name in asked[:1] or COMPILERS:
        if shutil.which(name):
            return asked or [name]
    if asked:
        raise BuildError(f"There is no C++ compiler: $CXX is {asked[0]!r}, which is not there.")
    raise BuildError(f"There is no C++ compiler: none of {', '.join(COMPILERS)} is on PATH.")


def run(command: list[str]) -> str:
    """What a compiler says on stdout.

    Raises:
        BuildError: it failed, or took longer than `LIMIT_S`.
    """
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


def made() -> Made | None:
    """How the library was made, read from its file without loading it. None: there is no library."""
    try:
        found = re.search(rb"h2o_made ([0-9a-f]{64}) (\S+) ([^\0]*)\0", LIBRARY.read_bytes())
    except FileNotFoundError:
        return None
    if found is None:
        return Made("", "", "")
    sources, date, by = (part.decode("utf-8", "replace") for part in found.groups())
    return Made(sources, date, by)


def is_current() -> bool:
    """Whether the library is there and was made from these sources, with these flags, for this machine."""
    found = made()
    return found is not None and found.sources == digest()


def digest() -> str:
    """Of the sources, of this file with its flags, and of the kind of machine: 64 hexadecimal digits."""
    known = hashlib.sha256(f"{platform.system()} {platform.machine()}".encode())
    for file in (Path(__file__), *sorted(SOURCES.glob("*"))):
        known.update(f"\0{file.name}\0".encode() + file.read_bytes())
    return known.hexdigest()


def failure() -> str:
    """Why the last attempt gave no library; empty if it gave one, or there was none."""
    try:
        return FAILURE.read_text("utf-8").strip()
    except FileNotFoundError:
        return ""


def _loads() -> bool:
    """False for one that was made where the system's libraries are newer."""
    try:
        ctypes.CDLL(str(LIBRARY))
    except OSError:
        return False
    return True


def _sources() -> list[Path]:
    found = sorted(SOURCES.glob("*.cpp"))
    return found if _is_x86() else [file for file in found if file.stem not in FORMS]


def _flags(stem: str) -> tuple[str, ...]:
    # A thread that the system does not give is an exception, which pool.cpp catches: fewer threads will do.
    thrown = ("-fexceptions",) if stem == "pool" else ()
    return (*FLAGS, *FORMS.get(stem, ()), *thrown, *(() if _is_x86() else ("-DH2O_PLAIN_ONLY",)))


def _is_x86() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64")


def _about(command: list[str]) -> str:
    """One line of C++ that holds what `made` reads."""
    by = re.sub(r"[^ -~]|[\"\\]", "", run([*command, "--version"]).partition("\n")[0])
    text = f"h2o_made {digest()} {datetime.now(UTC).date()} {by}"
    return f'extern "C" __attribute__((visibility("default"))) const char h2o_made[] = "{text}";\n'


def _move(library: Path) -> None:
    """Into its place in one move: whoever has the old one open keeps it."""
    beside = LIBRARY.with_name(f"_step.{os.getpid()}.part")
    try:
        shutil.copyfile(library, beside)
        os.replace(beside, LIBRARY)
    finally:
        beside.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
