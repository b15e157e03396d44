"""Prompts that are taken, and those that are refused before a model is loaded."""

import io
import time
from pathlib import Path

import pytest

from h2o_chat.base.errors import UsageError
from h2o_chat.chat.conversation.message import LONGEST_CHARACTERS
from h2o_chat.cli.prompt_input import MAX_BYTES, decode, prompt_of, read_script
from h2o_chat.cli.run import turns_of


def test_words_and_what_is_piped_in() -> None:
    assert prompt_of("one", None) == "one"
    assert prompt_of("one", io.BytesIO(b"\xef\xbb\xbftwo\n")) == "one\n\ntwo"
    assert prompt_of(None, io.BytesIO(b"two")) == "two"
    for nothing in (b"\n", b" " * 12_000_000):
        with pytest.raises(UsageError, match="nothing to say"):
            prompt_of(" ", io.BytesIO(nothing))


def test_a_long_message(tmp_path: Path) -> None:
    """A text that would take hours to read is refused before a model is loaded."""
    script = tmp_path / "script.txt"
    script.write_bytes(b"x" * LONGEST_CHARACTERS)
    assert [len(turn) for turn in read_script(script)] == [LONGEST_CHARACTERS]
    assert len(prompt_of(None, script.open("rb"))) == LONGEST_CHARACTERS
    script.write_bytes(b"x" * (LONGEST_CHARACTERS + 1))
    for read in (read_script, lambda path: prompt_of(None, path.open("rb"))):
        with pytest.raises(UsageError, match=r"4,194,305 characters is too long: 4,194,304") as caught:
            read(script)
        assert "in parts" in caught.value.hint
    script.write_bytes(b"x" * LONGEST_CHARACTERS + b"\n---\n" + b"y" * LONGEST_CHARACTERS)
    assert [len(turn) for turn in read_script(script)] == [LONGEST_CHARACTERS] * 2


def test_an_enormous_prompt(tmp_path: Path) -> None:
    """However much is piped in, no more is read than may be said."""
    script = tmp_path / "script.txt"
    script.write_bytes(b"x" * (MAX_BYTES + 1))
    with pytest.raises(UsageError, match=r"script\.txt is larger than 16 MiB"):
        read_script(script)
    with Path("/dev/zero").open("rb") as endless, pytest.raises(UsageError, match="stdin is larger"):
        prompt_of("x", endless)


def test_what_is_no_text() -> None:
    with pytest.raises(UsageError, match="character 2 is a NUL") as caught:
        decode("hi".encode("utf-16-le"), "stdin")
    assert "UTF-16" in caught.value.hint
    with pytest.raises(UsageError, match="stdin is not UTF-8 text"):
        decode(b"\xff", "stdin")


@pytest.mark.parametrize("name", ["no such file", ".", "a\0b", "x" * 300])
def test_a_script_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_script(tmp_path / name)


def test_turns() -> None:
    assert turns_of("\n one\r\n--- \t\n\n---\ntwo\n\nlines\n\n---x\n") == [" one", "two\n\nlines\n\n---x"]
    assert len(turns_of("Go on.\n---\n" * 20_000)) == 20_000


def test_a_long_turn_costs_its_length() -> None:
    """It was put together line by line once, and every line cost all before it."""
    began = time.process_time()
    assert len(turns_of("a\n" * 4_000_000)) == 1
    assert time.process_time() - began < 30
