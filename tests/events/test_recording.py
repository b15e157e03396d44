"""Recordings: written as things happen, and read whatever stands in them."""

import io
import json
import os
import stat
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_events import SESSION

from h2o_chat.base.errors import UsageError
from h2o_chat.chat.commands.surface import Opened
from h2o_chat.events import recording
from h2o_chat.events.events import (
    SCHEMA,
    CacheState,
    End,
    Event,
    Heavy,
    Note,
    Prompt,
    ReadSoFar,
    Said,
    Session,
    Token,
    Turn,
    to_json,
)
from h2o_chat.events.recording import Recorder, parse, read
from h2o_chat.tui.replay import Pace, Player

STATE = CacheState(
    *(9, 4, 100, 900, 0.1, {"S": 1, "H": 3}, [Heavy(3, "dog\ud800", 0.5, 1.5, 0.1, "H")]),
    *([(3, 0.5, 1.5)], [[0.5]]),
)
TURN = Turn("hi", "eos", 1, 2, 3.0, 4.0, 5, 5, 0, 0.5, [(0, 0.25)])
EVENTS: list[Event] = [
    SESSION,
    Said(0, "system", "Be kind."),
    Said(1, "user", "hi \x1b[31m\u202e"),
    Prompt(3, 0, 2, 1, 5.0, 1, ["a", "", "🦊"]),
    Token(1, "hi", 3, 3.0),
    STATE,
    TURN,
    Said(3, "user", "and?"),
    ReadSoFar(2, 3, 4.0),
    Turn("", "stopped", 0, 0, 0, 0, 5, 5, 0, 0.0),
    SESSION,
    End(2, 2, 1.0),
]
LINES = [to_json(event) for event in EVENTS]
WHOLE = "".join(f"{line}\n" for line in LINES).encode()


def events_of(raw: bytes) -> list[Event]:
    return list(parse(io.BytesIO(raw), "r"))


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    recorder = Recorder(path)
    assert recorder.write(SESSION) is None  # not open yet: nowhere
    recorder.open()
    for event in EVENTS[:-1]:
        recorder.write(event)
        assert path.read_bytes().splitlines()[-1].decode() == to_json(event)  # at once
    recorder.end()
    recorder.end()
    *same, end = read(path)
    assert [to_json(event) for event in same] == LINES[:-1]
    assert isinstance(end, End)
    assert (end.turns, end.tokens) == (2, 2)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_nothing_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.touch()
    Recorder(path).open()  # an empty file is as good as none
    path.write_text("mine")
    with pytest.raises(UsageError, match="is not empty"):
        Recorder(path).open()
    assert path.read_text() == "mine"
    with pytest.raises(UsageError, match="cannot be written"):
        Recorder(tmp_path).open()
    with pytest.raises(UsageError, match="cannot be written"):
        Recorder(tmp_path / "none" / "r").open()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError):
        Recorder(tmp_path / "pipe").open()


def test_a_file_that_goes_away_is_said_once(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r.jsonl")
    recorder.open()
    assert recorder.write(Note("x", "before")) is None
    (tmp_path / "r.jsonl").rename(tmp_path / "moved")
    note = recorder.write(Note("x", "after"))
    assert note is not None
    assert "was removed or moved" in note.message
    assert recorder.write(Note("x", "later")) is None
    recorder.end()
    assert len((tmp_path / "moved").read_text().splitlines()) == 1


def test_a_failing_disk_is_said_once() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("there is no /dev/full")
    recorder = Recorder(full)
    recorder._file = full.open("wb")  # a device, which is refused as a place for recordings
    note = recorder.write(SESSION)
    assert note is not None
    assert "No space left" in note.message
    assert [recorder.write(event) for event in EVENTS] == [None] * len(EVENTS)
    recorder.end()


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "r has no events in it"),
        (b"\n \n", "r has no events in it"),
        (b"hello", "line 1 is no event: Expecting value at column 1"),
        (b"\xff\xfe{}", "line 1 is no event: 'utf-8' codec"),
        (b"[]\n", "line 1 is no event: an event is a JSON object"),
        (b"{}\n", "line 1 names no event"),
        (b'{"event": 3}\n', "line 1 names no event"),
        (LINES[4].encode() + b"\n", "line 1 is token, and a recording begins with session"),
        (WHOLE + b"{\n", r"line 13 is no event: .* at column 2"),
        (WHOLE + b"[" * 200_000 + b"\n", "line 13 is no event: it is nested too deeply"),
        (WHOLE + LINES[4].replace("3.0", "NaN").encode(), "line 13 is no event|NaN"),
        (WHOLE + LINES[4].replace("3.0", "1e999").encode(), "token.ms is Infinity"),
        (WHOLE + LINES[4].replace("3.0", "-1").encode(), "ms is -1"),
        (
            WHOLE + LINES[4].replace("3.0", "1" + "0" * 300).encode(),
            "token.ms is a number of more than 64 bits",
        ),
        (
            WHOLE + LINES[4].replace("3.0", "1" + "0" * 9000).encode() + b"\n",
            "line 13 is no event: .* digits",
        ),
        (WHOLE + LINES[4].replace("3.0", "true").encode(), "token.ms is true"),
        (WHOLE + LINES[4].replace('"hi"', "null").encode(), "token.text is null and not a text"),
        (WHOLE + LINES[5].replace("0.5, 1.5", "7, 1.5").encode(), "hold is 7"),
        (WHOLE + LINES[0].replace('"budget": 64', '"budget": 0').encode(), "budget is 0"),
        (WHOLE + LINES[0].replace('"layers": 2', '"layers": 0').encode(), "layers is 0"),
        (WHOLE + LINES[2].replace('"index": 1', '"index": 99').encode(), "index is 99"),
        (WHOLE + LINES[2].replace('"user"', '"\\u001b"').encode(), r"said.role is '\\x1b' and not one of"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_said_with_its_line(raw: bytes, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        events_of(raw)


def test_a_newer_recording_is_refused() -> None:
    newer = {"event": "session", "schema": SCHEMA + 1, "entirely": "different"}
    with pytest.raises(UsageError, match=f"a newer h2o-chat recorded this \\(schema {SCHEMA + 1}"):
        events_of(json.dumps(newer).encode())


def test_events_of_a_newer_version_are_left_out_and_it_is_said_once() -> None:
    lines = [LINES[0], '{"event": "later\\u001b"}', '{"event": "still"}', LINES[1]]
    session, note, said = events_of("\n".join(lines).encode())
    assert (session, said) == (SESSION, EVENTS[1])
    assert isinstance(note, Note)
    assert note.message == "Line 2 has an event that is not known here, 'later\\x1b'."


def test_a_cut_off_recording_is_read_to_where_it_was_cut() -> None:
    whole = events_of(WHOLE)
    assert len(whole) == len(EVENTS)
    for cut in range(len(LINES[0]) + 1, len(WHOLE), 7):
        *events, last = events_of(WHOLE[:cut])
        assert events == whole[: len(events)]
        assert last in whole or isinstance(last, Note)


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MAX_LINE_BYTES", 1 << 20)
    with pytest.raises(UsageError, match="line 1 is longer than 1 MiB"):
        events_of(b" " * ((1 << 20) + 1))
    huge = tmp_path / "huge"
    with huge.open("wb") as file:
        file.truncate(recording.MAX_BYTES + 1)
    with pytest.raises(UsageError, match="larger than 1 GiB"):
        next(read(huge))
    monkeypatch.setattr(recording, "MAX_BYTES", 1000)  # it grew after it was looked at
    with pytest.raises(UsageError, match="is larger than"):
        events_of(WHOLE)


def test_what_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(UsageError, match="cannot be read"):
            next(read(path))


def test_a_recording_is_read_line_by_line() -> None:
    class Endless(io.RawIOBase):
        """A recording that never ends."""

        lines = chain([LINES[0]], repeat(LINES[4]))

        def readline(self, size: int | None = -1, /) -> bytes:
            return next(self.lines).encode() + b"\n"

    events = parse(Endless(), "r")  # type: ignore[arg-type]
    assert isinstance(next(events), Session)
    assert isinstance(next(events), Token)


# Whatever stands in a file: clear errors, or events that can be played.

LINE = st.sampled_from(LINES)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def changed(draw: st.DrawFn) -> bytes:
    """A real line with one value replaced, taken away or added."""
    data = json.loads(draw(LINE))
    at: Any = data
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        key = draw(st.sampled_from(keys))
        inner = at[key]
        if not isinstance(inner, dict | list) or not inner or draw(st.booleans()):
            break
        at = inner
    if draw(st.booleans()):
        at[key] = draw(VALUE)
    else:
        del at[key]
    return json.dumps(data).encode()


@st.composite
def mangled(draw: st.DrawFn) -> bytes:
    """A real recording whose lines were moved, changed, and whose bytes were overwritten."""
    first = draw(st.just(LINES[0].encode()) | changed() | st.binary(max_size=20))
    lines = draw(st.lists(LINE.map(str.encode) | changed() | st.binary(max_size=40), max_size=12))
    raw = bytearray(b"\n".join([first, *lines]))
    for place in draw(st.lists(st.integers(0, max(len(raw) - 1, 0)), max_size=3)):
        raw[place : place + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(raw[: draw(st.integers(0, len(raw)))] if draw(st.booleans()) else raw)


@settings(max_examples=3 * settings.default.max_examples)
@given(st.binary(max_size=300) | mangled() | mangled() | mangled())
def test_anything_is_read_or_refused(raw: bytes) -> None:
    refused = None
    try:
        events = events_of(raw)
    except UsageError as error:
        refused = error.message
    if refused is not None:
        assert refused.startswith("r ")
        assert refused.isprintable()
        return
    played = _play(iter(events))
    assert len(played) >= len([event for event in events if isinstance(event, Token | Turn)])


@given(st.lists(st.sampled_from(EVENTS), max_size=20))
def test_events_in_any_order_are_played_as_turns(events: list[Event]) -> None:
    """The screen relies on it: a token comes only where an answer is open."""
    answering = False
    for report in _play(iter([SESSION, *events])):
        match report:
            case Opened():
                answering = False
            case Said(role=role):
                answering = role == "user"
            case ReadSoFar() | Prompt() | Token():
                assert answering
            case Turn():
                assert answering
                answering = False


def _play(events: Any) -> list[Any]:
    player = Player(events, Pace(float("inf")))
    opened = player.open(lambda *_: None)
    return [opened, *player.play(lambda: False, lambda _: None)]
