"""Models that have to be fetched, in the real app, from a stand-in hub on the loopback."""

from pathlib import Path

import pytest
from hub_server import Repository, serve
from huggingface_hub import constants
from screens import WIDE, Screen

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.chat.opening import Kept, opener, opener_of
from h2o_chat.tui.app import ChatApp

pytestmark = pytest.mark.loopback


async def test_a_download_is_shown_stopped_and_goes_on_from_the_list(
    shared_models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve() as hub:
        files = {path.name: path.read_bytes() for path in (shared_models / "stories3m").iterdir()}
        hub.repositories["some/stories"] = Repository(files, seconds_per_mib=0.3)
        monkeypatch.delenv("HF_HUB_OFFLINE")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)

        settings = Settings(model="some/stories", budget=64, threads=1, seed=7)
        kept = Kept(tmp_path / "data")
        app = ChatApp(
            opener(settings, kept), settings, Sampling(max_tokens=5), opener_of=opener_of(settings, kept)
        )
        async with app.run_test(size=WIDE) as pilot:
            screen = Screen(app, pilot)
            await screen.until(lambda: "MB/s" in screen.bodies()[0], "bytes and rate are shown")
            assert "MB of" in screen.bodies()[0]
            await pilot.press("escape")
            await screen.until(lambda: "✗ download" in screen.bodies()[0], "it is stopped")
            assert app.chat is None

            hub.repositories["some/stories"].seconds_per_mib = 0
            await screen.ask("/model")
            await screen.until(lambda: "in part" in "\n".join(screen.lines()), "it is listed")
            await pilot.press(*"stories", "enter")
            await screen.opened()
            await screen.answered()
            assert hub.downloads("model.safetensors")[-1].startswith("bytes="), "the rest, not all of it"
            await screen.ask("Once")
            await screen.answered()
            assert len(screen.chat.messages) == 2

            await screen.ask("/model some/other")
            await screen.answered()
            assert "No model 'some/other' on the hub" in screen.bodies()[-1]
            assert "→" in screen.bodies()[-1]
            assert len(screen.chat.messages) == 2, "the app stays as it was"
            assert app.exit_code == 0
