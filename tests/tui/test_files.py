"""Files and folders that a person names are read in threads: the screen goes on, whatever does not answer."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from screens import opener

from h2o_chat.base.config import Settings
from h2o_chat.chat.commands.surface import ChatLike
from h2o_chat.tui.pane.jobs import Progress
from h2o_chat.tui.prompt import completion_menu

Drive = Callable[..., Any]


def test_a_folder_that_does_not_answer_keeps_no_key_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "notes.md").touch()
    answers, asked, listed = threading.Event(), list[Path](), Path.iterdir

    def late(folder: Path) -> Any:
        asked.append(folder)
        answers.wait(60)
        return listed(folder)

    monkeypatch.setattr(Path, "iterdir", late)
    began = time.monotonic()
    for _ in range(20):
        assert completion_menu.choices(f"@{tmp_path}/", []) == []
    assert time.monotonic() - began < 20
    assert len(asked) == 1, "it is not asked again before it has answered"
    answers.set()
    completion_menu._unanswered[f"{tmp_path}/"].join()
    assert [one.label for one in completion_menu.choices(f"@{tmp_path}/", [])] == ["notes.md"]


async def test_a_file_is_sent_along_and_what_cannot_be_sent_stands_in_the_box(
    drive: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.md").write_text("Trains run.")
    async with drive("stories3m") as screen:
        await screen.opened()
        await screen.ask("read @missing.md ")
        await screen.until(lambda: "There is no file" in screen.bodies()[-1], "it is said")
        await screen.until(lambda: screen.app.prompt.text == "read @missing.md ", "the text is back")
        await screen.ask("read @notes.md ")
        await screen.until(lambda: screen.chat.messages and not screen.app.busy, "it is answered")
        assert screen.chat.messages[0].text == "notes.md:\n```\nTrains run.\n```\n\nread notes.md "


async def test_what_is_sent_while_the_model_loads_is_read_once(drive: Drive, shared_models: Path) -> None:
    """It was taken for a command the second time."""
    settings = Settings(model=str(shared_models / "stories3m"), budget=64, threads=1, seed=7)
    asked = threading.Event()

    def open_chat(progress: Progress) -> ChatLike:
        asked.wait(60)
        return opener(settings)(progress)

    async with drive("stories3m", open_chat=open_chat) as screen:
        await screen.ask("//quit")
        asked.set()
        await screen.opened()
        await screen.until(lambda: screen.chat.messages and not screen.app.busy, "it is answered")
        assert screen.chat.messages[0].text == "/quit"
