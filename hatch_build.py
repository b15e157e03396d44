"""hatchling runs this before it makes a wheel, so also for `pip install .` and `pip install -e .`.

It compiles the native step. Where that fails the install goes on without it, and `h2o-chat doctor` tells why.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags


class NativeStep(BuildHookInterface):
    """Compiles, and names the system in the wheel that holds the library."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before the files are collected. pyproject.toml names the library among them, if it is there."""
        program = Path(self.root) / "h2o_chat" / "native" / "build.py"
        done = subprocess.run(
            [sys.executable, str(program)], capture_output=True, text=True, errors="replace"
        )
        if done.returncode:
            self.app.display_warning(done.stderr)
            return
        # The library asks nothing of Python. What it asks of the system is what this one has, so on Linux the
        # tag is linux_x86_64: for machines like this one. A manylinux tag would promise more than is checked.
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{next(platform_tags())}"
