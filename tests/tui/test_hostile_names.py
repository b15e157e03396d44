"""Names of files, models and conversations, and tokens in exports: shown as text wherever they are listed."""

import re
from pathlib import Path
from typing import Any

import pytest
from screens import Screen
from test_hostile import HOSTILE, obeyed  # tests/tui/test_hostile.py
from textual.widgets import OptionList

from h2o_chat.base.config import Sampling, Settings, config_file
from h2o_chat.base.errors import ModelError
from h2o_chat.chat.files.export import file_name
from h2o_chat.store import Conversation, Store, StoredMessage
from h2o_chat.tui.chat_app import ChatApp
from h2o_chat.tui.pane.jobs import Progress
from h2o_chat.tui.prompt.completion_menu import choices
from h2o_chat.tui.prompt.dialogs import Conversations, ModelRow, Models

NAMES = [
    "\x1b[31mred\x1b[0m.txt",
    "\x9b2Jcsi.txt",
    "new\nline.txt",
    "[red]markup[@click=app.quit]x.txt",
    "[bold.txt",
    "\u202eevil.txt",
    "漢字👩‍👩‍👧‍👦.txt",
    "e\u0301" * 40 + ".txt",
    "bell\x07.txt",
]


def harmless(screen: Screen) -> str:
    """The screen, on which nothing would be obeyed, and nothing can be clicked."""
    assert not any(map(obeyed, screen.lines()))
    assert not [look for look in screen.looks() if look.link or "@click" in look.meta]
    return screen.page()


def nothing(progress: Progress) -> Any:
    raise ModelError("No model is opened here.")


async def test_files_are_proposed_by_names_that_can_be_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        Path(name).write_text("x")
    found = choices("look at @", [])
    assert {one.label for one in found} == {name for name in NAMES if not obeyed(name)}
    app = ChatApp(nothing, Settings(), Sampling())
    async with app.run_test(size=(80, 24)) as pilot:
        screen = Screen(app, pilot)
        app.prompt.put("look at @")
        await pilot.pause()
        assert "[red]markup[@click=app.quit]" in harmless(screen)
        app.prompt.put("look at @[red")
        await pilot.pause()
        await pilot.press("tab")
        assert app.prompt.text == "look at @[red]markup[@click=app.quit]x.txt "


async def test_models_of_any_name_are_listed_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    config_file().parent.mkdir(parents=True)
    config_file().write_text('[aliases]\n"za[red]l" = "x"\n"zab \\u001b[31m\\u202e" = "x"\n')
    app = ChatApp(nothing, Settings(), Sampling())
    async with app.run_test(size=(100, 30)) as pilot:
        screen = Screen(app, pilot)
        await pilot.press(*"/model za")
        shown = harmless(screen)
        assert "za[red]l" in shown
        assert "zab" not in shown, "what a terminal would obey is not offered"
        await app.push_screen(Models([ModelRow(text, text) for text in (*HOSTILE.values(), *NAMES)]))
        await screen.until(lambda: app.screen.query(OptionList), "they are listed")
        for _ in range(3):
            await pilot.press("pageup", *["down"] * 9)
            harmless(screen)


async def test_conversations_of_any_title_are_listed_as_text(tmp_path: Path) -> None:
    store = Store(tmp_path)
    said = [StoredMessage(0, None, "user", "hi", None, -1, -1, (), 1.0)]
    store.put(
        [
            Conversation("", title, "m[b]\x1b[1m", {}, 1.0, 1.0, 0, said)
            for title in (*HOSTILE.values(), *NAMES)
        ]
    )
    app = ChatApp(nothing, Settings(), Sampling())
    async with app.run_test(size=(100, 30)) as pilot:
        screen = Screen(app, pilot)
        await app.push_screen(Conversations(store, None, "other"))
        await screen.until(lambda: "held with" in screen.page(), "they are listed")
        for _ in range(4):
            await pilot.press("pagedown")
            await pilot.pause()
            harmless(screen)
        await pilot.press("ctrl+r")
        harmless(screen)
        await pilot.press("escape", "escape")
    store.close()


@pytest.mark.parametrize("name", HOSTILE)
def test_the_name_of_an_export_is_harmless(name: str) -> None:
    talk = Conversation("ab", HOSTILE[name], "", {}, 1.0, 1.0, 1, [])
    assert not re.search(r"[^a-z0-9.\w-]", file_name(talk, "md"))
