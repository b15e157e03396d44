"""Two recordings of the same text beside each other: what each memory holds of every word at the end."""

import sys
from collections.abc import Iterable

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from h2o_chat.base.errors import UsageError
from h2o_chat.base.glyphs import heads
from h2o_chat.base.safe import safe_text
from h2o_chat.chat.memory.cache_view import CacheView
from h2o_chat.events.events import End, Event, Session

STYLES = ("dim", "", "bold", "bold underline")
"""Styles of a held token, by quarters of the heads that hold it."""


def folded(events: Iterable[Event]) -> CacheView:
    """The memory at the end of a recording, of its last conversation.

    Raises:
        UsageError: it is cut off.
    """
    view, event = CacheView(), None
    for event in events:
        if isinstance(event, Session):
            view.begin(event, None)
        else:
            view.add(event)
    if not isinstance(event, End):
        raise UsageError("A recording is cut off: its end is missing.", "Record the script again.")
    return view


def show(views: tuple[CacheView, CacheView], names: tuple[str, str]) -> None:
    """Prints a row for each message, a column for each recording.

    Raises:
        UsageError: they have no message in common, or one has no states.
    """
    common = [index for index in views[0].words.tokens if index in views[1].words.tokens]
    if not common:
        raise UsageError("These recordings have no message in common.", "Record the same script twice.")
    if any(view.cache is None for view in views):
        raise UsageError("A recording holds no state of the cache.", "Record with --events 16, not 0.")
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    console = Console()
    titles = (_title(view, name) for view, name in zip(views, names, strict=True))
    table = Table(Column(), *map(Column, titles), expand=True)
    for index in common:
        table.add_row(f"#{index + 1}", *(_message(view, index, console.is_terminal) for view in views))
    console.print(table)
    if console.is_terminal:
        console.print(
            "underlined, bold, plain, dim: held by more or fewer heads; struck: by none", style="dim"
        )
    one, other = views
    differs = (at for at in common if one.words.tokens[at].text != other.words.tokens[at].text)
    if (at := next(differs, None)) is not None:
        console.print(f"From #{at + 1} on the texts differ. Record both with one --seed or --temperature 0.")
        return
    positions = one.hold.keys() | other.hold.keys()
    pairs = [(one.hold.get(at, 0.0), other.hold.get(at, 0.0)) for at in positions]
    console.print(
        f"Both hold {sum(map(min, pairs)) / max(sum(map(max, pairs)), 1e-9):.0%} of what either holds."
    )


def _title(view: CacheView, name: str) -> Text:
    session = view.session
    assert session is not None, "the reader has seen to it"
    slots = f"{session.budget:,} slots" if session.budget else "all tokens"
    return Text(safe_text(f"{name}: {session.policy}, {slots}, {session.model}"))


def _message(view: CacheView, index: int, color: bool) -> Text:
    """A message, token by token; what every head has forgotten is struck through, or dots without styles."""
    tokens, drawn = view.words.tokens[index], Text()
    own = [at for at in range(tokens.first, tokens.first + len(tokens)) if view.span(at) is not None]
    for position in own:
        text, hold = safe_text(view.text(position) or ""), view.hold.get(position, 0.0)
        if hold or position >= view.seen:
            drawn.append(text, STYLES[min(int(hold * 4), 3)])
        else:
            drawn.append(
                text if color else "".join(one if one.isspace() else "·" for one in text), "dim strike"
            )
    held = sum(view.hold.get(position, 0.0) for position in own) / max(len(own), 1)
    return drawn.append(f"\n{heads(held, view.caches)}", "italic dim")
