"""Messages by number, pins of what is gone, the same answer again, tables, links, code, dialogs.

As a new user meets them: on the real app, with the model that comes with the program.
"""

import pytest
from screens import Drive, Screen
from sweep import sweep
from typed import ONE_SIZE, SAID, SIZES

from h2o_chat.tui.widgets.theme import OWN

ANSWER = """| policy | what it keeps | tokens |
|--------|:--------------|-------:|
| h2o | the tokens that got the most attention so far, and the newest | 1,024 |
| window | the newest | 512 |

See [the paper](https://arxiv.org/abs/2306_14048_) and [https://bank.test](https://evil.test/x).

```py
first = 1
```

    second = 2
"""
HOSTILE = (
    "[[b]click[/b]](javascript:alert(1)) [@click=app.quit]now[/]\x1b]8;;http://evil.test\x1b\\here\n\n"
    "| [a](http://e.test) | \x1b[31m |\n|---|---|\n| [@click=app.quit]x[/] | y |"
)


def titles(screen: Screen) -> list[str]:
    """The heads of messages that are seen."""
    rows = (line.strip("│ ▸").split("▕")[0].strip() for line in screen.lines())
    return [row for row in rows if row.startswith("#") and "· now" not in row]  # which is the strip's


@pytest.mark.parametrize("size", ONE_SIZE)
async def test_messages_have_numbers_that_every_command_uses(talk: Drive, size: tuple[int, int]) -> None:
    async with talk(size) as screen:
        assert titles(screen)[-2:] == ["#3 you", "#4 pocket"]
        await screen.say("/copy 1")
        assert screen.app.clipboard == SAID[0]
        assert "#3 is pinned" in await screen.say("/pin 3")
        assert "#3 you · pinned" in [title for title in titles(screen) if title.startswith("#3")]
        assert "#3 is no longer pinned" in await screen.say("/unpin #3")
        for wrong in ("/pin 99", "/edit 99", "/copy 99", "/branch 99"):
            assert await screen.say(wrong) == "There is no message #99.\n→ They are #1 to #4."
        assert "There is no message #0" in await screen.say("/pin 0")
        await screen.ask("/edit 3")
        assert screen.app.prompt.text == SAID[1]
        await screen.say("Do you like music?")
        assert [message.branch for message in screen.chat.messages] == [None, None, (2, 2), None]
        assert "#3 you ‹2/2›" in titles(screen)
        await screen.say("/branch 3")
        assert screen.bodies()[-1] == "Branch 1 of 2 from #3 on."
        assert screen.chat.messages[2].text == SAID[1]
        assert "#3 you ‹1/2›" in titles(screen)


async def test_the_numbers_count_a_system_prompt_that_is_shown(talk: Drive) -> None:
    async with talk((80, 24), SAID[:1], system="Be kind.") as screen:
        assert titles(screen) == ["#1 system", "#2 you", "#3 pocket"]
        await screen.say("/copy 2")
        assert screen.app.clipboard == SAID[0]


@pytest.mark.parametrize("size", ONE_SIZE)
async def test_what_is_gone_cannot_be_pinned_but_said_again(talk: Drive, size: tuple[int, int]) -> None:
    said = (*SAID, "What about trains?", "And the weather?", "And books?", "I like films.")
    async with talk(size, said, policy="window") as screen:
        before = screen.chat.engine.protection()
        told = await screen.say("/pin 1")
        assert "Nothing of #1 is left to pin" in told
        assert "/pin again 1" in told
        assert screen.chat.engine.protection() == before, "nothing is protected"
        assert not any(message.pinned for message in screen.chat.messages)
        assert "#1 is not pinned." in await screen.say("/unpin 1")
        assert "No message is pinned." in await screen.say("/unpin")
    async with talk(size, SAID[:1], policy="lru") as screen:  # `window` can protect nothing
        await screen.say("/pin again 1")
        again = screen.chat.messages[-2]
        assert (again.text, again.pinned) == (SAID[0], True)
        assert "#3 you · pinned" in titles(screen)
        told = await screen.say("/unpin 1")
        assert "#1 is not pinned." in told
        assert "Pinned are: #3." in told


@pytest.mark.parametrize("size", ONE_SIZE)
async def test_the_same_answer_is_not_made_again(talk: Drive, size: tuple[int, int]) -> None:
    async with talk(size) as screen:
        answers, leaf = [screen.chat.messages[-1].text], screen.chat.keeper.leaf
        await screen.pilot.press("ctrl+r")
        await screen.until(lambda: screen.chat.keeper.leaf != leaf, "another is made")
        await screen.answered()
        assert screen.chat.messages[2].branch == (2, 2)
        answers.append(screen.chat.messages[-1].text)
        for temperature in ("0.9", "0", "0"):
            await screen.say(f"/regenerate {temperature}")
            answers.append(screen.chat.messages[-1].text)
        assert len(set(answers)) == 5, "each time other words, not the first ones again"


async def test_tables_links_and_code_are_drawn_and_blocks_are_copied_one_by_one(talk: Drive) -> None:
    async with talk((120, 36), ()) as screen:
        screen.app.transcript.messages.message("assistant", "pocket", ANSWER, 0)
        for size in SIZES:
            await screen.pilot.resize_terminal(*size)
            await screen.pilot.pause()
            shown = screen.bodies()[-1]
            assert "|--" not in shown
            assert "the paper (https://arxiv.org/abs/2306_14048_)" in shown
            assert "https://bank.test (https://evil.test/x)" in shown
            table = shown.split("\n\nSee")[0].split("\n")
            room = screen.app.transcript.page.width - 3
            assert all(len(line) <= room for line in table)
            assert table[0].split() == ["policy", "│", "what", "it", "keeps", "│", "tokens"]
            for name in ("attention", "1,024", "window", "512"):
                assert any(name in line for line in table), "no cell is lost, no word is cut"
        screen.app.transcript.focus()
        screen.app.transcript.select(0, chosen=True)
        for copied in ("first = 1\n", "second = 2\n"):
            await screen.pilot.press("k")
            assert screen.app.clipboard == copied
        await screen.pilot.resize_terminal(30, 20)
        await screen.pilot.pause()
        narrow = screen.bodies()[-1].split("\n\nSee")[0]
        assert "policy: window" in narrow, "a table without room is a line a cell"


async def test_an_answer_makes_no_links_and_no_markup(talk: Drive) -> None:
    async with talk((80, 24), ()) as screen:
        screen.app.transcript.messages.message("assistant", "pocket", HOSTILE, 0)
        await screen.pilot.pause()
        shown = screen.page()
        assert "javascript:alert(1)" in shown
        assert "[@click=app.quit]x[/]" in shown
        assert not [look for look in screen.looks() if look.link or "@click" in look.meta]
        assert "\x1b" not in shown


# Every size and every theme once; `make test-all` has each with each.
ONCE = list(zip(SIZES, [theme.name for theme in OWN], strict=True))
EACH = [(size, theme.name) for size in SIZES for theme in OWN]


@pytest.mark.parametrize(("size", "theme"), [*ONCE, *sweep(*(pair for pair in EACH if pair not in ONCE))])
async def test_all_dialogs_look_alike(
    talk: Drive, size: tuple[int, int], theme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if theme == "h2o-light":
        monkeypatch.setenv("NO_COLOR", "1")
    async with talk(size, (), theme=theme) as screen:
        looks = {}
        for title, keys in (
            ("conversations", ("ctrl+o",)),
            ("models", (*tuple("/model"), "enter")),
            ("settings", ("f2",)),
            ("help", ("f1",)),
        ):
            await screen.pilot.press(*keys)
            await screen.until(
                lambda title=title: any(f"╭─ {title} ─" in line for line in screen.lines()), title
            )
            top = screen.app.screen
            box = top.query_one("#box")
            looks[title] = (
                *(box.styles.border, box.styles.background, box.styles.border_title_color, box.region.x),
                *(box.region.width, top.styles.background),
            )
            for options in top.query("OptionList"):
                highlight = options.get_visual_style("option-list--option-highlighted")
                looks[f"{title}: highlight"] = highlight
            while len(screen.app.screen_stack) > 1:
                await screen.pilot.press("escape")
                await screen.pilot.pause()
        boxes = {title: look for title, look in looks.items() if ":" not in title}
        assert len(boxes) == 4
        assert len(set(boxes.values())) == 1, boxes
        highlights = {look for title, look in looks.items() if ":" in title}
        assert len(highlights) == 1, highlights
