"""Makes the pictures of the README from the running app: the first minute with the bundled model.

    python tools/make/make_pictures.py

writes assets/screen-120x36.svg, screen-80x24.svg and screen-60x24.svg, what `make chat` shows after the four
lines that it offers, and assets/chat.svg, in which that happens: each row of the screen once, shown while it
stood there, so that the file stays small.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.segment import Segment
from rich.style import Style
from textual.pilot import Pilot

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.chat.conversation.greeting import first_budget
from h2o_chat.chat.conversation.message import Message
from h2o_chat.chat.conversation.opening import ConversationPlace, opener
from h2o_chat.tui.chat_app import ChatApp
from h2o_chat.tui.prompt import first_minute
from h2o_chat.tui.prompt.first_minute import OFFERS, Offer

ASSETS = Path(__file__).parents[2] / "assets"
SIZES = ((120, 36), (80, 24), (60, 24))
FILMED = (120, 36)
SETTINGS = first_budget(Settings(model="pocket", seed=1, engine="transformers"), ())
SAMPLING = Sampling(max_tokens=None)
FRAME_S = 0.12
READ_S = 1.2
"""An answer stands so long before enter is pressed."""
LAST_S = 5.0
CELL, ROW, FONT = 8.4, 17, 14
GROUND, INK = "#12161c", "#d5dbe3"

Row = tuple[tuple[int, str, Style | None], ...]
"""Pieces of a row: column, text, style."""


async def held(size: tuple[int, int]) -> list[tuple[float, list[Row]]]:
    """Holds the conversation on a screen of this size: what it showed, and from when on."""
    with TemporaryDirectory() as folder:
        return await _filmed(_app(Path(folder)), size)


def _app(folder: Path) -> ChatApp:
    """The screen as the command line opens it: the conversation is stored."""
    return ChatApp(opener(SETTINGS, ConversationPlace(folder)), SETTINGS, SAMPLING, folder=folder)


async def _filmed(app: ChatApp, size: tuple[int, int]) -> list[tuple[float, list[Row]]]:
    frames: list[tuple[float, list[Row]]] = []
    now = 0.0

    def shoot(seconds: float) -> None:
        nonlocal now
        rows = [_row(list(strip)) for strip in app.screen._compositor.render_strips()]
        if not frames or rows != frames[-1][1]:
            frames.append((now, rows))
        now += seconds

    async with app.run_test(size=size) as pilot:
        app.prompt.cursor_blink = False
        while app.chat is None and not app.exit_code:
            await pilot.pause(0.05)
        for offer in OFFERS:
            await _until(pilot, partial(_offers, app, offer))
            shoot(READ_S)
            end = len(_of_user(app)) + len(offer.texts)
            await pilot.press("enter")
            while len(_of_user(app)) < end or app.busy:
                await pilot.pause(0.05)
                if not app.busy:  # answer by answer: with every word of them the file would be large
                    shoot(FRAME_S)
        await _until(pilot, lambda: not app.busy)
        await pilot.pause(0.3)
        shoot(LAST_S)
    return [*frames, (now, frames[-1][1])]


async def _until(pilot: Pilot[None], met: Callable[[], bool]) -> None:
    while not met():
        await pilot.pause(0.02)


def _offers(app: ChatApp, offer: Offer) -> bool:
    return offer.shown in str(app.prompt.placeholder)


def _of_user(app: ChatApp) -> list[Message]:
    return [message for message in app.chat.messages if message.role == "user"] if app.chat else []


def _row(segments: Sequence[Segment]) -> Row:
    """Neighbours of one style as one, blanks left out where they have no ground of their own."""
    parts: list[tuple[int, str, Style | None]] = []
    column = 0
    for segment in segments:
        style = segment.style and segment.style.clear_meta_and_links()
        if parts and parts[-1][2] == style:
            parts[-1] = (parts[-1][0], parts[-1][1] + segment.text, style)
        else:
            parts.append((column, segment.text, style))
        column += segment.cell_length
    return tuple(part for part in parts if part[1].strip() or _ground(part[2]) != GROUND)


def svg(size: tuple[int, int], frames: Sequence[tuple[float, list[Row]]]) -> str:
    """The frames as one picture, which moves if they are several; the last only says when it ends."""
    columns, rows = size
    width, height = columns * CELL + 20, rows * ROW + 20
    ids: dict[Row, str] = {}
    shown = []
    ends = frames[-1][0]
    for y in range(rows):
        for row, since, until in _runs([(time, rows[y]) for time, rows in frames]):
            if row:
                name = ids.setdefault(row, f"r{len(ids)}")
                shown.append(_use(name, y, since, until, ends if len(frames) > 2 else None))
    rules: dict[str, str] = {}
    defined = []
    for row, name in ids.items():
        defined.append(f'<g id="{name}">{"".join(_part(part, rules) for part in row)}</g>')
    style = "".join(f".{name}{{{rule}}}" for rule, name in rules.items())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img"'
        f' aria-label="The screen of h2o-chat"><style>text{{font:{FONT}px "DejaVu Sans Mono",Menlo,Consolas,'
        f"monospace;white-space:pre}}{style}</style><defs>{''.join(defined)}</defs>"
        f'<rect width="100%" height="100%" rx="8" fill="{GROUND}"/>'
        f'<g transform="translate(10 10)">{"".join(shown)}</g></svg>\n'
    )


def _runs(states: Sequence[tuple[float, Row]]) -> Iterator[tuple[Row, float, float]]:
    """Content of a row, from when to when."""
    since, row = states[0]
    for time, other in states[1:]:
        if other != row:
            yield row, since, time
            since, row = time, other
    yield row, since, states[-1][0]


def _use(name: str, y: int, since: float, until: float, ends: float | None) -> str:
    place = f'<use href="#{name}" y="{y * ROW}"'
    if ends is None or (since == 0 and until == ends):
        return place + "/>"
    times = [(0.0, 0 if since else 1), (since / ends, 1), (until / ends, 0 if until < ends else 1)]
    values = dict(times)
    keys, states = ";".join(f"{time:.4f}" for time in values), ";".join(map(str, values.values()))
    return (
        f'{place} opacity="0"><animate attributeName="opacity" calcMode="discrete" dur="{ends:.2f}s"'
        f' repeatCount="indefinite" keyTimes="{keys}" values="{states}"/></use>'
    )


def _part(part: tuple[int, str, Style | None], rules: dict[str, str]) -> str:
    column, text, style = part
    x, wide = column * CELL, Segment(text).cell_length * CELL
    drawn = ""
    ground, ink = _ground(style), _hex(style, "color") or INK
    if style and style.reverse:
        ground, ink = ink, ground
    if ground != GROUND:
        drawn += f'<rect x="{x:.1f}" width="{wide:.1f}" height="{ROW}" fill="{ground}"/>'
    if text.strip():
        left = len(text) - len(text.lstrip())
        x, text = x + left * CELL, text.strip()
        name = rules.setdefault(_rule(style, ink), f"s{len(rules)}")
        length = Segment(text).cell_length * CELL
        drawn += (
            f'<text class="{name}" x="{x:.1f}" y="{FONT}" textLength="{length:.1f}">{escape(text)}</text>'
        )
    return drawn


def _rule(style: Style | None, ink: str) -> str:
    rule = f"fill:{ink}"
    if style and style.bold:
        rule += ";font-weight:bold"
    if style and style.italic:
        rule += ";font-style:italic"
    if style and (style.underline or style.strike):
        rule += f";text-decoration:{'underline' if style.underline else 'line-through'}"
    return rule


def _ground(style: Style | None) -> str:
    return _hex(style, "bgcolor") or GROUND


def _hex(style: Style | None, which: str) -> str:
    color = getattr(style, which, None)
    return "" if color is None or color.is_default else str(color.get_truecolor().hex)


def write(name: str, size: tuple[int, int], frames: Sequence[tuple[float, list[Row]]]) -> None:
    path = ASSETS / name
    path.write_text(svg(size, frames), encoding="utf-8")
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB, {len(frames)} frames")


def main() -> None:
    first_minute.BETWEEN_S = first_minute.MARKS_S = 0.5  # `READ_S` says how long it stands in the film
    for size in SIZES:
        frames = asyncio.run(held(size))
        write(f"screen-{size[0]}x{size[1]}.svg", size, frames[-2:-1] + frames[-1:])
        if size == FILMED:
            write("chat.svg", size, frames)


if __name__ == "__main__":
    main()
