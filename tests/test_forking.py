"""A forked process equals a new interpreter, but for what is imported."""

import json
import os
import resource
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


HAS_TORCH = "import sys; sys.stderr.write(str('torch' in sys.modules))\n"


def told(kind: Any, *arguments: str, **how: Any) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with kind([sys.executable, *arguments], **streams | how, text=True) as process:
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
    code, out, torch = told(Forked, "-c", TELLS, "one", "--two", **how)
    usual, expected, _ = told(subprocess.Popen, "-c", TELLS, "one", "--two", **how)
    forked, new = json.loads(out), json.loads(expected)
    assert {name: (forked[name], new[name]) for name in new if forked[name] != new[name]} == {}
    assert code == usual == 7
    changed = {name for name, _ in set(os.environ.items()) ^ set(forking.OUTSIDE.items())}
    assert torch == "True", f"it was forked; variables changed by a test before: {changed}"


def test_a_file_is_run_as_usual(tmp_path: Path) -> None:
    (tmp_path / "beside_it.py").write_text("word = 'found'\n")
    file = tmp_path / "program.py"
    file.write_text(
        f"{HAS_TORCH}import beside_it\n"
        "print(__name__, sys.argv[1:], sys.path[0], beside_it.word)\n"
        "sys.exit(3)\n"
    )
    for kind in (Forked, subprocess.Popen):
        said = f"__main__ ['-m', '--two'] {tmp_path} found\n"
        assert told(kind, str(file), "-m", "--two") == (3, said, str(kind is Forked))


ENDS = """
import atexit, sys, threading, time
def late():
    time.sleep(0.1)
    sys.stdout.write("a thread, ")
atexit.register(lambda: sys.stdout.write("what was registered"))
threading.Thread(target=late).start()
"""


@pytest.mark.parametrize(
    ("last", "code", "said"),
    [
        ("sys.exit()", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit('it said why')", 1, "it said why\n"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
    ],
)
def test_its_end_is_that_of_a_new_interpreter(last: str, code: int, said: str) -> None:
    """But for modules that are taken apart, which `make test-all` does too."""
    for kind in (Forked, subprocess.Popen):
        found, out, err = told(kind, "-c", ENDS + last)
        assert (found, out) == (code, "a thread, what was registered"), kind
        assert err.endswith(said)
        assert err == said or "Traceback" in err


def test_what_nobody_reads_is_told_as_usual() -> None:
    codes = []
    for kind in (Forked, subprocess.Popen):
        ours, theirs = os.pipe()
        os.close(ours)
        code, _, err = told(kind, "-c", "print('not read')", stdout=theirs)
        os.close(theirs)
        assert "BrokenPipeError" in err
        codes.append(code)
    assert codes in ([120, 120], [1, 1]), "when it was written, or with PYTHONUNBUFFERED at once"


def test_what_is_read_while_something_is_imported_needs_a_new_interpreter() -> None:
    assert told(Forked, "-c", HAS_TORCH, env=os.environ | {"OMP_NUM_THREADS": "2"})[2] == "False"
