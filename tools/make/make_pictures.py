"""Makes the picture of the README from the running app: the first minute with the bundled model.

    python tools/make/make_pictures.py

writes assets/screen-120x36.svg: the screen of `make chat` after the four lines that it offers.
"""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from textual.pilot import Pilot

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.chat.conversation.opening import ConversationPlace, opener
from h2o_chat.chat.conversation.remarks import first_budget
from h2o_chat.tui.chat_app import ChatApp
from h2o_chat.tui.prompt.first_minute import OFFERS

PICTURE = Path(__file__).parents[2] / "assets" / "screen-120x36.svg"
SIZE = (120, 36)
SETTINGS = first_budget(Settings(model="pocket", seed=1, engine="transformers"), ())


async def screen(folder: Path) -> str:
    """Holds the conversation as somebody who only presses enter; the last screen as SVG."""
    app = ChatApp(
        opener(SETTINGS, ConversationPlace(folder)), SETTINGS, Sampling(max_tokens=None), folder=folder
    )
    async with app.run_test(size=SIZE) as pilot:
        app.prompt.cursor_blink = False
        for line, _ in OFFERS:
            while line not in str(app.prompt.placeholder):
                await pilot.pause(0.02)
            await pilot.press("enter")
            await _answered(app, pilot)
        await pilot.pause(0.5)
        return app.export_screenshot(title="h2o-chat")


async def _answered(app: ChatApp, pilot: Pilot[None]) -> None:
    """Waits until the screen has been at rest for more than a second."""
    rest = 0
    while rest < 25:
        await pilot.pause(0.05)
        rest = 0 if app.busy else rest + 1


def main() -> None:
    with TemporaryDirectory() as folder:
        PICTURE.write_text(asyncio.run(screen(Path(folder))), encoding="utf-8")
    print(f"{PICTURE.name}: {PICTURE.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
