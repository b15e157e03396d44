"""The conversation, drawn row by row: it costs what is seen of it, however long it is."""

from collections.abc import Sequence
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Resize
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.visual import Visual

from h2o_chat.events import Turn
from h2o_chat.tui.body import Piece
from h2o_chat.tui.page import Page
from h2o_chat.tui.safe import safe_text
from h2o_chat.tui.turn import TurnView

MOST_LINES = 1 << 32
"""Lines of one message, so that each line of all messages has a number; in order."""


class Transcript(ScrollView, can_focus=True):
    """Follows the end of the text until the reader scrolls up, and again once back at the end."""

    DEFAULT_CSS = """
    Transcript {
        height: 1fr;
        overflow-x: hidden;
        scrollbar-gutter: stable;
        scrollbar-size-vertical: 1;
        scrollbar-background: $background;
        scrollbar-color: $border;
    }
    """
    BORDER_TITLE = "chat"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "app.interrupt", show=False),  # the screen's own would copy without a word
        Binding("m", "app.toggle_panel", "memory", show=False),
        Binding("up", "select(-1)", "your messages"),
        Binding("down", "select(1)", show=False),
        Binding("ctrl+up", "scroll_up", show=False),
        Binding("ctrl+down", "scroll_down", show=False),
    ]

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.selected: int | None = None
        """The message of the user that is marked."""
        self.auto_links = False
        self._page = Page()
        self._turns: dict[int, TurnView] = {}
        self._answer: TurnView | None = None
        """The answer that is being written."""
        self._index = 0
        self._follows = True
        self._moving = False
        self._epoch = 0
        """Counts what makes all that was drawn wrong."""

    @property
    def views(self) -> list[TurnView]:
        """Everything from top to bottom: messages, notes, errors."""
        return self._page.views

    # What it shows

    def add(self, view: TurnView, before: TurnView | None = None) -> TurnView:
        """Show something more."""
        place = self.views.index(before) if before else len(self.views)
        self.views.insert(place, view)
        self._laid(place)
        return view

    def redraw(self, view: TurnView) -> None:
        """One of them shows something else."""
        self._laid()
        if view.index in self._turns or view is self._answer or view in self.views:
            self.refresh()

    def message(
        self,
        role: str,
        name: str,
        text: str,
        index: int,
        finish: str | None = None,
        hold: float | None = None,
    ) -> None:
        """Add a finished message.

        Args:
            index: its place in the conversation.
            finish: how an answer ended.
            hold: how much of it is held, where that is known.
        """
        view = TurnView(role, name, text, index, finish)
        view.hold = hold
        self._turns[index] = self.add(view)

    @property
    def answering(self) -> int | None:
        """The place of the answer that is open, if one is."""
        return None if self._answer is None else self._index

    def clear(self) -> None:
        """Show nothing."""
        self.views.clear()
        self._turns.clear()
        self._answer = self.selected = None
        self._follows = True
        self._laid()

    def cut(self, index: int) -> None:
        """Take away message `index` and all that stands below it."""
        first = min((message for message in self._turns if message >= index), default=None)
        if first is None:
            return
        if self.selected is not None and self.selected >= index:
            self.select(None)
        place = self.views.index(self._turns[first])
        del self.views[place:]
        self._turns = {message: view for message, view in self._turns.items() if message < index}
        self._laid(place)

    def open_answer(self, name: str, message: int) -> None:
        """Begin the message that `stream` continues; `message` is its place in the conversation."""
        self._index = message
        self._answer = TurnView("assistant", name, index=message)
        self._answer.open()
        self.add(self._answer)

    def stream(self, text: str) -> None:
        """Append to the open answer; only its end is drawn again."""
        assert self._answer is not None
        self._turns[self._index] = self._answer  # from the first word on there is something to hold
        self._answer.write(text)
        self._laid(self.views.index(self._answer))

    def close_answer(self, finish: str, text: str | None = None) -> None:
        """Freeze the open answer, if there is one; say so if it did not end by itself.

        Args:
            finish: how it ended.
            text: all of it, where that is known; what was streamed may lack the last characters.
        """
        if self._answer is None:
            return
        if text:
            self._turns[self._index] = self._answer  # it may have come in one piece
        self._answer.close(finish, text)
        self._answer = None
        self._laid()

    def withdraw(self) -> None:
        """Take back the open answer and the message that it was to answer: neither was said."""
        assert self._answer is not None
        self.views.remove(self._turns.pop(self._index - 1))
        self.views.remove(self._answer)
        self._answer = None
        self._laid()

    def show_message_hold(self, index: int, hold: float) -> None:
        """Write the gauge of one message, where that is known."""
        if index in self._turns:
            self._turns[index].hold = hold
            self.refresh()

    def show_hold(self, turn: Turn) -> None:
        """Write every message's gauge; a message that is not mentioned has nothing left."""
        held = dict(turn.hold)
        for message, view in self._turns.items():
            view.hold = held.get(message, 0.0)
        self.refresh()

    def note(self, text: str) -> None:
        """Say something that is no part of the conversation; an answer that has not begun comes after it."""
        answer = self._answer
        unbegun = answer is not None and answer.growing is not None and not answer.growing.begun
        self.add(TurnView("note", "note", text), before=answer if unbegun else None)

    def notice(self, message: str, hint: str = "") -> None:
        """Say something that a person should know, though nothing failed."""
        self.note(f"{message}\n→ {hint}" if hint else message)

    def error(self, title: str, message: str, hint: str = "") -> None:
        """Say what went wrong and, after an arrow, what to do."""
        body = Content.assemble(safe_text(message), (f"\n→ {safe_text(hint)}" if hint else "", "bold"))
        self.add(TurnView("error", f"✗ error · {title}", body))

    # What is chosen

    def select(self, index: int | None) -> None:
        """Mark a message; None marks none."""
        for message, wanted in ((self.selected, False), (index, True)):
            if message is not None and message in self._turns:
                self._turns[message].marked = wanted
        self.selected = index if index in self._turns else None
        self.refresh()
        if self.selected is not None:
            self.go_to(self._turns[self.selected])

    def action_select(self, step: int) -> None:
        """Mark the next message of the user, up or down; below the last one none is marked."""
        own = [message for message, view in sorted(self._turns.items()) if view.kind == "user"]
        if not own:
            return
        at = own.index(self.selected) if self.selected in own else len(own)
        at = max(at + step, 0)
        self.select(own[at] if at < len(own) else None)
        if self.selected is None:
            self.follow()

    # Where the window is

    def follow(self) -> None:
        """Go to the end and stay there, wherever the reader was."""
        self._follows = True
        self._laid()

    def go_to(self, view: TurnView, row: int = 0) -> None:
        """Bring a row of a message into the window, with the title if there is room."""
        page, rows = self._page, self.scrollable_content_region.height
        place = self.views.index(view)
        view.rows(page.width)
        page.changed(place)
        start, top = page.starts[place], self.scroll_offset.y
        if not top <= start + row < top + rows:
            self._follows = False
            self._move(start + max(row - rows // 2, 0))
        elif not top <= start:
            self._follows = False
            self._move(start if row < rows else start + row - rows // 2)

    def show_place(self, index: int, share: float) -> bool:
        """Go to a message, so far into it; False where it is not shown."""
        view = self._turns.get(index)
        if view is None:
            return False
        place = self.views.index(view)
        row = int(share * view.rows(self._page.width))
        self._page.changed(place)
        self._follows = False
        self._move(max(self._page.starts[place] + row - self.scrollable_content_region.height // 2, 0))
        return True

    def _laid(self, place: int = 0) -> None:
        """From this place on some have another height: the window stays at the end, or with what was seen."""
        self._page.changed(place)
        self._move(self.scroll_offset.y)

    def _move(self, top: int) -> None:
        """Go to a row, having wrapped what is seen there."""
        rows = self.scrollable_content_region.height
        if not rows:  # it has no place on the screen yet
            return
        top = self._page.look(top, rows, self._follows)
        self._moving = True
        self.virtual_size = Size(self._page.width, self._page.height)
        if top != self.scroll_offset.y:
            self.scroll_to(y=top, animate=False, force=True)
        self._moving = False
        self.refresh()

    def on_resize(self, event: Resize) -> None:
        self._measure()

    def _measure(self) -> None:
        width = self.scrollable_content_region.width
        if width and width != self._page.width:
            self._page.width = width
            self._laid()
        elif self._follows:
            self._laid()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if not self._moving:
            self._follows = new_value >= self.max_scroll_y
            self._move(round(new_value))

    # Drawing

    def render_line(self, y: int) -> Strip:
        row = y + self.scroll_offset.y
        place = self._page.at(row)
        if place is None:
            return Strip.blank(self._page.width, self.rich_style)
        local = row - self._page.starts[place]
        strip = self.views[place].row(local, self._page.width, place * MOST_LINES, self)
        return strip.apply_style(self.rich_style)  # blanks have no style of their own, so no ground either

    def draw(self, content: Content, width: int) -> Sequence[Strip]:
        """See `turn.Canvas`."""
        return Visual.to_strips(self, content, width, None, self.visual_style, apply_selection=False)

    def dress(self, view: TurnView, piece: Piece, line: int) -> Content:
        """See `turn.Canvas`."""
        selection = self.text_selection
        if selection is None:
            return piece.content
        return _selected(piece, selection, line + 1, self._selection_style)

    def key(self, view: TurnView, piece: Piece) -> object:
        """See `turn.Canvas`."""
        return self._epoch

    # What is selected with the mouse

    @property
    def _selection_style(self) -> Style:
        return Style.from_styles(self.screen.get_component_styles("screen--selection"))

    def selection_updated(self, selection: Selection | None) -> None:
        self._epoch += 1
        self.refresh()

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        parts = (view.selected(selection, place * MOST_LINES) for place, view in enumerate(self.views))
        return "\n\n".join(part for part in parts if part), "\n"

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._epoch += 1


def _selected(piece: Piece, selection: Selection, line: int, style: Any) -> Content:
    """With a style on what is selected of it; the whole text begins at `line`."""
    content, at = piece.content, 0
    for number, text in enumerate(content.plain.split("\n")):
        span = selection.get_span(line + piece.y + number)
        if span is not None:
            shift = piece.x if number == 0 else 0
            end = len(text) if span[1] < 0 else min(max(span[1] - shift, 0), len(text))
            content = content.stylize(style, at + min(max(span[0] - shift, 0), len(text)), at + end)
        at += len(text) + 1
    return content
