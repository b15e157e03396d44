"""The transcript's page, all messages one below the other, and the window on it, which follows its end."""

from bisect import bisect_right
from collections.abc import Callable

from textual.geometry import Size
from textual.scroll_view import ScrollView

from h2o_chat.tui.transcript.message_view import MessageView


class Page:
    """Messages from top to bottom, in a width.

    Wrapping a long conversation takes a second; only the visible part is wrapped, the rest is guessed.
    """

    def __init__(self) -> None:
        self.views: list[MessageView] = []
        self.width = 1
        self._starts = [0]
        self._good = 0  # number of the first messages whose rows are right

    @property
    def starts(self) -> list[int]:
        """The first row of each message; then the height of all."""
        if self._good < len(self.views) or len(self._starts) != len(self.views) + 1:
            del self._starts[self._good + 1 :]
            row = self._starts[-1]
            for view in self.views[self._good :]:
                row += view.guess(self.width)
                self._starts.append(row)
            self._good = len(self.views)
        return self._starts

    @property
    def height(self) -> int:
        return self.starts[-1]

    def changed(self, place: int = 0) -> None:
        """Forget the rows from this index on."""
        self._good = min(self._good, place)

    def start_of(self, view: MessageView) -> int:
        """The first row of a message, which is wrapped for it."""
        place = self.views.index(view)
        view.rows(self.width)
        self.changed(place)
        return self.starts[place]

    def at(self, row: int) -> int | None:
        """Index of the message that a row belongs to."""
        if not 0 <= row < self.height:
            return None
        return bisect_right(self.starts, row) - 1

    def look(self, top: int, rows: int, follow: bool) -> int:
        """Wrap the rows from `top` on, or the last ones (`follow`); returns the new top, at the same text."""
        for _ in self.views:  # wrapping one may bring in the next
            top = max(self.height - rows, 0) if follow else min(top, max(self.height - rows, 0))
            first, last = self.at(top), self.at(min(top + rows, self.height) - 1)
            if first is None or last is None:
                return 0
            seen = range(first, last + 1)
            unknown = [place for place in seen if not self.views[place].known(self.width)]
            if not unknown:
                return top
            stays = next((place for place in seen if place not in unknown), first)
            before = self.starts[stays]
            for place in unknown:
                self.views[place].rows(self.width)
            self.changed(first)
            top = max(top + self.starts[stays] - before, 0)
        return top


class Window:
    """Moves over the rows of a page, wraps them before they are visible; `redraw` draws the changed ones."""

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

    def go_to(self, view: MessageView, row: int = 0) -> None:
        """Bring a row of a message into the window, with the title if there is room."""
        start, rows = self.page.start_of(view), self._widget.scrollable_content_region.height
        top = self._widget.scroll_offset.y
        if not top <= start + row < top + rows:
            self._follows = False
            self._move(start + max(row - rows // 2, 0))
        elif not top <= start:
            self._follows = False
            self._move(start if row < rows else start + row - rows // 2)

    def show_place(self, view: MessageView, share: float) -> None:
        """Go to a message, so far into it."""
        start, rows = self.page.start_of(view), self._widget.scrollable_content_region.height
        row = int(share * view.rows(self.page.width))
        self._follows = False
        self._move(max(start + row - rows // 2, 0))

    def seen(self) -> list[MessageView]:
        top, rows = self._widget.scroll_offset.y, self._widget.scrollable_content_region.height
        first, last = self.page.at(top), self.page.at(min(top + rows, self.page.height) - 1)
        return [] if first is None or last is None else self.page.views[first : last + 1]

    def scrolled(self, to: float) -> None:
        """Note that it was scrolled, by the reader or from here."""
        if not self._moving:
            self._follows = to >= self._widget.max_scroll_y
            self._move(round(to))

    def resized(self) -> None:
        page, width = self.page, self._widget.scrollable_content_region.width
        if width and width != page.width:
            self.keeping(lambda: setattr(page, "width", width))
        else:
            self._move(self._widget.scroll_offset.y)

    def changed(self, view: MessageView) -> None:
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
