"""A recording on the screen: what the chat showed, without its model."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from forking import Forked
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from screens import SESSION, SMALL, WIDE, Drive, Screen, replayed, replaying

from h2o_chat.base.config import Sampling
from h2o_chat.base.errors import ExitCode, UsageError
from h2o_chat.cli.replay_command import _times
from h2o_chat.events.events import CacheState, Error, Note, Said, Token, Turn, to_json
from h2o_chat.events.recording import Recorder, read
from h2o_chat.tui.panel.panel import TABS, MemoryPanel
from h2o_chat.tui.replay import UNSAID
from h2o_chat.tui.side_panels import StatusLine
from h2o_chat.tui.transcript.message_view import FINISHES

TURNS = "Hi, my name is Flora.\n---\nMy locker code is K7Q2.\n---\nWhat is my locker code?\n"


@pytest.fixture(scope="module")
def recording(shared_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three turns of the real engine, by the real program."""
    folder = tmp_path_factory.mktemp("recording")
    (folder / "turns.txt").write_text(TURNS)
    command = [
        *(sys.executable, "-m", "h2o_chat", "run", "--script", str(folder / "turns.txt"), "--json"),
        *("-m", str(shared_models / "pilot-chat"), "-b", "32", "--system", "Be kind.", "--temperature", "0"),
        *("--record", str(folder / "recorded.jsonl"), "--events", "4", "--max-tokens", "24"),
    ]
    with Forked(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        said, _ = process.communicate(timeout=200)
    assert process.returncode == 0
    assert (folder / "recorded.jsonl").read_text() == said
    return folder / "recorded.jsonl"


def written(path: Path, *lines: Any) -> Path:
    path.write_text("".join((line if isinstance(line, str) else to_json(line)) + "\n" for line in lines))
    return path


async def test_the_screen_is_what_it_was(recording: Path) -> None:
    events = list(read(recording))
    last = [event for event in events if isinstance(event, CacheState)][-1]
    turns = [event for event in events if isinstance(event, Turn)]
    async with replayed(recording) as screen:
        app = screen.app
        assert app._memory.cache == last
        panel = app.query_one(MemoryPanel)
        assert f"{last.kept} of {last.seen} tokens kept" in panel.render().plain
        panel.tab = TABS.index("details")
        assert f"@{last.heaviest[0].position} " in panel.render().plain
        assert f"remembers {last.kept:,} of {last.seen:,} tokens" in str(
            app.query_one(StatusLine).render().plain
        )
        _, system, *shown = screen.bodies()
        assert system == "Be kind."
        said = [text.strip() for text in TURNS.split("---")]
        assert shown[::2] == said
        for body, turn in zip(shown[1::2], turns, strict=True):
            assert body.startswith(turn.text.split("\n")[0])
            assert (FINISHES["length"] in body) is (turn.finish == "length")
        gauges = [view.hold for view in app.transcript.messages.views][1:]
        held = dict(turns[-1].hold)
        assert gauges == [held.get(index, 0.0) for index in range(7)]


async def test_a_recording_of_the_screen_shows_the_same_screen(stored: Drive, tmp_path: Path) -> None:
    """Begun anew and an edited message, recorded while they happen, then shown again."""
    path = tmp_path / "r.jsonl"
    recorder = Recorder(path)
    recorder.open()
    async with stored(recorder=recorder) as screen:
        await screen.say("Hi!")
        await screen.another()
        await screen.say("Hi, my name is Flora.", "Do you like films?")
        await screen.pilot.press("ctrl+e")
        await screen.say("What is my name?")
        bodies, gauges = screen.bodies(), [view.hold for view in screen.app.transcript.messages.views]
        panel = screen.app.query_one(MemoryPanel).render().plain
    recorder.end()
    async with replayed(path) as again:
        assert again.bodies() == bodies
        assert [view.hold for view in again.app.transcript.messages.views] == gauges
        assert again.app.query_one(MemoryPanel).render().plain == panel


async def test_what_was_pinned_is_pinned_in_its_recording(stored: Drive, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    recorder = Recorder(path)
    recorder.open()
    seen = []

    def heads(screen: Screen) -> list[bool]:
        return [view.pinned for view in screen.app.transcript.messages.views if view.index is not None]

    async with stored(recorder=recorder, sampling=Sampling(max_tokens=8)) as screen:
        for text in ("/pin next", "I am Flora.", "And you?", "/unpin 1", "/pin 3"):
            await screen.say(text)
            seen.append(heads(screen))
        pinned = [[at for at, one in enumerate(page) if one] for page in seen]
        assert pinned == [[], [0], [0], [], [2]]
        await screen.ask("/budget 64")  # the memory is built anew, and with it the page
        await screen.until(lambda: screen.chat.session.budget == 64, "the memory is another one")
        await screen.answered()
        assert heads(screen) == seen[-1]
    recorder.end()
    app, shown = replaying(path), []
    noted = app.pane.on_note

    def note(note: Note) -> None:
        noted(note)
        shown.append(heads(again))

    app.pane.on_note = note  # type: ignore[method-assign]
    async with app.run_test(size=WIDE) as pilot:
        again = Screen(app, pilot)
        await again.until(lambda: not app.busy, "the recording has ended")
        assert heads(again) == seen[-1]
        assert any("you · pinned" in line for line in again.lines())
    assert [one for one in shown if len(one) == 4][:2] == seen[3:], "when it was let go, and pinned"


async def test_it_can_be_paused_and_left(recording: Path) -> None:
    app = replaying(recording, speed=0.01)
    async with app.run_test(size=WIDE) as pilot:
        screen = Screen(app, pilot)
        await screen.until(lambda: len(screen.bodies()) > 3, "the first answer has begun")
        await pilot.press("space")
        assert "space goes on" in screen.replay_line()
        await pilot.pause(0.3)
        before = screen.bodies()
        await pilot.pause(0.3)
        assert screen.bodies() == before
        await pilot.press("escape")  # there is nothing to stop
        assert app.busy
        await pilot.press("space")
        assert "space pauses" in screen.replay_line()
        await screen.until(lambda: screen.bodies() != before, "it goes on")
        await pilot.press("ctrl+q")
    assert not app.is_running


async def test_it_fits_small_screens(recording: Path) -> None:
    async with replayed(recording, SMALL) as screen:
        page = screen.page()
        assert "a recording · it has ended · ctrl+q leaves" in page
        assert "remembers 32 of " in page


TURN = Turn("hi", "eos", 1, 1, 3.0, 4.0, 5, 5, 0, 0.5, [(0, 0.25), (1, 0.5)])


async def test_notes_errors_and_damage_are_shown(tmp_path: Path) -> None:
    path = written(
        tmp_path / "r",
        SESSION,
        Said(0, "user", "one"),
        Note("disk", "The disk is full.", "Make room."),
        Token(1, "hi", 1, 0.0),
        Error("window", "It is full.", "Begin anew."),
        TURN,
        '{"event": "later"}',
        Said(2, "user", "two"),
        Token(1, "[/b]\x1b[31m", 4, 0.0),
        '{"event": "token"}',
        TURN,
    )
    async with replayed(path) as screen:
        _, one, note, answer, error, skipped, two, cut, damage = screen.bodies()
        assert (one, note, answer) == ("one", "The disk is full.\n→ Make room.", "hi")
        assert error == "It is full.\n→ Begin anew."
        assert "'later'" in skipped
        assert (two, cut) == ("two", f"[/b]␛[31m\n■ {FINISHES['interrupted']}")
        assert "line 10 is wrong: token has no id" in damage


async def test_a_recording_in_which_nothing_is_said(tmp_path: Path) -> None:
    async with replayed(
        written(tmp_path / "r", SESSION, Token(1, "hi", 1, 0.0), TURN, Token(1, "ho", 2, 0.0))
    ) as screen:
        assert screen.bodies()[1:4] == [UNSAID, "hi", UNSAID]


async def test_another_conversation_begins_a_new_page_and_long_histories_are_cut(tmp_path: Path) -> None:
    history = [Said(n, "user" if n % 2 == 0 else "assistant", f"number {n}", hold=0.5) for n in range(2000)]
    path = written(
        tmp_path / "r", SESSION, Said(0, "user", "one"), TURN, SESSION, *history,
        Said(2000, "user", "now"), TURN, Said(1998, "user", "instead"),
    )  # fmt: skip
    async with replayed(path) as screen:
        _, earlier, first, *_, last, answer = screen.bodies()
        assert "1000 earlier messages" in earlier
        assert (first, last) == ("number 1000", "instead")
        assert FINISHES["interrupted"] in answer
        assert len(screen.bodies()) == 2 + 998 + 2


async def test_what_is_no_recording_is_said_on_the_screen_too(tmp_path: Path) -> None:
    app = replaying(written(tmp_path / "r", "hello"))
    async with app.run_test(size=WIDE) as pilot:
        screen = Screen(app, pilot)
        await screen.until(lambda: app.exit_code, "the failure is shown")
        assert "line 1 is no event" in screen.bodies()[-1]
        assert app.exit_code == ExitCode.USAGE
        await pilot.press("space")


NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)


@settings(
    max_examples=settings.default.max_examples // 6,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
async def test_no_number_and_no_text_crashes_the_screen(tmp_path: Path, data: st.DataObject) -> None:
    """Whatever the reader lets through, the screen can draw."""
    cache = CacheState(9, 4, 10, 90, 0.1, {"S": 1}, [], [], [[0.5]])
    raw = [
        json.loads(to_json(one))
        for one in (SESSION, Said(0, "user", "x"), Token(1, "t", 1, 0.0), cache, TURN)
    ]
    raw[3]["heaviest"] = [{"position": 1, "text": "t", "hold": 1, "score": 1, "mean": 1, "kind": "H"}]
    raw[3]["gone"] = [{"position": 2, "text": "t", "hold": 1, "score": 1}]
    near = st.integers(0, 9) | st.integers(-(2**63), 2**63 - 1)
    raw[3]["protected"] = [sorted((data.draw(near), data.draw(near)))]
    raw[3]["changed"] = [[data.draw(near), data.draw(st.floats(0, 2)), data.draw(NUMBERS)] for _ in range(5)]
    raw[3]["holders"] = [[data.draw(near), data.draw(st.text("0123456789abcdef"))] for _ in range(5)]
    raw[3]["ranks"] = [[data.draw(st.integers(1, 2**53)), data.draw(NUMBERS)] for _ in range(5)]
    for one in [*raw, raw[3]["heaviest"][0], raw[3]["gone"][0]]:
        for name, value in one.items():
            if type(value) in (int, float) and data.draw(st.integers(0, 3)) == 0:
                one[name] = data.draw(NUMBERS)
            elif isinstance(value, str) and name not in ("event", "role", "finish"):
                one[name] = data.draw(st.just(value) | st.text())
    app = replaying(written(tmp_path / "r", *(json.dumps(one) for one in raw)))
    async with app.run_test(size=data.draw(st.sampled_from([WIDE, SMALL]))) as pilot:
        screen = Screen(app, pilot)
        await screen.until(
            lambda: app.exit_code or "ended" in screen.replay_line(), "it is played or refused"
        )
        for key in ("tab", *["right"] * len(TABS), "tab", "left"):
            await pilot.press(key)
            assert screen.lines()
        assert app.exit_code != ExitCode.BUG


def test_no_model_is_needed(recording: Path) -> None:
    """Neither torch nor a terminal: the screen is drawn without the one and refused without the other."""
    code = f"""
import asyncio, sys
sys.path[:0] = {[str(folder) for folder in Path(__file__).parents[:2]]!r}
from pathlib import Path
from screens import replayed
async def main():
    async with replayed(Path({str(recording)!r})):
        pass
asyncio.run(main())
assert "textual" in sys.modules
from h2o_chat.cli.cli import app
try:
    app(["replay", {str(recording)!r}])
finally:
    assert "torch" not in sys.modules
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.USAGE, done.stderr
    assert "A replay needs a terminal" in done.stderr


@pytest.mark.usefixtures("forked")
def test_wrong_use_is_said(tmp_path: Path) -> None:
    for speed in ("0", "-1", "nan", "inf", "fast", "1e9"):
        with pytest.raises(UsageError, match="--speed is"):
            _times(speed)
    assert (_times("max"), _times("2")) == (float("inf"), 2.0)
    done = subprocess.run(
        [sys.executable, "-m", "h2o_chat", "replay", str(tmp_path / "none")], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == ExitCode.USAGE
    assert "none cannot be read: No such file" in done.stderr
