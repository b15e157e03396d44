"""The memory panel on one line, for narrow screens."""

from rich.cells import cell_len
from textual.content import Content
from textual.widget import Widget

from h2o_chat.base.safe import safe_text
from h2o_chat.chat.conversation.message import numbered
from h2o_chat.chat.memory.cache_view import CacheView
from h2o_chat.chat.memory.remembered_words import forgotten, remembered

WORDS = 3
"""Most words that are named: in the first half of the conversation, those that most heads hold."""


class MemoryLine(Widget):
    """How much is remembered, some old words, what was just forgotten; parts without room are left out."""

    DEFAULT_CSS = """
    MemoryLine { height: 1; padding: 0 1; color: $muted; }
    """

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
