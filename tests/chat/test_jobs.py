"""Lines of a batch: what they may say, what is wrong with one, and what they become."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from found_templates import byte_tokenizer
from hypothesis import given
from hypothesis import strategies as st

from h2o_chat.base.config import Sampling
from h2o_chat.base.errors import UsageError
from h2o_chat.chat.files.batch_lines import BatchLine, read_jobs, request_of, seed_of
from h2o_chat.chat.templates.chat_template import PlainTemplate

Write = Callable[..., Path]


@pytest.fixture
def lines(tmp_path: Path) -> Write:
    def write(*given: Any) -> Path:
        file = tmp_path / "in.jsonl"
        raw = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in given]
        file.write_bytes(b"\n".join(raw))
        return file

    return write


def jobs(file: Path) -> list[BatchLine]:
    found, wrong = read_jobs(file, skip_bad=False)
    assert not wrong
    return found


def test_a_line_says_who_asks_what_and_how(lines: Write) -> None:
    file = lines(
        b'\xef\xbb\xbf{"id": "a", "prompt": "Hello", "seed": 7, "temperature": 1, "stop": "x"}',
        b"  ",
        {
            "id": 5,
            "messages": [{"role": "developer", "content": "Be kind."}, {"role": "user", "content": "Hi"}],
        },
        {
            "id": "c",
            "max_completion_tokens": 9,
            "top_p": None,
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "What"}, {"type": "text", "text": "now?"}],
                },
                {"role": "assistant", "content": "This."},
                {"role": "user", "content": "And then?", "name": "ada"},
            ],
        },
    )
    one, two, three = jobs(file)
    assert one == BatchLine("a", 1, (("user", "Hello"),), {"temperature": 1.0, "stop": ("x",)}, 7)
    assert two == BatchLine(5, 3, (("system", "Be kind."), ("user", "Hi")), {}, None)
    assert three.messages == (("user", "What\nnow?"), ("assistant", "This."), ("user", "And then?"))
    assert three.changes == {"max_tokens": 9}


USER = {"role": "user", "content": "Hi"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "line 2 is not JSON: Expecting property name"),
        (b"\xff{}", "line 2 is not UTF-8 text"),
        (b"[" * 100_000, "nested too deeply"),
        ([1], "line 2 is no object"),
        ({"prompt": "Hi"}, "line 2 has no id"),
        ({"id": "", "prompt": "Hi"}, "line 2 has no id"),
        ({"id": 1.5, "prompt": "Hi"}, "line 2 has no id"),
        ({"id": "first", "prompt": "Hi"}, "line 2 has the id of line 1: 'first'"),
        ({"id": "x"}, "line 2 has no prompt and no messages"),
        ({"id": "x", "prompt": "Hi", "messages": [USER]}, "has prompt and messages: one of them"),
        ({"id": "x", "prompt": ""}, "line 2: prompt is no text"),
        ({"id": "x", "prompt": "x" * (5 << 20)}, "line 2: prompt has 5,242,880 characters"),
        ({"id": "x", "messages": []}, "messages is no list of messages"),
        ({"id": "x", "messages": [USER, USER]}, r"messages\[1\].role is 'user', and assistant comes here"),
        ({"id": "x", "messages": [{"role": "tool", "content": "x"}]}, r"messages\[0\].role is 'tool'"),
        ({"id": "x", "messages": [{"role": "system", "content": "x"}]}, "do not end with a user's"),
        ({"id": "x", "messages": [{"role": "user", "content": None}]}, r"messages\[0\].content is no text"),
        (
            {"id": "x", "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "has a part that is no text",
        ),
        ({"id": "x", "prompt": "Hi", "max_token": 5}, "has a key that is not known: 'max_token'"),
        ({"id": "x", "prompt": "Hi", "tools": []}, "has a key that is not known: 'tools'"),
        ({"id": "x", "prompt": "Hi", "temperature": "warm"}, "line 2: temperature is 'warm'"),
        ({"id": "x", "prompt": "Hi", "temperature": 1000}, "line 2: temperature .*1000"),
        ({"id": "x", "prompt": "Hi", "max_tokens": 0}, "line 2: max_tokens .*0"),
        ({"id": "x", "prompt": "Hi", "seed": -1}, "line 2: seed .*-1"),
        ({"id": "x", "prompt": "Hi", "seed": 2**70}, "line 2: seed is a number of more than 64 bits"),
        ({"id": "x", "prompt": "Hi", "stop": [""]}, "line 2: stop is empty"),
        ({"id": "x", "prompt": "Hi", "max_tokens": 5, "max_completion_tokens": 5}, "max_tokens and max_comp"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_line_is_named_with_its_number(line: Any, said: str, lines: Write) -> None:
    file = lines({"id": "first", "prompt": "Hi"}, line, {"id": "third", "prompt": "Hi"})
    with pytest.raises(UsageError, match=said) as raised:
        read_jobs(file, skip_bad=False)
    assert str(file) in raised.value.message
    assert "--skip-bad" in raised.value.hint
    found, (wrong,) = read_jobs(file, skip_bad=True)
    assert [job.id for job in found] == ["first", "third"]
    assert wrong.message == raised.value.message


def test_how_many_lines_are_bad_is_said(lines: Write) -> None:
    file = lines({"id": 1}, {"id": 2, "prompt": "Hi"}, {"id": 3}, {"id": "2", "prompt": "Ho"})
    with pytest.raises(UsageError, match=r"line 1 has no prompt.* 2 more lines are bad"):
        read_jobs(file, skip_bad=False)
    found, wrong = read_jobs(file, skip_bad=True)
    assert [job.line for job in found] == [2]
    assert "has the id of line 2" in wrong[-1].message


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none", Path("\0")):
        with pytest.raises(UsageError, match="cannot be read"):
            read_jobs(path, skip_bad=True)


@given(st.text(), st.text(), st.integers(0, 2**40))
def test_seeds_depend_on_the_id_and_the_batch_alone(one: str, other: str, seed: int) -> None:
    assert seed_of(seed, one) == seed_of(seed, one)
    assert 0 <= seed_of(seed, one) < 2**32
    assert (seed_of(seed, one) == seed_of(seed, other)) == (one == other)
    assert seed_of(seed, 5) == seed_of(seed, "5") != seed_of(seed + 1, 5)


def test_messages_become_what_is_read() -> None:
    tokenizer = byte_tokenizer(None, "<s>", "</s>")
    template, usual = PlainTemplate(tokenizer), Sampling(top_k=1, top_p=0.5)
    said = (("system", "S"), ("user", "U"), ("assistant", "A"), ("user", "V"))
    made = request_of(BatchLine("a", 1, said, {"top_k": 5}, None), template, tokenizer, usual, "other", 3)
    pieces = [(tokenizer.decode(piece.ids), piece.answer) for piece in made.pieces]
    assert pieces == [("S\nU", False), ("A", True), ("V", False)]
    assert made.system_tokens == 2
    assert made.sampling == Sampling(top_k=5, top_p=0.5)
    assert made.seed == seed_of(3, "a")
    bare = request_of(BatchLine("a", 1, (("user", "U"),), {}, 9), template, tokenizer, usual, None, 3)
    assert (bare.seed, bare.system_tokens) == (9, 0)
    assert [tokenizer.decode(piece.ids) for piece in bare.pieces] == ["U"]
