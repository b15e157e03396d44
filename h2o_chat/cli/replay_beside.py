"""Two recordings of the same text beside each other: what each memory holds of every word at the end."""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from h2o_chat.base.errors import UsageError
from h2o_chat.base.glyphs import heads
from h2o_chat.base.safe import safe_text
from h2o_chat.chat.memory.cache_view import CacheView
from h2o_chat.events.events import Event, Session

STYLES = ("dim", "", "bold", "bold underline")
"""Styles of a held token, by quarters of the heads that hold it."""


def folded(events: Iterable[Event]) -> CacheView:
    """The memory at the end of a recording, of its last conversation."""
    view = CacheView()
    for event in events:
        if isinstance(event, Session):
            view.begin(event, None)
        else:
            view.add(event)
    return view


def show(views: tuple[CacheView, CacheView], names: tuple[str, str]) -> None:
    """Prints a row for each message, a column for each recording.

    Raises:
        UsageError: they have no message in common.
    """
    common = [index for index in views[0].words.tokens if index in views[1].words.tokens]
    if not common:
        raise UsageError("These recordings have no message in common.", "Record the same script twice.")
    table = Table("", *(_title(view, name) for view, name in zip(views, names, strict=True)), expand=True)
    for index in common:
        table.add_row(f"#{index + 1}", *(_message(view, index) for view in views))
    console = Console()
    console.print(table)
    console.print("bold: held by most heads; dim: by few; ···: forgotten by all", style="dim")
    one, other = views
    differs = (at for at in common if one.words.tokens[at].text != other.words.tokens[at].text)
    if (at := next(differs, None)) is not None:
        console.print(f"From #{at + 1} on the texts differ: other tokens were said.")
        return
    positions = one.hold.keys() | other.hold.keys()
    pairs = [(one.hold.get(at, 0.0), other.hold.get(at, 0.0)) for at in positions]
    console.print(
        f"Both hold {sum(map(min, pairs)) / max(sum(map(max, pairs)), 1e-9):.0%} of what either holds."
    )


def _title(view: CacheView, name: str) -> str:
    session = view.session
    assert session is not None, "the reader has seen to it"
    slots = f"{session.budget:,} slots" if session.budget else "all tokens"
    return safe_text(f"{name}: {session.policy}, {slots}, {session.model}")


def _message(view: CacheView, index: int) -> Text:
    """A message, token by token; what every head has forgotten is drawn as dots."""
    tokens, drawn = view.words.tokens[index], Text()
    own = [at for at in range(tokens.first, tokens.first + len(tokens)) if view.span(at) is not None]
    for position in own:
        text, hold = safe_text(view.text(position) or ""), view.hold.get(position, 0.0)
        if hold or position >= view.seen:
            drawn.append(text, STYLES[min(int(hold * 4), 3)])
        else:
            drawn.append("".join(letter if letter.isspace() else "·" for letter in text), "dim")
    held = sum(view.hold.get(position, 0.0) for position in own) / max(len(own), 1)
    return drawn.append(f"\n{heads(held, view.caches)}", "italic dim")
