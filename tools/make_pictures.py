"""Makes the pictures of the README from the running app: a real model, a short conversation, two sizes.

    python tools/make_pictures.py --model FOLDER

writes assets/screen-120x36.svg and assets/screen-60x24.svg.
"""

import argparse
import asyncio
from pathlib import Path

from h2o_chat.chat import Chat
from h2o_chat.config import Sampling, Settings
from h2o_chat.engine import Engine
from h2o_chat.models import load
from h2o_chat.tui.app import ChatApp
from h2o_chat.tui.work import OpenChat, Progress

ASSETS = Path(__file__).parent.parent / "assets"
SIZES = ((120, 36), (60, 24))
PROMPTS = (
    "Once upon a time, Lily found a red key under the old oak tree.",
    "Then the little bird said",
)
SAMPLING = Sampling(max_tokens=150)


def opener(settings: Settings) -> OpenChat:
    """Opens a fresh conversation, as the command line does."""

    def open_chat(progress: Progress) -> Chat:
        return Chat(Engine(load(settings, progress), settings), settings)

    return open_chat


async def picture(settings: Settings, size: tuple[int, int]) -> Path:
    """Holds the conversation on a screen of this size and draws its end."""
    app = ChatApp(opener(settings), settings, SAMPLING)
    async with app.run_test(size=size) as pilot:
        while app.chat is None and not app.exit_code:
            await pilot.pause(0.05)
        for prompt in PROMPTS:
            app.prompt.text = prompt
            await pilot.press("enter")
            while app.busy:
                await pilot.pause(0.05)
        await pilot.pause(0.2)
        app.prompt.blur()  # a blinking cursor would be in one picture and not in the next
        await pilot.pause()
        name = f"screen-{size[0]}x{size[1]}.svg"
        return Path(app.save_screenshot(name, path=str(ASSETS)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", required=True, help="a model folder")
    settings = Settings(model=parser.parse_args().model, budget=64, seed=1)
    for size in SIZES:
        print(asyncio.run(picture(settings, size)))


if __name__ == "__main__":
    main()
