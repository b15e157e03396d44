"""What is forked is what a new interpreter would be, but for what is imported."""

import json
import os
import resource
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import forking
import pytest
from forking import Forked

TELLS = """
import json, os, resource, signal, sys
print(json.dumps({
    "argv": sys.argv, "path": sys.path[0], "name": __name__, "folder": os.getcwd(), "parent": os.getppid(),
    "session": os.getsid(0) == os.getpid(), "environment": dict(os.environ), "said": sys.stdin.read(),
    "files": sorted(int(number) for number in os.listdir("/proc/self/fd"))[:4],
    "limit": resource.getrlimit(resource.RLIMIT_FSIZE),
    "signals": [str(signal.getsignal(one)) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)],
    "streams": [[one.encoding, one.errors, one.line_buffering, one.isatty(), one.fileno()]
                for one in (sys.stdin, sys.stdout, sys.stderr)],
}))
sys.stderr.write(str("torch" in sys.modules))
sys.exit(7)
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked")


def told(kind: Any, code: str, *arguments: str, **how: Any) -> tuple[int, str, str]:
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with kind([sys.executable, "-c", code, *arguments], **streams, text=True, **how) as process:
        out, err = process.communicate("hello", timeout=120)
    return process.returncode, out, err


@pytest.mark.parametrize(
    ("session", "environment"),
    [(False, {}), (True, {"PYTHONIOENCODING": "ascii:replace"})],
)
def test_it_is_what_a_new_interpreter_is(tmp_path: Path, session: bool, environment: dict[str, str]) -> None:
    how = {
        "cwd": tmp_path,
        "env": os.environ | {"H2O_CHAT_BUDGET": "77"} | environment,
        "start_new_session": session,
        "preexec_fn": partial(resource.setrlimit, resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)),
    }
    code, out, torch = told(Forked, TELLS, "one", "--two", **how)
    usual, expected, _ = told(subprocess.Popen, TELLS, "one", "--two", **how)
    forked, new = json.loads(out), json.loads(expected)
    assert {name: (forked[name], new[name]) for name in new if forked[name] != new[name]} == {}
    assert code == usual == 7
    changed = {name for name, _ in set(os.environ.items()) ^ set(forking.OUTSIDE.items())}
    assert torch == "True", f"it was forked; variables changed by a test before: {changed}"


def test_a_file_is_run_as_usual(tmp_path: Path) -> None:
    """With what stands beside it."""
    (tmp_path / "beside_it.py").write_text("word = 'found'\n")
    (tmp_path / "program.py").write_text(
        "import sys, beside_it\nprint(__name__, sys.argv[1:], sys.path[0], beside_it.word)\n"
        "sys.stderr.write(str('torch' in sys.modules))\nsys.exit(3)\n"
    )
    said = []
    for kind in (Forked, subprocess.Popen):
        command = [sys.executable, str(tmp_path / "program.py"), "-m", "--two"]
        with kind(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            out, torch = process.communicate(timeout=120)
        said.append((process.returncode, out))
        assert torch == str(kind is Forked)
    assert said == [(3, f"__main__ ['-m', '--two'] {tmp_path} found\n")] * 2


def test_signals_end_it() -> None:
    process = Forked([sys.executable, "-c", "import time; print(1, flush=True); time.sleep(99)"], stdout=-1)
    assert process.stdout is not None
    assert process.stdout.readline() == b"1\n"
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == -signal.SIGTERM
    process.stdout.close()


def test_an_exception_is_told_as_usual() -> None:
    code, _, err = told(Forked, "1 / 0")
    assert code == 1
    assert err.endswith("ZeroDivisionError: division by zero\n")


ENDS = """
import atexit, sys, threading, time
def late():
    time.sleep(0.1)
    sys.stdout.write("a thread, ")
atexit.register(lambda: sys.stdout.write("what was registered"))
threading.Thread(target=late).start()
sys.exit({code})
"""


@pytest.mark.parametrize(("asked", "code"), [("", 0), ("3", 3), ("'it said why'", 1)])
def test_its_end_is_that_of_a_new_interpreter(asked: str, code: int) -> None:
    """But for modules that are taken apart, which `make test-all` does too."""
    program = ENDS.format(code=asked)
    said = "it said why\n" if code == 1 else ""
    for kind in (Forked, subprocess.Popen):
        assert told(kind, program) == (code, "a thread, what was registered", said), kind


def test_what_nobody_reads_is_told_as_usual() -> None:
    codes = []
    for kind in (Forked, subprocess.Popen):
        ours, theirs = os.pipe()
        os.close(ours)
        with kind(
            [sys.executable, "-c", "print('not read')"], stdout=theirs, stderr=-1, text=True
        ) as process:
            os.close(theirs)
            assert "BrokenPipeError" in process.communicate(timeout=120)[1]
        codes.append(process.returncode)
    assert codes in ([120, 120], [1, 1]), "when it was written, or with PYTHONUNBUFFERED at once"


def test_what_is_read_while_something_is_imported_needs_a_new_interpreter() -> None:
    env = os.environ | {"OMP_NUM_THREADS": "2"}
    assert told(Forked, "import sys; sys.stderr.write(str('torch' in sys.modules))", env=env)[2] == "False"
