"""The real program on a machine with no place to write, a full disk, or no memory; and a token to hide."""

import json
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from forking import Forked
from here import h2o_here
from program import h2o, kept
from storing import intact

from h2o_chat.base.errors import ExitCode
from h2o_chat.events.events import Error, Note, Turn

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and folders as Linux has them")

MIB = 2**20


def limited(what: int, most: int) -> Callable[[], None]:
    return partial(resource.setrlimit, what, (most, most))


def test_no_folder_to_write_to(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for root, whom permissions do not stop. The home is no place either."""
    nowhere = "/proc/h2o-chat"
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, nowhere)
    done = h2o_here("run", "Once", "-m", small, "--save", "--json", "--max-tokens", 5, ends=ExitCode.FAILED)
    (note,) = done.of(Note)
    assert note.code == "store"
    assert note.message.startswith("This conversation is not stored: " + nowhere)
    assert done.err.count("This conversation is not stored") == 1
    assert done.err.count("Nothing of this conversation is stored") == 1, "again at the end"
    assert "It was shown, but it is saved nowhere." in done.err
    assert "conversation None" not in done.err
    assert [turn.new_tokens for turn in done.of(Turn)] == [5]


def test_a_file_where_a_folder_should_be_is_said_to_be_one(small: Path, tmp_path: Path) -> None:
    (file := tmp_path / "t.txt").write_text("")
    for data in (file, file / "inside"):
        done = h2o_here(
            "run", "Once", "-m", small, "--save", "--data", data, "--max-tokens", 3, ends=ExitCode.FAILED
        )
        assert f"not stored: {file} is a file, not a folder." in " ".join(done.err.split())
        assert "permissions" not in done.err
        assert "conversation None" not in done.err
        assert done.out.strip(), "the answer is given all the same"
    assert "saved nowhere" in done.err
    assert file.read_text() == ""


@pytest.mark.parametrize(
    ("room_kib", "tokens"), [(40, 20), (300, 200)], ids=["for no database", "for no answer"]
)
def test_a_disk_that_fills_up(small: Path, tmp_path: Path, room_kib: int, tokens: int) -> None:
    """No file can grow beyond the room; the answer is given all the same, and what is stored is whole."""
    flags = ("-m", small, "--save", "--data", tmp_path, "--json", "--ignore-eos")
    full = limited(resource.RLIMIT_FSIZE, room_kib << 10)
    done = h2o(
        "run", "Once upon a time", *flags, "--max-tokens", tokens, preexec_fn=full, ends=ExitCode.FAILED
    )
    assert [turn.new_tokens for turn in done.of(Turn)] == [tokens]
    assert len(done.of(Note)) == 1
    assert done.err.count("h2o-chat: ") <= 3, "the warning, what is not stored, and the conversation's name"
    again = h2o_here("run", "And then", *flags, "--max-tokens", 5)
    assert intact(tmp_path)
    assert again.of(Note) == []


def test_no_room_for_the_saved_memory_alone(small: Path, tmp_path: Path) -> None:
    flags = ("-m", small, "--data", tmp_path, "--json", "--max-tokens", 5, "--budget", 8000)
    full = limited(resource.RLIMIT_FSIZE, 2 * MIB)
    done = h2o("run", "Once upon a time. " * 700, "--save", *flags, preexec_fn=full)
    (note,) = done.of(Note)
    assert "The memory could not be saved" in note.message
    assert not list(tmp_path.rglob("*.part"))
    assert intact(tmp_path)
    again = h2o_here("run", "And then", "--resume", "last", *flags)
    assert [one.code for one in again.of(Note)] == ["rebuilt"]


PEAK = """
import atexit, re, sys
from pathlib import Path
def tell():
    status = Path("/proc/self/status").read_text()
    sys.stderr.write("peak " + re.search(r"VmPeak:\\s+([0-9]+)", status)[1])
atexit.register(tell)
from h2o_chat.cli.cli import main
sys.argv = ["h2o-chat", *sys.argv[1:]]
main()
"""

ONE_ARENA = "import ctypes, resource; ctypes.CDLL(None).mallopt(-8, 1); "
"""M_ARENA_MAX: another arena of malloc takes 64 MiB of addresses, or 128 for a moment, as chance has it."""


def peak_bytes(*arguments: object) -> int:
    """The most addresses that a run of the program ever had."""
    command = [sys.executable, "-c", PEAK, *map(str, arguments)]
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with Forked(command, **streams, text=True, preexec_fn=partial(exec, ONE_ARENA)) as process:
        _, said = process.communicate(timeout=120)
    assert process.returncode == ExitCode.OK, said
    return int(said.rpartition("peak ")[2]) << 10


def test_out_of_memory_ends_the_turn_and_not_the_conversation(small: Path, tmp_path: Path) -> None:
    """The first turn fits; the second needs the slots once more, to be taken back if it fails.

    What all of it takes is measured first, and the limit is five eighths of the slots below (146 MB): so much
    that the copy of the slots does not fit, whatever a step takes beside it for a moment. One run takes up
    to 90 MB of addresses more or less from one time to the next, so it is measured twice.
    """
    budget, slots_bytes = 150_000, 150_000 * 20 * (64 + 14)
    script, two_turns = tmp_path / "script.txt", tmp_path / "two turns.txt"
    two_turns.write_text("Once upon a time\n---\nand then\n")
    script.write_text("Once upon a time\n---\nand then\n---\nand then\n")
    asked = ("run", "-m", small, "--budget", budget, "--save", "--data", tmp_path / "data", "--json")
    flags = (*asked, "--max-tokens", 2, "--ignore-eos", "--events", 0, "--threads", 1, "--policy", "caote")
    most = max(peak_bytes(*flags, "--script", two_turns) for _ in range(2))
    most -= slots_bytes * 5 // 8
    between = partial(exec, f"{ONE_ARENA} resource.setrlimit(resource.RLIMIT_AS, ({most}, {most}))")
    done = h2o(*flags, "--script", script, preexec_fn=between, ends=ExitCode.MEMORY)
    assert [turn.finish for turn in done.of(Turn)] == ["length", "error"], done.err
    (error,) = done.of(Error)
    assert error.code == "memory"
    assert "The 150,000 slots take" in error.hint
    assert "--budget 75000 needs half of that" in error.hint
    assert "--dtype bfloat16" in error.hint
    assert intact(tmp_path / "data")
    more = ("--data", tmp_path / "data", "--max-tokens", 2, "--json")
    h2o_here("run", "and then", "--resume", "last", "-m", small, *more)
    finishes = [one.finish for one in kept(tmp_path / "data") if one.role == "assistant"]
    assert finishes[:2] == ["length", "error"]
    assert len(finishes) == 3


SEVERAL = """
import json, os, sys
from huggingface_hub import constants
commands, variables = map(json.loads, sys.argv[1:])
os.environ.update(variables)
constants.ENDPOINT, constants.HF_HOME = os.environ["HF_ENDPOINT"], os.environ["HF_HOME"]
constants.HF_HUB_CACHE = constants.HF_HOME + "/hub"
constants.HF_TOKEN_PATH = constants.HF_HOME + "/token"
from huggingface_hub import get_token
assert get_token() == os.environ["HF_TOKEN"]
from h2o_chat.cli.cli import main
for arguments in commands:
    sys.argv = ["h2o-chat", *arguments]
    try:
        main()
    except SystemExit as end:
        print("ended with", end.code)
"""


@pytest.mark.usefixtures("forked")
def test_tokens_of_the_hub_are_nowhere(small: Path, tmp_path: Path) -> None:
    """Neither said nor stored, whatever is asked for and however it ends; one process does it all.

    What huggingface_hub has read of its variables, when it was imported, is set anew there.
    """
    secret, other = "hf_" + "s3cret" * 5, "hf_" + "0ther" * 6
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "token").write_text(other)
    data = tmp_path / "data"
    variables = {
        **{"HF_TOKEN": secret, "HUGGING_FACE_HUB_TOKEN": secret, "HF_HOME": str(tmp_path / "hf")},
        **{"XDG_CONFIG_HOME": str(tmp_path / "config"), "H2O_CHAT_DATA": str(data)},
        "HF_ENDPOINT": "http://127.0.0.1:9",
    }
    record = ("--record", str(tmp_path / "recording"))
    commands = (
        ("run", "Once", "-m", str(small), "--save", "--json", "--max-tokens", "5", *record),
        ("sessions", "export", "last", "--format", "json"),
        ("sessions", "export", "last", "--format", "md"),
        ("sessions", "show", "last"),
        ("config", "show"),
        ("doctor",),
        ("models",),
        ("models", "pull", "org/name"),
        ("run", "hi", "-m", "org/name"),
    )
    done = subprocess.run(
        [sys.executable, "-c", SEVERAL, json.dumps(commands), json.dumps(variables)],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    ends = [int(code) for code in re.findall(r"^ended with (\d+)$", done.stdout, re.MULTILINE)]
    assert len(ends) == len(commands), said
    assert ExitCode.BUG not in ends, said
    assert "Once" in said
    written = b"".join(
        file.read_bytes() for file in tmp_path.rglob("*") if file.is_file() and file.name != "token"
    )
    assert b"Once" in written
    for token in (secret, other):
        assert token not in said
        assert token.encode() not in written
