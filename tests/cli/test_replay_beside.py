"""`h2o-chat replay A B`: two recordings side by side."""

from pathlib import Path

from here import h2o_here

from h2o_chat.base.errors import ExitCode
from h2o_chat.cli import replay_beside
from h2o_chat.events.recording import read


def test_two_policies_are_printed_beside_each_other(chatty: Path, tmp_path: Path) -> None:
    """Words that every head has forgotten at the end are drawn as dots, message by message."""
    turns = tmp_path / "turns.txt"
    turns.write_text("My dog is called Rexo.\n---\nI walk by the river every morning.\n---\nAnd you?\n")
    files = []
    for policy in ("full", "window"):
        files.append(tmp_path / f"{policy}.jsonl")
        more = () if policy == "full" else ("-b", 32)
        said = ("--script", turns, "--temperature", 0, "--max-tokens", 4, "--record", files[-1])
        done = h2o_here("run", "-m", chatty, "--policy", policy, *said, *more)
    done = h2o_here("replay", *files)
    assert "full.jsonl: full, all tokens" in done.out
    assert "window.jsonl: window, 32 slots" in done.out
    first = next(line for line in done.out.splitlines() if "#1" in line)
    assert "Rexo" in "".join(done.out.splitlines()[:6])
    assert "····" in first, "the window has forgotten it"
    full, window = (replay_beside.folded(read(file)) for file in files)
    assert len(window.hold) < len(full.hold)
    same = h2o_here("replay", files[1], files[1])
    assert "Both hold 100% of what either holds." in same.out


def test_recordings_without_a_common_message_are_refused(chatty: Path, tmp_path: Path) -> None:
    events = tmp_path / "one.jsonl"
    h2o_here("run", "-m", chatty, "Hello.", "--max-tokens", 2, "--record", events)
    lines = [line for line in events.read_text().splitlines(keepends=True) if '"note"' not in line]
    states = [line for line in lines if '"cache"' in line]
    for name, kept, why in (
        ("empty", [lines[0], *states[:1], lines[-1]], "no message in common"),
        ("stateless", [line for line in lines if line not in states], "no state"),
        ("cut", lines[:-1], "cut off"),
    ):
        (tmp_path / f"{name}.jsonl").write_text("".join(kept))
        done = h2o_here("replay", events, tmp_path / f"{name}.jsonl", ends=ExitCode.USAGE)
        assert why in done.err
