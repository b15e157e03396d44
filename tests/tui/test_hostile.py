"""Whatever a model, a file or a recording says is shown as text, everywhere on the screen: it cannot
recolour, move the cursor, ring, link or crash.

A recording of the real engine is played in which every text is replaced, in a message, a token, a heavy
hitter, what was evicted, a note, an error, the name of the model and of the policy.
"""

import io
import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from screens import RECORDING, SMALL, WIDE, replayed
from sweep import sweep

from h2o_chat.cli.run import PlainText
from h2o_chat.events.events import Token, Turn
from h2o_chat.tui.chat_app import ChatApp

TEXTS = ("text", "model", "policy", "template", "message", "hint", "device", "dtype", "quantization")
CONTROLS = {"Cc", "Cs", "Zl", "Zp"}
TURNING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
HOSTILE = {
    "colours": "\x1b[31;1mred\x1b[0m \x9b42mgreen \x1b[38;2;9;8;7mtrue",
    "cursor": "\x1b[2J\x1b[H\x1b[5A\x1b[?1049h\x1bc\x1b[6n\x08\x08\r\x0b\x0cover",
    "a link": "\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\ \x9d8;;http://e\x9clink",
    "the clipboard": "\x1b]52;c;ZXZpbA==\x07 \x1b]52;c;?\x1b\\ paste",
    "the title": "\x1b]0;owned\x07 \x1b]2;owned\x9c \x1bP+q544e\x1b\\ name",
    "bells": "ring\x07\x07\x07 and nulls\x00\x00 \x7f\x1a\x04",
    "markup": "[bold red]rich[/] [@click=app.quit]go[/] [/nope] [link=http://e]l[/link] [$error]x[/] [[",
    "markdown": "[l](http://e) ![i](http://e) <b>html</b> <script>x</script> &lt; | a | b |\n|-|-|",
    "wide": "漢字かな交じり文 한국어 ｆｕｌｌ 👩‍👩‍👧‍👦 🏳️‍🌈 🇫🇷",
    "combining": "Z̸̛͎a̷̡l̵̢g̶o e\u0301 n\u0303 \u200b\u200d\ufeff\u2060 \u0e33 \u0301alone",
    "right to left": "שלום עולם مرحبا بالعالم 123 abc",
    "overrides": "\u202eevil\u202c \u2066iso\u2069 \u200fmark\u200e \u2028line\u2029para \u061cx",
    "half characters": "\udc9b\ud800 half \udfff \ufffd \ufffe\uffff",
    "a long line": "x" * 10_000,
    "a long line of words": "[b] \x1b[1m 漢 " * 900,
    "tabs": "a\tb\t\tc\r\nd\re\x85f",
    "nothing": "",
}
KEYS = [
    "2",
    "3",
    "4",
    "1",
    "w",
    "x",
    "w",
    "up",
    "up",
    "down",
    "escape",
    "tab",
    "tab",
    "right",
    "left",
    "up",
    "ctrl+t",
    "ctrl+t",
    "ctrl+t",
    "i",
    "left",
    "right",
    "z",
    "t",
    "escape",
    "ctrl+f",
    "e",
    "enter",
    "escape",
    "f1",
    "escape",
]


FEW = ["nothing"]
"""`test_all_of_it_on_a_small_screen` has something of each other kind; none stands there alone."""


@pytest.mark.parametrize("name", [*FEW, *sweep(*(name for name in HOSTILE if name not in FEW))])
async def test_it_is_shown_as_text(name: str, tmp_path: Path) -> None:
    await _looked_at(HOSTILE[name], WIDE, tmp_path)


async def test_all_of_it_on_a_small_screen(tmp_path: Path) -> None:
    await _looked_at("\n\n".join(HOSTILE.values()), SMALL, tmp_path)


async def _looked_at(evil: str, size: tuple[int, int], folder: Path) -> None:
    path = folder / "evil.jsonl"
    path.write_text("".join(f"{line}\n" for line in _saying(evil)))
    async with replayed(path, size, name=evil) as screen:
        app, pilot = screen.app, screen.pilot
        app.notify(app.divider.remark or "said", title="note", markup=False)
        for key in ("", *KEYS):
            await pilot.press(*([key] if key else []))
            await pilot.pause()
            _obeyed_by_nobody(app)
        for row in range(2, size[1], 9):  # and what the mouse finds
            await pilot.click(offset=(10, row))
            await pilot.click(offset=(size[0] - 20, row))
        _obeyed_by_nobody(app)
        await pilot.resize_terminal(*(SMALL if size == WIDE else WIDE))
        await pilot.pause()
        _obeyed_by_nobody(app)
        assert app.is_running
        assert app.return_code in (0, None)


def _saying(evil: str) -> Iterator[str]:
    """The lines of the recording, saying this wherever something is said."""
    note = {"event": "note", "code": "disk", "message": evil, "hint": evil}
    error = {"event": "error", "code": "failed", "message": evil, "hint": evil}
    for line in RECORDING.read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "end":
            yield json.dumps(note)
            yield json.dumps(error)
        yield json.dumps(_replaced(event, evil[:60] if event["event"] == "token" else evil))


def _replaced(value: Any, evil: str) -> Any:
    if isinstance(value, dict):
        return {key: evil if key in TEXTS else _replaced(each, evil) for key, each in value.items()}
    if isinstance(value, list):
        return [_replaced(each, evil) for each in value]
    return value


def _obeyed_by_nobody(app: ChatApp) -> None:
    """Nothing that is drawn is more than text and the styles of the theme."""
    width, height = app.size
    strips = app.screen._compositor.render_strips()
    assert len(strips) == height
    for strip in strips:
        for segment in strip:
            assert segment.control is None
            assert segment.style is None or segment.style.link is None
            assert not segment.style or not segment.style.blink
            assert "@click" not in (segment.style.meta if segment.style else {})
        row = "".join(segment.text for segment in strip)
        assert not obeyed(row), ascii(row)
        assert cell_len(row) == width, ascii(row)


def obeyed(text: str) -> list[str]:
    """Controls, surrogates, and what changes the direction of what stands beside it."""
    return [
        one
        for one in text
        if unicodedata.category(one) in CONTROLS or unicodedata.bidirectional(one) in TURNING
    ]


@pytest.mark.parametrize("name", HOSTILE)
def test_run_on_a_terminal_shows_it_as_text(name: str) -> None:
    """A sequence that comes in pieces is none either."""
    evil = HOSTILE[name]

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    out = PlainText(terminal)
    for at in range(0, len(evil), 2):
        out.write(Token(1, evil[at : at + 2], at, 1.0))
    out.write(Turn(f"{evil}{evil}", "eos", 1, 1, 1.0, 1.0, 1, 1, 0, 0.0))
    shown = terminal.getvalue()
    assert not {*obeyed(shown)} - {*"\n\t"}, ascii(shown)
    assert shown.encode("utf-8")
