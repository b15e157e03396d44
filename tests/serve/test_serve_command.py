"""The flags of the server, and refusals before a model is loaded."""

import errno
import hmac
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from serving import Server, keys_file
from typer.testing import CliRunner

from h2o_chat.base.errors import ExitCode, UsageError
from h2o_chat.cli.cli import app
from h2o_chat.serve import guard as keys_module
from h2o_chat.serve.guard import FILE_BYTES, NOBODY, Keys, read_keys

pytestmark = pytest.mark.loopback

KEY, OTHER = "0123456789abcdef", "fedcba9876543210"


def refused(code: int, *flags: str) -> str:
    """The error output of the command, run in this process."""
    ended = CliRunner().invoke(app, ["serve", "--no-store", "--threads", "1", *flags])
    assert (ended.exit_code, ended.stdout) == (code, "")
    return ended.stderr


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--address", "0.0.0.0:8080"], "--keys FILE"),
        (["--address", "192.168.1.5:8080"], "--keys FILE"),
        (["--address", "nowhere"], "HOST:PORT"),
        (["--address", "127.0.0.1:99999"], "HOST:PORT"),
        (["--keys", "no such file"], "No such file"),
        (["--rows", "0"], "--rows"),
        (["--timeout", "nan"], "--timeout"),
        (["--snapshots", "-1"], "--snapshots"),
        (["--temperature", "-1"], "--temperature"),
    ],
)
def test_what_cannot_be_served_is_said(flags: list[str], said: str) -> None:
    assert said in refused(2, *flags)


def test_a_taken_port_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = refused(2, "--address", address)
        assert f"{address} cannot be had: {os.strerror(errno.EADDRINUSE)}.\n" in said


def without(module: str, argument: str = "serve", late: bool = False) -> subprocess.CompletedProcess[str]:
    """`h2o-chat ARGUMENT` where the module cannot be imported; late: it could while the program was."""
    steps = [f"sys.modules[{module!r}] = None", "from h2o_chat.cli.cli import main"]
    code = "\n".join(
        ["import sys", *(steps[::-1] if late else steps), f"sys.argv[1:] = [{argument!r}]", "main()"]
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_without_the_extra_it_says_what_to_install(missing: str) -> None:
    ended = without(missing)
    assert ended.returncode == 2
    assert "pip install 'h2o-chat[serve]'" in ended.stderr
    assert without(missing, "--help").returncode == 0


def test_what_misses_for_another_reason_is_not_blamed_on_the_extra() -> None:
    ended = without("ctypes", late=True)
    assert ended.returncode == ExitCode.BUG
    assert "h2o-chat[serve]" not in ended.stderr


def test_more_snapshots_than_fit_are_refused_with_the_sum() -> None:
    said = refused(4, "--address", "127.0.0.1:0", "--snapshots", "100000000")
    assert "100,000,000 snapshots do not fit" in said
    assert "What fits: --snapshots " in said


def test_keys_of_a_file_and_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = keys_file(tmp_path, "# a line that is none", "", KEY, KEY)
    monkeypatch.setenv("H2O_CHAT_KEY", OTHER)
    keys = read_keys(file)
    owners = [keys.owner(f"Bearer {key}".encode()) for key in (KEY, OTHER)]
    assert None not in owners
    assert len({*owners, NOBODY}) == 3
    assert keys.owner(b"bearer  " + KEY.encode()) == owners[0]
    wrong = ("", "Bearer", "Bearer ", KEY, f"Basic {KEY}", "Bearer " + "0" * 16)
    assert {keys.owner(one) for one in (None, *map(str.encode, wrong))} == {None}
    assert not any(KEY in repr(value) for value in vars(keys).values())
    again = read_keys(file)
    assert again.owner(f"Bearer {OTHER}".encode()) is None, "no child has the key of the environment"
    assert again.owner(f"Bearer {KEY}".encode()) == owners[0], "the same after a restart"


def test_every_key_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all of them, whichever it is; digests, which are equally long whatever was sent."""
    compared: list[tuple[int, int]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return hmac.compare_digest(one, other)

    monkeypatch.setattr(keys_module, "compare_digest", compare)
    keys = Keys([KEY, OTHER, KEY[::-1] + "x"])
    for given in (KEY, OTHER, "x", KEY[:-1], "y" * 1000):
        compared.clear()
        keys.owner(f"Bearer {given}".encode())
        assert compared == [(32, 32)] * 3


def test_without_keys_everybody_is_one() -> None:
    assert Keys([]).owner(None) == Keys([]).owner(b"Bearer x") == NOBODY


@pytest.mark.parametrize("wrong", ["short", "with a space in it somewhere", "ключ-которого-не-бывает", ""])
def test_what_is_no_key_is_refused_and_not_quoted(tmp_path: Path, wrong: str) -> None:
    file = keys_file(tmp_path, *((KEY, wrong) if wrong else ("# nothing",)))
    with pytest.raises(UsageError) as error:
        read_keys(file)
    assert str(file) in error.value.message
    assert not wrong or wrong not in str(error.value)
    assert KEY not in str(error.value)


def test_keys_that_others_may_read_are_refused(tmp_path: Path) -> None:
    file = keys_file(tmp_path, KEY)
    file.chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        read_keys(file)


@pytest.mark.parametrize("wrong", ["too large", "NUL"])
def test_what_is_no_file_of_keys_is_refused(tmp_path: Path, wrong: str) -> None:
    file = keys_file(tmp_path, *[KEY] * (1 + FILE_BYTES // len(KEY)))
    with pytest.raises(UsageError, match="keys"):
        read_keys(file if wrong == "too large" else tmp_path / "\0")


def test_any_name_and_port_may_be_wanted() -> None:
    with Server("--port", 0, "--any-model", "-b", 48, "--no-store") as server:
        assert server.client().complete("Hello", model="gpt-4o", max_tokens=2).status == 200
