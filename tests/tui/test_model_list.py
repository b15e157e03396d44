"""Models that have to be fetched, in the real app, from a stand-in hub on the loopback."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hub_server import Hub, Repository, serve
from huggingface_hub import constants
from screens import Drive
from storing import created
from textual.widgets import Input

from h2o_chat.store import Store
from h2o_chat.tui.prompt.completion_menu import choices

pytestmark = pytest.mark.loopback


LARGE_BYTES = 13_500_000_000


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub from which the program fetches."""
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    with serve() as found:
        monkeypatch.setattr(constants, "ENDPOINT", found.url)
        template = found.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield found


def test_the_menu_begins_with_models_that_are_here_by_any_part_of_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used, beside = tmp_path / "models" / "Qwen9-1b-q4.gguf", tmp_path / "models" / "qwen9-7b-q4.gguf"
    used.parent.mkdir()
    for file in (used, beside):
        file.write_bytes(b"GGUF")
    with closing(Store(tmp_path)) as store:
        created(store, "qwen9-1b", {"model": str(used)})
    names = [one.text for one in choices("/model ", [], tmp_path)]
    assert names[:2] == [str(used), str(beside)]
    assert len(names) > 20, "those that can be had follow"
    assert [one.label for one in choices("/model n9-7", [], tmp_path)] == [beside.name]
    typed = f"/model {used.parent}/Q"
    assert [typed[: one.begin] + one.text for one in choices(typed, [], tmp_path)] == [f"/model {used}"]
    monkeypatch.chdir(tmp_path)
    assert [one.text for one in choices("/model models/Q", [], tmp_path)] == [f"models/{used.name}"]
    assert all(one.final == (one.text in names[:2]) for one in choices("/model qwen", [], tmp_path))


async def test_a_folder_lists_its_gguf_files(talk: Drive, tmp_path: Path) -> None:
    for name in ("b.gguf", "a.gguf", "notes.txt"):
        (tmp_path / name).write_bytes(b"GGUF")
    async with talk((100, 30)) as screen:
        await screen.ask("/model")
        await screen.until(lambda: len(screen.app.screen_stack) == 2, "the list is open")
        screen.app.screen.query_one(Input).value = str(tmp_path)
        await screen.until(lambda: "a.gguf" in screen.page(), "its files are listed")
        assert "b.gguf" in screen.page()
        assert "notes.txt" not in screen.page()


async def test_enter_twice_agrees_to_a_download(talk: Drive) -> None:
    async with talk((100, 30)) as screen:
        await screen.ask("/model")
        await screen.until(lambda: len(screen.app.screen_stack) == 2, "the list is open")
        screen.app.screen.query_one(Input).value = "qwen2.5-0.5b"
        await screen.until(lambda: "to fetch" in screen.page(), "it is not here")
        await screen.pilot.press("enter")
        assert "enter again fetches qwen2.5-0.5b" in screen.page()
        await screen.pilot.press("enter")
        await screen.until(lambda: len(screen.app.screen_stack) == 1, "it was chosen")


@pytest.fixture
def files(shared_models: Path) -> dict[str, bytes]:
    """A model as a repository has it."""
    return {path.name: path.read_bytes() for path in (shared_models / "stories3m").iterdir()}


async def test_a_download_is_shown_stopped_and_goes_on_from_the_list(
    switching: Drive, hub: Hub, files: dict[str, bytes]
) -> None:
    hub.repositories["some/stories"] = Repository(files, seconds_per_mib=0.3)
    async with switching("some/stories") as screen:
        app, pilot = screen.app, screen.pilot
        await screen.until(lambda: "MB/s" in screen.bodies()[0], "bytes and rate are shown")
        assert "MB of" in screen.bodies()[0]
        await pilot.press("escape")
        await screen.until(lambda: "✗ download" in screen.bodies()[0], "it is stopped")
        assert app.chat is None

        hub.repositories["some/stories"].seconds_per_mib = 0
        await screen.ask("/model")
        await screen.until(lambda: "in part" in screen.page(), "it is listed")
        await pilot.press(*"stories", "enter")
        await screen.opened()
        await screen.answered()
        assert hub.downloads("model.safetensors")[-1].startswith("bytes="), "the rest, not all of it"
        await screen.say("Once")
        assert len(screen.chat.messages) == 2

        told = await screen.say("/model some/other")
        assert "No model 'some/other' on the hub" in told
        assert "→" in told
        assert len(screen.chat.messages) == 2, "the app stays as it was"
        assert app.exit_code == 0


async def test_a_large_model_is_fetched_once_its_size_was_told(
    switching: Drive, hub: Hub, files: dict[str, bytes], shared_models: Path, tmp_path: Path
) -> None:
    """By `/model NAME` it was fetched, however large, while `--model NAME` asks."""
    if shutil.disk_usage(tmp_path).free < LARGE_BYTES + (1 << 30):
        pytest.skip("the disk has no room for what is claimed")
    hub.repositories["some/small"] = Repository(files)
    hub.repositories["some/large"] = Repository(files, sizes={"model.safetensors": LARGE_BYTES})
    async with switching(str(shared_models / "stories260k")) as screen:
        await screen.opened()
        await screen.say("/model some/large")
        told = " ".join(screen.bodies()[-1].split())
        assert "some/large is not here: 13.5 GB are to be fetched into" in told
        assert "/model some/large --yes fetches it." in told
        assert hub.downloads("model.safetensors") == []
        await screen.say("Once")
        assert len(screen.chat.messages) == 2, "the app stays as it was"

        await screen.say("/model some/large --yes")
        assert hub.downloads("model.safetensors") != [], "that the hub lied about its size is told"
        assert "fetches it" not in screen.bodies()[-1]

        await screen.ask("/model some/small")
        await screen.until(lambda: "some/small" in screen.chat.session.model, "it is open")
