"""Records what `h2o-chat demo` shows: the first minute with the bundled model, on the real engine.

    python tools/make/make_demo.py

writes assets/demo.jsonl. Times are those of a person who reads along, the same wherever it is made; the only
other thing added are notes for whoever watches it.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.events.events import CacheState, End, Event, Note, Prompt, Session, Token, Turn, to_json
from h2o_chat.remote.engine_here import engine_here
from h2o_chat.tui.prompt.first_minute import OFFERS

FILE = Path(__file__).parents[2] / "assets" / "demo.jsonl"
SAID = tuple(one for _, text in OFFERS for one in re.split(r"(?<=[.?]) ", text))
"""The four offers, sentence by sentence, so that one sees it forget."""
READ_MS, TOKEN_MS = 1500.0, 40.0
"""Before each answer, and of each of its tokens."""

BEGINNING = Note(
    "demo",
    "This is a recording: the bundled toy model with a memory of 128 tokens. It is told a name and a code,"
    " and then other things. Beside the conversation stands what it still remembers.",
)
FORGETS = Note("demo", "The memory is full: from now on words are forgotten.", "ctrl+t marks them.")
END = Note(
    "demo",
    "The code was half forgotten, so it was looked up and read once more. Talk to it yourself:",
    "ctrl+q leaves, then the command: h2o-chat",
)


def events() -> Iterator[Event]:
    """The recording, from its beginning to its end."""
    settings = Settings(model="pocket", budget=128, seed=1, threads=1, events_every=8, engine="transformers")
    chat = Chat(engine_here(settings, lambda *_: None), settings)
    yield from (_timeless(event) for event in chat.opening())
    yield BEGINNING
    full, turns, tokens = False, 0, 0
    for text in SAID:
        for event in chat.send(text, Sampling(max_tokens=None)):
            yield _timeless(event)
            if isinstance(event, CacheState) and event.seen > event.kept and not full:
                full = True
                yield FORGETS
            if isinstance(event, Turn):
                turns, tokens = turns + 1, tokens + event.new_tokens
    yield END
    yield End(turns, tokens, 1.0)


def _timeless(event: Event) -> Event:
    match event:
        case Session():
            return replace(event, versions={}, device="cpu", engine_why="")
        case Prompt():
            return replace(event, ms=READ_MS)
        case Token():
            return replace(event, ms=TOKEN_MS)
        case Turn():
            return replace(event, ttft_ms=READ_MS, tok_s=1000 / TOKEN_MS)
    return event


def main() -> None:
    FILE.write_text("".join(to_json(event) + "\n" for event in events()), encoding="utf-8")
    print(f"{FILE.name}: {FILE.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
