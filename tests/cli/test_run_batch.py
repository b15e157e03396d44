"""`h2o-chat run --batch`: answers as lines, the same whatever became of the runs before."""

import io
import json
import os
import signal
import subprocess
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from here import h2o_here
from program import started
from sweep import sweep
from terminals import Terminal

from h2o_chat.base.errors import ExitCode, GenerationError, ModelError, StoreError
from h2o_chat.chat.files.batch_lines import BatchLine, seed_of
from h2o_chat.chat.files.batch_results import ResultsFile, Stdout, line_of
from h2o_chat.chat.templates.chat_template import ModelTemplate
from h2o_chat.cli import run_batch
from h2o_chat.engine.answer import Answer
from h2o_chat.events.events import Turn

SHORT = ("--max-tokens", 24, "-b", 48)


def write(path: Path, *lines: Any) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def many(path: Path, count: int) -> Path:
    """Prompts of different length, drawn and greedy."""

    def line(number: int) -> dict[str, Any]:
        told = f"My name is Ada. {'My cat is Tom. ' * (number % 7)}What is my name?"
        drawn = {"temperature": 0.9 * (number % 2), "max_tokens": 5 + number % 30}
        return {"id": f"q{number}", "prompt": told, **drawn}

    return write(path, *map(line, range(count)))


def answers(text: str) -> dict[Any, dict[str, Any]]:
    """By id; each is there once."""
    found = [json.loads(line) for line in text.splitlines()]
    assert len({one["id"] for one in found}) == len(found)
    return {one["id"]: one for one in found}


def test_each_line_is_answered_as_run_answers_it_alone(tmp_path: Path) -> None:
    """From stdout: with a system prompt, with words of before, drawn, stopped."""
    file = write(
        tmp_path / "in.jsonl",
        {"id": "plain", "prompt": "My name is Ada."},
        {"id": "drawn", "prompt": "Tell me a story about a dog", "temperature": 0.8, "seed": 8},
        {"id": "seeded", "prompt": "Tell me a story about a dog", "temperature": 0.8},
        {"id": "stopped", "prompt": "Hello", "stop": ["you"]},
    )
    done = h2o_here("run", "--batch", file, *SHORT, "--seed", 3)
    found = answers(done.out)
    assert set(found) == {"plain", "drawn", "seeded", "stopped"}
    alone: dict[str, list[Any]] = {
        "plain": ["My name is Ada."],
        "drawn": ["Tell me a story about a dog", "--temperature", 0.8, "--seed", 8],
        "seeded": ["Tell me a story about a dog", "--temperature", 0.8, "--seed", seed_of(3, "seeded")],
        "stopped": ["Hello", "--stop", "you"],
    }
    for one, said in alone.items():
        assert found[one]["text"].rstrip("\n") + "\n" == h2o_here("run", *said, *SHORT).out
        assert found[one]["error"] is None
    assert found["drawn"]["finish_reason"] == "length"
    assert found["drawn"]["usage"]["completion_tokens"] == 24
    assert found["stopped"]["finish_reason"] == "stop"
    assert "4 answered: " in done.err
    assert "seed 3" in done.err


@pytest.mark.parametrize(
    "killed", [(5, 2), *sweep(((1, 5, 16, 2, 7),))], ids=lambda rows: f"{len(rows)} times"
)
def test_runs_that_are_killed_give_the_answers_of_one_that_is_not(
    tmp_path: Path, killed: tuple[int, ...]
) -> None:
    """Killed by SIGKILL, each time once a line has come; then a torn line, as a full disk leaves it.

    `killed`: the rows of each that is killed.
    """
    file, out, wanted = many(tmp_path / "in.jsonl", 40), tmp_path / "out.jsonl", tmp_path / "wanted.jsonl"
    h2o_here("run", "--batch", file, "-o", wanted, *SHORT, "--rows", 3)
    batch = ("run", "--batch", file, "-o", out, *SHORT, "--threads", 1)
    for rows in killed:
        before = size(out)
        with started(*batch, "--rows", rows) as process:
            wait_for_more(out, before, process)
            process.kill()
    assert len(killed) <= out.read_bytes().count(b"\n") < 40, "none of them came to the end"
    out.write_bytes(out.read_bytes() + out.read_bytes()[:60])
    done = h2o_here("run", "--batch", file, "-o", out, *SHORT)
    assert " of 40 are answered already" in done.err
    assert answers(out.read_text()) == answers(wanted.read_text())
    again = out.read_bytes()
    done = h2o_here("run", "--batch", file, "-o", out, *SHORT)
    assert (done.code, out.read_bytes()) == (ExitCode.OK, again)
    assert "40 of 40 are answered already" in done.err


def size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def wait_for_more(file: Path, before: int, process: subprocess.Popen[Any]) -> None:
    """Until the process has written to the file; it fails if that ends before."""
    end = time.monotonic() + 100
    while size(file) <= before:
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_signal_ends_it_after_what_is_whole(tmp_path: Path) -> None:
    file, out = many(tmp_path / "in.jsonl", 400), tmp_path / "out.jsonl"
    with started("run", "--batch", file, "-o", out, "--threads", 1) as process:
        wait_for_more(out, 0, process)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == ExitCode.INTERRUPTED
    assert "are left: run it again" in said
    assert "Traceback" not in said
    assert 0 < len(answers(out.read_text())) < 400


def test_bad_lines_stop_it_before_anything_is_computed(tmp_path: Path) -> None:
    file, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    write(file, {"id": "a", "prompt": "Hi"}, {"id": "b"}, {"id": "a", "prompt": "Ho"})
    done = h2o_here("run", "--batch", file, "-o", out, "-m", tmp_path / "no such model", ends=ExitCode.USAGE)
    assert f"{file} line 2 has no prompt and no messages" in done.err
    assert not out.exists()
    done = h2o_here("run", "--batch", file, "-o", out, "--skip-bad", *SHORT)
    assert list(answers(out.read_text())) == ["a"]
    assert "Left out: " in done.err
    assert "line 3 has the id of line 1" in done.err


def test_who_fails_has_its_own_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of ours and a bug: the others are answered, and the exit code says that not all were."""
    choose = Answer.choose
    raised = {7: GenerationError("It is NaN.", "Try again."), 8: IndexError("no such place")}

    def fails(answer: Answer, logits: Any) -> Any:
        if answer.new_tokens == 2 and answer.row.seed in raised:
            raise raised[answer.row.seed]
        return choose(answer, logits)

    monkeypatch.setattr(Answer, "choose", fails)
    lines = [{"id": f"q{seed}", "prompt": "Tell me a story", "seed": seed} for seed in (6, 7, 9)]
    file = write(tmp_path / "in.jsonl", *lines)
    done = h2o_here("run", "--batch", file, *SHORT, ends=ExitCode.FAILED)
    found = answers(done.out)
    assert found["q7"]["error"] == {"code": "generation", "message": "It is NaN.", "hint": "Try again."}
    assert (found["q7"]["finish_reason"], found["q7"]["usage"]["completion_tokens"]) == ("error", 2)
    assert found["q6"] == found["q9"] | {"id": "q6", "asked": found["q6"]["asked"]}
    assert "line 2, id q7: It is NaN." in done.err
    assert "3 answered, 1 of them failed" in done.err
    write(file, *lines, {"id": "q8", "prompt": "Tell me a story", "seed": 8})
    done = h2o_here("run", "--batch", file, *SHORT, ends=ExitCode.BUG)
    assert answers(done.out)["q8"]["error"]["code"] == "bug"
    assert "Traceback" in done.err
    assert len(answers(done.out)) == 4


def test_a_system_prompt_that_a_template_does_not_take_fails_its_line_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ModelTemplate.first

    def fails(template: ModelTemplate, system: str | None, text: str) -> Any:
        if text == "break":
            raise ModelError("The model's chat template fails.", "Use --template plain.")
        return first(template, system, text)

    monkeypatch.setattr(ModelTemplate, "first", fails)
    file = write(tmp_path / "in.jsonl", {"id": "a", "prompt": "break"}, {"id": "b", "prompt": "Hello"})
    done = h2o_here("run", "--batch", file, *SHORT, ends=ExitCode.FAILED)
    found = answers(done.out)
    assert found["a"]["error"]["code"] == "model"
    assert found["b"]["error"] is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("words",), "--batch and a prompt were given"),
        (("--json",), "--batch and --json were given"),
        (("--save",), "--batch and --save were given"),
        (("--resume", "last"), "--batch and --resume were given"),
        (("-o", "{file}"), "is the input, too"),
    ],
)
def test_what_does_not_go_with_it_is_refused(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    file = many(tmp_path / "in.jsonl", 2)
    before = file.read_bytes()
    done = h2o_here(
        "run", "--batch", file, *(one.format(file=file) for one in arguments), ends=ExitCode.USAGE
    )
    assert said in done.err
    assert file.read_bytes() == before


def test_rows_that_do_not_fit_are_refused_with_the_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("h2o_chat.engine.row_capacity.free_bytes", lambda device: 300 << 20)
    file = many(tmp_path / "in.jsonl", 40)
    done = h2o_here("run", "--batch", file, *SHORT, "-b", 512, "--rows", 32, ends=ExitCode.MEMORY)
    assert "32 rows do not fit: each takes 1.8 MB, 8 more are kept free" in done.err
    assert "--rows 1" in done.err


def test_its_flags_need_it() -> None:
    for flags in (("-o", "x"), ("--rows", 3), ("--skip-bad",)):
        done = h2o_here("run", "Hello", *flags, ends=ExitCode.USAGE)
        assert "is of --batch alone" in done.err


def test_a_reader_that_leaves_ends_it_quietly(tmp_path: Path) -> None:
    file = many(tmp_path / "in.jsonl", 300)
    with started("run", "--batch", file, "--threads", 1) as process:
        json.loads(process.stdout.readline())
        process.stdout.close()
        said = process.stderr.read()
        assert process.wait(60) == ExitCode.OK
    assert "Traceback" not in said
    assert "Error" not in said


def test_a_terminal_is_told_how_far_it_is(tmp_path: Path) -> None:
    file = many(tmp_path / "in.jsonl", 40)
    batch = ("run", "--batch", file, "-o", tmp_path / "out", "--threads", 1)
    with Terminal(*batch, piped="", COLUMNS="120", TERM="xterm") as terminal:
        assert terminal.ended() == ExitCode.OK
    assert all(words in terminal.text for words in (" of 40 · ", "tok/s", "about"))


def test_no_time_is_told_once_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, float]] = []
    progress = nullcontext(lambda words, share: told.append((words, share)))
    monkeypatch.setattr(run_batch, "progress_bar", lambda: progress)
    job = BatchLine("a", 1, (("user", "Hi"),), {}, None)
    turn = Turn("Yes.", "stop", 3, 2, 1.0, 9.0, 5, 5, 0, 0.0)
    run = run_batch._Answers(Stdout(io.StringIO()), {}, 1, 1)
    assert run.write_all(iter([(job, turn, None), None])) == ExitCode.OK
    ((words, share),) = told
    assert share == 1
    assert "about" not in words


@pytest.mark.parametrize("how", ["removed", "replaced", "cut"])
def test_an_output_that_goes_away_is_noticed(how: str, tmp_path: Path) -> None:
    """Exit code 1, and what was answered stands beside it; with that the same command goes on."""
    file, out = many(tmp_path / "in.jsonl", 40), tmp_path / "out.jsonl"
    with started("run", "--batch", file, "-o", out, *SHORT, "--rows", 1) as process:
        while not out.exists() or len(out.read_bytes().splitlines()) < 3:
            time.sleep(0.005)
        if how == "cut":
            os.truncate(out, 0)
        else:
            out.rename(tmp_path / "moved")
        if how == "replaced":
            out.write_text("")
        _, err = process.communicate(timeout=300)
    assert process.returncode == ExitCode.FAILED, err
    assert f"{out} was" in err
    assert "while it was written" in err
    if how == "cut":
        return
    [beside] = tmp_path.glob("out.jsonl.rescued-*")
    kept = answers(beside.read_text())
    assert str(beside) in err
    assert 3 <= len(kept) < 40
    h2o_here("run", "--batch", file, "-o", beside, *SHORT, "--rows", 1)
    now = answers(beside.read_text())
    assert len(now) == 40
    assert kept.items() <= now.items()


def test_an_output_that_goes_away_at_the_end_is_noticed(tmp_path: Path) -> None:
    """After the last line nothing is written any more."""
    out = tmp_path / "out.jsonl"
    results = ResultsFile(out)
    results.write(line_of("a", None))
    out.unlink()
    with pytest.raises(StoreError, match="was removed or moved while it was written"):
        results.require()
    results.close()


def test_a_line_that_was_edited_does_not_keep_its_old_answer(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [{"id": "a", "prompt": "Hello"}, {"id": 7, "prompt": "My name is Ada."}]
    file, out = write(tmp_path / "in.jsonl", *lines), tmp_path / "out.jsonl"
    h2o_here("run", "--batch", file, "-o", out, *SHORT)
    before = out.read_bytes()
    again = h2o_here("run", "--batch", file, "-o", out, *SHORT)
    assert (again.code, out.read_bytes()) == (ExitCode.OK, before), again.err
    for changed in ({"prompt": "Bye"}, {"temperature": 0.5}, {"seed": 3}):
        write(file, lines[0] | changed, lines[1])
        refused = h2o_here("run", "--batch", file, "-o", out, *SHORT, ends=ExitCode.USAGE)
        assert "id a, has changed" in refused.err
        assert out.read_bytes() == before
