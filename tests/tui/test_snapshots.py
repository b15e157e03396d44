"""The looks of the screen, letter by letter and colour by colour, from recordings of the real engine.

Kept as text, in tests/tui/__snapshots__, and not as pictures: it reads well in a diff and holds on every
machine, whatever fonts and hashes a picture would have in it. The recordings are made by
tools/make/make_recordings.py. After a change that is wanted: pytest on this file, --snapshot-update.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from string import ascii_letters
from typing import Any

import pytest
from screens import POCKET, RECORDING, Screen, chat_of, replayed
from sweep import sweep
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from textual.widgets import Input

from h2o_chat.base.config import Look, Sampling, Settings
from h2o_chat.base.errors import GenerationError, ModelError, OutOfMemoryError
from h2o_chat.tui.chat_app import ChatApp
from h2o_chat.tui.pane.jobs import OpenChat, Progress
from h2o_chat.tui.prompt.dialogs import ModelRow, Models
from h2o_chat.tui.side_panels import StatusLine


@dataclass(frozen=True)
class Shot:
    """One picture: a recording that has ended, on a screen of this size, after these keys."""

    columns: int
    rows: int
    keys: tuple[str, ...] = ()
    recording: str = "chat"
    no_color: bool = False
    theme: str = "h2o-dark"


SHOTS = {
    "wide": Shot(120, 36),
    "250": Shot(250, 50),
    "100": Shot(100, 44),
    "99": Shot(99, 44),
    "80": Shot(80, 24),
    "60": Shot(60, 24),
    "no-color": Shot(120, 36, no_color=True),
    "tab-history": Shot(120, 36, ("tab", "right")),
    "tab-details": Shot(120, 36, ("tab", "right", "right")),
    "details-below": Shot(120, 36, ("tab", "right", "right", "pagedown")),
    "word-chosen": Shot(120, 36, ("tab", "down", "down")),
    "panel-wide": Shot(120, 36, ("ctrl+b",)),
    "panel-over-80": Shot(80, 24, ("ctrl+b",)),
    "panel-over-60": Shot(60, 20, ("ctrl+b",)),
    "heat-hold": Shot(120, 36, ("ctrl+t",)),
    "heat-no-color": Shot(120, 36, ("ctrl+t",), no_color=True),
    "inspector": Shot(120, 36, ("i", "left", "left")),
    "folded": Shot(80, 24, ("up", "up", "z")),
    "help": Shot(120, 36, ("f1",)),
    "tab-no-color": Shot(120, 36, ("tab", "right"), no_color=True),
    "no-panel": Shot(120, 36, ("ctrl+b", "ctrl+b")),
    "marked": Shot(120, 36, ("up", "up", "up", "up")),
    "story": Shot(120, 36, recording="story"),
    "light": Shot(120, 36, theme="h2o-light"),
    "light-heat": Shot(120, 36, ("ctrl+t",), theme="h2o-light"),
    "ansi-heat": Shot(120, 36, ("ctrl+t",), theme="h2o-ansi"),
    "ansi-no-color": Shot(120, 36, ("ctrl+t",), theme="h2o-ansi", no_color=True),
}


class Page(SingleFileSnapshotExtension):
    """A snapshot is a text file of its own."""

    file_extension = _file_extension = "txt"
    _write_mode = WriteMode.TEXT


@pytest.fixture
def page(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(Page)


@pytest.fixture(autouse=True)
def same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No colour that a person asked for or not, and no time zone of theirs."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


# Of views that differ in width, theme or colours alone, `make test` has one of each.
ALIKE = (
    "99",
    "60",
    "panel-over-60",
    "heat-no-color",
    "tab-no-color",
    "no-panel",
    "light-heat",
    "ansi-no-color",
)


@pytest.mark.parametrize("name", [*(name for name in SHOTS if name not in ALIKE), *sweep(*ALIKE)])
async def test_a_recording_looks_so(name: str, page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shot = SHOTS[name]
    if shot.no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    path, look = RECORDING.with_stem(shot.recording), Look(theme=shot.theme)
    async with replayed(path, (shot.columns, shot.rows), look=look) as screen:
        app, pilot = screen.app, screen.pilot
        # Its thumb depends on guesses, which depend on what was on the screen when.
        app.transcript.styles.scrollbar_visibility = "hidden"
        app.transcript.window.follow()
        await pilot.pause(0.1)
        await pilot.press(*shot.keys)
        await pilot.pause(0.1)
        assert drawn(screen) == page


looked_at = threading.Event()


def opening(*stages: tuple[str, float | None], error: Exception | None = None) -> OpenChat:
    """Tells these stages and fails; where no error is named, once it was looked at."""

    def open_chat(progress: Progress) -> Any:
        for stage in stages:
            progress(*stage)
        if error is None:
            looked_at.wait(60)
        raise error or ModelError("It was only to be looked at.")

    return open_chat


NOT_FOUND = ModelError("There is no model named 'nothing'.", "h2o-chat models lists what there is.")
TOO_LARGE = OutOfMemoryError("The weights take 13 GiB, and 4 GiB are free.", "Try --quantize nf4.")
BROKEN = RuntimeError("the shapes [bold]do not[/] match \x1b[31m")
FAR = "download: 12.5 MB of 48.0 MB, 3.4 MB/s, 10 s left"
OPENINGS: dict[str, tuple[OpenChat, str]] = {
    "loading": (opening(("read weights", 0.4)), "read weights"),
    "download": (opening(("resolve", None), (FAR, 12.5 / 48)), "3.4 MB/s"),
    "not-found": (opening(error=NOT_FOUND), "nothing is open"),
    "out-of-memory": (opening(error=TOO_LARGE), "nothing is open"),
    "a-bug": (opening(("read weights", 0.9), error=BROKEN), "nothing is open"),
}


@pytest.mark.parametrize("name", OPENINGS)
async def test_opening_looks_so(name: str, page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    open_chat, until = OPENINGS[name]
    monkeypatch.setattr("h2o_chat.tui.pane.reports.save_trace", lambda trace: Path("/a/folder/bug.log"))
    looked_at.clear()
    app = ChatApp(open_chat, Settings(model="pocket"), Sampling())
    async with app.run_test(size=(100, 30)) as pilot:
        screen = Screen(app, pilot)
        app.prompt.cursor_blink = False
        await screen.until(lambda: until in screen.page(), f"it says: {until}")
        await pilot.pause()
        shown = drawn(screen)
        looked_at.set()
    assert shown == page


ROWS = [
    ModelRow("assets/pocket", "here · comes with the program"),
    ModelRow("some/model", "here · 2.2 GiB"),
    ModelRow("some/other", "in part · 310 MiB are here"),
    ModelRow("mine", "your own name for some/model"),
    ModelRow("large", "org/large-70b · 131 GiB to fetch · does not fit · gated", sized=True),
]
TALKS: dict[str, tuple[tuple[int, int], str, tuple[str, ...]]] = {
    "menu": ((100, 30), "▸ /policy", ("/", "p", "o")),
    "settings": ((120, 36), "kv_dtype", ("f2",)),
    "settings-wrong": ((60, 24), "It must be in", ("f2", "down", "9", "enter")),
    "no-command": ((80, 24), "Did you mean", (*"/polcy", "enter")),
    "budget-too-small": ((80, 24), "smallest budget", (*"/set recent 48", "enter")),
    "answer-failed": ((100, 30), "no numbers", (*"Hello", "enter")),
}
"""By name: the size, what is awaited, the keys; in a conversation with the bundled model."""


@pytest.mark.parametrize("name", TALKS)
async def test_a_conversation_looks_so(
    name: str, page: Any, exact: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    size, awaited, keys = TALKS[name]
    settings = Settings(model=str(POCKET), budget=48, threads=1, seed=3)
    chat = chat_of(exact, settings)
    if name == "answer-failed":
        monkeypatch.setattr(chat.engine, "forward", failing(chat.engine.forward))
    app = ChatApp(lambda _: chat, settings, Sampling(max_tokens=60))
    async with app.run_test(size=size) as pilot:
        screen = Screen(app, pilot)
        await screen.opened()
        app.prompt.cursor_blink = False
        await pilot.press(*keys)
        await screen.until(lambda: awaited in screen.page() and not app.busy, f"it says: {awaited}")
        for field in app.screen.query(Input):
            field.cursor_blink = False
        if app._memory.tok_s is not None:
            app._memory.tok_s = 125.0  # how fast it was is no matter here
            app.query_one(StatusLine).refresh()
        await pilot.pause(0.2)
        assert drawn(screen) == page


def failing(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Fails at the fourth step."""
    left = iter(range(3))

    def step(*args: Any, **kwargs: Any) -> Any:
        if next(left, None) is None:
            raise GenerationError("The model's logits are no numbers.", "Try --dtype float32.")
        return forward(*args, **kwargs)

    return step


async def test_the_models_look_so(page: Any) -> None:
    looked_at.set()
    app = ChatApp(opening(("read weights", 0.4)), Settings(model="pocket"), Sampling())
    async with app.run_test(size=(100, 30)) as pilot:
        screen = Screen(app, pilot)
        app.prompt.cursor_blink = False
        await screen.until(lambda: "nothing is open" in screen.page(), "it has failed")
        await app.push_screen(Models(ROWS))
        await screen.until(lambda: isinstance(app.focused, Input), "the list is there")
        await pilot.press(*"mod", "down")
        app.screen.query_one(Input).cursor_blink = False
        await pilot.pause(0.2)
        assert drawn(screen) == page


def drawn(screen: Screen) -> str:
    """The screen as text, and below it row by row which style holds for how many columns."""
    strips = screen.app.screen._compositor.render_strips()
    letters: dict[str, str] = {}
    styles = []
    for strip in strips:
        cells = [
            letters.setdefault(described(segment.style), ascii_letters[len(letters) % len(ascii_letters)])
            for segment in strip
            for _ in range(segment.cell_length)
        ]
        styles.append(" ".join(f"{letter}{len(list(same))}" for letter, same in groupby(cells)))
    names = [f"{letter}: {name}" for name, letter in letters.items()]
    return "\n".join([*(line.rstrip() for line in screen.lines()), "", *styles, "", *names, ""])


def described(style: Any) -> str:
    if style is None:
        return "plain"
    colors = [
        "default" if color is None else color.triplet.hex if color.triplet else color.name
        for color in (style.color, style.bgcolor)
    ]
    flags = ("bold", "dim", "italic", "underline", "reverse", "strike")
    return " ".join([" on ".join(colors), *(flag for flag in flags if getattr(style, flag))])
