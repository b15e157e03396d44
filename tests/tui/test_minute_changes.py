"""Budget, policy and pins, changed while a conversation goes on: what is then said of its messages is true.

As a new user meets them: on the real app, with the model that comes with the program.
"""

import re
from pathlib import Path
from typing import Any

from screens import POCKET, Screen
from typed import chat_with, page, talking

from h2o_chat.base.config import Settings

CAT = "My cat is called Luna."
LONG = "My cat is called Luna and my locker code is K7Q2."
"""With the template more tokens than may be pinned of a budget of 64."""


async def say(screen: Screen, *texts: str) -> str:
    """Sends them; the last that stands in the transcript then."""
    for text in texts:
        await screen.ask(text)
        await screen.answered()
    return screen.bodies()[-1]


async def test_after_another_budget_the_words_of_older_messages_are_known(
    pocket: Any, tmp_path: Path
) -> None:
    async with talking(pocket, tmp_path, (120, 36), (CAT,)) as screen:
        before = await say(screen, "/why Luna")
        luna = screen.app._memory.words.find("Luna")
        token = next(word.first for word in luna if not isinstance(word, int))
        for change in ("/budget 100", "/policy h2o-paper"):
            assert "was read again" in await say(screen, change)
            assert any("Luna" in line and "12 of 12 heads" in line for line in screen.lines()), "listed"
            assert await say(screen, "/why Luna") == before.replace("64", "100")
            assert f"@{token} “Luna” #1" in await say(screen, f"/why @{token}")


async def test_a_message_that_cannot_be_said_again_pinned_leaves_the_box_alone(
    pocket: Any, tmp_path: Path
) -> None:
    async with talking(pocket, tmp_path, (80, 24), (LONG,)) as screen:
        before = screen.chat.messages[:]
        assert "That would protect" in await say(screen, "/pin again 1")
        assert screen.app.prompt.text == "", "what is typed next would be sent with it"
        assert screen.app.divider.remark == "nothing has changed"
        assert screen.chat.messages == before
        await say(screen, "Hello.")
        assert screen.chat.messages[-2].text == "Hello."


async def test_what_a_policy_does_not_protect_is_said_and_is_protected_again_later(
    pocket: Any, tmp_path: Path
) -> None:
    async with talking(pocket, tmp_path, (120, 36), (CAT, "I am Flora.")) as screen:
        await say(screen, "/budget 512", "/pin 1", "/pin 3")
        protected = screen.chat.engine.protection()[0]
        await say(screen, "/policy window")
        told = [body for body in screen.bodies() if "not protected now" in body]
        assert [body[:2] for body in told] == ["#1", "#3"]
        for one in told:
            assert one[2:].startswith(
                " stays pinned, but is not protected now. The policy window protects nothing"
            )
            assert one.endswith("Once it has room, it is protected again.")
        assert screen.chat.engine.protection()[0] == 0
        await say(screen, "/policy h2o")
        assert screen.chat.engine.protection()[0] == protected, "as it was told"
        assert not any("not protected now" in body for body in screen.bodies())


async def test_a_larger_memory_is_offered_and_given(pocket: Any, tmp_path: Path) -> None:
    first = Settings(model=str(POCKET), budget=128, threads=1, seed=7)
    small = {"opened": lambda: chat_with(pocket, first, tmp_path)}
    async with talking(pocket, tmp_path, (120, 36), (), **small) as screen:
        await screen.opened()
        assert "/budget 512 gives it more." in screen.bodies()[-1]
        await say(screen, CAT)
        assert "was read again" in await say(screen, "/budget 256")


async def test_what_is_protected_is_one_number_everywhere(pocket: Any, tmp_path: Path) -> None:
    talk = ("I am Flora.", CAT, "I have a red bike.", "Do you like films?")
    async with talking(pocket, tmp_path, (120, 36), talk) as screen:
        for index in (0, 2):  # each head has let go of others of their tokens
            told = await say(screen, f"/pin {index + 1}")
            (slots,) = re.findall(r"\. (\d+) slots protected, ", told)
            assert f": {slots} pinned, " in await say(screen, "/stats")
            assert f"pinned {slots} " in page(screen)
            await say(screen, f"/unpin {index + 1}")
        told = await say(screen, f"/pin {len(screen.chat.messages)}")
        (slots,) = re.findall(r"\. (\d+) slots protected \(1 with your next message\), ", told)
        assert f": {int(slots) - 1} pinned, " in await say(screen, "/stats"), "one waits to be read"
