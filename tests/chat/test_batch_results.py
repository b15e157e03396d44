"""The file of a batch's answers: a line each, whole or gone, and nobody else's file is touched."""

import json
from pathlib import Path

import pytest

from h2o_chat.base.errors import BusyError, GenerationError, UsageError
from h2o_chat.chat.results import ResultsFile, line_of
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
        assert file.done == there | ({"7"} if length >= len(whole) - 1 else set())
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
