"""The file of a batch's answers: a line each, whole or gone, and nobody else's file is touched."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import BusyError, GenerationError, UsageError
from h2o_chat.chat.files.batch_results import ResultsFile, line_of, made_with
from h2o_chat.events.events import Turn

TURN = Turn("Hé\u2028\ud800", "eos", 10, 5, 1.0, 2.0, 14, 12, 2, 0.0)


def written(path: Path, *ids: str | int) -> None:
    file = ResultsFile(path)
    for one in ids:
        file.write(line_of(one, TURN))
    file.close()


def test_a_line_is_what_clients_know() -> None:
    assert json.loads(line_of("a", TURN)) == {
        "id": "a",
        "text": "Hé\u2028?",
        "finish_reason": "stop",
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, "evicted_tokens": 2},
        "error": None,
        "settings": None,
        "asked": None,
    }
    failed = json.loads(line_of(3, None, GenerationError("It is NaN.", "Try again.")))
    assert (failed["id"], failed["finish_reason"], failed["usage"]["total_tokens"]) == (3, "error", 0)
    assert failed["error"] == {"code": "generation", "message": "It is NaN.", "hint": "Try again."}
    bug = json.loads(line_of(3, TURN, IndexError("5")))
    assert bug["error"]["code"] == "bug"
    assert bug["error"]["message"] == "IndexError: 5"
    assert line_of("a\nb", TURN).count("\n") == 1


def test_it_goes_on_where_it_was_cut_at_any_byte(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    written(path, "a", 7)
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        file = ResultsFile(path)
        there = {"a"} if length >= first - 1 else set()  # a line without its newline is whole
        assert set(file.done) == there | ({"7"} if length >= len(whole) - 1 else set())
        if "a" not in file.done:
            file.write(line_of("a", TURN))
        if "7" not in file.done:
            file.write(line_of(7, TURN))
        file.close()
        assert path.read_bytes() == whole, length


@pytest.mark.parametrize(
    "content",
    [
        b"notes\n",
        b"notes without an end",
        b'{"id": "a", "prompt": "Hi"}\n',
        b"[]\n",
        b"\n",
        b"\xff",
        b'{"text": 1',
    ],
)
def test_another_file_is_left_as_it_is(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "notes"
    written(path, "a")
    for raw in (content, path.read_bytes() + content):
        path.write_bytes(raw)
        with pytest.raises(UsageError, match="is no answer of a batch: nothing was changed"):
            ResultsFile(path)
        assert path.read_bytes() == raw


def test_answers_of_other_settings_are_not_mixed(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    settings, sampling = Settings(system="Be kind.", budget=64, seed=7), Sampling(stop=("you",))
    made = made_with(settings, sampling)
    assert {"model", "policy", "budget", "system", "seed", "stop"} == made.keys()
    file = ResultsFile(path, made)
    file.write(line_of("old", TURN))  # of a version that did not say it
    file.write(line_of("a", TURN, made=made))
    file.close()
    raw = path.read_bytes()
    same = made_with(replace(settings, threads=1, events_every=0), sampling)
    for now in (same, None):
        again = ResultsFile(path, now)
        again.close()
        assert set(again.done) == {"old", "a"}
    for other, name in (
        (made_with(replace(settings, budget=32), sampling), r"budget \(64, now 32\)"),
        (made_with(replace(settings, system="Be"), sampling), "system"),
        (made_with(replace(settings, quantize="int4"), sampling), r"quantize \(not given, now int4\)"),
        (made_with(settings, Sampling()), r"stop \(\['you'\], now not given\)"),
    ):
        with pytest.raises(UsageError, match=f"line 2 was made with another {name}.*nothing was changed"):
            ResultsFile(path, other)
        assert path.read_bytes() == raw


def test_one_process_writes_to_it(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    file = ResultsFile(path)
    with pytest.raises(BusyError, match="Another process writes to"):
        ResultsFile(path)
    file.close()
    ResultsFile(path).close()


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none" / "out", Path("\0")):
        with pytest.raises(UsageError, match="cannot be opened"):
            ResultsFile(path)
