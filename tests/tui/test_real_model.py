"""SmolLM2, the model to begin with: it opens, answers, and its first minute shows what it forgets."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from screens import WIDE, Screen
from typer.testing import CliRunner

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.chat.conversation.opening import ConversationPlace, opener
from h2o_chat.chat.conversation.remarks import FIRST_BUDGET, first_budget
from h2o_chat.cli.cli import app
from h2o_chat.models import smollm2
from h2o_chat.tui.chat_app import ChatApp
from h2o_chat.tui.prompt.first_minute import CODE, OFFERS

pytestmark = pytest.mark.real_model


@pytest.fixture(autouse=True)
def here(tmp_path: Path, real_smollm2: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """It lies where `models pull` puts it, in a cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    smollm2.place().parent.mkdir(parents=True)
    smollm2.place().symlink_to(real_smollm2.resolve())
    yield
    shutil.rmtree(tmp_path / "cache")  # its packed weights take 135 MB


def test_it_answers_where_no_model_is_named(tmp_path: Path) -> None:
    asked = ["run", "What is the capital of Germany?", "--temperature", "0", "--data", str(tmp_path / "data")]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.stderr
    assert "Berlin" in done.stdout
    assert "no model was named: smollm2" in done.stderr


async def test_its_first_minute(tmp_path: Path) -> None:
    """Four times enter: it forgets, and what it is asked for is told again."""
    settings = first_budget(Settings(seed=1), ())
    assert settings.budget == FIRST_BUDGET
    opened = opener(settings, ConversationPlace(tmp_path / "data"), named=set())
    chat = ChatApp(opened, settings, Sampling(max_tokens=60), folder=tmp_path / "data")
    async with chat.run_test(size=WIDE) as pilot:
        screen = Screen(chat, pilot)
        await screen.opened()
        assert chat.pane.sampling == Sampling(temperature=0.7, top_p=0.9, min_p=0.05, max_tokens=60)
        for number, (line, _) in enumerate(OFFERS, 1):
            await screen.until(lambda shown=line: shown in chat.prompt.placeholder, line)
            await pilot.press("enter")
            await screen.until(
                lambda many=number: len(screen.chat.messages) == 2 * many and not chat.busy, "it is answered"
            )
        assert screen.chat.state.seen > 2 * settings.budget
        again = [one.words for message in screen.chat.messages for one in message.recalled]
        assert any(CODE in words for words in again)
        await screen.until(lambda: any("h2o-chat -m" in one for one in screen.bodies()), "what to try next")
