"""How the process of an engine begins and ends; nothing of it is left over."""

import gc
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from apart import ENDLESS, IDS, POCKET, SETTINGS, WAIT_S, pid_of, tokens, unheard, until
from psutil import Process, pid_exists

from h2o_chat.base.errors import BudgetError, EngineError
from h2o_chat.events.events import Event
from h2o_chat.remote.engine_apart import engine_apart


@pytest.mark.usefixtures("forked")
def test_a_budget_that_cannot_work_is_refused_before_anything_is_read() -> None:
    stages: list[str] = []
    with pytest.raises(BudgetError):
        engine_apart(replace(SETTINGS, sinks=60), lambda stage, _: stages.append(stage))
    assert set(stages) == {"start"}


def test_whoever_leaves_while_it_opens_is_noticed() -> None:
    """Importing torch takes seconds, in which there is no other progress to tell."""

    class Left(Exception):
        pass

    def progress(stage: str, share: float | None) -> None:
        raise Left

    before = Process().children()
    began = time.monotonic()
    with pytest.raises(Left):
        engine_apart(SETTINGS, progress)
    assert time.monotonic() - began < WAIT_S
    assert Process().children() == before


@pytest.mark.usefixtures("forked")
def test_an_engine_that_is_killed_says_so_and_what_it_said_stays() -> None:
    engine = engine_apart(SETTINGS, unheard)
    told: list[Event] = []

    def killed_on_the_way() -> None:
        for event in engine.generate(IDS, ENDLESS):
            told.append(event)
            if len(told) == 20:
                os.kill(pid_of(engine), signal.SIGKILL)

    with pytest.raises(EngineError, match="SIGKILL") as caught:
        killed_on_the_way()
    assert "memory" in caught.value.hint
    said = tokens(iter(told))
    assert (told[-1].finish, told[-1].text) == ("interrupted", "".join(text for _, text in said))
    assert (told[-1].prompt_tokens, told[-1].new_tokens) == (len(IDS), len(said))
    with pytest.raises(EngineError):
        engine.cache_state()
    engine.watch(False)


@pytest.mark.parametrize(
    ("program", "how"),
    [
        ("os.close(fd); time.sleep(60)", "by SIGKILL"),
        ("os.write(fd, (1000).to_bytes(4, 'big') + b'half of it'); sys.exit(3)", "with 3"),
        ("os.kill(os.getpid(), 37)", "by signal 37"),
        (
            "sys.stderr.write('first\\nno room for \\x1b[31mthis'); sys.exit(9)",
            r"ended with 9\. It said: no room for \\x1b\[31mthis",
        ),
    ],
)
def test_however_it_ends_is_told(program: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what it wrote last."""
    stub = f"import os, sys, time; fd = int(sys.argv[1]); {program}"
    monkeypatch.setattr("h2o_chat.remote.engine_apart._PROGRAM", stub)
    monkeypatch.setattr("h2o_chat.remote.engine_apart.ENDING_S", 0.5)
    with pytest.raises(EngineError, match=how):
        engine_apart(SETTINGS, unheard)


def test_a_process_that_cannot_be_started_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere"))
    with pytest.raises(EngineError, match="nowhere"):
        engine_apart(SETTINGS, unheard)


@pytest.mark.usefixtures("forked")
def test_it_ends_with_the_last_engine_that_uses_it() -> None:
    engine = engine_apart(SETTINGS, unheard)
    assert engine.seen == 0
    other, pid = engine.remade(SETTINGS), pid_of(engine)
    del engine
    gc.collect()
    assert other.protect(0) == 0
    assert pid_exists(pid)
    del other
    gc.collect()
    assert not pid_exists(pid)


def test_it_begins_and_ends_with_whoever_uses_it_which_needs_no_torch(tmp_path: Path) -> None:
    """It begins whatever entries the path has, and ends even if its user is killed in an answer's middle."""
    program = f"""
import os, sys
import h2o_chat
import transformers.tokenization_utils_base  # asks for versions along the path, and cannot with such entries
sys.path[:0] = ["", None]
from h2o_chat.base.config import Sampling, Settings
from h2o_chat.events.events import Token
from h2o_chat.remote.engine_apart import engine_apart
from h2o_chat.chat.conversation.opening import opener
chat = opener(Settings(model={str(POCKET)!r}, threads=1), None, engine_apart)(lambda *_: None)
events = list(chat.send("Hello", Sampling(max_tokens=8)))
assert events[-1].new_tokens, events
assert "torch" not in sys.modules
for event in chat.send("And now?", Sampling(max_tokens=100_000, ignore_eos=True)):
    if isinstance(event, Token):
        print(chat.engine._process._process.pid, flush=True)
        os.kill(os.getpid(), 9)
"""
    # The module that must not be taken lies where somebody happens to stand.
    (tmp_path / "h2o_chat.py").write_text("raise SystemExit('a stranger')")
    path = os.pathsep.join(map(os.path.abspath, sys.path))
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        capture_output=True, text=True, cwd=tmp_path, timeout=300, env=os.environ | {"PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    pid = int(done.stdout)
    until(lambda: not pid_exists(pid))
