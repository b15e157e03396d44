"""Makes the sdist and the wheels of all systems, on one Linux machine and without Docker.

    pip install --group wheels
    tools/make/make_wheels.py [TAG ...]

They go to dist/. zig (the `ziglang` package) compiles the native step for each system; hatchling makes the
wheel, with `hatch_build.py`. That a wheel was made says that its library was compiled and linked, not that it
runs: docs/NATIVE.md says which have run. With tags, only wheels of these.
"""

import os
import shlex
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"

SYSTEMS = {
    "manylinux_2_28_x86_64": ("Linux x86_64", "x86_64-linux-gnu.2.28"),
    "manylinux_2_28_aarch64": ("Linux aarch64", "aarch64-linux-gnu.2.28"),
    "macosx_11_0_arm64": ("Darwin arm64", "aarch64-macos.11.0"),
    "win_amd64": ("Windows AMD64", "x86_64-windows-gnu"),
}
"""By a wheel's tag: the system and its machine as `platform` names them there, and zig's target."""


def main() -> None:
    wanted = sys.argv[1:] or list(SYSTEMS)
    if unknown := set(wanted) - set(SYSTEMS):
        sys.exit(f"No such tag: {', '.join(unknown)}. There are {', '.join(SYSTEMS)}.")
    hatchling("sdist", ROOT)
    sdist = max(DIST.glob("*.tar.gz"), key=lambda path: path.stat().st_mtime)
    for tag in wanted:
        with tempfile.TemporaryDirectory() as name, tarfile.open(sdist) as file:
            file.extractall(name, filter="data")
            [tree] = Path(name).iterdir()
            print(wheel(tree, tag), flush=True)


def wheel(tree: Path, tag: str) -> Path:
    """The wheel of what an sdist holds; exits if its library was not compiled."""
    of, target = SYSTEMS[tag]
    compiler = [sys.executable, "-m", "ziglang", "c++", "-target", target]
    link_nothing(compiler)
    hatchling("wheel", tree, CXX=shlex.join(compiler), H2O_CHAT_WHEEL_FOR=f"{of} {tag}")
    made = DIST / f"{tree.name}-py3-none-{tag}.whl"
    if not made.exists():
        made = DIST / f"{tree.name}-py3-none-any.whl"
        with zipfile.ZipFile(made) as file:
            said = file.read("h2o_chat/native/_step.failed.txt").decode()
        made.unlink()
        sys.exit(f"{tag}: the native step was not compiled.\n{said}")
    return made


def link_nothing(compiler: list[str]) -> None:
    """Has zig compile the system's own libraries, which it keeps.

    The first time that takes minutes, on a busy machine longer than a build may take (`build.LIMIT_S`).
    """
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "nothing.cpp"
        source.write_text("#include <string>\nstd::string nothing() { return {}; }\n")
        linked = source.with_suffix(".library")
        subprocess.run([*compiler, "-shared", "-pthread", source, "-o", linked, "-s"], check=True)


def hatchling(what: str, tree: Path, **environment: str) -> None:
    """Into dist/."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", what, "-d", str(DIST)]
    subprocess.run(command, cwd=tree, env=os.environ | environment, check=True)


if __name__ == "__main__":
    main()
