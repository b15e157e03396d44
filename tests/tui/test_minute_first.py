"""The first minute with the bundled model, on the real app: what is offered, marked and said, once."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from screens import WIDE, Screen
from sweep import sweep

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
ONE_SIZE = [(80, 24), *sweep((WIDE,), ((60, 20),))]
"""Where the screen is as wide as most; `make test-all` has the others."""
First = Callable[..., Any]
"""Opens the screen on the bundled model, as the command line does at the first start."""


@pytest.fixture
def first(pocket: Any, tmp_path: Path) -> First:
    from h2o_chat.chat.conversation.chat import Chat
    from h2o_chat.engine.engine import Engine

    @asynccontextmanager
    async def opened(size: tuple[int, int] = WIDE, folder: Path | None = tmp_path) -> AsyncIterator[Screen]:
        settings = first_budget(Settings(model="pocket", threads=1, seed=1), ())
        app = ChatApp(
            lambda _: Chat(Engine(pocket, settings), settings),
            settings,
            Sampling(max_tokens=None),
            folder=folder,
        )
        async with app.run_test(size=size) as pilot:
            screen = Screen(app, pilot)
            await screen.opened()
            yield screen

    return opened


def said(screen: Screen, what: str) -> bool:
    return any(what in body for body in screen.bodies())


def own(screen: Screen) -> list[str]:
    return [message.text for message in screen.chat.messages if message.role == "user"]


def page(screen: Screen) -> str:
    """What is seen, its lines joined, without frames."""
    return " ".join(" ".join(screen.lines()).replace("│", " ").split())


async def take(screen: Screen, number: int) -> None:
    """Enter on an offer, to the end of what it says."""
    shown, _ = OFFERS[number]
    await screen.until(lambda: screen.app.prompt.placeholder == f"{shown} ↵", f"{shown!r} is offered")
    before = len(own(screen))
    await screen.pilot.press("enter")
    await screen.until(
        lambda: len(own(screen)) == before + 1 and not screen.app.busy, f"{shown!r} is answered"
    )


@pytest.mark.parametrize("size", ONE_SIZE)
async def test_four_times_enter_shows_that_the_code_is_known_after_the_small_talk(
    first: First, tmp_path: Path, size: tuple[int, int]
) -> None:
    async with first(size) as screen:
        assert said(screen, TOY)
        assert said(screen, "/budget 512 gives it more")
        await screen.pilot.pause()
        assert "pocket is a toy" in page(screen)
        assert f"{OFFERS[0][0]} ↵" in page(screen)
        assert "enter sends the line shown" in page(screen)
        assert (tmp_path / first_minute.FILE).exists()
        await take(screen, 0)
        await take(screen, 1)
        heat = screen.app.transcript.heat
        assert not heat.on, "nothing is forgotten yet"
        assert not said(screen, MARKS)
        await take(screen, 2)
        assert own(screen)[2:] == [SMALL_TALK]
        assert heat.on
        assert sum(MARKS in body for body in screen.bodies()) == 1, "the marks are explained once"
        assert not said(screen, "h2o-chat models"), "the line on real models comes last"
        await take(screen, 3)
        assert "4821" in screen.chat.messages[-1].text
        assert screen.chat.state.seen > FIRST_BUDGET + 32
        await screen.until(lambda: said(screen, PULL), "the command for a real model is named")
        state = screen.chat.state
        forgotten = f"{state.seen - state.kept} of {state.seen} tokens are forgotten"
        (again,) = screen.chat.messages[-2].recalled
        assert again.words == OFFERS[1][1]
        assert said(screen, f"{forgotten}; the code was recalled.")
        assert PULL in page(screen)
        assert "↵" not in screen.app.prompt.placeholder
    async with first(size) as screen:
        await screen.pilot.pause()
        assert not said(screen, TOY)
        assert screen.app.prompt.placeholder == EMPTY
        await screen.pilot.press("enter")
        assert own(screen) == []
        for _ in range(2):
            await screen.ask(SMALL_TALK)
            await screen.answered()
        assert screen.chat.state.seen > FIRST_BUDGET
        assert not screen.app.transcript.heat.on
        assert not said(screen, MARKS)


async def test_whoever_types_is_left_alone(first: First) -> None:
    async with first() as screen:
        await screen.pilot.press(*"hi", "enter")
        await screen.until(lambda: own(screen) == ["hi"], "what is typed is sent, not what is offered")
        await take(screen, 1)  # nobody who has begun is to give another name
        await screen.ask("I like cats.")
        await screen.answered()
        assert own(screen) == ["hi", OFFERS[1][1], "I like cats."]
        assert screen.app.prompt.placeholder == EMPTY
        await screen.pilot.press("enter")
        assert len(own(screen)) == 3


async def test_what_is_typed_as_it_is_offered_is_not_offered_again(first: First) -> None:
    async with first() as screen:
        await screen.ask(OFFERS[0][1])
        await screen.answered()
        await take(screen, 1)
        assert own(screen) == [OFFERS[0][1], OFFERS[1][1]]


async def test_another_conversation_has_no_offers(first: First) -> None:
    async with first() as screen:
        await take(screen, 0)
        await screen.pilot.press("ctrl+n", "ctrl+n")
        await screen.until(lambda: not screen.chat.messages, "another has begun")
        assert screen.app.prompt.placeholder == EMPTY
        assert not said(screen, TOY)


async def test_with_nothing_stored_nothing_is_offered(first: First) -> None:
    async with first(folder=None) as screen:
        assert not said(screen, TOY)
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
