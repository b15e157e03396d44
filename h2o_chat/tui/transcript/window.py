"""The window on the transcript: at its end while that grows, else where the reader left it."""

from collections.abc import Callable

from textual.geometry import Size
from textual.scroll_view import ScrollView

from h2o_chat.tui.transcript.page import Page
from h2o_chat.tui.transcript.turn import TurnView


class Window:
    """Moves over the rows of a page; wraps rows before they are visible.

    Args:
        widget: scrolls and is drawn.
        page: all messages.
        redraw: draws the rows of the window that have changed.
    """

    def __init__(self, widget: ScrollView, page: Page, redraw: Callable[[], None]) -> None:
        self.page = page
        self.redraw = redraw
        self._widget = widget
        self._follows = True
        self._moving = False

    def follow(self) -> None:
        """Go to the end and stay there, wherever the reader was."""
        self._follows = True
        self.laid()

    def go_to(self, view: TurnView, row: int = 0) -> None:
        """Bring a row of a message into the window, with the title if there is room."""
        page, rows = self.page, self._widget.scrollable_content_region.height
        place = page.views.index(view)
        view.rows(page.width)
        page.changed(place)
        start, top = page.starts[place], self._widget.scroll_offset.y
        if not top <= start + row < top + rows:
            self._follows = False
            self._move(start + max(row - rows // 2, 0))
        elif not top <= start:
            self._follows = False
            self._move(start if row < rows else start + row - rows // 2)

    def show_place(self, view: TurnView, share: float) -> None:
        """Go to a message, so far into it."""
        page, rows = self.page, self._widget.scrollable_content_region.height
        place = page.views.index(view)
        row = int(share * view.rows(page.width))
        page.changed(place)
        self._follows = False
        self._move(max(page.starts[place] + row - rows // 2, 0))

    def seen(self) -> list[TurnView]:
        """The visible messages."""
        top, rows = self._widget.scroll_offset.y, self._widget.scrollable_content_region.height
        first, last = self.page.at(top), self.page.at(min(top + rows, self.page.height) - 1)
        return [] if first is None or last is None else self.page.views[first : last + 1]

    def scrolled(self, to: float) -> None:
        """Note that it was scrolled, by the reader or from here."""
        if not self._moving:
            self._follows = to >= self._widget.max_scroll_y
            self._move(round(to))

    def resized(self) -> None:
        """Adapt to another width or height."""
        page, width = self.page, self._widget.scrollable_content_region.width
        if width and width != page.width:
            self.keeping(lambda: setattr(page, "width", width))
        else:
            self._move(self._widget.scroll_offset.y)

    def changed(self, view: TurnView) -> None:
        view.changed()
        self.keeping(lambda: None)

    def keeping(self, change: Callable[[], None]) -> None:
        """Run a change of heights; the message at the top of the window stays there."""
        page, top = self.page, self._widget.scroll_offset.y
        place = page.at(top)
        local = 0 if place is None else top - page.starts[place]
        change()
        page.changed()
        if place is None or not page.width:
            return
        rows = page.views[place].rows(page.width)
        page.changed()
        self._move(page.starts[place] + min(local, rows - 1))

    def laid(self, place: int = 0) -> None:
        """Adapt to other heights from this index on: the window stays at the end, or with its text."""
        self.page.changed(place)
        self._move(self._widget.scroll_offset.y)

    def _move(self, top: int) -> None:
        widget, page = self._widget, self.page
        rows = widget.scrollable_content_region.height
        if not rows:  # it has no place on the screen yet
            return
        top = page.look(top, rows, self._follows)
        self._moving = True
        self._resize(Size(page.width, page.height), rows)
        if top != widget.scroll_offset.y:
            widget.scroll_to(y=top, animate=False, force=True)  # which draws all of them
        else:
            self.redraw()
        self._moving = False

    def _resize(self, size: Size, rows: int) -> None:
        """Set the virtual size; where a scrollbar neither comes nor goes, no layout is needed."""
        widget, was = self._widget, self._widget.virtual_size
        if size.width != was.width or (size.height > rows) != (was.height > rows):
            widget.virtual_size = size
        elif size != was:
            widget.set_reactive(ScrollView.virtual_size, size)
            widget.vertical_scrollbar.window_virtual_size = size.height
