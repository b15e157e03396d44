"""An engine in another process does what one here does, and fails as loudly; nothing of it is left over."""

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from psutil import Process, pid_exists

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import BudgetError, EngineError, ModelError
from h2o_chat.events.events import CacheState, Event, Prompt, Token, Turn
from h2o_chat.remote.engine_apart import EngineApart, engine_apart
from h2o_chat.remote.engine_here import engine_here
from h2o_chat.remote.engine_process import Call, Held, Reply, serve

POCKET = Path(__file__).parents[2] / "assets" / "pocket"
SETTINGS = Settings(model=str(POCKET), budget=48, threads=1, seed=3, events_every=4)
IDS = list(range(40, 140))
"""Few enough to be read in one call of the model, of which nothing is told meanwhile."""
SAMPLING = Sampling(max_tokens=60, ignore_eos=True)
ENDLESS = Sampling(max_tokens=100_000, ignore_eos=True)
WAIT_S = 30.0


def unheard(stage: str, share: float | None) -> None:
    """Nobody asks how far it is."""


@pytest.fixture(scope="module")
def opened() -> EngineApart:
    return engine_apart(SETTINGS, unheard)


@pytest.fixture
def apart(opened: EngineApart) -> EngineApart:
    return opened.remade(SETTINGS)


@pytest.fixture(scope="module")
def loaded() -> Any:
    return engine_here(SETTINGS, unheard)


@pytest.fixture
def here(loaded: Any) -> Any:
    return loaded.remade(SETTINGS)


def timeless(events: Iterator[Event]) -> list[Event]:
    """The same without what no two runs have alike."""
    found: list[Event] = []
    for event in events:
        match event:
            case Token() | Prompt():
                event = replace(event, ms=0.0)
            case Turn():
                event = replace(event, ttft_ms=0.0, tok_s=0.0)
        found.append(event)
    return found


def tokens(events: Iterator[Event]) -> list[tuple[int, str]]:
    return [(event.id, event.text) for event in events if isinstance(event, Token)]


def until(met: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not met():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def pid_of(engine: EngineApart) -> int:
    return engine._process._process.pid


def test_does_what_an_engine_here_does(apart: EngineApart, here: Any, tmp_path: Path) -> None:
    assert (apart.session, apart.eos) == (here.session, here.eos)
    for number, engine in enumerate((apart, here)):
        assert engine.protect(5) == 5
        assert engine.pin(range(7, 10)) == 3
        told = [timeless(engine.generate(IDS, SAMPLING))]
        engine.save(tmp_path / f"{number}.safetensors")
        told.append(timeless(engine.generate(IDS[:9], SAMPLING)))
        engine.unpin()
        assert engine.relive(IDS, answer=False, exact=True, cancel=lambda: False)
        told.append([engine.look()])
        if number == 0:
            first, state = told, (engine.seen, engine.pending, engine.protection(), engine.budget_for(40))
    assert told == first
    assert (here.seen, here.pending, here.protection(), here.budget_for(40)) == state
    assert any(isinstance(event, CacheState) for event in told[0])
    apart.load(tmp_path / "1.safetensors")
    here.load(tmp_path / "0.safetensors")
    assert apart.inspect(8) == here.inspect(8)
    assert timeless(apart.generate(IDS, SAMPLING)) == timeless(here.generate(IDS, SAMPLING))


def test_goes_back_and_begins_anew_with_another_seed(apart: EngineApart, here: Any) -> None:
    for engine in (apart, here):
        list(engine.generate(IDS, SAMPLING))
    before, other = apart.snapshot(), apart.remade(replace(SETTINGS, budget=32))
    first = tokens(apart.generate(IDS, SAMPLING))
    assert apart.seen == here.seen + len(IDS) + SAMPLING.max_tokens
    apart.restore(before)
    assert (apart.seen, apart.pending) == (here.seen, here.pending)
    assert tokens(apart.generate(IDS, SAMPLING)) == first == tokens(here.generate(IDS, SAMPLING))
    assert (other.session.budget, other.seen) == (32, 0)
    for engine in (apart, here):
        engine.reset()
        engine.reseed(8)
    assert apart.session.seed == 8
    assert timeless(apart.generate(IDS, SAMPLING)) == timeless(here.generate(IDS, SAMPLING))


def test_can_be_asked_in_the_middle_of_an_answer(apart: EngineApart, here: Any) -> None:
    told: list[Event] = []
    for event in apart.generate(IDS, SAMPLING):
        told.append(event)
        if isinstance(event, Prompt):
            assert apart.protection() == here.protection()
            apart.watch(True)
    assert timeless(iter(told)) == timeless(here.generate(IDS, SAMPLING))


def test_what_nobody_looks_at_is_not_collected(apart: EngineApart) -> None:
    apart.watch(False)
    list(apart.generate(IDS, SAMPLING))
    assert apart.look().heaviest == []
    apart.watch(True)
    assert apart.look().heaviest


def test_stops_between_two_tokens_and_goes_on(apart: EngineApart) -> None:
    told: list[Event] = []
    for event in apart.generate(IDS, ENDLESS, cancel=lambda: len(told) > 30):
        told.append(event)
    assert told[-1].finish == "stopped"
    tokens = [event for event in told if isinstance(event, Token)]
    assert len(tokens) == told[-1].new_tokens < 2000
    assert apart.pending == (tokens[-1].id,)
    assert apart.seen == len(IDS) + len(tokens) - 1
    assert list(apart.generate(IDS, SAMPLING))[-1].finish == "length"


def test_a_prompt_that_is_stopped_was_never_read(apart: EngineApart) -> None:
    events = list(apart.generate(IDS * 20, SAMPLING, cancel=lambda: True))
    assert [event.finish for event in events] == ["stopped"]
    assert (apart.seen, apart.pending) == (0, ())


def test_a_reader_who_leaves_stops_it(apart: EngineApart) -> None:
    answer = apart.generate(IDS, ENDLESS)
    for _ in range(5):
        next(answer)
    answer.close()
    began = time.monotonic()
    apart.reset()
    assert time.monotonic() - began < WAIT_S
    assert apart.seen == 0
    assert list(apart.generate(IDS, SAMPLING))[-1].new_tokens == SAMPLING.max_tokens


def test_a_reader_who_fails_stops_it(apart: EngineApart) -> None:
    """Between two chunks of a prompt, of which nothing is left."""
    asked: list[int] = []

    def cancel() -> bool:
        asked.append(1)
        if len(asked) == 3:
            raise ZeroDivisionError
        return False

    with pytest.raises(ZeroDivisionError):
        list(apart.generate(IDS * 50, SAMPLING, cancel))
    assert apart.seen == 0
    apart.reset()
    time.sleep(0.5)
    assert apart.protection() is not None
    assert apart.seen == 0


def test_two_threads_do_not_take_each_others_replies(apart: EngineApart) -> None:
    answer = apart.generate(IDS, ENDLESS)
    next(answer)
    waiting = Thread(target=lambda: list(answer))
    waiting.start()
    until(apart._process._reading.locked)

    def ask_too() -> None:
        while True:
            apart.look()

    with pytest.raises(RuntimeError, match="Two threads"):
        ask_too()
    os.kill(pid_of(apart), 0)
    apart._process.cancel(next(iter(apart._process._unread)))
    waiting.join(WAIT_S)
    assert not waiting.is_alive()


def test_whoever_ends_a_session_does_not_end_it(apart: EngineApart) -> None:
    """SIGTERM to all of a session is the screen's to understand: it stops the answer and saves the memory."""
    told: list[Event] = []
    for event in apart.generate(IDS, SAMPLING):
        told.append(event)
        if len(told) == 5:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                os.kill(pid_of(apart), number)
    assert told[-1].finish == "length"


def test_errors_are_those_of_an_engine_here(apart: EngineApart, here: Any, tmp_path: Path) -> None:
    list(apart.generate(IDS, SAMPLING))
    list(here.generate(IDS, SAMPLING))
    for engine in (apart, here):
        with pytest.raises(BudgetError, match="would protect") as caught:
            engine.pin(range(100))
        assert "unpin" in caught.value.hint
        with pytest.raises(FileNotFoundError):
            engine.save(tmp_path / "nowhere" / "x")
    with pytest.raises(RuntimeError, match="TypeError") as strange:
        apart._ask("pin", "x", "y")
    assert "engine_process.py" in strange.value.__notes__[0]
    assert timeless(apart.generate(IDS, SAMPLING)) == timeless(here.generate(IDS, SAMPLING))


def test_an_unknown_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nowhere"):
        engine_apart(replace(SETTINGS, model=str(tmp_path / "nowhere")), unheard)


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
    assert (told[-1].finish, told[-1].text) == ("stopped", "".join(text for _, text in said))
    assert (told[-1].prompt_tokens, told[-1].new_tokens) == (len(IDS), len(said))
    with pytest.raises(EngineError):
        engine.look()
    engine.watch(False)


def test_what_it_wrote_last_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import sys; sys.stderr.write('first\\nno room for \\x1b[31mthis'); sys.exit(9)"
    monkeypatch.setattr("h2o_chat.remote.engine_apart._PROGRAM", program)
    with pytest.raises(EngineError, match=r"ended with 9\. It said: no room for \\x1b\[31mthis"):
        engine_apart(SETTINGS, unheard)


@pytest.mark.parametrize(
    ("program", "how"),
    [
        ("os.close(fd); time.sleep(60)", "by SIGKILL"),
        ("os.write(fd, (1000).to_bytes(4, 'big') + b'half of it'); sys.exit(3)", "with 3"),
        ("os.kill(os.getpid(), 37)", "by signal 37"),
    ],
)
def test_however_it_ends_is_told(program: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = f"import os, sys, time; fd = int(sys.argv[1]); {program}"
    monkeypatch.setattr("h2o_chat.remote.engine_apart._PROGRAM", stub)
    monkeypatch.setattr("h2o_chat.remote.engine_apart.ENDING_S", 0.5)
    with pytest.raises(EngineError, match=how):
        engine_apart(SETTINGS, unheard)


def test_a_process_that_cannot_be_started_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere"))
    with pytest.raises(EngineError, match="nowhere"):
        engine_apart(SETTINGS, unheard)


def test_it_ends_with_the_last_engine_that_uses_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And begins whatever entries the path has."""
    (tmp_path / "h2o_chat.py").write_text("raise SystemExit('a stranger')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", None, *sys.path])
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


def test_it_ends_with_whoever_uses_it(tmp_path: Path) -> None:
    """Even if that is killed in the middle of an answer."""
    program = f"""
import os
from h2o_chat.base.config import Sampling, Settings
from h2o_chat.remote.engine_apart import engine_apart
engine = engine_apart(Settings(model={str(POCKET)!r}, threads=1), lambda *_: None)
for event in engine.generate([1, 2, 3], Sampling(max_tokens=100_000, ignore_eos=True)):
    print(engine._process._process.pid, flush=True)
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


def test_torch_is_not_imported_where_the_screen_is() -> None:
    program = f"""
import sys
from h2o_chat.base.config import Sampling, Settings
from h2o_chat.remote.engine_apart import engine_apart
from h2o_chat.chat.opening import opener
chat = opener(Settings(model={str(POCKET)!r}, threads=1), None, engine_apart)(lambda *_: None)
events = list(chat.send("Hello", Sampling(max_tokens=8)))
assert events[-1].new_tokens, events
sys.exit("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_what_nobody_holds_any_more_is_let_go(loaded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots are as large as the cache."""
    from h2o_chat.remote import engine_process

    monkeypatch.setattr("h2o_chat.remote.engine_here.engine_here", lambda *_: loaded.remade(SETTINGS))
    ours, theirs = Pipe()
    serving = engine_process._Serving(theirs)

    def ask(engine: Held | None, name: str, *args: Any, dropped: tuple[int, ...] = ()) -> Any:
        serving.take(Call(1, engine, name, args, {}, False, dropped))
        while (reply := ours.recv()).kind == "yielded":
            pass
        assert isinstance(reply, Reply)
        assert reply.kind == "returned", reply.value
        return reply.value

    engine = ask(None, "open", SETTINGS)[0].held
    snapshot = ask(engine, "snapshot")
    assert len(serving._held) == 2
    ask(engine, "restore", snapshot)
    ask(engine, "look", dropped=(snapshot.number,))
    assert list(serving._held) == [engine.number]


def test_quick_tokens_are_told_together_and_all_else_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    from h2o_chat.remote import engine_process

    clock = [100.0]
    monkeypatch.setattr(engine_process, "perf_counter", lambda: clock[0])
    prompt = Prompt(1, 0, 0, 1, 1.0)

    def told(gaps_ms: list[int | None]) -> list[int]:
        """How many events each message has; None is an event that is no token."""

        def events() -> Iterator[Event]:
            for gap in gaps_ms:
                clock[0] += (gap or 1) / 1000
                yield prompt if gap is None else Token(1, "a", 1, 1.0)

        return [len(one) for one in engine_process.together(events())]

    assert told([None, 1, 200, 200, 200]) == [1, 1, 1, 1, 1], "a slow model: each as it comes"
    assert told([None, 1, *[7] * 8, None]) == [1, 1, 3, 3, 3], "a quick one"
    assert told([None, 1, 5, 200, 5]) == [1, 1, 2, 1]
    assert told([]) == []


def test_what_cannot_be_sent_is_told() -> None:
    from h2o_chat.remote import engine_process

    class Strange:
        seen, pending = 5, ()

        def odd(self) -> Any:
            return lambda: None

    ours, theirs = Pipe()
    serving = engine_process._Serving(theirs)
    held = serving._keep(Strange())
    serving.take(Call(1, held, "odd", (), {}, False, ()))
    reply = ours.recv()
    assert (reply.kind, reply.seen) == ("raised", 5)
    assert isinstance(reply.value, RuntimeError)


def test_a_snapshot_that_nobody_holds_is_told_with_the_next_call(apart: EngineApart) -> None:
    snapshot = apart.snapshot()
    number = snapshot.number
    del snapshot
    gc.collect()
    assert apart._process.dropped == [number]
    apart.look()
    assert apart._process.dropped == []


def test_serving_ends_when_nobody_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    ours, theirs = Pipe()
    thread = Thread(target=serve, args=(theirs,))
    thread.start()
    ours.close()
    thread.join(WAIT_S)
    assert ended == [0]
