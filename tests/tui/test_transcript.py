"""Answers of any length, in the real transcript without a model."""

from collections.abc import Iterator
from typing import Any

import pytest
from textual.app import App, ComposeResult
from textual.selection import SELECT_ALL

from h2o_chat.events import Turn
from h2o_chat.tui import markdown
from h2o_chat.tui.transcript import CARET, LIVE_CHARS, SETTLED_CHARS, Transcript
from h2o_chat.tui.turn import FINISHES, Part, TurnView

CHARS = 300_000
PIECE = 200

WORDS = "some words that go on and on without an end "
LONG = {
    "paragraphs": (WORDS * 20 + "\n\n"),
    "lines": (WORDS * 2 + "\n"),
    "words": WORDS,
    "one word": "word",
    "items": f"1. {WORDS}\n",
    "code": "```py\n" + "x = 1  # some words\n" * 500 + "```\n\n",
    "open code": "x = 1  # some words\n",
}


class TranscriptApp(App[None]):
    def compose(self) -> ComposeResult:
        yield Transcript(id="transcript")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Characters given to the parser, call by call."""
    counts: list[int] = []
    for name in ("render", "cut"):
        real = getattr(markdown, name)

        def counting(source: str, real: Any = real) -> Any:
            counts.append(len(source))
            return real(source)

        monkeypatch.setattr(markdown, name, counting)
    return counts


@pytest.mark.parametrize("kind", LONG)
async def test_what_a_step_draws_does_not_depend_on_the_length(kind: str, drawn: list[int]) -> None:
    chars = CHARS if kind == "paragraphs" else CHARS // 10
    text = ("```\n" if kind == "open code" else "") + LONG[kind] * (chars // len(LONG[kind]) + 1)
    app = TranscriptApp()
    async with app.run_test(size=(100, 30)) as pilot:
        transcript = app.query_one(Transcript)
        transcript.message("user", "you", "go on", 0)
        transcript.open_answer("model", 1)
        for number, piece in enumerate(_pieces(text)):
            drawn.clear()
            transcript.stream(piece)
            assert sum(drawn) <= 3 * (LIVE_CHARS + PIECE)
            if number % 200 == 0:
                await pilot.pause()
        drawn.clear()
        transcript.close_answer("stopped", f"{text}end")
        assert sum(drawn) <= 3 * (LIVE_CHARS + PIECE)
        await pilot.pause()
        parts = _parts(app)
        assert all(len(part.content.plain) <= SETTLED_CHARS + 2 * LIVE_CHARS for part in parts)
        shown = "".join(part.content.plain for part in parts)
        assert CARET not in shown
        assert FINISHES["stopped"] in shown
        if kind != "code":  # whose lines have bars, and whose languages are said
            assert _letters(shown) == _letters(f"{text}end") + _letters(FINISHES["stopped"])


async def test_an_answer_in_parts_is_copied_and_gauged_as_one() -> None:
    text = (
        "\n\n".join(f"{n} {WORDS * 30}\nand line {n}".replace(" \n", "\n") for n in range(20))
        + "\n\n- a\n- b"
    )
    app = TranscriptApp()
    async with app.run_test(size=(100, 30)) as pilot:
        transcript = app.query_one(Transcript)
        transcript.message("user", "you", "go on", 0)
        transcript.open_answer("model", 1)
        for piece in _pieces(text):
            transcript.stream(piece)
        transcript.close_answer("eos", text)
        transcript.show_hold(Turn("", "eos", 1, 1, 0, 0, 1, 1, 0, 0, [(1, 0.5)]))
        await pilot.pause()
        first, *others = _parts(app)
        assert isinstance(first, TurnView)
        assert first.hold == 0.5
        assert others
        assert not any(isinstance(part, TurnView) for part in others)
        app.screen.selections = dict.fromkeys((first, *others), SELECT_ALL)
        assert app.screen.get_selected_text() == markdown.render(text).plain


async def test_a_short_answer_is_one_widget() -> None:
    app = TranscriptApp()
    async with app.run_test() as pilot:
        transcript = app.query_one(Transcript)
        transcript.open_answer("model", 0)
        transcript.stream("one\n\ntwo")
        transcript.close_answer("eos", "one\n\ntwo.")
        await pilot.pause()
        assert [part.content.plain for part in app.query(Part)] == ["one\n\ntwo."]


def _pieces(text: str) -> Iterator[str]:
    return (text[start : start + PIECE] for start in range(0, len(text), PIECE))


def _parts(app: App[None]) -> list[Any]:
    """The widgets of the answer."""
    return list(app.query(Part))[1:]


def _letters(text: str) -> str:
    return "".join(c for c in text if c.isalnum())
