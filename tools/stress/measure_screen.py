"""How soon does the screen answer beside a long conversation, and what does the engine lose?

    tools/stress/measure_screen.py [--model NAME] [--turns 500] [--tokens 1000] [--rounds 5] [--json]

The real app draws for a terminal that only notes when something is written (`screen_driver.py`). The
conversation is read from a real store. `h2o-chat lab bench ui` up to 2026-11-26.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import cycle
from pathlib import Path

from screen_driver import Terminal, drawn, press, settled, shown, until
from screen_share import SPOKEN, record, share

from h2o_chat.base.config import Settings
from h2o_chat.base.progress import progress_bar
from h2o_chat.chat.commands.surface import Opened
from h2o_chat.chat.conversation.message import Message
from h2o_chat.events.events import CacheState, Event, Prompt, Said, Session, Token, Turn, to_json
from h2o_chat.events.recording import read
from h2o_chat.lab.shared.report_output import print_table
from h2o_chat.store import Conversation, Store, StoredMessage
from h2o_chat.tui.pane.jobs import Jobs
from h2o_chat.tui.replay import Pace, Player, RecordedChat, ReplayPane

KEYS = "what does it still know of the things that it was told at the beginning"
STREAMED_MS = 5.0
"""Milliseconds between two tokens: 200 a second."""
STREAMED_TOKENS = 600
"""Fewest tokens streamed, the answer repeated where it has fewer: pictures are counted in whole seconds."""
MESSAGE_WORDS = 40
MARKDOWN = "\n\n1. one of **them**\n2. another, `so`\n\n```py\nfor x in things:\n    print(x)\n```\n"


@dataclass(frozen=True)
class Times:
    """Times of one thing, measured often."""

    what: str
    unit: str
    median: float
    low: float
    """A tenth of the values is below."""
    high: float
    """A tenth of the values is above."""
    worst: float
    target: str
    times: int


def run_ui(settings: Settings, turns: int, tokens: int, rounds: int, seed: int) -> list[Times]:
    """
    Args:
        turns: of the conversation on the screen.
        tokens: of an answer, streamed and generated.
        rounds: answers generated with the screen, and as many without.
    """
    with tempfile.TemporaryDirectory() as name, progress_bar() as progress:
        folder = Path(name)
        progress("write the conversation", None)
        conversation = write(folder, turns, random.Random(seed))
        progress("record an answer", None)
        recorded = spoken(record(settings, folder / "run.jsonl", tokens))
        progress("open, type, append", None)
        found = asyncio.run(_quiet_times(folder, conversation, recorded))
        progress("stream", None)
        found += asyncio.run(_streaming(folder, conversation, recorded))
        return [*found, *_shares(settings, folder, tokens, rounds, progress)]


def spoken(recorded: Sequence[Event]) -> list[Event]:
    """Puts words in place of tokens if none of them has text: there would be nothing to draw.

    Random weights say the same token again and again.
    """
    if any(isinstance(event, Token) and event.text.strip() for event in recorded):
        return list(recorded)
    words = cycle(f"{word} " for word in KEYS.split())
    return [replace(event, text=next(words)) if isinstance(event, Token) else event for event in recorded]


def write(folder: Path, turns: int, chance: random.Random) -> str:
    """Stores a conversation of so many turns, with Markdown in every third answer; returns its id."""
    last = 2 * turns - 1
    messages = [
        StoredMessage(
            id=number,
            parent=number - 1 if number else None,
            role="assistant" if number % 2 else "user",
            text=" ".join(chance.choices(KEYS.split(), k=MESSAGE_WORDS))
            + (MARKDOWN if number % 6 == 1 else ""),
            finish="eos" if number % 2 else None,
            first=number * MESSAGE_WORDS,
            last=(number + 1) * MESSAGE_WORDS - 1,
            ids=tuple(range(MESSAGE_WORDS)),
            created=float(number),
        )
        for number in range(last + 1)
    ]
    whole = Conversation("", "", "pocket", {"budget": 512}, 0.0, 0.0, last, messages)
    with closing(Store(folder)) as store:
        (conversation,) = store.put([whole])
    return conversation


async def _quiet_times(folder: Path, conversation: str, recorded: Sequence[Event]) -> list[Times]:
    """Times the opening of the conversation, then keys and tokens one by one."""
    session = next(event for event in recorded if isinstance(event, Session))
    state = next(event for event in recorded if isinstance(event, CacheState))
    pieces = [event.text for event in recorded if isinstance(event, Token) and event.text.strip()]
    async with shown(lambda _: RecordedChat(session)) as app:
        opened = []
        for _ in range(5):
            before = app.chat
            app.pane.begin(
                lambda *_: iter([Opened(_stored(folder, conversation, session, state))]), "opening"
            )
            began = time.perf_counter()
            while app.chat is before:
                await asyncio.sleep(0.0005)
            opened.append((await settled(len(Terminal.drawn)) - began) * 1000)
        app.prompt.focus()
        keys = [await drawn(partial(press, app, key)) for key in KEYS]
        app.transcript.messages.open_answer(
            "pocket", len(_stored(folder, conversation, session, state).messages)
        )
        await settled(0)
        appended = [await drawn(partial(app.transcript.messages.stream, text)) for text in pieces[:400]]
    return [
        _times("open the conversation", opened, "< 1000"),
        _times("key press to screen", [wall for wall, _ in keys], "< 20"),
        _times("append a token: to screen", [wall for wall, _ in appended], ""),
        _times("append a token: work", [work for _, work in appended], "< 3"),
    ]


async def _streaming(folder: Path, conversation: str, recorded: Sequence[Event]) -> list[Times]:
    """Streams a fast answer below the conversation: pictures a second, tokens a second."""
    session = next(event for event in recorded if isinstance(event, Session))
    before = _stored(folder, conversation, session, None).messages
    said = [Said(n, m.role, m.text, None, m.hold) for n, m in enumerate(before)]  # type: ignore[arg-type]
    state = next(event for event in recorded if isinstance(event, CacheState))
    path = folder / "stream.jsonl"
    tokens = sum(isinstance(event, Token) for event in recorded)
    times = -(-STREAMED_TOKENS // tokens)
    turns = [event for n in range(times) for event in _fast(recorded, len(said) + 2 * n)]
    tokens *= times
    path.write_text("".join(to_json(event) + "\n" for event in [session, *said, state, *turns]))
    player = Player(read(path), Pace(1.0))
    player.pace.pause()  # until all that was said before is on the screen
    async with shown(player.open, ReplayPane(Jobs(), player, path.name)) as app:
        await until(lambda: app.transcript.messages.answer is not None)
        await settled(0)
        began = time.perf_counter()
        player.pace.pause()
        await until(lambda: not app.pane.busy, 31 + 10 * STREAMED_MS / 1000 * tokens)
        ended = time.perf_counter()
    seconds = max(int(ended - began), 1)
    frames = [0] * seconds
    for moment in Terminal.drawn:
        if 0 <= moment - began < seconds:
            frames[int(moment - began)] += 1
    return [
        _times(f"frames at {1000 / STREAMED_MS:.0f} tokens/s", frames, ">= 15", "1/s"),
        _times("tokens shown", [tokens / (ended - began)], "", "1/s"),
    ]


def _fast(recorded: Sequence[Event], index: int) -> Iterator[Event]:
    """Events of a recorded turn, at another place and pace."""
    for event in recorded:
        match event:
            case Said(role="user"):
                yield replace(event, index=index)
            case Prompt():
                yield replace(event, ms=0.0)
            case Token():
                yield replace(event, ms=STREAMED_MS)
            case CacheState():
                yield event
            case Turn():
                yield replace(event, hold=[])


def _shares(
    settings: Settings, folder: Path, tokens: int, rounds: int, progress: Callable[[str, float | None], None]
) -> list[Times]:
    """Times the same answers with the screen and without, in turns."""
    pairs = []
    for number in range(rounds):
        progress(SPOKEN, number / rounds)
        pairs.append(share(settings, folder, tokens, screen_first=number % 2 == 0))
    if not pairs:
        return []
    return [
        _times("engine under run", [alone for alone, _ in pairs], "", "1/s"),
        _times("engine under the screen", [beside for _, beside in pairs], "", "1/s"),
        _times("screen / run", [100 * beside / alone for alone, beside in pairs], ">= 95", "%"),
    ]


def _stored(folder: Path, conversation: str, session: Session, state: CacheState | None) -> RecordedChat:
    """The conversation as it is read when it is opened."""
    with closing(Store(folder)) as store:
        path = store.path(conversation)
    messages = [Message(m.role, m.text, m.first, m.last, m.finish, m.id % 9 / 8, m.id) for m in path]
    return RecordedChat(session, messages, state)


def _times(what: str, values: Sequence[float], target: str, unit: str = "ms") -> Times:
    ordered = sorted(values)
    last = len(ordered) - 1
    worst = ordered[0] if target.startswith(">") else ordered[-1]
    middle, low, high = statistics.median(ordered), ordered[round(last / 10)], ordered[round(0.9 * last)]
    return Times(what, unit, middle, low, high, worst, target, len(ordered))


def verdict(found: Sequence[Times]) -> str:
    aimed = [one for one in found if one.target]
    missed = [one for one in aimed if not _met(one)]
    if not missed:
        return f"Verdict: the screen is quick enough: all {len(aimed)} aims are met."
    told = "; ".join(f"{one.what} {one.median:.3g} {one.unit} (aim {one.target})" for one in missed)
    return f"Verdict: {len(missed)} of {len(aimed)} aims are missed: {told}."


def _met(one: Times) -> bool:
    """Whether the median is on the right side of its aim, such as `< 20`."""
    sign, aim = one.target.split()
    return one.median >= float(aim) if sign.startswith(">") else one.median < float(aim)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", "-m", default="pocket")
    parser.add_argument("--budget", type=int, default=512)
    parser.add_argument("--turns", type=int, default=500, help="of the conversation on the screen")
    parser.add_argument("--tokens", type=int, default=1000, help="of an answer, streamed and generated")
    parser.add_argument("--rounds", type=int, default=5, help="answers with the screen, and as many without")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seed", type=int, default=0, help="of the words")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    settings = Settings(model=asked.model, budget=asked.budget, dtype=asked.dtype, threads=asked.threads)
    found = run_ui(settings, asked.turns, asked.tokens, asked.rounds, asked.seed)
    if asked.json:
        print(json.dumps([asdict(one) for one in found]))
        return 0
    rows = [asdict(one) for one in found]
    cells = [[f"{one:.4g}" if isinstance(one, float) else str(one) for one in row.values()] for row in rows]
    print_table([*rows[0]], cells)
    print(verdict(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
