"""hatchling runs this before it makes a wheel, so also for `pip install .` and `pip install -e .`.

It compiles the native step. Where that fails the install goes on without it, and `h2o-chat doctor` tells why.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags


class NativeStep(BuildHookInterface):
    """Compiles, and names the system in the wheel that holds the library."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before the files are collected. pyproject.toml names the library among them, if it is there.

        `$H2O_CHAT_WHEEL_FOR` is for another system than this one: its name and its machine's, as `platform`
        says them there, and the wheel's tag (tools/make/make_wheels.py).
        """
        *target, tag = os.environ.get("H2O_CHAT_WHEEL_FOR", "").split() or [platform_tag()]
        program = Path(self.root) / "h2o_chat" / "native" / "build.py"
        done = subprocess.run(
            [sys.executable, str(program), *target], capture_output=True, text=True, errors="replace"
        )
        if done.returncode:
            self.app.display_warning(done.stderr)
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{tag}"


def platform_tag() -> str:
    """Of this system. The library asks nothing of Python.

    What it asks of the system is what this one has: on Linux the tag is linux_x86_64, for machines like this
    one. A manylinux tag would promise more than is checked. On a Mac `$MACOSX_DEPLOYMENT_TARGET` tells the
    compiler the oldest macOS.
    """
    oldest = os.environ.get("MACOSX_DEPLOYMENT_TARGET")
    if sys.platform == "darwin" and oldest:
        return f"macosx_{(oldest + '.0').replace('.', '_', 1).partition('.')[0]}_{os.uname().machine}"
    return next(platform_tags())
