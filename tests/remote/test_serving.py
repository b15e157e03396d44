"""The other end: what the process of an engine takes, sends and lets go."""

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing import Pipe
from threading import Thread
from typing import Any

import pytest
from apart import SETTINGS, WAIT_S

from h2o_chat.events.events import Event, Prompt, Token
from h2o_chat.remote import engine_process
from h2o_chat.remote.engine_process import Call, CallReply, RemoteObject, serve


def test_what_nobody_holds_any_more_is_let_go(loaded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots are as large as the cache."""
    monkeypatch.setattr("h2o_chat.remote.engine_here.engine_here", lambda *_: loaded.remade(SETTINGS))
    ours, theirs = Pipe()
    serving = engine_process._Serving(theirs)

    def ask(engine: RemoteObject | None, name: str, *args: Any, dropped: tuple[int, ...] = ()) -> Any:
        serving.take(Call(1, engine, name, args, {}, False, dropped))
        while (reply := ours.recv()).kind == "yielded":
            pass
        assert isinstance(reply, CallReply)
        assert reply.kind == "returned", reply.value
        return reply.value

    (engine, *_), _ = ask(None, "open", SETTINGS)
    snapshot = ask(engine, "snapshot")
    assert len(serving._held) == 2
    ask(engine, "restore", snapshot)
    ask(engine, "cache_state", dropped=(snapshot.number,))
    assert list(serving._held) == [engine.number]


def test_quick_tokens_are_told_together_and_all_else_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_serving_ends_when_nobody_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    ours, theirs = Pipe()
    thread = Thread(target=serve, args=(theirs,))
    thread.start()
    ours.close()
    thread.join(WAIT_S)
    assert ended == [0]


def test_no_garbage_is_looked_for_while_torch_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch  # noqa: F401  -- its objects are what is counted

    from h2o_chat.remote.engine_here import _no_collections

    gc.unfreeze()
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with _no_collections():
        assert not gc.isenabled()
    assert gc.get_freeze_count() > 10_000, "nor later in what was imported"
    assert gc.isenabled()
    with pytest.raises(ImportError), _no_collections():
        raise ImportError
    assert gc.isenabled()
    with monkeypatch.context() as imported:
        imported.setitem(sys.modules, "torch", None)
        with _no_collections():
            assert gc.isenabled(), "only the first time"


def test_a_name_that_means_nothing_is_told_before_torch_is_imported() -> None:
    program = (
        "import sys\n"
        "from h2o_chat.base.config import Settings\n"
        "from h2o_chat.base.errors import ModelError\n"
        "from h2o_chat.remote.engine_here import engine_here\n"
        "try:\n    engine_here(Settings(model='llama-8b'), lambda *_: None)\n"
        "except ModelError as error:\n    print(error.message, 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT_S)
    assert "No model 'llama-8b'" in done.stdout, done.stderr
    assert done.stdout.endswith("False\n")
