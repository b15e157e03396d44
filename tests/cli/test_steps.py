"""Stored conversations that go on, by the real program: the step that they were held with stays."""

from pathlib import Path

import pytest
from here import h2o_here
from program import Ended
from sweep import sweep

from h2o_chat.events.events import Session, Turn
from h2o_chat.native import library

pytestmark = pytest.mark.skipif(bool(library.why_not()), reason=f"no native step: {library.why_not()}")
FIRST, SECOND = "My cat is called Miko. Tell me of trains.", "What is my cat called?"


def run(*arguments: object) -> Ended:
    done = h2o_here("run", "--json", "--budget", 48, "--max-tokens", 40, "--ignore-eos", *arguments)
    return done


def session(done: Ended) -> Session:
    (found,) = done.of(Session)
    return found


def answers(done: Ended) -> list[str]:
    return [turn.text for turn in done.of(Turn)]


@pytest.mark.parametrize(
    ("engine", "kv"),
    [("native", "auto"), ("transformers", "int8"), *sweep(("native", "int8"), ("transformers", "auto"))],
)
def test_it_goes_on_token_for_token(engine: str, kv: str, tmp_path: Path) -> None:
    script = tmp_path / "both.txt"
    script.write_text(f"{FIRST}\n---\n{SECOND}\n")
    data, how = ("--data", tmp_path / "data"), ("--engine", engine, "--kv-dtype", kv)
    whole = run("--script", script, *how)
    first = run(FIRST, "--save", *data, *how)
    second = run(SECOND, "--resume", "last", *data)  # no flag: as it was held
    assert session(second).engine == engine
    assert session(second).quantization == session(first).quantization
    assert "rebuilt" not in second.err
    assert answers(first) + answers(second) == answers(whole)


def test_another_step_is_another_memory_and_says_so(tmp_path: Path) -> None:
    data = ("--data", tmp_path / "data")
    run(FIRST, "--save", *data, "--engine", "transformers")
    other = run(SECOND, "--resume", "last", *data, "--engine", "native")
    assert session(other).engine == "native"
    assert session(other).engine_why in ("plain", "AVX2", "AVX-512", "NEON", "AMX")
    assert "rebuilt" in other.err


def test_why_it_was_not_taken_is_said() -> None:
    assert session(run("Hello")).engine == "native"
    told = session(run("Hello", "--dtype", "float32"))
    assert told.engine == "transformers"
    assert told.engine_why == "--dtype float32 was given, and it chooses its own"
    assert session(run("Hello", "--quantize", "int4")).quantization == "int4"
