"""Hindrances for somebody who uses the screen for the first time, each as it was met."""

from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from screens import RECORDING, SMALL, WIDE, Drive, Screen, replayed
from sweep import sweep
from test_transcript import _page, transcript_of
from textual.widgets import Input, OptionList, Static
from textual.widgets._footer import FooterKey

from h2o_chat.base.config import Sampling
from h2o_chat.chat.memory.cache_view import CacheView
from h2o_chat.chat.memory.tokens import Tokens
from h2o_chat.events.events import CacheState, Session
from h2o_chat.events.recording import read
from h2o_chat.tui.panel import details
from h2o_chat.tui.panel.strip import RememberStrip
from h2o_chat.tui.prompt.dialogs import Conversations
from h2o_chat.tui.transcript.message_body import Growing
from h2o_chat.tui.transcript.message_view import MessageView

SHORT = Sampling(max_tokens=24)
TOLD = "My name is Flora, my locker code is K7Q2, and I like films about gardens and the people in them."


def footer(screen: Screen) -> set[str]:
    return {key.description for key in screen.app.screen.query(FooterKey)}


async def test_the_line_of_keys_knows_that_the_model_is_open(stored: Drive) -> None:
    async with stored() as screen:
        await screen.until(lambda: footer(screen) >= {"new", "open", "again", "help"}, "they are shown")
        await screen.pilot.press("ctrl+p")
        assert len(screen.app.screen_stack) == 1, "Textual's palette is switched off"


@pytest.mark.parametrize("size", [(60, 20), WIDE, *sweep((SMALL,), ((80, 24),))])
async def test_the_help_is_named_wherever_the_keyboard_is(stored: Drive, size: tuple[int, int]) -> None:
    async with stored(size) as screen:
        for _ in range(4):
            await screen.until(lambda: "f1 help" in screen.lines()[-1], "the way to all keys is shown")
            await screen.pilot.press("tab")


async def test_letters_typed_at_once_behind_a_key_are_for_what_it_opens(stored: Drive) -> None:
    async with stored() as screen:
        await screen.say(TOLD)
        screen.at_once("ctrl+o", *"flora")
        await screen.until(lambda: isinstance(screen.app.screen, Conversations), "the list is open")
        await screen.until(lambda: screen.app.screen.query_one(Input).value == "flora", "the words are there")
        await screen.pilot.press("escape")
        await screen.until(lambda: not isinstance(screen.app.screen, Conversations), "it is closed")
        assert screen.app.prompt.text == ""
        screen.at_once("ctrl+f", *"code")
        bar = screen.app.pane.find_bar
        await screen.until(lambda: bar.query_one(Input).value == "code", "the words are there")
        assert screen.app.prompt.text == ""
        screen.at_once(*["backspace"] * 3, *"old", "home", "x", "delete", "y")
        await screen.until(lambda: bar.query_one(Input).value == "xyold", "in the order in which they came")
        await screen.pilot.press("tab")
        assert not bar.query_one(Input).has_focus
        await screen.pilot.press("escape")
        assert not bar.has_class("-open"), "wherever the keyboard is"


async def test_words_typed_at_once_are_found_at_the_last_place(told: Path) -> None:
    async with replayed(told) as screen:
        app, pilot = screen.app, screen.pilot
        await pilot.press("ctrl+f")
        line, found = app.pane.find_bar.query_one(Input), app.pane.find_bar.query_one("#found", Static)
        line.value = "lock"
        line.value = "locker"  # both changes are told when both are made
        await screen.until(lambda: " of " in str(found.content), "it is found")
        at, _, count = str(found.content).split()
        assert at == count != "1"


async def test_what_a_command_answers_is_seen_by_whoever_reads_far_above(
    drive: Drive, tmp_path: Path
) -> None:
    async with drive("pilot-chat", (80, 24), sampling=SHORT) as screen:
        for _ in range(6):
            await screen.say(TOLD)
        for text, says in [
            ("/stats", "KV heads"),
            (f"/export md {tmp_path / 'x.md'}", "Wrote"),
            ("/set nonsense 1", "✗ error"),
        ]:
            screen.app.transcript.scroll_to(y=0, animate=False)
            await screen.pilot.pause()
            assert screen.app.transcript.scroll_offset.y == 0
            await screen.ask(text)
            await screen.until(lambda says=says: says in screen.page(), f"{says} is seen")
            screen.app.prompt.clear()


async def test_a_strange_number_is_no_end_of_the_program(drive: Drive) -> None:
    async with drive("pilot-chat", sampling=SHORT) as screen:
        await screen.say(TOLD)
        for position in ("@²", "@٣", "@99999999999999999999"):
            before = len(screen.bodies())
            await screen.ask(f"/why {position}")
            await screen.until(lambda before=before: len(screen.bodies()) > before, "something is said")


async def test_the_help_names_every_key_as_it_is_typed(stored: Drive, told: Path) -> None:
    async with stored((100, 140)) as screen:
        await screen.pilot.press("f1")
        page = screen.page()
        for key in ("ctrl+t", "ctrl+f", " c ", " k ", " p ", " b ", "home", "ctrl+o", "shift+tab"):
            assert f"│ {key.strip()} " in page or f" {key.strip()}, " in page or key in page, key
        assert "square_bracket" not in page
        for place in ("the memory panel", "the strip", "the prompt", "the transcript", "/export"):
            assert place in page
    async with replayed(told, (100, 140)) as screen:
        await screen.pilot.press("f1")
        page = screen.page()
        assert "pause" in page
        assert "/export" not in page, "there is no prompt to type it into"


@pytest.mark.parametrize("size", [(60, 20), (80, 24), WIDE])
async def test_all_that_is_known_of_a_token_is_on_the_screen(told: Path, size: tuple[int, int]) -> None:
    async with replayed(told, size) as screen:
        app, pilot = screen.app, screen.pilot
        app.transcript.focus()
        await pilot.press("i", "left", "left")  # the last tokens were not read
        await screen.until(lambda: " of 12 heads" in app.divider.remark, "a token is looked at")
        await pilot.pause(0.1)
        page = " ".join(screen.page().split())
        for part in app.divider.remark.split(" · "):
            assert part in page
        place = app.transcript.inspector.place(app._memory.cursor)
        top, rows = app.transcript.scroll_offset.y, app.transcript.scrollable_content_region.height
        assert top <= place[0] < top + rows, "the token too"
        await pilot.press("escape")
        await screen.until(lambda: app.divider.size.height == 1, "the line is one again")


async def test_a_token_pointed_at_from_elsewhere_is_let_go_again(told: Path) -> None:
    async with replayed(told) as screen:
        app, pilot = screen.app, screen.pilot
        for widget, key in (("MemoryPanel", "down"), ("RememberStrip", "left")):
            app.query_one(widget).focus()
            await pilot.press(key)
            await screen.until(lambda: app._memory.cursor is not None, "there is a cursor")
            await pilot.press("escape")
            await screen.until(lambda: app._memory.cursor is None, "there is none")
            assert app.divider.remark == ""


async def test_what_goes_on_is_said_though_a_token_was_pointed_at(stored: Drive) -> None:
    async with stored() as screen:
        await screen.say(TOLD)
        screen.app.query_one("RememberStrip").focus()
        await screen.pilot.press("home")
        await screen.until(lambda: screen.app._memory.cursor is not None, "there is a cursor")
        await screen.pilot.press("tab", "ctrl+e")
        await screen.until(lambda: "esc gives up" in screen.app.divider.remark, "it says what enter does")


WORDS = "I will go to the castle, and I will go to the garden and to the sea. " * 12


async def test_a_paragraph_that_grew_is_wrapped_anew_in_another_width() -> None:
    async with transcript_of(60, 40) as (transcript, pilot):
        transcript.messages.open_answer("model", 0)
        for at in range(0, len(WORDS), 7):
            transcript.messages.stream(WORDS[at : at + 7])
            if at % 70 == 0:
                await pilot.pause()
            if at == 350:
                await pilot.resize_terminal(80, 40)
                await pilot.pause()
        await pilot.pause()
        while_growing = _page(transcript)
        transcript.messages.close_answer("eos", WORDS)
        await pilot.pause()
        grown = [_page(transcript)]
        for width in (95, 60):
            await pilot.resize_terminal(width, 40)
            await pilot.pause()
            grown.append(_page(transcript))
    whole = []
    for width in (80, 95, 60):
        async with transcript_of(width, 40) as (transcript, pilot):
            transcript.messages.message("assistant", "model", WORDS, 0)
            transcript.messages.unfold_last()
            await pilot.pause()
            whole.append(_page(transcript))
    assert grown == whole
    assert [row.rstrip("▌") for row in while_growing] == whole[0]


def test_the_caret_is_behind_the_last_word_of_a_raw_text() -> None:
    view = MessageView("assistant", "model", index=1)
    view.raw, view.tokens = True, Tokens(5, ["To", " the", " castle"])
    view.growing = Growing(room=0)
    view.write("To the castle")
    assert view.plain == "To the castle▌"
    assert len(view.pieces) == 1


@pytest.mark.parametrize("size", [(60, 20), (80, 24)])
async def test_the_list_of_conversations_says_all_of_it_in_a_small_terminal(
    stored: Drive, size: tuple[int, int]
) -> None:
    async with stored(size) as screen:
        await screen.say(TOLD)
        await screen.another()
        await screen.pilot.press("ctrl+o")
        await screen.until(lambda: isinstance(screen.app.screen, Conversations), "the list is open")
        options = screen.app.screen.query_one(OptionList)
        await screen.until(lambda: options.option_count == 1, "it is listed")
        await screen.pilot.pause(0.1)
        inside = [row.split("│")[-3 if row.endswith("│") else -2] for row in screen.lines()[2:-4]]
        listed = [row for row in inside if row.strip()]
        assert all(row.startswith(" ") for row in listed), "what is wrapped stands below what it belongs to"
        assert " ".join(" ".join(listed).split()).startswith(TOLD[:50])
        assert "enter opens it" in screen.page()
        await screen.pilot.press("ctrl+d")
        page = screen.page()
        assert "remove? y/n" in page
        assert "words of a title" not in page
        await screen.pilot.press("escape")
        assert "words of a title" in screen.page()


async def test_what_was_lost_is_not_known_of_a_conversation_just_opened(told: Path) -> None:
    memory = CacheView()
    events = list(read(told))
    session = next(event for event in events if isinstance(event, Session))
    state = [event for event in events if isinstance(event, CacheState)][-1]
    memory.begin(session, replace(state, lost=0.0))
    shown = next(line for line in details.draw(memory, 42) if "lost " in line.content.plain[:6]).content.plain
    assert "%" not in shown
    assert cell_len(shown) <= 42
    memory.add(state)
    assert any("% of attention" in line.content.plain for line in details.draw(memory, 42))


async def test_why_tells_no_fight_for_slots_where_there_was_none(drive: Drive) -> None:
    async with drive("pilot-chat", sampling=SHORT, budget=400, recent=8) as screen:
        await screen.say(TOLD)
        await screen.ask("/why locker")
        assert "nothing had to go yet" in screen.bodies()[-1]
        assert "ranked others above" not in screen.bodies()[-1]


@pytest.mark.parametrize(
    ("text", "shown"),
    [(" sister", "sister @28"), (" unforgettable", "unforg… @28"), ("語" * 9, "語語語… @28")],
)
def test_the_token_above_its_tab_is_whole_or_says_that_it_is_not(
    memory: CacheView, text: str, shown: str
) -> None:
    assert memory.cache is not None
    heaviest = [replace(memory.cache.heaviest[0], text=text, position=28)]
    memory.begin(memory.session, replace(memory.cache, heaviest=heaviest))  # type: ignore[arg-type]
    memory.cursor = 28
    assert details._pointed(memory, 11) == shown


@pytest.mark.parametrize("step", [16, *sweep(3)])
async def test_the_end_of_the_strip_is_named_in_whole_words(step: int) -> None:
    async with replayed(RECORDING, (60, 36)) as screen:
        strip, ends = screen.app.query_one(RememberStrip), set()
        for width in range(60, 190, step):
            await screen.pilot.resize_terminal(width, 36)
            await screen.pilot.pause()
            ends.add(strip._labels(strip._room).rstrip().rpartition("│")[2])
        assert ends <= {"#9 pocket · now", "#9 pocket", "#9", "now", ""}
        assert len(ends) > 1
