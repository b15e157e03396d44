"""The top line (model, how it runs, how much it remembers, how fast), and the panel on one narrow line."""

from rich.cells import cell_len
from textual.content import Content
from textual.widget import Widget

from h2o_chat.base.glyphs import short
from h2o_chat.base.safe import safe_text
from h2o_chat.chat.conversation.message import numbered
from h2o_chat.chat.memory.cache_view import CacheView
from h2o_chat.chat.memory.remembered_words import forgotten, remembered
from h2o_chat.events.events import Session
from h2o_chat.tui.widgets.theme import MUTED

WIDE = 80
"""Columns from which numbers are written out."""


class StatusLine(Widget):
    def __init__(self, memory: CacheView, id: str) -> None:
        super().__init__(id=id)
        self._memory = memory

    def render(self) -> Content:
        width = self.size.width
        wide = width >= WIDE
        numbers = self._numbers(wide)
        session = self._memory.session
        native = " native" if session and session.engine == "native" else ""
        how = f" · {_weights(session)} · {safe_text(session.device)}{native}" if session else ""
        room = width - len(numbers) - len(how) - 1
        model = Content(self._model(wide)).truncate(max(room, 1), ellipsis=True).plain
        left = Content.assemble((model, "bold $foreground"), (how, MUTED))
        gap = max(width - left.cell_length - len(numbers), 1)
        return Content.assemble(left, " " * gap, (numbers, MUTED)).truncate(width)

    def _model(self, wide: bool) -> str:
        session = self._memory.session
        if session is None:
            return "h2o-chat"
        return safe_text(f"h2o-chat   {session.model}" if wide else session.model)

    def _numbers(self, wide: bool) -> str:
        memory = self._memory
        if memory.cache is None:
            return "nothing read yet" if memory.session else ""
        seen = _remembers(memory, wide)
        if memory.tok_s is None or not memory.answering:
            return seen
        pace = f"{memory.tok_s:.1f}" if wide or memory.tok_s < 10 else f"{memory.tok_s:.0f}"
        return f"{seen} · {pace} tok/s"


def _remembers(memory: CacheView, wide: bool) -> str:
    kept = memory.seen - memory.evicted
    count = f"{kept:,}" if wide else short(kept)
    if not memory.seen:
        return "remembers nothing yet"
    if not memory.evicted:
        return f"remembers all {count}{' tokens' if wide else ''}"
    return f"remembers {count} of {f'{memory.seen:,} tokens' if wide else short(memory.seen)}"


def _weights(session: Session) -> str:
    """The quantisation of the weights, or their type."""
    if session.quantization != "none":
        return safe_text(session.quantization)
    return safe_text(session.dtype).replace("float", "fp").replace("bfp", "bf")


WORDS = 3
"""Most words that are named: in the first half of the conversation, those that most heads hold."""


class MemoryLine(Widget):
    """How much is remembered, some old words, what was just forgotten; parts without room are left out."""

    def __init__(self, memory: CacheView, id: str) -> None:
        super().__init__(id=id)
        self._memory = memory

    async def on_click(self) -> None:
        """Open the panel over the chat."""
        await self.run_action("app.toggle_panel")

    def render(self) -> Content:
        memory, room = self._memory, self.size.width
        if memory.cache is None or memory.session is None:
            return Content("nothing remembered yet")
        if not memory.evicted:
            of = "" if memory.session.budget is None else f" of {memory.session.budget:,}"
            return Content(f"{memory.cache.kept:,}{of} · nothing forgotten yet").truncate(room)
        line = f"remembers {memory.cache.kept:,} of {memory.seen:,}"
        known = remembered(memory)
        old = [held for held in known if held.word.first < memory.seen // 2] or known
        best = {held.word.text: None for held in sorted(old, key=lambda held: -held.hold)}
        words = [
            safe_text(text)
            for text in dict.fromkeys(held.word.text for held in old)
            if text in [*best][:WORDS]
        ]
        held = {one.word.text.lower() for one in known}
        went = [
            f"“{safe_text(phrase.text)}” {numbered(phrase.index)}"
            for phrase in forgotten(memory)
            if not held.issuperset(phrase.text.lower().split())  # the same words are known from elsewhere
        ]
        for count in range(len(words), 0, -1):
            longer = f"{line} · still knows {', '.join(words[:count])}"
            if cell_len(longer) <= room:
                line = longer
                break
        last = next((text for text in went if cell_len(f"{line} · forgot {text}") <= room), None)
        return Content(f"{line} · forgot {last}" if last else line)
