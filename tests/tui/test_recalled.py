"""Words that were recalled stand at the head of the question, live and when it is opened again."""

from pathlib import Path
from typing import Any

import pytest
from screens import POCKET, Drive
from typed import Held

from h2o_chat.base.config import Sampling
from h2o_chat.chat.commands import bodies
from h2o_chat.chat.recall import recall
from h2o_chat.tui.transcript import drawing

FACT = "My dog is called Rexo."
TALK = (
    "I went to the market and bought apples, pears, plums and a big bag of rice for the whole week.",
    "Then an old friend told me a long story about his holiday in the mountains with snow and rain.",
    "The weather will be fine tomorrow, with some clouds in the morning and sun in the afternoon.",
)


def head(screen: Any, index: int) -> str:
    return drawing.title(screen.app.transcript.messages.by_index[index], 60, 12).plain


async def test_a_question_for_what_is_gone_says_what_was_recalled(drive: Drive) -> None:
    async with drive(str(POCKET), (100, 30), budget=48, sampling=Sampling(max_tokens=8)) as screen:
        await screen.say(FACT, *TALK, "What is my dog called?")
        assert head(screen, 8).startswith("#9 you · recalled #1")
        view = screen.app.transcript.messages.by_index[8]
        view.branch = (4, 4)  # where both do not fit, the gauge goes
        assert drawing.title(view, 50, 12).plain == "#9 you ‹4/4› · recalled #1"
        view.branch = None
        assert any(f"#1 “{FACT}” recalled" in " ".join(body.split()) for body in screen.bodies())
        await screen.ask("/recall apples")
        await screen.say("Tell me more.")
        assert head(screen, 10).startswith("#11 you · recalled #3")
        await screen.ask("/set recall off")
        await screen.say("What is my dog called?")
        assert "recalled" not in head(screen, 12)


async def test_what_was_recalled_for_a_question_that_is_stopped_goes_with_it(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with drive(str(POCKET), (100, 30), budget=48, sampling=Sampling(max_tokens=8)) as screen:
        await screen.say(FACT, *TALK)
        before = screen.bodies()
        Held(screen, monkeypatch, tokens=0)
        await screen.ask("What is my dog called?")
        await screen.until(lambda: "recalled" in " ".join(screen.bodies()), "it is recalled")
        await screen.ask("/stats")
        await screen.pilot.press("escape")
        await screen.answered()
        assert screen.bodies()[:-1] == before
        assert "KV heads" in screen.bodies()[-1], "what was asked for meanwhile stays"


@pytest.mark.parametrize("most", [400, 10])
async def test_what_was_recalled_stands_there_again_when_it_is_opened(
    drive: Drive, tmp_path: Path, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the piece closest to the answer, where all are too much for a note."""
    monkeypatch.setattr(recall, "NOTE_CHARACTERS", most)
    small = Sampling(max_tokens=8)
    async with drive(str(POCKET), (100, 30), budget=48, sampling=small, folder=tmp_path) as screen:
        await screen.say(FACT, *TALK, "What is my dog called?")
        conversation = screen.chat.keeper.conversation
        await screen.pilot.press("ctrl+n")
        await screen.until(lambda: not screen.chat.messages, "another one")
        bodies.open_conversation(screen.app.pane, conversation)
        await screen.until(lambda: len(screen.chat.messages) > 8, "it is open")
        await screen.answered()
        wanted = f"#1 “{FACT}” recalled" if most > len(FACT) else f"Closest to this answer: #1 “{FACT}”"
        assert any(wanted in " ".join(body.split()) for body in screen.bodies())
