"""Models that have to be fetched, in the real app, from a stand-in hub on the loopback."""

import shutil
from pathlib import Path

import pytest
from hub_server import Hub, Repository, serve
from huggingface_hub import constants
from screens import WIDE, Screen

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.chat.conversation.opening import ConversationPlace, opener, opener_of
from h2o_chat.tui.chat_app import ChatApp

pytestmark = pytest.mark.loopback


LARGE_BYTES = 13_500_000_000


def ask_it(hub: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program fetches from this hub, into this folder."""
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)


async def test_a_download_is_shown_stopped_and_goes_on_from_the_list(
    shared_models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve() as hub:
        files = {path.name: path.read_bytes() for path in (shared_models / "stories3m").iterdir()}
        hub.repositories["some/stories"] = Repository(files, seconds_per_mib=0.3)
        ask_it(hub, tmp_path / "hub", monkeypatch)
        settings = Settings(model="some/stories", budget=64, threads=1, seed=7)
        kept = ConversationPlace(tmp_path / "data")
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


async def test_a_large_model_is_fetched_once_its_size_was_told(
    shared_models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `/model NAME` it was fetched, however large, while `--model NAME` asks."""
    if shutil.disk_usage(tmp_path).free < LARGE_BYTES + (1 << 30):
        pytest.skip("the disk has no room for what is claimed")
    with serve() as hub:
        files = {path.name: path.read_bytes() for path in (shared_models / "stories3m").iterdir()}
        hub.repositories["some/small"] = Repository(files)
        hub.repositories["some/large"] = Repository(files, sizes={"model.safetensors": LARGE_BYTES})
        ask_it(hub, tmp_path / "hub", monkeypatch)
        settings = Settings(model=str(shared_models / "stories260k"), budget=64, threads=1, seed=7)
        kept = ConversationPlace(tmp_path / "data")
        app = ChatApp(
            opener(settings, kept), settings, Sampling(max_tokens=5), opener_of=opener_of(settings, kept)
        )
        async with app.run_test(size=WIDE) as pilot:
            screen = Screen(app, pilot)
            await screen.opened()
            await screen.ask("/model some/large")
            await screen.answered()
            told = " ".join(screen.bodies()[-1].split())
            assert "some/large is not here: 13.5 GB are to be fetched into" in told
            assert "/model some/large --yes fetches it." in told
            assert hub.downloads("model.safetensors") == []
            await screen.ask("Once")
            await screen.answered()
            assert len(screen.chat.messages) == 2, "the app stays as it was"

            await screen.ask("/model some/large --yes")
            await screen.answered()
            assert hub.downloads("model.safetensors") != [], "that the hub lied about its size is told"
            assert "fetches it" not in screen.bodies()[-1]

            await screen.ask("/model some/small")
            await screen.until(lambda: "some/small" in screen.chat.session.model, "it is open")
