"""The colours: readable in every theme of our own, for eyes that see fewer of them, and remembered."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from screens import RECORDING, Screen, replayed
from sweep import sweep
from textual.color import Color
from textual.theme import BUILTIN_THEMES, Theme

from h2o_chat.base import precedence
from h2o_chat.base.config import Look, Sampling, Settings, config_file
from h2o_chat.cli import config_command
from h2o_chat.tui.chat_app import ChatApp
from h2o_chat.tui.pane.jobs import Progress
from h2o_chat.tui.widgets.theme import H2O_ANSI, H2O_DARK, H2O_LIGHT, ramp, variables

# Machado, Oliveira, Fernandes: A physiologically-based model for simulation of color vision deficiency, 2009.
EYES = {
    "all colours": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "no green": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.01182, 0.04294, 0.968881),
    ),
    "no blue": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.3039),
    ),
}


def linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4


def luminance(color: Color, eye: str = "all colours") -> float:
    """Relative, as WCAG 2 has it, of the colour that such an eye sees."""
    light = [linear(channel) for channel in color.normalized]
    seen = [sum(a * b for a, b in zip(row, light, strict=True)) for row in EYES[eye]]
    return sum(share * max(one, 0.0) for share, one in zip((0.2126, 0.7152, 0.0722), seen, strict=True))


def contrast(one: Color, other: Color) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [H2O_DARK, H2O_LIGHT], ids=lambda theme: theme.name)
def test_the_heat_is_an_order_of_brightness_on_which_words_can_be_read(theme: Theme) -> None:
    assert theme.background
    ground = Color.parse(theme.background)
    pairs = [(Color.parse(word), Color.parse(behind)) for word, behind in ramp(theme)]
    assert len(pairs) == 8
    for word, behind in pairs:
        assert contrast(word, behind) >= 4.5
    for eye in EYES:
        steps = [luminance(color, eye) for color in (ground, *(behind for _, behind in pairs))]
        if not theme.dark:
            steps = [-step for step in steps]
        assert all(b > a for a, b in pairwise(steps)), eye
    assert contrast(pairs[-1][1], ground) > 4.5


@pytest.mark.parametrize("theme", [H2O_ANSI, *(BUILTIN_THEMES[name] for name in ("ansi-dark", "ansi-light"))])
def test_a_terminal_of_sixteen_colours_gets_no_others(theme: Theme) -> None:
    own = variables(theme)
    assert all(color.startswith("ansi_") for color in own.values())
    steps = ramp(theme)
    assert [steps[at] == steps[at + 1] for at in range(7)] == [True, False] * 3 + [True]
    assert len(set(steps)) == 4
    assert all(word != ground or word == "ansi_default" for word, ground in steps)


@pytest.mark.parametrize("theme", [H2O_DARK, H2O_LIGHT], ids=lambda theme: theme.name)
def test_what_is_said_can_be_read(theme: Theme) -> None:
    assert theme.background
    assert theme.panel
    own = variables(theme)
    colors = theme.to_color_system().generate() | own
    for name, least in (
        *(("foreground", 7.0), ("primary", 4.5), ("secondary", 4.5), ("accent", 4.5), ("error", 4.5)),
        *(("muted", 4.5), ("gone", 3.0), ("success", 4.5)),
    ):
        for ground in map(Color.parse, (theme.background, theme.panel)):
            assert contrast(ground + Color.parse(colors[name]), ground) >= least, name
    assert contrast(Color.parse(own["found"]), Color.parse(own["found-ground"])) >= 7


def unreadable(screen: Screen) -> list[str]:
    """Words on the screen in the colour of their ground."""
    strips = screen.app.screen._compositor.render_strips()
    return [
        segment.text
        for strip in strips
        for segment in strip
        if (style := segment.style) and style.color and style.color == style.bgcolor
        if not style.color.is_default and any(map(str.isalnum, segment.text))
    ]


@pytest.mark.parametrize("no_color", [False, *sweep(True)])
async def test_every_theme_there_is_shows_every_word(no_color: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "")
    async with replayed(RECORDING) as screen:
        app, pilot = screen.app, screen.pilot
        await pilot.press("ctrl+t")
        await screen.until(lambda: not app.divider.remark, "what was said of the heat has gone")
        words = screen.lines()
        for name in sorted(app.available_themes, reverse=True):
            app.theme = name
            await pilot.pause()
            assert screen.lines() == words, name
            assert unreadable(screen) == [], name
            looks = screen.looks()
            colors = {color for look in looks for color in (look.color, look.bgcolor) if color}
            if app.current_theme.ansi:
                assert all(color.triplet is None for color in colors), name
            if no_color:
                assert all(color.is_default or len(set(color.get_truecolor())) == 1 for color in colors), name
            assert any(look.strike for look in looks), "what is gone is struck through"


# What was chosen is remembered


def nothing_to_open(progress: Progress) -> Any:
    raise RuntimeError("these tests open no model")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return config_file()


def started() -> ChatApp:
    """The app that the command line starts."""
    keep = config_command.change
    return ChatApp(nothing_to_open, Settings(), Sampling(), look=precedence.look(), keep_look=keep)


async def test_quiet_leaves_the_conversation_alone_and_is_remembered(file: Path) -> None:
    app = started()
    async with app.run_test(size=(120, 36)) as pilot:
        shown = {"panel": True, "strip": True}
        assert {name: app.query_one(f"#{name}").display for name in shown} == shown
        app.transcript.toggle_heat()
        await pilot.press(*"/quiet", "enter")
        await pilot.pause()
        assert not any(app.query_one(f"#{name}").display for name in ("panel", "strip", "line"))
        assert app.transcript.heat.quiet
        assert not app.transcript.heat.on
    assert "quiet = true" in file.read_text()
    app = started()
    async with app.run_test(size=(90, 36)) as pilot:
        assert not any(app.query_one(f"#{name}").display for name in ("panel", "strip", "line"))
        await pilot.press("ctrl+b")
        await pilot.pause()
        assert app.query_one("#line").display
        assert not app.transcript.heat.quiet
    assert precedence.look().quiet is False


async def test_the_choice_survives_a_restart(file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_text("# mine\n[defaults]\nbudget = 77  # enough\n")
    app = started()
    async with app.run_test() as pilot:
        assert app.theme == Look.theme == H2O_DARK.name
        await pilot.press(*"/theme h2o-light", "enter")
        await pilot.pause()
        assert app.theme == H2O_LIGHT.name
    assert file.read_text() == '# mine\n[defaults]\nbudget = 77  # enough\ntheme = "h2o-light"\n'
    app = started()
    async with app.run_test() as pilot:
        assert app.theme == H2O_LIGHT.name
        await pilot.press(*"/theme h2o-a", "enter", "enter")  # the menu completes it
        await Screen(app, pilot).until(lambda: app.theme == H2O_ANSI.name, "it was chosen there")
    assert precedence.look().theme == H2O_ANSI.name
    app = started()
    async with app.run_test() as pilot:
        await pilot.pause()
        assert app.theme == H2O_ANSI.name
        assert file.read_text().count("theme") == 1


async def test_a_theme_that_is_not_there_and_a_file_that_cannot_be_written(file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_text('[defaults]\ntheme = "[$error]no \\u001b"\n')
    app = started()
    async with app.run_test() as pilot:
        await pilot.pause()
        assert app.theme == H2O_DARK.name
        assert [one.message for one in app._notifications] == ["There is no theme '[$error]no \\x1b'."]
        file.write_text("no TOML")
        app.theme = "nord"
        await pilot.pause()
        assert app.theme == "nord", "it is on, if not for good"
        assert "It is a TOML file" in [one.message for one in app._notifications][-1]
    assert file.read_text() == "no TOML"
