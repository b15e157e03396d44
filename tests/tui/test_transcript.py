"""Answers of any length, in the real transcript without a model."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from screens import rows
from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.selection import SELECT_ALL

from h2o_chat.events.events import Turn
from h2o_chat.tui.transcript import markdown
from h2o_chat.tui.transcript.message_body import CARET, FINISHED_CHARS, LIVE_CHARS
from h2o_chat.tui.transcript.message_view import FINISHES
from h2o_chat.tui.transcript.transcript import Transcript

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


@asynccontextmanager
async def transcript_of(width: int = 80, height: int = 30) -> AsyncIterator[tuple[Transcript, Pilot[None]]]:
    """An empty transcript in an app that has nothing else."""
    async with TranscriptApp().run_test(size=(width, height)) as pilot:
        yield pilot.app.query_one(Transcript), pilot


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Characters given to the parser, call by call."""
    counts: list[int] = []
    for name in ("render", "cut"):
        real = getattr(markdown, name)

        def counting(source: str, *how: Any, real: Any = real, **more: Any) -> Any:
            counts.append(len(source))
            return real(source, *how, **more)

        monkeypatch.setattr(markdown, name, counting)
    return counts


@pytest.mark.parametrize("kind", LONG)
async def test_what_a_step_draws_does_not_depend_on_the_length(kind: str, drawn: list[int]) -> None:
    chars = CHARS if kind == "paragraphs" else CHARS // 10
    text = ("```\n" if kind == "open code" else "") + LONG[kind] * (chars // len(LONG[kind]) + 1)
    async with transcript_of(100, 30) as (transcript, pilot):
        transcript.messages.message("user", "you", "go on", 0)
        transcript.messages.open_answer("model", 1)
        for number, piece in enumerate(_pieces(text)):
            drawn.clear()
            transcript.messages.stream(piece)
            assert sum(drawn) <= 3 * (LIVE_CHARS + PIECE)
            if number % 200 == 0:
                await pilot.pause()
        drawn.clear()
        transcript.messages.close_answer("stopped", f"{text}end")
        assert sum(drawn) <= 3 * (LIVE_CHARS + PIECE)
        await pilot.pause()
        answer = transcript.messages.views[-1]
        assert all(len(piece.content.plain) <= FINISHED_CHARS + 2 * LIVE_CHARS for piece in answer.pieces)
        shown = answer.plain
        assert CARET not in shown
        assert FINISHES["stopped"] in shown
        if kind != "code":  # whose lines have bars, and whose languages are said
            assert _letters(shown) == _letters(f"{text}end") + _letters(FINISHES["stopped"])


async def test_an_answer_in_parts_is_copied_and_gauged_as_one() -> None:
    text = (
        "\n\n".join(f"{n} {WORDS * 30}\nand line {n}".replace(" \n", "\n") for n in range(20))
        + "\n\n- a\n- b"
    )
    async with transcript_of(100, 30) as (transcript, pilot):
        transcript.messages.message("user", "you", "go on", 0)
        transcript.messages.open_answer("model", 1)
        for piece in _pieces(text):
            transcript.messages.stream(piece)
        transcript.messages.close_answer("eos", text)
        transcript.messages.show_hold(Turn("", "eos", 1, 1, 0, 0, 1, 1, 0, 0, [(1, 0.5)]))
        await pilot.pause()
        question, answer = transcript.messages.views
        assert (question.hold, answer.hold) == (0.0, 0.5)
        assert len(answer.pieces) > 1
        transcript.screen.selections = {transcript: SELECT_ALL}
        assert transcript.screen.get_selected_text() == f"go on\n\n{markdown.render(text).plain}"


async def test_a_growing_paragraph_is_wrapped_as_a_whole_one_in_every_width() -> None:
    """It is divided at rows of one width; while it grows and afterwards another width shows no seam."""
    text = WORDS * 30
    async with transcript_of(80, 40) as (transcript, pilot):

        async def seam(width: int) -> None:
            await pilot.resize_terminal(width, 40)
            await pilot.pause()
            shown = [row.strip() for row in rows(pilot.app)]
            words = " ".join(
                row for row in shown if row.startswith(("some", "words", "that", "go", "on", "and"))
            )
            full = [row for row in shown if len(row) > width // 2]
            assert all(len(row) >= width - 16 for row in full[:-1]), shown
            assert len(words) > 500

        transcript.messages.open_answer("model", 0)
        await pilot.pause()
        for piece in _pieces(text):
            transcript.messages.stream(piece)
            await pilot.pause()
        assert len(transcript.messages.views[-1].pieces) > 1
        await seam(61)
        transcript.messages.stream("and more of it " * 20)
        await seam(90)
        transcript.messages.close_answer("eos", None)
        await seam(70)


async def test_a_short_answer_is_one_piece() -> None:
    async with transcript_of() as (transcript, pilot):
        transcript.messages.open_answer("model", 0)
        transcript.messages.stream("one\n\ntwo")
        transcript.messages.close_answer("eos", "one\n\ntwo.")
        await pilot.pause()
        [answer] = transcript.messages.views
        assert [piece.content.plain for piece in answer.pieces] == ["one\n\ntwo."]


async def test_the_window_follows_the_end_until_the_reader_leaves_it() -> None:
    async with transcript_of(60, 20) as (transcript, pilot):
        for n in range(40):
            transcript.messages.message("user", "you", f"question {n}", 2 * n)
            transcript.messages.message(
                "assistant", "model", f"**answer** {n}\n\n" + WORDS * (n % 7), 2 * n + 1
            )
        await pilot.pause()
        assert any("answer 39" in row for row in _page(transcript))
        assert transcript.scroll_offset.y == transcript.max_scroll_y
        transcript.focus()
        await pilot.press("home")
        await pilot.pause(0.5)
        before = _page(transcript)
        assert before[0].strip() == "#1 you"
        assert "question 0" in before[1]
        transcript.messages.open_answer("model", 80)
        transcript.messages.stream("new words\n" * 50)
        await pilot.pause()
        assert _page(transcript) == before  # what is read stays where it is
        for _ in range(200):  # row by row, through messages whose height was only guessed
            before = _page(transcript)
            transcript.scroll_to(y=transcript.scroll_offset.y + 1, animate=False)
            await pilot.pause()
            assert _page(transcript)[:-1] == before[1:]
            if "new words" in before[-1]:
                break
        transcript.window.follow()
        transcript.messages.stream("the end")
        await pilot.pause()
        assert any("the end" in row for row in _page(transcript))


async def test_a_question_that_begins_with_a_mark_of_thoughts_is_no_thought() -> None:
    async with transcript_of() as (transcript, pilot):
        for index, text in enumerate(("<think> is a tag", "<think>So?</think>\nWhat is it?")):
            transcript.messages.message("user", "you", text, index)
            transcript.select(index)
            await pilot.pause()
            assert transcript.chosen_text() == text
            assert text.split("\n")[-1] in "\n".join(_page(transcript))
            assert transcript.messages.views[index].thought is None


async def test_found_words_are_looked_for_again_where_something_else_is_shown() -> None:
    table = "| name | thing |\n|---|---|\n| a long name of somebody | a thing with many words |\n\n"
    async with transcript_of(100, 20) as (transcript, pilot):
        messages = transcript.messages

        def found() -> tuple[str, list[str]]:
            """How many there are, and what stands at their places."""
            count, matches = transcript.find("the key", 1), transcript.finder.matches
            return count, [one.view.plain[one.at : one.at + 7] for one in matches]

        messages.message("assistant", "model", f"{table}the key", 1)
        messages.message("assistant", "model", "<think>I have the key.</think>\n\nIn the box.", 2)
        for index in range(3, 9):
            messages.message("assistant", "model", f"{WORDS * 9}\n\n{table}", index)
        await pilot.pause()
        assert found() == ("1 of 1", ["the key"])
        await pilot.resize_terminal(24, 20)
        await pilot.pause()
        assert found() == ("1 of 1", ["the key"])
        transcript.select(2)
        transcript.action_thought()
        assert found() == ("2 of 2", ["the key"] * 2)
        messages.open_answer("model", 9)
        messages.stream("Take the key")
        messages.close_answer("eos", "Take the key")
        assert found() == ("3 of 3", ["the key"] * 3)
        transcript.action_thought()
        assert found() == ("1 of 2", ["the key"] * 2)
        await pilot.pause()


async def test_a_message_that_is_folded_is_unfolded_where_the_next_match_is_in_it() -> None:
    async with transcript_of(60, 20) as (transcript, pilot):
        transcript.messages.message("user", "you", "line\n" * 40 + "the key\n" + "line\n" * 40, 0)
        assert transcript.find("key", 1) == "1 of 1"
        transcript.select(0)
        transcript.action_fold()
        await pilot.pause()
        assert not any("the key" in row for row in _page(transcript))
        assert transcript.find("key", 1) == "1 of 1"
        await pilot.pause()
        assert any("the key" in row for row in _page(transcript))


def _page(transcript: Transcript) -> list[str]:
    """The screen without its scrollbar."""
    return [row[:-1].rstrip() for row in rows(transcript.app)]


def _pieces(text: str) -> Iterator[str]:
    return (text[start : start + PIECE] for start in range(0, len(text), PIECE))


def _letters(text: str) -> str:
    return "".join(c for c in text if c.isalnum())
