"""Runs h2o-chat as far as can be without what Windows lacks: `python without_posix.py run ...`.

The modules, functions and signals that only POSIX has are taken from h2o_chat, and only from it: torch and the
standard library were imported for the system that this is. `msvcrt` is a stand-in.
"""

import contextlib
import fcntl
import importlib.abc
import mmap
import os
import signal
import sys
import types
from collections.abc import Sequence
from typing import Any

GONE = ("fcntl", "resource", "termios", "pty", "tty", "pwd", "grp")


def locking(descriptor: int, how: int, count: int) -> None:
    """As Microsoft documents it: from where the file stands, `count` bytes, an OSError where they are held."""
    assert how == 2
    where = os.lseek(descriptor, 0, os.SEEK_CUR)
    assert where > 2**30, "what is locked cannot be read"
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    raise PermissionError(13, "Permission denied")


class Missing(importlib.abc.MetaPathFinder):
    """Modules that there are not, for h2o_chat."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> None:
        if name in GONE:
            frame = sys._getframe()
            while frame and "importlib" in frame.f_code.co_filename:
                frame = frame.f_back
            if frame and frame.f_globals.get("__name__", "").startswith("h2o_chat"):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def main() -> int:
    import subprocess  # noqa: F401  (it needs what goes)

    import platformdirs  # noqa: F401
    import psutil  # noqa: F401
    import textual.app  # noqa: F401
    import torch
    import transformers  # noqa: F401

    sys.modules["msvcrt"] = stand_in = types.ModuleType("msvcrt")
    stand_in.locking, stand_in.LK_NBLCK = locking, 2
    for name in GONE:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, Missing())
    for name in (
        "O_NOFOLLOW",
        "O_CLOEXEC",
        "O_NONBLOCK",
        "geteuid",
        "getuid",
        "pread",
        "pwrite",
        "posix_fallocate",
    ):
        delattr(os, name)
    for name in ("SIGHUP", "SIGPROF", "setitimer"):
        delattr(signal, name)
    for name in ("MAP_SHARED", "PROT_READ"):
        delattr(mmap, name)
    real, sys.platform = sys.platform, "win32"
    import h2o_chat.base.system
    import h2o_chat.chat.template_process  # noqa: F401

    sys.platform = real
    assert not h2o_chat.base.system.MOVES_OPEN_FILES
    assert torch.__version__
    from h2o_chat.cli.cli import main as run

    return run() or 0


if __name__ == "__main__":
    sys.exit(main())
