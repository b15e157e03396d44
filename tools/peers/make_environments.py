"""Makes environments with the programs that `tools/peers/speed.py` compares with.

    .venv/bin/python tools/peers/make_environments.py FOLDER             # all: minutes, llama.cpp is compiled
    .venv/bin/python tools/peers/make_environments.py FOLDER openvino    # this one
    .venv/bin/python tools/peers/speed.py --shape smollm2-135m --peers all --folder FOLDER

They are no dependencies of this program and never installed beside it: each has an environment of its own.
One that cannot be installed does not stop the others: `speed.py` says why it has no figures. llama.cpp needs
a C++ compiler.
"""

import argparse
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

PACKAGES = {"openvino": ("openvino-genai", "nncf"), "llama.cpp": ("llama-cpp-python",)}
"""Packages by environment; the slowest to install is last."""
TALKING = {"openvino": "openvino-telemetry"}
"""Packages that tell their maker of every run, over the network; without them all else works."""
FROM_SOURCE = ["--no-binary", "llama-cpp-python"]
NATIVE = {"CMAKE_ARGS": "-DGGML_NATIVE=ON"}
"""Builds llama.cpp with everything that this processor has: it shall be as fast as it can be here."""


def make(folder: Path, name: str) -> str:
    """Makes one environment, anew.

    Returns:
        Why it could not be made; empty if it was.
    """
    place = folder / "envs" / name
    shutil.rmtree(place, ignore_errors=True)
    place.with_name(f"{name}.failed").unlink(missing_ok=True)
    venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    command = [str(python), "-m", "pip", "install", *FROM_SOURCE, *PACKAGES[name]]
    done = subprocess.run(command, env=os.environ | NATIVE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        shutil.rmtree(place)
        lines = done.stderr.strip().splitlines() or ["pip said nothing"]
        place.with_name(f"{name}.failed").write_text(lines[-1] + "\n", "utf-8")
        return lines[-1]
    if name in TALKING:
        subprocess.run([str(python), "-m", "pip", "uninstall", "--yes", TALKING[name]], check=True)
    return ""


def main(arguments: list[str] | None = None) -> int:
    """Makes the environments that are asked for; returns 1 if one of them could not be made."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("programs", nargs="*", metavar="NAME", help=f"all, or of: {', '.join(PACKAGES)}")
    asked = parser.parse_args(arguments)
    wrong = [name for name in asked.programs if name not in PACKAGES]
    if wrong:
        parser.error(f"{wrong[0]!r} is not known. One of: {', '.join(PACKAGES)}.")
    (asked.folder / "envs").mkdir(parents=True, exist_ok=True)
    (asked.folder / "files").mkdir(exist_ok=True)
    failed = False
    for name in asked.programs or PACKAGES:
        reason = make(asked.folder, name)
        print(f"{name}: {f'not installed: {reason}' if reason else 'ready'}")
        failed |= bool(reason)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
