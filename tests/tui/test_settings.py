"""The settings, changed through their fields while a conversation goes on, on a real small model."""

import re
from typing import Any

import pytest
from screens import SMALL, WIDE, Drive, Screen
from textual.widgets import Input, Select, Static

from h2o_chat.base.config import CHOSEN, Sampling
from h2o_chat.chat.commands import settable
from h2o_chat.tui.prompt.settings_screen import GROUPS, HELP, SettingsScreen


def field(screen: Screen, name: str) -> Any:
    return screen.app.screen.query_one(f"#{name}")


def said(screen: Screen, name: str) -> str:
    """The remark beside a field."""
    return str(screen.app.screen.query_one(f"#remark-{name}", Static).content)


async def type_into(screen: Screen, name: str, text: str) -> None:
    field(screen, name).focus()
    await screen.pilot.press("end", "ctrl+u", *text)


def is_open(screen: Screen) -> bool:
    """Whether the settings are shown."""
    return isinstance(screen.app.screen, SettingsScreen)


async def opened(screen: Screen) -> None:
    await screen.pilot.press("f2")
    await screen.until(lambda: is_open(screen), "the settings are shown")


def test_every_setting_has_a_field_and_its_meaning() -> None:
    assert [name for names in GROUPS.values() for name in names] == [*settable.SETTABLE, "theme"]
    assert HELP.keys() == {*settable.SETTABLE, "theme"}
    assert all(
        settable.read(name, one) is not None for name, known in settable.CHOICES.items() for one in known
    )
    assert all(settable.read(name, example) is not None for name, (_, example) in settable.HELP.items())


async def test_a_setting_without_a_value_or_with_a_wrong_one_says_how_it_is_typed(stored: Drive) -> None:
    async with stored() as screen:
        for typed in ("/set max_tokens", "/set max-tokens many", "/set max_tokens 0"):
            told = await screen.say(typed)
            assert "24" in told, "the present value"
            (command,) = re.findall(r"/set max_tokens \S+", told)
            screen.app.prompt.clear()
        assert "max_tokens = 2000" in await screen.say(command)
        told = await screen.say("/set recall")
        assert all(one in told for one in settable.CHOICES["recall"])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0.7),
        ("stop", ("###", 'a "b"', "ü")),
        ("stop", ()),
        ("ignore_eos", True),
        ("max_tokens", None),
        ("recent", 0),
    ],
)
def test_a_value_is_typed_as_it_is_read(name: str, value: Any) -> None:
    assert settable.read(name, settable.typed(value)) == value


async def test_what_is_changed_holds_after_one_key(stored: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    async with stored(sampling=Sampling(max_tokens=8)) as screen:
        await screen.say("My name is Flora.")
        seen, built = screen.chat.engine.seen, []
        real = screen.chat.engine.remade

        def remade(settings: Any) -> Any:
            built.append(settings)
            return real(settings)

        monkeypatch.setattr(screen.chat.engine, "remade", remade)
        await opened(screen)
        assert field(screen, "budget").value == "48"
        await type_into(screen, "temperature", "0.7")
        await type_into(screen, "max_tokens", "")
        await type_into(screen, "budget", "32")
        field(screen, "policy").focus()
        await screen.pilot.press("enter", *"window", "enter")
        assert field(screen, "policy").value == "window"
        field(screen, "kv_dtype").value = "int8"
        await screen.pilot.press("ctrl+s")
        await screen.answered()
        await screen.until(lambda: screen.chat.session.budget == 32, "the memory is another one")
        session, sampling = screen.chat.session, screen.app.pane.sampling  # type: ignore[attr-defined]
        assert (session.policy, session.kv_dtype) == ("window", "int8")
        assert (sampling.temperature, sampling.max_tokens) == (0.7, None)
        assert len(built) == 1, "it was read again once, whatever was changed"
        assert screen.chat.engine.seen == seen
        assert screen.chat.engine.cache.most_kept <= 32
        assert screen.app.prompt.has_focus
        assert screen.said("temperature = 0.7, max_tokens = none")


async def test_what_is_wrong_is_said_beside_its_field(stored: Drive) -> None:
    async with stored(SMALL) as screen:
        before = settable.values(screen.chat, screen.app.pane.sampling)
        await opened(screen)
        await type_into(screen, "top_p", "3")
        assert "It must be in (0, 1]" in said(screen, "top_p")
        await type_into(screen, "budget", "1[$error]")
        assert "It must be a whole number" in said(screen, "budget")
        await screen.pilot.press("enter")
        assert is_open(screen), "nothing holds as long as something is wrong"
        assert field(screen, "top_p").has_focus
        await type_into(screen, "top_p", "0.9")
        assert said(screen, "top_p") == HELP["top_p"]
        await type_into(screen, "budget", "15")
        assert "16 or more" in said(screen, "budget")
        await type_into(screen, "budget", "16")
        assert said(screen, "budget") == HELP["budget"], "alone it could be"
        await type_into(screen, "sinks", "20")
        await screen.pilot.press("enter")
        assert "smallest budget that works here is" in said(screen, "budget")
        assert field(screen, "budget").has_focus
        assert settable.values(screen.chat, screen.app.pane.sampling) == before
        await screen.pilot.press("up", "down", "escape")
        assert not is_open(screen)
        assert settable.values(screen.chat, screen.app.pane.sampling) == before


async def test_what_cannot_be_built_again_is_said_there_too(drive: Drive) -> None:
    async with drive("stories3m", WIDE, sampling=Sampling(max_tokens=5)) as screen:
        await screen.say("Once")
        await screen.ask("/set")
        await screen.until(lambda: is_open(screen), "the command shows them")
        await type_into(screen, "recent", "5")
        await screen.pilot.press("ctrl+s")
        assert "not stored" in said(screen, "recent")
        await type_into(screen, "recent", "")
        field(screen, "theme").value = "nord"
        await screen.pilot.press("ctrl+s")
        await screen.until(lambda: screen.app.theme == "nord", "the colours are other ones")
        await screen.pilot.press("f2")
        await screen.until(lambda: is_open(screen), "so does the key")
        assert all(isinstance(field(screen, name), Input | Select) for name in HELP)


async def test_a_policy_to_compare_with_is_offered_only_where_it_is_on(stored: Drive) -> None:
    async with stored(SMALL, policy="lru") as screen:
        await opened(screen)
        select = field(screen, "policy")
        assert [value for _, value in select._options] == [*CHOSEN, "lru"]
        assert select.value == "lru"
