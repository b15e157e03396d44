"""Runs the native step on emulated processors: without AVX, with AVX alone, with AVX2.

    tools/make/try_old_processor.py

Needs a C++ compiler and QEMU's `qemu-x86_64` (Debian and Ubuntu: apt install qemu-user). The program of the
tests that calls every C function (tests/native/every_function.cpp) is compiled as it is shipped. On each
processor it may execute nothing that this lacks (it would be killed, which is tried first), takes just
the forms that it can run, and computes the same bits as here. Then h2o-chat itself answers a question there.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from h2o_chat.native import build

ROOT = Path(__file__).parents[2]

PROCESSORS = {
    "Nehalem": ["plain"],
    "SandyBridge": ["plain"],  # AVX, but neither AVX2 nor FMA
    "Haswell": ["plain", "AVX2"],
}
"""By QEMU's name, and the forms that it can run. QEMU knows no AVX-512."""

AVX2 = """
#include <immintrin.h>
int main() {
    volatile __m256i numbers = _mm256_set1_epi32(1);
    numbers = _mm256_add_epi32(numbers, numbers);
}
"""

NO_PROGRAM = ("Nehalem",)
"""Where Python's packages do not run: importing numpy is killed there."""

QUESTION = ("run", "My name is Ada. What is my name?", "--engine", "native", "--temperature", "0")

LIMIT_S = 900
"""A program, by the clock: a Haswell takes 255 s of a processor, and took 557 beside load 8."""


def main() -> None:
    if shutil.which("qemu-x86_64") is None:
        sys.exit(
            "qemu-x86_64 is not here. Install QEMU for programs (Debian and Ubuntu: apt install qemu-user)."
        )
    with tempfile.TemporaryDirectory() as name:
        program = Path(name) / "every_function"
        objects = map(str, build.compile_sources(Path(name)))
        sources = [str(ROOT / "tests" / "native" / name) for name in ("every_function.cpp", "angles.cpp")]
        command = [*build.compiler(), "-O1", "-std=c++17", "-pthread", f"-I{build.SOURCES}"]
        build.run([*command, *sources, *objects, "-o", str(program)])
        bits = forms([str(program)], "this machine")["plain"]
        (Path(name) / "avx2.cpp").write_text(AVX2)
        avx2 = str(Path(name) / "avx2")
        build.run([*build.compiler(), "-mavx2", f"{avx2}.cpp", "-o", avx2])
        for processor, expected in PROCESSORS.items():
            killed = (
                subprocess.run(["qemu-x86_64", "-cpu", processor, avx2], capture_output=True).returncode != 0
            )
            if killed != ("AVX2" not in expected):
                sys.exit(f"The emulated {processor} {'kills' if killed else 'runs'} a program with AVX2.")
            found = forms(["qemu-x86_64", "-cpu", processor, str(program)], processor)
            if found != dict.fromkeys(expected, bits):
                sys.exit(f"{processor}: {found}. Expected: {', '.join(expected)}, with the digest {bits}.")
    here = answer([], "this machine")
    for processor in PROCESSORS:
        if processor not in NO_PROGRAM:
            told = answer(["qemu-x86_64", "-cpu", processor], processor)
            if told != here:
                sys.exit(f"{processor} answers {told!r}, this machine {here!r}.")
    print("All of them compute the same bits and answer the same.")


def forms(command: list[str], where: str) -> dict[str, str]:
    """The digest of all results, by form; exits if the program failed or was killed."""
    return dict(line.rsplit(" ", 1) for line in run(command, where).splitlines())


def answer(emulated: list[str], where: str) -> str:
    """Runs h2o-chat; exits as `forms` does."""
    return run([*emulated, sys.executable, "-m", "h2o_chat", *QUESTION], where)


def run(command: list[str], where: str) -> str:
    """Runs it and returns its output."""
    began = time.perf_counter()
    # With AVX2 torch computes wrong under QEMU 7.2: it takes its own plain kernels.
    environment = os.environ | {"ATEN_CPU_CAPABILITY": "default"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode:
        sys.exit(f"{where}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    print(f"{where}: {', '.join(done.stdout.splitlines())}, {time.perf_counter() - began:.1f} s", flush=True)
    return done.stdout


if __name__ == "__main__":
    main()
