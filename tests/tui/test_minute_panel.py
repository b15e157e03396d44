"""The memory panel for somebody who has never heard of a K/V cache, on the real app and the bundled model."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from rich.cells import cell_len
from screens import POCKET, WIDE, Screen, held, opener
from sweep import sweep
from test_tabs import LEGENDS

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.chat.memory import in_words
from h2o_chat.tui.chat_app import ChatApp
from h2o_chat.tui.panel import overview, strip
from h2o_chat.tui.panel.panel import MemoryPanel
from h2o_chat.tui.panel.strip import RememberStrip

ONE_SIZE = [WIDE, *sweep(((80, 24),), ((60, 20),))]
"""Where the panel stands beside the chat; `make test-all` has the others."""
SAID = (
    "My name is Priya and my locker code is K7Q2.",
    "I would like to find a restaurant in San Jose for two people.",
    "Italian food.",
    "I need a taxi to the station at ten.",
)
ROW = re.compile(r"(?:▸| ) (\S+) +#(\d+) ([█▓░·]{6}) +(\d+) of (\d+) heads")
"""A row of the first tab: word, message, bar, heads."""


@asynccontextmanager
async def talked(size: tuple[int, int], budget: int = 48, turns: int = len(SAID)) -> AsyncIterator[Screen]:
    """The app after these turns."""
    settings = Settings(model=str(POCKET), budget=budget, threads=1, seed=1)
    app = ChatApp(opener(settings), settings, Sampling(max_tokens=16))
    async with app.run_test(size=size) as pilot:
        screen = Screen(app, pilot)
        await screen.opened()
        await screen.say(*SAID[:turns])
        yield screen


async def open_panel(screen: Screen) -> MemoryPanel:
    """Beside the chat it has room already; under 100 columns ctrl+b opens it."""
    panel = screen.app.query_one(MemoryPanel)
    if screen.app.size.width < 100:
        await screen.pilot.press("ctrl+b")
    await screen.until(lambda: panel.display and panel.size.height > 10, "the panel is seen")
    screen.app.set_focus(panel)
    await screen.pilot.pause()
    return panel


def said_words(screen: Screen) -> dict[int, set[str]]:
    """The words of each message, by the number that the screen gives it."""
    split = re.compile(r"[\s,.!?:;“”\"()]+")
    return {at: set(split.split(one.text)) - {""} for at, one in enumerate(screen.chat.messages, 1)}


def held_by(screen: Screen) -> dict[int, int]:
    """How many heads hold each token."""
    return {position: len(by) for position, by in held(screen.chat).items()}


@pytest.mark.parametrize("size", [WIDE, (60, 20), *sweep(((80, 24),))])
async def test_the_panel_is_in_words_at_every_size(size: tuple[int, int]) -> None:
    async with talked(size) as screen:
        memory, seen = screen.app._memory, screen.chat.engine.seen
        assert seen > 90
        kept = max(len([p for p in head if p >= 0]) for head in screen.chat.engine.cache.kept(0)[0].tolist())
        panel = await open_panel(screen)
        drawn = str(panel.render().plain).split("\n")
        assert len(drawn) == panel.size.height
        assert {cell_len(line) for line in drawn} == {panel.size.width}
        text = "\n".join(drawn)
        assert f"{kept} of {seen} tokens kept" in drawn[0]
        assert f"{seen - kept} forgotten" in text
        counts = dict(re.findall(r"[█▓░] (newest|important|pinned) (\d+)", text))
        assert sum(map(int, counts.values())) == kept
        assert re.search(r"never over \d+ KiB · without limit [\d.]+ KiB", text)
        assert [one for one in LEGENDS if LEGENDS[one] in text] == ["now"]
        assert LEGENDS["now"] in drawn[-2]
        assert overview.HEADS in text

        rows = ROW.findall(text)
        said, held = said_words(screen), held_by(screen)
        assert len(rows) >= 5
        assert "Priya" in text
        numbers = [int(number) for _, number, *_ in rows]
        assert numbers == sorted(numbers), "the oldest message first"
        for word, number, bar, count, of in rows:
            assert word in said[int(number)], "a whole word of that message"
            assert of == "12"
            full = bar.count("·") == 0
            assert full is (count == "12")
            places = [one for one in memory.words.find(word) if one.index == int(number) - 1]
            assert int(count) == max(min(held.get(at, 0) for at in one.tokens) for one in places)
        for phrase in re.findall("“([^”]+)”", text[text.index("just forgotten") :]):
            for word in re.split(r"[^\w’'-]+", phrase.rstrip("… ")):
                assert not word or any(word in known for known in said.values())
        assert "<|" not in text
        assert "rank" not in text
        assert "score" not in text

        for name in ("history", "details"):
            await screen.pilot.press("right")
            text = screen.page()
            assert [one for one in LEGENDS if LEGENDS[one] in text] == [name]
        page = ""
        for _ in range(8):
            page += str(panel.render().plain)
            await screen.pilot.press("pagedown")
        for part in ("important", "newest", "pinned", "lost", "bytes"):
            assert part in page
        assert not re.search("heavy|recent|sink", page), "the paper's words for what has a name already"
        assert "which heads hold" in page
        if size[0] < 100:
            await screen.pilot.press("escape")
            await screen.until(lambda: not panel.display, "it is closed")
            assert screen.app.prompt.has_focus
            await screen.pilot.press("ctrl+b", "ctrl+b")
            await screen.until(lambda: not panel.display, "it is closed again")


@pytest.mark.parametrize("size", [WIDE, (60, 20), *sweep(((80, 24),))])
async def test_around_the_chat_too_words_come_first(size: tuple[int, int]) -> None:
    async with talked(size) as screen:
        memory = screen.app._memory
        lines = screen.lines()
        kept = memory.seen - memory.evicted
        assert f"remembers {kept} of {memory.seen}" in lines[0]
        assert "tok/s" not in lines[0]
        page = "\n".join(lines)
        assert any(legend in page for legend in strip.LEGENDS)
        if size[0] < 100:
            line = next(line for line in lines if line.startswith(" remembers "))
            named = re.search(rf" remembers {kept} of {memory.seen} · still knows ([^·]*[^· ])", line)
            assert named
            listed = in_words.remembered(memory)
            old = [held for held in listed if held.word.first < memory.seen // 2] or listed
            known: dict[str, float] = {}
            for held in old:
                known[held.word.text] = max(known.get(held.word.text, 0.0), held.hold)
            words = named[1].split(", ")
            assert (
                min(known[word] for word in words) >= sorted(known.values(), reverse=True)[: len(words)][-1]
            )
            if forgot := re.search(r"forgot “([^”]+)” #(\d+)", line):
                assert set(forgot[1].split()) <= said_words(screen)[int(forgot[2])]
                assert not {held.word.text.lower() for held in listed} >= set(forgot[1].lower().split())
        assert "what the model still remembers" in page or size != WIDE
        assert memory.tok_s is not None
        memory.answering = True  # as while an answer is made
        screen.app._side_panels.status.refresh()
        await screen.pilot.pause()
        assert "tok/s" in screen.lines()[0]


@pytest.mark.parametrize("size", [(60, 20), *sweep(((80, 24),))])
async def test_a_panel_over_the_chat_says_what_it_covers(size: tuple[int, int]) -> None:
    async with talked(size) as screen:
        panel = await open_panel(screen)
        assert "esc close" in screen.lines()[-1]
        assert overview.LEGEND in str(panel.render().plain)
        await screen.pilot.press("down")
        await screen.pilot.pause()
        memory, text = screen.app._memory, str(panel.render().plain)
        assert memory.facts.endswith(f"@{memory.cursor}")
        assert " of 12 heads" in memory.facts
        said = " ".join(line.strip("│ ") for line in text.split("\n")[-5:])
        assert memory.facts in said
        await screen.pilot.press("escape")
        await screen.pilot.pause()
        assert not panel.display
        assert screen.app._memory.cursor is None


@pytest.mark.parametrize("size", ONE_SIZE)
async def test_before_anything_is_forgotten_nothing_is_compared(size: tuple[int, int]) -> None:
    async with talked(size, budget=512, turns=1) as screen:
        memory = screen.app._memory
        panel = await open_panel(screen)
        text = str(panel.render().plain)
        assert f"{memory.seen} of 512" in text
        assert "nothing forgotten yet" in text
        assert not re.search("limit|never over|KiB|MiB", text)
        assert "Priya" in text, "it is not empty"
        assert "12 of 12 heads" in text
        assert f"remembers all {memory.seen}" in screen.lines()[0]


@pytest.mark.parametrize("size", ONE_SIZE)
async def test_a_word_means_the_same_wherever_it_is_told(size: tuple[int, int]) -> None:
    """In the panel, in `/why` and on the line below the chat: the same word, message and heads."""
    async with talked(size) as screen:
        panel = await open_panel(screen)
        await screen.pilot.press("down")
        row = next(line for line in str(panel.render().plain).split("\n") if "▸ " in line and "#" in line)
        word, number, _, count, _ = ROW.findall(row)[0]
        assert f"“{word}” #{number} · important · {count} of 12 heads" in screen.app.divider.remark
        assert "score" not in screen.app.divider.remark
        await screen.pilot.press("escape")
        screen.app.prompt.focus()
        await screen.ask(f"/why {word}")
        told = screen.bodies()[-1].split("\n")
        held, places = held_by(screen), list(screen.app._memory.words.find(word))
        assert len(told) == len(places)
        for line, place in zip(told, places, strict=True):
            least = min(held.get(at, 0) for at in place.tokens)
            assert line.startswith(f"#{place.index + 1}  “")
            assert (f"{least} of 12 heads · " if least else "forgotten since #") in line
            assert "score" not in line
            assert "@" not in line
        assert any(f"{count} of 12 heads · important" in line for line in told)
        reasons = [line.partition(": ")[2] for line in told if ": " in line]
        assert 0 < len(reasons) == len({*reasons}), "each is told once"


async def test_why_of_a_message_counts_its_tokens() -> None:
    async with talked(WIDE) as screen:
        memory, held = screen.app._memory, held_by(screen)
        for number, message in enumerate(screen.chat.messages, 1):
            first, *rest = (await screen.say(f"/why #{number}")).split("\n")
            tokens = range(message.first, min(message.last + 1, memory.seen))
            assert f"#{number} has {len(tokens)} tokens" in first
            assert f" {round(message.hold * 12)} of 12 heads" in first.replace("<1", "0")
            counts = {line.split(":")[0].split()[1]: int(line.split()[0]) for line in rest}
            assert sum(counts.values()) == len(tokens)
            assert counts.get("forgotten", 0) == sum(at not in held for at in tokens)
            recent = [at for at in tokens if at >= memory.recent_from]
            assert counts.get("newest", 0) == len(recent)
        await screen.pilot.press("tab", "up")
        chosen = screen.app.transcript.choice.view
        assert chosen is not None
        screen.app.pane.submit("/why")  # type: ignore[attr-defined]  # typing would end the choice
        assert screen.bodies()[-1].startswith(f"#{chosen.index + 1} has "), "the chosen one"
        await screen.pilot.press("escape")
        assert "#99" in await screen.say("/why #99")


async def test_why_has_a_row_for_each_time_a_word_was_said() -> None:
    async with talked(WIDE) as screen:
        for text in ("/why is", "/why restaurant", "/why IN SAN JOSE"):
            await screen.ask(text)
            wanted = text[5:]
            places = list(enumerate(screen.chat.messages, 1))
            numbers = [
                number
                for number, message in places
                for _ in re.findall(rf"(?<!\w){wanted}(?!\w)", message.text, re.IGNORECASE)
            ]
            told = screen.bodies()[-1].split("\n")
            assert [int(re.match(r"#(\d+)  ", line)[1]) for line in told] == numbers  # type: ignore[index]
        await screen.ask("/why riya")
        assert "was not said" in screen.bodies()[-1]


async def test_the_panel_over_the_chat_goes_when_somebody_types() -> None:
    async with talked((80, 24), turns=1) as screen:
        panel = await open_panel(screen)
        assert not screen.app.query_one(RememberStrip).display
        screen.app.prompt.focus()
        await screen.until(lambda: not panel.display, "it is closed")
        assert screen.app.query_one(RememberStrip).display
        await screen.pilot.click("#line")
        await screen.until(lambda: panel.display and panel.size.height > 10, "a click opens it")
        await screen.pilot.resize_terminal(*WIDE)
        await screen.until(lambda: panel.size.width == 46, "it stands beside the chat")
        await screen.pilot.resize_terminal(80, 24)
        await screen.until(lambda: not panel.display, "it is the line again")


async def test_the_way_back_from_the_details_is_told() -> None:
    async with talked(WIDE, turns=1) as screen:
        panel = await open_panel(screen)

        def told() -> str:
            return str(panel.render().plain).split("\n")[panel._tabs_at].partition("details")[2]

        assert "←" not in told()
        await screen.pilot.press("right", "right")
        assert "←" in told()
        assert "tab" not in told()
        await screen.pilot.press("escape")
        await screen.until(lambda: screen.app.prompt.has_focus, "the keyboard is at the prompt")
        assert "tab" in told()
        while not panel.has_focus:
            await screen.pilot.press("tab")
        await screen.pilot.press("left", "left")
        assert panel.tab == 0
