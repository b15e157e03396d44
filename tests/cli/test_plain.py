"""The chat line by line, as a process of its own, with pipes and in a terminal."""

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from here import h2o_here
from program import POCKET, Ended, h2o, kept, started
from terminals import WAIT_S, Terminal

from h2o_chat.base.errors import ExitCode
from h2o_chat.store import Store

ESCAPE = "\x1b"
ENDLESS = ("--ignore-eos", "--max-tokens", 100000)


def plain(folder: Path, *more: object) -> list[object]:
    """Arguments of a chat with the bundled model."""
    return ["--plain", "--data", folder, "-m", POCKET, "--temperature", 0, "--seed", 1, *more]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


TYPED = '''My name is Priya.
My locker code \\
is K7Q2.
"""
Do you
like films?
"""
/memory
/why priya
/edit 3
My locker code is B4.
/branch
/again
/set temperature
/help
/theme
/nonsense
//etc/hosts is empty
/quit
this is not read
'''


@pytest.fixture(scope="module")
def talked(folder: Path) -> Ended:
    """A conversation through pipes."""
    return h2o(*plain(folder, "-b", 128, "--max-tokens", 12), piped=TYPED)


def test_a_conversation_through_pipes(talked: Ended) -> None:
    assert re.search(r"^#2 pocket: .*Priya", talked.out, re.MULTILINE)
    assert "#4 pocket: " in talked.out
    assert "#6 pocket: " in talked.out
    assert "this is not read" not in talked.out
    assert "go on with --resume" in talked.err
    assert "Traceback" not in talked.err


def test_no_byte_moves_the_cursor(talked: Ended) -> None:
    for text in (talked.out, talked.err):
        assert not [character for character in text if ord(character) < 32 and character != "\n"]


def test_lines_that_go_on_are_one_message(talked: Ended, folder: Path) -> None:
    said = [one.text for one in kept(folder, every_branch=True) if one.role == "user"]
    assert "My locker code \nis K7Q2." in said
    assert "Do you\nlike films?" in said
    assert "/etc/hosts is empty" in said


def test_commands_are_done_and_said_as_lines(talked: Ended) -> None:
    for line in (
        r"newest \d+, important \d+, first \d+",
        r"#1 \S.*\(12 of 12 heads\).*",
        r"#1  “Priya”  \d+ of 12 heads · .*",
        r"#3 you: My locker code ",
        r"note: what you type next is said instead.*",
        r"#4 pocket: \S.*",
        r"note: Branch .*",
        r"temperature = 0\.0 .*/set temperature .*",
        r"/edit \[NUMBER\]: .*",
        r"error: /theme works only on the screen, not in --plain.*",
        r"error: /nonsense is no command.*",
    ):
        assert re.search(f"^{line}$", talked.out, re.MULTILINE), line


def test_it_is_resumed(talked: Ended, folder: Path) -> None:
    before = [line for line in talked.out.splitlines() if line.startswith("#2 pocket: ")]
    again = h2o_here(*plain(folder, "--resume", "last"), piped="")
    assert "#1 you: My name is Priya." in again.out.splitlines()
    assert before[0] in again.out.splitlines()


def test_who_leaves_after_new_is_told_how_to_go_on_with_what_was_said_last(tmp_path: Path) -> None:
    first = h2o_here(*plain(tmp_path, "--max-tokens", 4), piped="Hello.\n/new\n/new\n")
    said = re.findall(r"go on with --resume (\S+) ", first.err)
    store = Store(tmp_path)
    assert said == [store.find("last")]
    store.close()
    other = h2o_here(*plain(tmp_path, "--max-tokens", 4), piped="Hello.\n/new\nBye.\n")
    (newer,) = re.findall(r"go on with --resume (\S+) ", other.err)
    again = h2o_here(*plain(tmp_path, "--resume", newer), piped="")
    assert "#1 you: Bye." in again.out.splitlines()


def test_what_is_not_stored_is_nowhere(tmp_path: Path) -> None:
    """Everything that needs what was said can be done as long as the program runs."""
    said = "Hello.\n/edit 1\nBye.\n/branch\n/branch\n/budget 64\n/new\nAnother.\n/open\n"
    done = h2o_here(*plain(tmp_path, "--no-store", "--max-tokens", 4), piped=said)
    assert "error: " not in done.out
    assert "#1 you: Bye." in done.out
    assert done.out.count("#1 you: Hello.") == 2, "to be edited, and on the first branch"
    assert "Branch 1 of 2" in done.out
    assert ": Hello., " in done.out, "the first conversation can be opened again"
    assert "--resume" not in done.err
    assert not list(tmp_path.rglob("*.db"))


def test_a_model_that_is_not_there_ends_it(tmp_path: Path) -> None:
    flags = ("--plain", "--data", tmp_path, "-m", tmp_path / "nothing")
    assert h2o_here(*flags, piped="Hello.\n", ends=ExitCode.MODEL).err.startswith("h2o-chat: ")


@pytest.mark.usefixtures("forked")
def test_neither_textual_nor_a_screen(tmp_path: Path) -> None:
    """Where neither it nor anything of ours is imported yet."""
    program = (
        "import sys\nfor name in [*sys.modules]:\n"
        "    if name.partition('.')[0] in ('textual', 'h2o_chat'): del sys.modules[name]\n"
        "from h2o_chat.cli.cli import app\n"
        f"sys.argv[1:] = {[str(one) for one in plain(tmp_path, '--no-store', '--max-tokens', 2)]!r}\n"
        "try: app()\nexcept SystemExit as end: print('ended', end.code, 'textual' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input="Hello.\n/help\n",
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.stdout.endswith("ended 0 False\n"), done.stdout + done.stderr


def test_in_a_terminal_ctrl_c_stops_and_once_more_leaves(small: Path, tmp_path: Path) -> None:
    with Terminal("--plain", "--data", tmp_path, "-m", small, *ENDLESS, controlling=True) as terminal:
        terminal.sees("> ")
        terminal.types("Once upon a time\n")
        terminal.until(lambda: len(terminal.text.partition("#2 ")[2]) > 200, "it answers")
        terminal.types("\x03")
        terminal.sees("note: stopped")
        terminal.sees("> ", terminal.text.index("note: stopped"))
        assert terminal.process.poll() is None
        terminal.types("\x03")
        assert terminal.ended() == ExitCode.OK
        assert "go on with --resume" in terminal.text
        assert ESCAPE not in terminal.text
        shown = terminal.text.partition("#2 ")[2].partition(": ")[2].partition("note: stopped")[0]
    answer = kept(tmp_path)[-1]
    assert answer.finish == "stopped"
    before, _, after = ("".join(part.split()) for part in shown.partition("^C"))
    said = "".join(answer.text.split())
    # A terminal drops what it has not shown yet when ctrl+c is typed: at most its queue.
    assert said.startswith(before)
    assert said.endswith(after)
    assert len(before) + len(after) <= len(said) < len(before) + len(after) + 4096


def test_a_dumb_terminal_has_no_screen_ctrl_c_asks_once_and_ctrl_d_leaves(
    small: Path, tmp_path: Path
) -> None:
    flags = ("--data", tmp_path, "-m", small, "--max-tokens", 3)
    with Terminal(*flags, controlling=True, TERM="dumb") as terminal:
        terminal.sees("> ")
        terminal.types("\x03")
        terminal.sees("note: ctrl+c again leaves")
        at = len(terminal.text)
        terminal.types("Once\n")
        terminal.sees("#2 ", at)
        terminal.sees("> ", at + 8)
        terminal.types("\x04")
        assert terminal.ended() == ExitCode.OK
        assert ESCAPE not in terminal.text


def test_ctrl_c_while_it_is_read_sends_nothing(tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text("Once there was a bird that lived in a garden with a red key. " * 3500)
    with Terminal(*plain(tmp_path, "-b", 128), controlling=True) as terminal:
        terminal.sees("> ")
        terminal.types(f"@{book}\n")
        terminal.sees("128 slots: it is read once from beginning to end")
        terminal.types("\x03")
        terminal.sees("nothing was sent")
        terminal.types("/memory\n")
        terminal.sees("nothing was read yet")
        terminal.types("/quit\n")
        assert terminal.ended() == ExitCode.OK


def streaming(small: Path, folder: Path, characters: int) -> "tuple[subprocess.Popen[Any], bytes]":
    """A chat through pipes that would answer for long, and so many characters of its answer."""
    flags = ("--plain", "--data", folder, "-m", small, *ENDLESS)
    process = started(*flags, stdin=subprocess.PIPE, text=False, bufsize=0)
    process.stdin.write(b"Once upon a time\n")
    said = b""
    while len(answer := said.partition(b"#2 ")[2].partition(b": ")[2]) < characters:
        more = process.stdout.read(65536)  # what is there
        assert more, said
        said += more
    return process, answer


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, ExitCode.TERMINATED)]
)
def test_nothing_delivered_is_lost(small: Path, tmp_path: Path, number: int, code: int) -> None:
    process, delivered = streaming(small, tmp_path, 200)
    process.send_signal(number)
    more, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == code
    delivered = (delivered + more).partition(b"note: stopped")[0].rstrip(b"\n")
    assert b"Traceback" not in err
    assert delivered in kept(tmp_path)[-1].text.encode()


def test_a_reader_who_leaves_ends_it_quietly(small: Path, tmp_path: Path) -> None:
    process, _ = streaming(small, tmp_path, 1)
    process.stdout.close()
    assert process.wait(WAIT_S) == ExitCode.OK
    assert b"Traceback" not in process.stderr.read()
    process.stdin.close()
    process.stderr.close()


def test_answers_are_sampled_as_the_makers_recommend_until_somebody_says_otherwise(
    tmp_path: Path, chatty: Path
) -> None:
    typed = "/set temperature\n/set min_p\n/set temperature 0.25\n/new\n/new\n/set temperature\n/set top_p\n"
    done = h2o("--plain", "--data", tmp_path, "-m", chatty, "--seed", 1, piped=typed)
    said = re.findall(r"^(\w+) = ([\d.]+)", done.out, re.MULTILINE)
    assert " ".join(map("=".join, said)) == (
        "temperature=0.7 min_p=0.05 temperature=0.25 temperature=0.25 top_p=0.9"
    )
