"""Times the first minute: from the command to the first word with a mark, by a person who only presses enter.

    python tools/first_minute.py [COLUMNSxROWS]

starts the chat screen in tmux with a data folder of its own, reads for two seconds, presses enter, and so on
until four lines were sent. Prints what stands on the screen after each of them, and the times.
"""

import re
import shutil
import sys
import time

from in_tmux import chat_screen

from h2o_chat.models.resolve import find
from h2o_chat.tui.prompt.first_minute import OFFERS_TO

READ_S = 2.0
"""A person looks at the screen so long before pressing enter."""
STRUCK = re.compile(r"\x1b\[[\d;:]*\b9[;m]")
"""A word that is forgotten is struck through: the first mark that is seen."""


def main() -> None:
    if shutil.which("tmux") is None:
        print("skipped: there is no tmux here")
        return
    size = sys.argv[1] if len(sys.argv) > 1 else "120x36"
    began = time.monotonic()
    lit = 0.0

    def seconds() -> float:
        return time.monotonic() - began

    with chat_screen(size) as one:
        for offer in OFFERS_TO[find(None).name]:
            one.until_shown(f"{offer.shown} ↵")
            print(f"\n== {seconds():.1f} s\n{one.shown()}", flush=True)
            time.sleep(READ_S)
            one.press("Enter")
            if len(offer.texts) > 1:
                one.until(lambda: bool(STRUCK.search(one.shown(styles=True))), "a word is struck through")
                lit = seconds()
                print(f"\n== {lit:.1f} s, the first mark\n{one.shown()}", flush=True)
        one.until_shown("to fetch:")
        print(f"\n== {seconds():.1f} s\n{one.shown()}")
    print(f"From make chat to the first mark: {lit:.1f} s; to the end: {seconds():.1f} s ({size}).")
    if lit > 60:
        sys.exit("That is more than a minute.")


if __name__ == "__main__":
    main()
