"""Builds an sdist, and wheels of it with and without a C++ compiler; installs each elsewhere and asks it.

    tools/make/try_wheel.py [WHEEL ...]

Wheels that are there already (tools/make/make_wheels.py) are installed too. Prints what was built, the step
that computes, the answer, and the time of the whole command and of the first token after loading. All have to
give the same answer. The network is needed to install what the wheel depends on, and is cut off (`unshare
--net`, as root) to ask.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
QUESTION = "My name is Ada. What is my name?"
MIB = 2**20
TIMES = 3
"""The first one reads everything from the disk."""


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder], cwd=ROOT, check=True
        )
        [sdist] = folder.glob("*.tar.gz")
        with_compiler, without = (
            wheel_of(sdist, folder / "with"),
            wheel_of(sdist, folder / "without", compiler=False),
        )
        venv.create(folder / "venv", with_pip=True)
        python = folder / "venv" / "bin" / "python"
        install = [str(python), "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt")]
        subprocess.run([*install, "torch"], check=True)  # first and alone: see docs/USING.md, "Installing"
        subprocess.run([*install, str(with_compiler)], check=True)
        answers = set()
        given = [Path(name).resolve() for name in sys.argv[1:]]
        native = [with_compiler, sdist, *given]
        for built, step in ((without, "transformers"), *((built, "native") for built in native)):
            print(f"\n{built.name}: {built.stat().st_size / MIB:.1f} MiB", flush=True)
            subprocess.run([*install, "--force-reinstall", "--no-deps", str(built)], check=True)
            answers.add(asked(folder, folder / "venv" / "bin", step))
        if len(answers) > 1 or not all("Ada" in answer for answer in answers):
            sys.exit(f"The answers are {answers}.")


def wheel_of(sdist: Path, folder: Path, *, compiler: bool = True) -> Path:
    """The wheel that pip makes of an sdist; without a compiler: with nothing at all on PATH."""
    known = {name: value for name, value in os.environ.items() if name != "CXX"}
    if not compiler:
        known["PATH"] = str(folder)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(sdist)]
    subprocess.run(command, env=known, check=True)
    [wheel] = folder.glob("*.whl")
    return wheel


def asked(folder: Path, programs: Path, step: str) -> str:
    """The answer of what is installed there; exits if it fails, or computes with another step."""
    program = str(programs / "h2o-chat")
    cut = ["unshare", "--net"] if shutil.which("unshare") else []

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [*cut, program, *arguments], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(f"exit code {done.returncode}\n{done.stderr}")
        return done.stdout

    doctor = json.loads(run("doctor", "--json"))["rows"]
    print(f"native step: {doctor['native step']}")
    if not doctor["step"].startswith(step):
        sys.exit(f"The step is {doctor['step']}, and not {step}.")
    for number in range(TIMES):
        began = time.perf_counter()
        answer = run("run", QUESTION, "--temperature", "0").strip()
        print(f"run {number + 1}: {answer!r}, {time.perf_counter() - began:.2f} s in all")
    rows = map(json.loads, run("run", QUESTION, "--temperature", "0", "--json").splitlines())
    turn = next(row for row in rows if row["event"] == "turn")
    print(f"first token after loading: {turn['ttft_ms']:.0f} ms")
    return answer


if __name__ == "__main__":
    main()
