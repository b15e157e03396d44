"""A process that has imported everything, once, and forks for each program that a test starts.

Importing torch is most of what such a test would cost. What is forked is a process like any other: its argv,
stdin, stdout, stderr, folder, environment, signals, limits and exit code are its own, and it is a child of
the test's process. The engine of a screen is forked too, and is a child of that screen. What a fork does not
show is how Python starts and what is imported when: tests of that start an interpreter, by
`subprocess.Popen`. So does `Forked` where a variable differs that is read while something is imported, and
on systems other than Linux.

Nor does it show, but in `make test-all`, how Python takes all modules apart at its very end: in a fork that
copies them, which takes ten times as long as all else of a short program.
"""

import atexit
import ctypes
import fcntl
import gc
import importlib
import inspect
import io
import os
import pickle
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

IMPORTED = (
    "h2o_chat.chat.conversation.opening", "h2o_chat.chat.recall.recall", "h2o_chat.cli.run_batch",
    "h2o_chat.cli.cli",
    "h2o_chat.cli.doctor", "h2o_chat.cli.plain", "h2o_chat.cli.run", "h2o_chat.engine.batch",
    "h2o_chat.engine.saved_cache", "h2o_chat.native.native_model", "h2o_chat.remote.engine_apart",
    "h2o_chat.tui.chat_app", "transformers.models.llama.modeling_llama",
)  # fmt: skip
LATE = (
    *("COLUMNS", "LINES", "TERM", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
    *("PYTHONDONTWRITEBYTECODE", "TRANSFORMERS_OFFLINE", "GOMP_SPINCOUNT", "TORCHINDUCTOR_CACHE_DIR"),
    "PYTHONIOENCODING",  # of the streams, which each fork opens
)
"""Variables that nothing looks at while it is imported; TRANSFORMERS_OFFLINE only repeats HF_HUB_OFFLINE.

GOMP_SPINCOUNT and TORCHINDUCTOR_CACHE_DIR the program and torch set themselves, in a test's process too; they
say how threads wait, and where a compiler that is not used keeps files.
"""
LATE_PREFIXES = ("H2O_CHAT_", "PYTEST_", "TESTS_")
WHOLE_END = "TESTS_WHOLE_END"
"""Where this variable is set, as `make test-all` does, a fork ends as Python does, to the last module."""
OUTSIDE: dict[str, str] = {}
"""The environment outside of any test, which may change it: as it is once all tests are imported."""
Popen = subprocess.Popen
SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl: whose parent has gone becomes a child of this process, an ancestor."""


def early(environment: dict[str, str]) -> dict[str, str]:
    """The variables that may count while something is imported."""
    return {
        name: value
        for name, value in environment.items()
        if name not in LATE and not name.startswith(LATE_PREFIXES)
    }


class _Forker:
    """The process that forks, seen from the tests."""

    def __init__(self) -> None:
        self._environment = early(OUTSIDE)
        self._pipe, theirs = socket.socketpair()
        command, passed = [sys.executable, __file__, str(theirs.fileno())], [theirs.fileno()]
        self._process = Popen(command, env=OUTSIDE, pass_fds=passed, stdin=subprocess.DEVNULL)
        theirs.close()

    def suits(self, arguments: Sequence[str], environment: dict[str, str]) -> bool:
        python, *flags = arguments[:3]
        asked = early(environment)
        if flags[0] == "-P":  # an engine: its PYTHONPATH has the places where this process looks
            asked["PYTHONPATH"] = self._environment.get("PYTHONPATH", "")
        runs = bool({"-m", "-c"} & set(flags)) or flags[0].endswith(".py")
        return python == sys.executable and runs and asked == self._environment

    def fork(self, asked: dict[str, Any], files: dict[int, int]) -> int:
        """The id of a process that does what is asked.

        `files`: its file descriptors, and those of this process that they are made of.
        """
        system = ctypes.CDLL(None)
        system.prctl(SUBREAPER, 1, 0, 0, 0)
        try:
            _ask(self._pipe, asked, files)
            return int.from_bytes(_exactly(self._pipe, 8), "big")
        finally:  # what others leave behind is not for this process to wait for
            system.prctl(SUBREAPER, 0, 0, 0, 0)


_FORKER: list[Any] = []
"""The one of this process, made by the first who needs it. In a screen: its engine that waits."""


class Forked(Popen[Any]):
    """`subprocess.Popen` of Python: `[sys.executable, "-m", MODULE, ...]`, `"-c", CODE, ...` or `FILE, ...`.

    `preexec_fn` is something that can be pickled: it runs in the fork.
    """

    def _execute_child(self, *positional: Any) -> None:
        """The one step of `Popen` that is another here: all files are made, and waiting is as it was."""
        usual = super()._execute_child  # type: ignore[misc]
        asked = inspect.signature(usual).bind(*positional).arguments
        environment = dict(os.environ if asked["env"] is None else asked["env"])
        if not _FORKER and sys.platform == "linux":
            _FORKER.append(_Forker())
        if not _FORKER or not _FORKER[0].suits(asked["args"], environment):
            usual(*positional)
            return
        files = {number: number for number in asked["pass_fds"]}
        for number, name in enumerate(("p2cread", "c2pwrite", "errwrite")):
            files[number] = number if asked[name] == -1 else asked[name]
        what = {
            "arguments": list(asked["args"]),
            "environment": environment,
            "folder": asked["cwd"] or os.getcwd(),
            "session": asked["start_new_session"],
            "before": asked["preexec_fn"],
        }
        self.pid = _FORKER[0].fork(what, files)
        self._child_created = True
        self._close_pipe_fds(*(asked[one] for one in inspect.signature(self._close_pipe_fds).parameters))


def _ask(pipe: socket.socket, asked: dict[str, Any], files: dict[int, int]) -> None:
    sent = pickle.dumps((asked, list(files)))
    socket.send_fds(pipe, [len(sent).to_bytes(8, "big")], list(files.values()))
    pipe.sendall(sent)


def _asked(pipe: socket.socket) -> tuple[dict[str, Any], dict[int, int]]:
    """What is asked, and the files that came with it.

    Raises:
        EOFError: whoever asks has gone.
    """
    length, received, _, _ = socket.recv_fds(pipe, 8, 16)
    asked, numbers = pickle.loads(_exactly(pipe, int.from_bytes(length, "big")))
    return asked, dict(zip(numbers, received, strict=True))


def _exactly(pipe: socket.socket, count: int) -> bytes:
    read = b""
    while len(read) < count:
        more = pipe.recv(count - len(read))
        if not more:
            raise EOFError
        read += more
    return read


# -- in the process that forks, and in what it has forked


def _serve(pipe: socket.socket) -> dict[str, Any]:
    """Forks as often as it is asked to; returns in each fork, with what that is to do."""
    while True:
        try:
            asked, files = _asked(pipe)
        except EOFError:
            os._exit(0)
        reading, writing = os.pipe()
        if not (between := os.fork()):
            between = os.getpid()
            if number := os.fork():
                os.write(writing, number.to_bytes(8, "big"))
                os._exit(0)  # so that the tests' process becomes the parent of what was forked
            while os.getppid() == between:
                time.sleep(0.001)
            os.close(reading)
            os.close(writing)
            pipe.close()
            _take(files)
            return asked
        os.waitpid(between, 0)
        for number in (*files.values(), writing):
            os.close(number)
        pipe.sendall(_read(reading))


def _read(number: int) -> bytes:
    with open(number, "rb") as file:
        return file.read()


def _take(files: dict[int, int]) -> None:
    """Gives each file the number that it is to have."""
    above = max(*files, *files.values()) + 1
    moved = {number: fcntl.fcntl(file, fcntl.F_DUPFD, above) for number, file in files.items()}
    for file in files.values():
        os.close(file)
    for number, file in moved.items():
        os.dup2(file, number)
        os.close(file)


def _become(asked: dict[str, Any]) -> None:
    """From a fork to the first line of a program: what the system and Python do before that."""
    gc.callbacks.clear()  # hypothesis' own: a ctrl+c that comes in it is lost
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if asked["session"]:
        os.setsid()
    os.chdir(asked["folder"])
    if asked["before"]:
        asked["before"]()
    os.environ.clear()
    os.environ.update(asked["environment"])
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = _stream(number, getattr(sys, name))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _stream(number: int, before: Any) -> io.TextIOWrapper:
    """As Python opens it when it starts; without buffers where PYTHONUNBUFFERED asks for that."""
    plain, writes = before.write_through, number > 0
    raw = open(  # noqa: SIM115  (until the process ends)
        number, "wb" if writes else "rb", 0 if plain and writes else -1, closefd=False
    )
    at_lines = not plain and (number == 2 or os.isatty(number))
    newline = "\n" if writes else None
    encoding, _, errors = os.environ.get("PYTHONIOENCODING", "").partition(":")
    errors = before.errors if number == 2 or not errors else errors
    return io.TextIOWrapper(raw, encoding or before.encoding, errors, newline, at_lines, plain)


def _run(arguments: Sequence[str]) -> None:
    """The program, until it ends this process."""
    if not arguments[1].startswith("-"):
        sys.argv, sys.path[0] = list(arguments[1:]), os.path.dirname(arguments[1])
        runpy.run_path(arguments[1], run_name="__main__")
        return
    how, what, *more = (one for one in arguments[1:] if one != "-P")
    sys.argv = [how if how == "-c" else what, *more]
    if how == "-c":
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})
    else:
        runpy.run_module(what, run_name="__main__", alter_sys=True)


def _run_and_end(arguments: Sequence[str]) -> None:
    """What Python does at the end of a program: threads, what was registered, output, exit code; no more."""
    code: Any = 0
    try:
        _run(arguments)
    except SystemExit as end:
        code = end.code or 0
        if not isinstance(code, int):  # Python says it
            raise
    if WHOLE_END not in os.environ:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        with suppress(OSError, ValueError):  # what cannot be written Python tells of, below
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    sys.exit(code)


class _Engine:
    """A fork that waits until the screen, this process, starts its engine; then it is that."""

    def __init__(self) -> None:
        self._is_used = False
        self._pipe, theirs = socket.socketpair()
        self._number = os.fork()
        if self._number:
            theirs.close()
            return
        self._pipe.close()
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in range(3):  # the screen's terminal is the screen's
            os.dup2(nothing, number)
        os.close(nothing)
        try:
            asked, files = _asked(theirs)
        except EOFError:
            os._exit(0)
        theirs.close()
        _take(files)
        _become(asked)
        _run_and_end(asked["arguments"])

    def suits(self, arguments: Sequence[str], environment: dict[str, str]) -> bool:
        from h2o_chat.remote.engine_apart import _PROGRAM

        return _PROGRAM in arguments and not self._is_used

    def fork(self, asked: dict[str, Any], files: dict[int, int]) -> int:
        self._is_used = True  # the next engine is an interpreter
        _ask(self._pipe, asked, files)
        self._pipe.close()
        return self._number


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the tests' process is asked to end, and this ends with it
    for name in IMPORTED:
        importlib.import_module(name)
    with suppress(ImportError):  # its extra is not installed: its tests are skipped
        importlib.import_module("h2o_chat.serve.routes")
    assert len(os.listdir("/proc/self/task")) == 1, "only one thread would be forked"
    gc.collect()
    gc.freeze()  # what is looked at for garbage would be copied in each fork
    asked = _serve(socket.socket(fileno=int(sys.argv[1])))
    _become(asked)
    sys.path[0] = ""
    if sys.stdin.isatty() and sys.stdout.isatty():
        _FORKER.append(_Engine())
        subprocess.Popen = Forked  # type: ignore[misc]
    _run_and_end(asked["arguments"])


if __name__ == "__main__":
    _main()
