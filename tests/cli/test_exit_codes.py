"""Every way to end, and what is said. One process a case, so cases that end early come many in a test."""

import json
import re
import resource
import shutil
import struct
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from here import h2o_here
from program import h2o, without_torch
from storing import created
from terminals import Terminal

from h2o_chat.base.errors import ExitCode
from h2o_chat.events.events import End, Error, Turn
from h2o_chat.store import Store


def unboxed(text: str) -> str:
    """The text of a box, without its lines and breaks."""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], ["needs a terminal", "h2o-chat run"]),
        (["run"], ["nothing to say", "--script"]),
        (["run", "hi", "--policy", "nope"], ["'--policy': 'nope' is not one of 'h2o'", "h2o-paper"]),
        (["--policy", "foo"], ["'--policy': 'foo' is not one of 'h2o'"]),
        (["run", "hi", "--budget", "0"], ["--budget is 0"]),
        (["run", "hi", "--budget", "1.5"], ["'1.5' is not a whole number."]),
        (["run", "hi", "--top-p", "x"], ["'x' is not a number."]),
        (["run", "hi", "--top-p", "nan"], ["--top-p is nan"]),
        (["run", "hi", "--temperature", "-1"], ["--temperature is -1", "It must be 0, or in [0.001, 100]"]),
        (["run", "hi", "--stop", ""], ["--stop is empty"]),
        (["run", "hi", "--script", "turns.txt"], ["--script"]),
        (["run", "--script", "no such file"], ["no such file", "No such file or directory"]),
        (["--budget", "3", "run", "hi"], ["--budget stands before run", "h2o-chat run ... --budget"]),
        (["--resume", "last", "run", "hi"], ["--resume stands before run", "h2o-chat run ... --resume"]),
        (["--plain", "--yes", "demo"], ["--plain stands before demo. Leave it out"]),
        (["sessions", "list", "-n", "0"], ["0 is out of range: at least 1."]),
        (["bench", "speed", "--turns", "-5"], ["-5 is out of range: at least 1."]),
        (["eval", "perplexity", "--texts", "x", "--length", "0"], ["0 is out of range"]),
        (["bench", "speed", "--prompt", "1"], ["1 is out of range: at least 2."]),
    ],
    ids=lambda value: " ".join(value)[:30] or "no terminal",
)
def test_usage(arguments: list[str], said: list[str]) -> None:
    done = h2o_here(*arguments, ends=ExitCode.USAGE)
    assert done.out == ""
    shown = unboxed(done.err)
    assert all(words in shown for words in said), done.err
    assert "Value error" not in done.err
    assert "Input should" not in done.err


def test_a_folder_named_before_a_command_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another would be taken in its place, and `rm` remove a conversation there."""
    monkeypatch.setenv("H2O_CHAT_DATA", str(tmp_path / "usual"))
    with closing(Store(tmp_path / "usual")) as store:
        created(store, "pocket", {}, "Kept")
    rm = ("sessions", "rm", "last")
    done = h2o_here("--data", tmp_path / "other", *rm, "--yes", ends=ExitCode.USAGE)
    assert "--data stands before sessions. Put it behind: h2o-chat sessions ... --data" in unboxed(done.err)
    done = h2o_here("--yes", *rm, ends=ExitCode.USAGE)
    assert "h2o-chat sessions ... --yes" in unboxed(done.err)
    assert h2o_here("sessions", "rm", "last", "--yes").err.startswith("Removed"), "what the environment says"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["hello"], 'h2o-chat run "hello"'),
        (["ls"], "h2o-chat models list"),
        (["/"], "h2o-chat -m /"),
        (["run", "pocket", "Why?"], "-m MODEL"),
        (["what's", "up?", "-m", "pocket"], 'h2o-chat run "what\'s up?"'),
        (["say $HOME"], 'h2o-chat run "your question"'),
        (["sesions", "list"], "Did you mean 'sessions'?"),
    ],
)
def test_a_question_instead_of_a_command_is_told_where_it_goes(arguments: list[str], says: str) -> None:
    done = h2o_here(*arguments, ends=ExitCode.USAGE)
    assert done.out == ""
    assert says in unboxed(done.err)
    assert ("alone" in done.err) is ("run" in says)


def test_usage_errors_are_events_too() -> None:
    done = h2o_here("run", "hi", "--json", "--events", -1, ends=ExitCode.USAGE)
    (error,), (_,) = done.of(Error), done.of(End)
    assert (error.code, error.message) == ("usage", "--events is -1.")


def test_an_empty_script_is_usage(tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("---\n\n---\n")
    assert "script is empty" in h2o_here("run", "--script", empty, ends=ExitCode.USAGE).err


def test_model_not_found(tmp_path: Path) -> None:
    near = tmp_path / "stories"
    near.mkdir()
    (near / "config.json").write_text("{}")
    done = h2o_here("run", "hi", "-m", tmp_path / "storys", "--json", ends=ExitCode.MODEL)
    (error,), (_,) = done.of(Error), done.of(End)
    assert error.code == "model"
    assert str(tmp_path / "storys") in error.message
    assert str(near) in error.hint
    assert error.message in done.err


def test_unsupported_family_before_any_weight(tmp_path: Path) -> None:
    """No weight is of any model here, and the error is about the family."""
    config = {"model_type": "gpt_neo", "architectures": ["GPTNeoForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    done = h2o_here("run", "hi", "-m", tmp_path, ends=ExitCode.MODEL)
    assert "GPTNeoForCausalLM is not supported: its attention does not go through" in done.err


DAMAGED = (
    ("config.json", b"{", "config.json is not JSON"),
    ("model.safetensors", b"", "model.safetensors is damaged: header too small"),
    ("model.safetensors", None, "has no safetensors weights"),
    ("model.safetensors.index.json", b'{"weight_map": {"a": "model-1.safetensors"}}', "lacks 1 of 1"),
)


def test_damaged_and_partial_folders(small: Path, tmp_path: Path) -> None:
    """Without torch: whoever waits for it waits two seconds more."""
    for number, (file, content, _) in enumerate(DAMAGED):
        folder = shutil.copytree(small, tmp_path / str(number))
        if file.endswith(".index.json"):
            (folder / "model.safetensors").unlink()
        if content is None:
            (folder / file).unlink()
        else:
            (folder / file).write_bytes(content)
    codes, err = without_torch(*(["run", "hi", "-m", folder] for folder in sorted(tmp_path.iterdir())))
    assert codes == [ExitCode.MODEL] * len(DAMAGED)
    places = [err.index(said) for *_, said in DAMAGED]
    assert places == sorted(places)


def test_impossible_budget(small: Path) -> None:
    done = h2o_here(
        "run", "hi", "-m", small, "--budget", 3, "--policy", "caote", "--json", ends=ExitCode.MEMORY
    )
    (error,) = done.of(Error)
    assert error.code == "budget"
    assert "3" in error.message
    assert "smallest budget that works" in error.hint


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited as Linux does it")
def test_out_of_memory(small: Path) -> None:
    limit = partial(resource.setrlimit, resource.RLIMIT_AS, (8 << 30, 8 << 30))
    done = h2o("run", "hi", "-m", small, "--budget", 10**8, "--json", preexec_fn=limit, ends=ExitCode.MEMORY)
    assert [error.code for error in done.of(Error)] == ["memory"]
    assert "--budget" in done.err


def test_a_failed_turn_stops_the_script(small: Path, tmp_path: Path) -> None:
    """The `full` policy ends at the model's window, and says so."""
    script = tmp_path / "turns.txt"
    script.write_text("Once upon a time\n---\nand then\n")
    flags = ("--policy", "full", "--ignore-eos", "--max-tokens", 600, "--json", "--events", 0)
    done = h2o_here("run", "--script", script, "-m", small, *flags, ends=ExitCode.FAILED)
    assert [turn.finish for turn in done.of(Turn)] == ["length"]
    assert [error.code for error in done.of(Error)] == ["window"]
    assert "512 tokens the model was trained for" in done.err
    assert [end.turns for end in done.of(End)] == [1]


def test_our_own_bug_shows_a_traceback_and_asks_for_a_report() -> None:
    broken = (
        "import sys, h2o_chat.cli.cli as cli\n"
        "cli.obtain = lambda name: 1 / 0\n"
        "sys.argv = ['h2o-chat', 'run', 'hi', '--json']; cli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", broken], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == ExitCode.BUG
    assert "Traceback" in done.stderr
    assert "please report it" in done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(event["event"], event.get("code")) for event in events] == [("error", "bug"), ("end", None)]


def test_a_screen_without_its_model_is_not_opened() -> None:
    """On a terminal too: the error stands in the shell, where the name can be mended."""
    with Terminal("-m", "no/such-model") as terminal:
        assert terminal.ended() == ExitCode.MODEL
    assert "No model 'no/such-model'" in terminal.text


def test_version() -> None:
    done = h2o("--version")
    assert (done.code, done.out.split()[0]) == (ExitCode.OK, "h2o-chat")
