"""Budget, policy and pins, changed while a conversation goes on: what is then said of its messages is true.

As a new user meets them: on the real app, with the model that comes with the program.
"""

from pathlib import Path
from typing import Any

from screens import Screen
from typed import talking

CAT = "My cat is called Luna."


async def say(screen: Screen, *texts: str) -> str:
    """Sends them; the last that stands in the transcript then."""
    for text in texts:
        await screen.ask(text)
        await screen.answered()
    return screen.bodies()[-1]


async def test_after_another_budget_the_words_of_older_messages_are_known(
    pocket: Any, tmp_path: Path
) -> None:
    async with talking(pocket, tmp_path, (120, 36), (CAT,)) as screen:
        before = await say(screen, "/why Luna")
        luna = screen.app._memory.words.find("Luna")
        token = next(word.first for word in luna if not isinstance(word, int))
        for change in ("/budget 100", "/policy h2o-paper"):
            assert "was read again" in await say(screen, change)
            assert any("Luna" in line and "12 of 12 heads" in line for line in screen.lines()), "listed"
            assert await say(screen, "/why Luna") == before.replace("64", "100")
            assert f"@{token} “Luna” #1" in await say(screen, f"/why @{token}")
