"""Budget, policy and pins, changed while a conversation goes on: what is then said of its messages is true.

As a new user meets them: on the real app, with the model that comes with the program.
"""

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from screens import Drive

CAT = "My cat is called Luna."
LONG = "My cat is called Luna and my locker code is K7Q2."
"""With the template more tokens than may be pinned of a budget of 64."""


async def test_after_another_budget_the_words_of_older_messages_are_known(talk: Drive) -> None:
    async with talk((120, 36), (CAT,)) as screen:
        before = await screen.say("/why Luna")
        luna = screen.app._memory.words.find("Luna")
        token = next(word.first for word in luna if not isinstance(word, int))
        for change in ("/budget 100", "/policy h2o-paper"):
            assert "was read again" in await screen.say(change)
            assert any("Luna" in line and "12 of 12 heads" in line for line in screen.lines()), "listed"
            assert await screen.say("/why Luna") == before.replace("64", "100")
            assert f"@{token} “Luna” #1" in await screen.say(f"/why @{token}")


async def test_a_message_that_cannot_be_said_again_pinned_leaves_the_box_alone(talk: Drive) -> None:
    async with talk((80, 24), (LONG,)) as screen:
        before = screen.chat.messages[:]
        assert "That would protect" in await screen.say("/pin again 1")
        assert screen.app.prompt.text == "", "what is typed next would be sent with it"
        assert screen.app.divider.remark == "nothing has changed"
        assert screen.chat.messages == before
        await screen.say("Hello.")
        assert screen.chat.messages[-2].text == "Hello."


async def test_what_a_policy_does_not_protect_is_said_and_is_protected_again_later(talk: Drive) -> None:
    async with talk((120, 36), (CAT, "I am Flora.")) as screen:
        await screen.say("/budget 512", "/pin 1", "/pin 3")
        protected = screen.chat.engine.protection()[0]
        await screen.say("/policy window")
        told = [body for body in screen.bodies() if "not protected now" in body]
        assert [body[:2] for body in told] == ["#1", "#3"]
        for one in told:
            assert one[2:].startswith(
                " stays pinned, but is not protected now. The policy window protects nothing"
            )
            assert one.endswith("Once it has room, it is protected again.")
        assert screen.chat.engine.protection()[0] == 0
        await screen.say("/policy h2o")
        assert screen.chat.engine.protection()[0] == protected, "as it was told"
        assert not screen.said("not protected now")


async def test_a_larger_memory_is_offered_and_given(talk: Drive) -> None:
    async with talk((120, 36), (), budget=128) as screen:
        await screen.opened()
        assert "/budget 512 gives it more." in screen.bodies()[-1]
        await screen.say(CAT)
        assert "was read again" in await screen.say("/budget 256")


async def test_more_room_says_its_cost_and_can_be_stopped(
    talk: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with talk((120, 36), (CAT,)) as screen:
        await screen.say("word " * 60)
        offer = next(body for body in screen.bodies() if "/budget more" in body)
        (tokens,) = re.findall(r"([\d,]+) tokens again, about \d+ s\.", offer)
        asked = screen.chat.messages[-2]
        assert int(tokens) == asked.last + 1, "what was said before, too"
        seen, messages = screen.chat.engine.seen, list(screen.chat.messages)
        real, engine = screen.chat.engine.remade, screen.chat.engine

        def remade(settings: Any) -> Any:
            made = real(settings)

            def feed_again(*args: Any, cancel: Callable[[], bool], **others: Any) -> bool:
                while not cancel():
                    time.sleep(0.005)
                return False

            made.feed_again = feed_again
            return made

        monkeypatch.setattr(engine, "remade", remade)
        await screen.pilot.press("f3")
        await screen.until(lambda: "esc stops" in screen.app.divider.remark, "it is read again")
        assert re.search(
            rf"{seen} tokens are read again, about \d+ s; keys and values take \d+ KiB; esc",
            screen.bodies()[-1],
        )
        await screen.pilot.press("escape")
        await screen.answered()
        assert "as it was" in screen.bodies()[-1]
        assert (screen.chat.engine, screen.chat.engine.seen) == (engine, seen)
        assert screen.chat.messages == messages
        assert screen.app._memory.session.budget == 64
        assert screen.app._memory.seen == seen


async def test_what_is_protected_is_one_number_everywhere(talk: Drive) -> None:
    said = ("I am Flora.", CAT, "I have a red bike.", "Do you like films?")
    async with talk((120, 36), said) as screen:
        for index in (0, 2):  # each head has let go of others of their tokens
            told = await screen.say(f"/pin {index + 1}")
            (slots,) = re.findall(r"\. (\d+) slots protected, ", told)
            assert f": {slots} pinned, " in await screen.say("/stats")
            assert f"pinned {slots} " in screen.page()
            await screen.say(f"/unpin {index + 1}")
        told = await screen.say(f"/pin {len(screen.chat.messages)}")
        (slots,) = re.findall(r"\. (\d+) slots protected \(1 with your next message\), ", told)
        assert f": {int(slots) - 1} pinned, " in await screen.say("/stats"), "one waits to be read"
