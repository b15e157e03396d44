"""The first minute with the bundled model, on the real app: what is offered, marked and said, once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from screens import WIDE, Drive, Screen, chat_of
from typed import ONE_SIZE

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import ModelError
from h2o_chat.chat.conversation.remarks import FIRST_BUDGET, FIRST_MODELS, first_budget
from h2o_chat.models.resolve import BUNDLED
from h2o_chat.models.smollm2 import PULL
from h2o_chat.tui.chat_app import ChatApp
from h2o_chat.tui.prompt import first_minute
from h2o_chat.tui.prompt.first_minute import MARKS, OFFERS, SMALL_TALK, real_model
from h2o_chat.tui.prompt.prompt_box import EMPTY

TOY = FIRST_MODELS["pocket"]


@pytest.fixture
def first(pocket: Any, tmp_path: Path) -> Drive:
    """Opens the screen on the bundled model, as the command line does at the first start."""

    @asynccontextmanager
    async def opened(size: tuple[int, int] = WIDE, folder: Path | None = tmp_path) -> AsyncIterator[Screen]:
        settings = first_budget(Settings(model="pocket", threads=1, seed=1), ())
        sampling = Sampling(max_tokens=None)
        app = ChatApp(lambda _: chat_of(pocket, settings), settings, sampling, folder=folder)
        async with app.run_test(size=size) as pilot:
            screen = Screen(app, pilot)
            await screen.opened()
            yield screen

    return opened


def page(screen: Screen) -> str:
    """The lines that are seen, joined, without frames."""
    return " ".join(" ".join(screen.lines()).replace("│", " ").split())


async def take(screen: Screen, number: int) -> None:
    """Enter on an offer, to the end of what it says."""
    shown, _ = OFFERS[number]
    await screen.until(lambda: screen.app.prompt.placeholder == f"{shown} ↵", f"{shown!r} is offered")
    before = len(screen.own())
    await screen.pilot.press("enter")
    await screen.until(
        lambda: len(screen.own()) == before + 1 and not screen.app.busy, f"{shown!r} is answered"
    )


@pytest.mark.parametrize("size", ONE_SIZE)
async def test_four_times_enter_shows_that_the_code_is_known_after_the_small_talk(
    first: Drive, tmp_path: Path, size: tuple[int, int]
) -> None:
    async with first(size) as screen:
        assert screen.said(TOY)
        assert screen.said("/budget 512 gives it more")
        await screen.pilot.pause()
        assert "pocket is a toy" in page(screen)
        assert f"{OFFERS[0][0]} ↵" in page(screen)
        assert "enter sends the line shown" in page(screen)
        assert (tmp_path / first_minute.FILE).exists()
        await take(screen, 0)
        await take(screen, 1)
        heat = screen.app.transcript.heat
        assert not heat.on, "nothing is forgotten yet"
        assert not screen.said(MARKS)
        await take(screen, 2)
        assert screen.own()[2:] == [SMALL_TALK]
        assert heat.on
        assert sum(MARKS in body for body in screen.bodies()) == 1, "the marks are explained once"
        assert not screen.said("h2o-chat models"), "the line on real models comes last"
        await take(screen, 3)
        assert "4821" in screen.chat.messages[-1].text
        assert screen.chat.state.seen > FIRST_BUDGET + 32
        await screen.until(lambda: screen.said(PULL), "the command for a real model is named")
        state = screen.chat.state
        forgotten = f"{state.seen - state.kept} of {state.seen} tokens are forgotten"
        (again,) = screen.chat.messages[-2].recalled
        assert again.words == OFFERS[1][1]
        assert screen.said(f"{forgotten}; the code was recalled.")
        assert PULL in page(screen)
        assert "↵" not in screen.app.prompt.placeholder
    async with first(size) as screen:
        await screen.pilot.pause()
        assert not screen.said(TOY)
        assert screen.app.prompt.placeholder == EMPTY
        await screen.pilot.press("enter")
        assert screen.own() == []
        for _ in range(2):
            await screen.say(SMALL_TALK)
        assert screen.chat.state.seen > FIRST_BUDGET
        assert not screen.app.transcript.heat.on
        assert not screen.said(MARKS)


async def test_whoever_types_is_left_alone(first: Drive) -> None:
    async with first() as screen:
        await screen.pilot.press(*"hi", "enter")
        await screen.until(lambda: screen.own() == ["hi"], "what is typed is sent, not what is offered")
        await take(screen, 1)  # nobody who has begun is to give another name
        await screen.say("I like cats.")
        assert screen.own() == ["hi", OFFERS[1][1], "I like cats."]
        assert screen.app.prompt.placeholder == EMPTY
        await screen.pilot.press("enter")
        assert len(screen.own()) == 3


async def test_what_is_typed_as_it_is_offered_is_not_offered_again(first: Drive) -> None:
    async with first() as screen:
        await screen.say(OFFERS[0][1])
        await take(screen, 1)
        assert screen.own() == [OFFERS[0][1], OFFERS[1][1]]


async def test_another_conversation_has_no_offers(first: Drive) -> None:
    async with first() as screen:
        await take(screen, 0)
        await screen.pilot.press("ctrl+n", "ctrl+n")
        await screen.until(lambda: not screen.chat.messages, "another has begun")
        assert screen.app.prompt.placeholder == EMPTY
        assert not screen.said(TOY)


async def test_with_nothing_stored_nothing_is_offered(first: Drive) -> None:
    async with first(folder=None) as screen:
        assert not screen.said(TOY)
        assert screen.app.prompt.placeholder == EMPTY


@pytest.mark.parametrize("model", [None, "pocket", str(BUNDLED[1])])
def test_the_bundled_model_opens_with_a_small_budget(model: str | None) -> None:
    assert first_budget(Settings(model=model), ()).budget == FIRST_BUDGET


@pytest.mark.parametrize("named", ["budget", "policy", "sinks", "recent", "chunk", "prefill", "system"])
def test_what_was_named_about_the_memory_is_kept(named: str) -> None:
    settings = Settings(budget=300)
    assert first_budget(settings, {named, "seed"}) is settings


def test_other_models_keep_the_usual_budget(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert first_budget(Settings(model=str(tmp_path)), ()).budget == 512
    with pytest.raises(ModelError):
        first_budget(Settings(model="no-such-model"), ())


@pytest.mark.parametrize(
    ("gib", "named"),
    [
        (64, "qwen2.5-3b-instruct"),
        (4, "qwen2.5-1.5b-instruct"),
        (2, "qwen2.5-0.5b-instruct"),
        (0.1, "models"),
    ],
)
def test_a_real_model_is_named_that_fits(gib: float, named: str) -> None:
    assert real_model(int(gib * 2**30))[1].endswith(named)
