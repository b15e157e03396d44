"""Runs h2o-chat without what Windows lacks: `python without_posix.py run ...`.

Only h2o_chat finds the modules, functions and signals gone that POSIX alone has: torch and the standard
library go on with the system that this is. `msvcrt` is a stand-in.
"""

import builtins
import contextlib
import fcntl
import importlib
import mmap
import os
import signal
import sys
import types
from typing import Any

NO_MODULES = ("fcntl", "resource", "termios", "pty", "tty", "pwd", "grp")
WITHOUT = {
    os: "O_NOFOLLOW O_CLOEXEC O_NONBLOCK geteuid getuid pread pwrite posix_fallocate sched_getaffinity uname",
    signal: "SIGHUP SIGKILL SIGPROF SIGWINCH SIGALRM setitimer",
    mmap: "MAP_SHARED PROT_READ",
    sys: "",
}


class Other(types.ModuleType):
    """A module without some names."""

    def __init__(self, real: types.ModuleType, without: str) -> None:
        super().__init__(real.__name__)
        self.__dict__.update(real_=real, without=without.split())

    def __getattr__(self, name: str) -> Any:
        if name in self.without:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}", name=name)
        return "win32" if (self.real_, name) == (sys, "platform") else getattr(self.real_, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.real_, name, value)


OTHERS = {real.__name__: Other(real, names) for real, names in WITHOUT.items()}


def locking(descriptor: int, how: int, count: int) -> None:
    """Locks `count` bytes from where the file stands, like Windows; an OSError where they are held."""
    assert (how, count) == (2, 1)
    assert os.lseek(descriptor, 0, os.SEEK_CUR) > 2**30, "what is locked cannot be read"
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    raise PermissionError(13, "Permission denied")


def imported(name: str, globals_: Any = None, *more: Any, **named: Any) -> Any:
    """The statement `import name` in any module."""
    if globals_ and str(globals_.get("__name__")).partition(".")[0] == "h2o_chat":
        if name in NO_MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        if name in OTHERS:
            return OTHERS[name]
    return real_import(name, globals_, *more, **named)


real_import, real_import_module = builtins.__import__, importlib.import_module

if __name__ == "__main__":
    stand_in: Any = types.ModuleType("msvcrt")
    stand_in.locking, stand_in.LK_NBLCK = locking, 2
    importlib.import_module = lambda name, *more, **named: (
        stand_in if name == "msvcrt" else real_import_module(name, *more, **named)
    )
    everywhere: Any = builtins
    everywhere.__import__ = imported
    from h2o_chat.base import system
    from h2o_chat.cli.cli import main

    assert not system.MOVES_OPEN_FILES
    main()
