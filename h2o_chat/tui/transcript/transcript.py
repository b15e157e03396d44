"""The transcript, drawn row by row: the cost depends on the visible part."""

from textual.binding import Binding, BindingType
from textual.events import Click, Resize
from textual.geometry import Offset
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from h2o_chat.tui.transcript.choice import Inspector, MessageChoice, Pointed, offers
from h2o_chat.tui.transcript.drawing import Canvas, draw_row, selected_text, spot
from h2o_chat.tui.transcript.find import Finder
from h2o_chat.tui.transcript.heat import Heat
from h2o_chat.tui.transcript.messages import Messages
from h2o_chat.tui.transcript.window import Page, Window

MOST_LINES = 1 << 32
"""Most lines of one message, so that each line of all messages has a number; in order."""


KEYS: list[BindingType] = [
    Binding("ctrl+c", "app.interrupt", show=False),  # the screen's own would copy without a word
    Binding("escape", "leave", "back", tooltip="nothing is chosen any more; back to the prompt"),
    Binding("up", "select(-1)", "choose", tooltip="choose the message above, a click chooses too"),
    Binding("down", "select(1)", "choose the message below", show=False),
    Binding("z", "fold", "fold", tooltip="chosen: fold a long message, or unfold it"),
    Binding("t", "thought", "thought", show=False, tooltip="chosen: show what was thought before the answer"),
    Binding("i", "inspect", "words", tooltip="chosen: look at its tokens; arrows or a click choose one"),
    Binding("left", "token(-1)", "the token before", show=False),
    Binding("right", "token(1)", "the next token", show=False),
    Binding("ctrl+up", "scroll_up", show=False),
    Binding("ctrl+down", "scroll_down", show=False),
]


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
    BINDINGS = KEYS

    class Chosen(Message):
        """Another message is chosen, or none; the pane shows what can be done."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.auto_links = False
        self.heat = Heat()
        self.finder = Finder()
        self.page = Page()
        self.window = Window(self, self.page, self.refresh_changed)
        self.messages = Messages(self.window, self.heat, self.finder)
        self.canvas = Canvas(self, self.page, self.heat, self.finder)
        self.inspector = Inspector(self.messages, self.window, self.canvas, self._point)
        self.choice = MessageChoice(self.messages, self.window, self.inspector, self._chosen)
        self.needs_choice = False
        """Letters are commands only while something is chosen: there is a prompt to type them into."""
        self._shown: dict[int, Strip] = {}

    # The choice

    @property
    def selected(self) -> int | None:
        return self.messages.selected

    def select(self, index: int | None, *, chosen: bool = False) -> None:
        """Mark a message and go there; None marks none. `chosen`: by hand, so letters are commands."""
        self.choice.pick(index, by_hand=chosen)
        if self.selected is not None:
            self.window.go_to(self.messages.by_index[self.selected])

    @property
    def letters(self) -> bool:
        """Whether single letters are commands now."""
        return self.screen.focused is self and (self.choice.view is not None or not self.needs_choice)

    def offers(self) -> list[str]:
        """Keys that act on the chosen message; empty where letters are no commands."""
        view = self.choice.view if self.letters else None
        return [] if view is None else offers(view, talks=self.needs_choice)

    def action_select(self, step: int) -> None:
        """Choose the next message, up or down; below the last one none is chosen."""
        if self.inspector.on:
            self.inspector.line(step)
            return
        self.choice.step(step)
        if self.selected is None:
            self.window.follow()
        else:
            self.window.go_to(self.messages.by_index[self.selected])

    def _chosen(self) -> None:
        if self.is_mounted:
            self.post_message(self.Chosen())

    def watch_has_focus(self, has_focus: bool) -> None:
        super().watch_has_focus(has_focus)
        self.border_title = f"▸ {self.BORDER_TITLE}" if has_focus else self.BORDER_TITLE
        self._chosen()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        match action:
            case "token":
                return self.inspector.on
            case "leave":
                return self.inspector.on or self.choice.view is not None
            case "fold" | "thought" | "inspect":
                return self.letters
        return super().check_action(action, parameters)

    def action_fold(self) -> None:
        self.choice.fold()

    def action_thought(self) -> None:
        self.choice.show_thought()

    # Heat and tokens

    def toggle_heat(self) -> None:
        self.heat.on = not self.heat.on
        self.window.keeping(lambda: self.messages.show_raw(self.heat.on))
        if not self.heat.on and self.inspector.on:
            self.inspector.end()
        self.refresh()
        self.refresh_bindings()

    def action_inspect(self) -> None:
        if self.inspector.on:
            self.inspector.end()
            return
        if not self.heat.on:
            self.toggle_heat()
        self.inspector.begin(self.choice.view)
        self.refresh_bindings()

    def action_token(self, step: int) -> None:
        self.inspector.step(step)

    def _point(self, position: int | None) -> None:
        """Put the cursor on a token, and choose its message."""
        self.post_message(Pointed(position))
        view = None if position is None else self.inspector.view_of(position)
        if view is not None:
            self.choice.pick(view.index)

    def action_leave(self) -> None:
        self.choice.end()
        self.refresh_bindings()

    def text_select_all(self) -> None:
        """A double click selects one message, see `on_click`, and not everything."""

    def on_click(self, event: Click) -> None:
        place = event.get_content_offset(self)
        if place is None or self.text_selection is not None:
            return
        row = place.y + self.scroll_offset.y
        at = self.page.at(row)
        if at is None:  # below the last message
            self.choice.end()
        elif event.chain == 2:
            first, last = Offset(0, at * MOST_LINES), Offset(0, (at + 1) * MOST_LINES)
            self.screen.selections = {self: Selection(first, last)}
        else:
            self.choice.click(at, row, place.x)

    # Finding and copying

    def find(self, words: str, step: int = -1) -> str:
        """Mark words and go to the next or previous place; returns how many there are."""
        if words != self.finder.words or self.finder.stale:
            views = [view for _, view in sorted(self.messages.by_index.items())]
            self.finder.look(words, views, self.page.width)
            self.window.laid()
        if match := self.finder.step(step):
            row, _ = spot(match.view, match.at, self.page.width, self.canvas, raw=False)
            self.window.go_to(match.view, row)
        self.refresh()
        return self.finder.count

    def chosen_text(self) -> str:
        """The text of the marked message, or of the last one."""
        index = max(self.messages.by_index, default=-1) if self.selected is None else self.selected
        view = self.messages.by_index.get(index)
        return view.said if view is not None else ""

    # Where the window is

    def on_resize(self, event: Resize) -> None:
        self.window.resized()
        self.finder.stale = True
        self.inspector.keep_in_sight()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.window.scrolled(new_value)

    def refresh_changed(self) -> None:
        """Draw the rows of the window that have changed: mostly one, where an answer goes on."""
        for y in range(self.scrollable_content_region.height):
            strip, shown = self._strip(y), self._shown.get(y)
            if strip is not shown and strip != shown:
                self.refresh_line(y + self.scroll_offset.y)

    # Drawing

    def render_line(self, y: int) -> Strip:
        strip = self._shown[y] = self._strip(y)
        return strip

    def _strip(self, y: int) -> Strip:
        row = y + self.scroll_offset.y
        place = self.page.at(row)
        if place is None:
            return Strip.blank(self.page.width, self.canvas.ground)
        local = row - self.page.starts[place]
        return draw_row(self.page.views[place], local, self.page.width, place * MOST_LINES, self.canvas)

    # The selection by mouse

    def selection_updated(self, selection: Selection | None) -> None:
        self.canvas.epoch += 1
        self.refresh()

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        numbered = enumerate(self.page.views)
        parts = (selected_text(view, selection, place * MOST_LINES) for place, view in numbered)
        return "\n\n".join(part for part in parts if part), "\n"

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self.canvas.epoch += 1
