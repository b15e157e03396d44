"""Builds the wheel, installs it into a fresh environment outside the repository and asks it, no network.

    tools/try_wheel.py

Prints the wheel's size, the answer, and the time of the whole command and of the first token after loading.
The network is needed to install what the wheel depends on, and is cut off (`unshare --net`, as root) to ask.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
QUESTION = "My name is Ada. What is my name?"
MIB = 2**20


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(ROOT)]
        subprocess.run(pip, check=True)
        [wheel] = folder.glob("*.whl")
        print(f"{wheel.name}: {wheel.stat().st_size / MIB:.1f} MiB")
        venv.create(folder / "venv", with_pip=True)
        python = folder / "venv" / "bin" / "python"
        install = [str(python), "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt")]
        subprocess.run([*install, "torch"], check=True)  # first and alone: see the README, "Installing"
        subprocess.run([*install, str(wheel)], check=True)
        ask = [str(folder / "venv" / "bin" / "h2o-chat"), "run", QUESTION]
        cut = ["unshare", "--net"] if shutil.which("unshare") else []
        for number in range(3):  # the first one reads everything from the disk
            began = time.perf_counter()
            done = subprocess.run(
                [*cut, *ask], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True
            )
            seconds = time.perf_counter() - began
            print(
                f"run {number + 1}: {done.stdout.strip()!r}, exit {done.returncode}, {seconds:.2f} s in all"
            )
            if done.returncode or "Ada" not in done.stdout:
                sys.exit(done.stderr)
        done = subprocess.run(
            [*cut, *ask, "--json"], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        turn = next(row for row in map(json.loads, done.stdout.splitlines()) if row["event"] == "turn")
        print(f"first token after loading: {turn['ttft_ms']:.0f} ms")


if __name__ == "__main__":
    main()
