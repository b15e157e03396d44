"""Why something cannot be had, in words."""

import errno
import os
import socket
from pathlib import Path

import pytest

from h2o_chat.base.config import read_tables
from h2o_chat.base.errors import UsageError, refusal
from h2o_chat.lab.shared.lab_texts import read_texts


@pytest.mark.loopback
def test_what_stands_before_is_not_said_again(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as no_file:
        (tmp_path / "none").read_text()
    assert refusal(no_file.value) == os.strerror(errno.ENOENT)
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="Address") as refused:
        socket.create_server(taken.getsockname())
    assert refusal(refused.value) == os.strerror(errno.EADDRINUSE)


def test_an_error_without_a_number_says_what_it_says() -> None:
    assert refusal(OSError("no folder to write to")) == "no folder to write to"
    assert refusal(socket.gaierror(-2, "Name or service not known")) == "Name or service not known"
    assert refusal(ValueError("wrong")) == "wrong"


def test_a_file_that_cannot_be_read_is_named_once(tmp_path: Path) -> None:
    for read, path in ((read_texts, tmp_path / "none.txt"), (read_tables, tmp_path)):
        with pytest.raises(UsageError) as no:
            read(path)
        assert str(no.value.message).count(str(path)) == 1
        assert "[Errno" not in no.value.message
