"""The conversation, drawn row by row: it costs what is seen of it, however long it is."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Click, Resize
from textual.geometry import Offset, Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.visual import Visual

from h2o_chat.events import Prompt, Token, Turn
from h2o_chat.tui.body import Piece
from h2o_chat.tui.dress import dressed, selected
from h2o_chat.tui.find import Finder
from h2o_chat.tui.heat import Heat
from h2o_chat.tui.inspect import Inspector
from h2o_chat.tui.page import Page
from h2o_chat.tui.safe import safe_text
from h2o_chat.tui.thought import OPEN, divide
from h2o_chat.tui.tokens import Tokens
from h2o_chat.tui.turn import TurnView
from h2o_chat.tui.where import spot

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
        Binding("down", "select(1)", "your next message", show=False),
        Binding("left_square_bracket", "choose(-1)", "the message above", show=False),
        Binding("right_square_bracket", "choose(1)", "the message below", show=False),
        Binding("z", "fold", "fold"),
        Binding("t", "thought", "thought", show=False),
        Binding("i", "inspect", "tokens"),
        Binding("left", "token(-1)", "the token before", show=False),
        Binding("right", "token(1)", "the next token", show=False),
        Binding("escape", "leave", "leave the tokens"),
        Binding("ctrl+up", "scroll_up", show=False),
        Binding("ctrl+down", "scroll_down", show=False),
    ]

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.selected: int | None = None
        """The message of the user that is marked."""
        self.auto_links = False
        self.heat = Heat()
        self.inspector = Inspector(self)
        self.finder = Finder()
        self.page = Page()
        self._turns: dict[int, TurnView] = {}
        self._answer: TurnView | None = None
        """The answer that is being written."""
        self._index = 0
        self._follows = True
        self._filling = False
        self._moving = False
        self._shown: dict[int, Strip] = {}
        """What was drawn last, by row of the window."""
        self._epoch = 0
        """Counts what makes all that was drawn wrong."""

    @property
    def views(self) -> list[TurnView]:
        """Everything from top to bottom: messages, notes, errors."""
        return self.page.views

    # What it shows

    def add(self, view: TurnView, before: TurnView | None = None) -> TurnView:
        """Show something more."""
        place = self.views.index(before) if before else len(self.views)
        self.views.insert(place, view)
        self._laid(place)
        return view

    def redraw(self, view: TurnView) -> None:
        """One of them shows something else."""
        self._laid(self.views.index(view))

    @contextmanager
    def filling(self) -> Iterator[None]:
        """Many messages at once: they are laid out when all are there."""
        self._filling = True
        try:
            yield
        finally:
            self._filling = False
            self._laid()

    def message(
        self,
        role: str,
        name: str,
        text: str,
        index: int,
        finish: str | None = None,
        hold: float | None = None,
        tokens: Tokens | None = None,
    ) -> None:
        """Add a finished message.

        Args:
            index: its place in the conversation.
            finish: how an answer ended.
            hold: how much of it is held, where that is known.
            tokens: of which it consists, where that is known.
        """
        view = TurnView(role, name, text, index, finish)
        view.hold, view.tokens, view.raw = hold, tokens, self.heat.mode != "off"
        view.folded = view.is_long
        self._turns[index] = self.add(view)

    def unfold_last(self) -> None:
        """The last message is to be read, however long it is."""
        if self._turns:
            last = self._turns[max(self._turns)]
            last.folded = False
            self._changed(last)

    def message_view(self, index: int) -> TurnView | None:
        """A message, by its place in the conversation, if it is shown."""
        return self._turns.get(index)

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
        self.finder.look("", [])
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
        self.finder.look("", [])
        self._laid(place)

    def open_answer(self, name: str, message: int) -> None:
        """Begin the message that `stream` continues; `message` is its place in the conversation."""
        for view in self._turns.values():  # what was read is out of the way
            if not view.folded and view.kept_open is None and view.is_long:
                view.folded = True
                view.changed()
                self.page.changed()
        self._index = message
        self._answer = TurnView("assistant", name, index=message)
        self._answer.raw = self.heat.mode != "off"
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
        self.finder.look("", [])
        self.views.remove(self._turns.pop(self._index - 1))
        self.views.remove(self._answer)
        self._answer = None
        self._laid()

    def read(self, prompt: Prompt) -> None:
        """A prompt was read: its messages have tokens. The memory knows already where they lie."""
        for span in self.heat.memory.spans[-2:]:
            view, skip = self._turns.get(span.index), span.first - prompt.first
            if view is not None and view.kind == span.role != "assistant" and skip >= 0 and prompt.texts:
                view.tokens = Tokens(span.first, prompt.texts[skip : span.last + 1 - prompt.first])
                self._changed(view)
        if self._answer is not None:
            self._answer.thinks = "".join(prompt.texts[-8:]).rstrip().endswith(OPEN)

    def token(self, token: Token) -> None:
        """One more token of the open answer; its text is streamed apart."""
        if self._answer is not None:
            if self._answer.tokens is None:
                self._answer.tokens = Tokens(token.position)
            self._answer.tokens.add(token.text)

    def remembered(self) -> None:
        """The cache has reported, and the memory knows."""
        for index, hold in self.heat.gauges().items():
            if index in self._turns:
                self._turns[index].hold = hold
        self.refresh()

    def show_pins(self, pinned: Collection[int]) -> None:
        """Write which messages are pinned."""
        for index, view in self._turns.items():
            view.pinned = index in pinned
        self.refresh()

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
            if turn.finish == "error" and message >= max(self._turns) - 1:
                view.tokens = None  # the model has not seen them
                view.changed()
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
        if self.inspector.on:
            self.inspector.line(step)
            return
        own = [message for message, view in sorted(self._turns.items()) if view.kind == "user"]
        if not own:
            return
        at = own.index(self.selected) if self.selected in own else len(own)
        at = max(at + step, 0)
        self.select(own[at] if at < len(own) else None)
        if self.selected is None:
            self.follow()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that would do nothing now are neither bound nor shown."""
        match action:
            case "token" | "leave":
                return self.inspector.on
            case "inspect":
                return not self.inspector.on
        return super().check_action(action, parameters)

    def action_choose(self, step: int) -> None:
        """Mark the next message, whoever said it."""
        there = sorted(self._turns)
        if not there:
            return
        at = there.index(self.selected) if self.selected in there else len(there)
        self.select(there[min(max(at + step, 0), len(there) - 1)])

    def action_fold(self) -> None:
        """Fold the marked message, or unfold it; where none is marked, the first long one that is seen."""
        view = self._turns.get(-1 if self.selected is None else self.selected)
        view = view or next((one for one in self.seen() if one.folded or one.is_long), None)
        if view is not None and view.is_long:
            self.fold(view)

    def fold(self, view: TurnView) -> None:
        """Fold a long message, or unfold it; so it stays."""
        view.folded = not view.folded
        view.kept_open = not view.folded or None
        self._changed(view)

    def action_thought(self) -> None:
        """Show what was thought before an answer, or fold it away."""
        chosen = [self._turns[self.selected]] if self.selected in self._turns else reversed(self.seen())
        view = next((one for one in chosen if one.thought is not None), None)
        if view is not None:
            view.thought_shown = not view.thought_shown
            self._changed(view)

    # Heat and tokens

    def cycle_heat(self) -> str:
        """Another kind of heat on the words; which."""
        was = self.heat.mode
        self.heat.cycle()
        if "off" in (was, self.heat.mode):
            self._keeping(self._show_raw)
        if self.heat.mode == "off" and self.inspector.on:
            self.inspector.end()
        self.refresh()
        self.refresh_bindings()
        return self.heat.mode

    def _show_raw(self) -> None:
        for view in self._turns.values():
            view.raw = self.heat.mode != "off"
            view.changed()
        if self._answer is not None:
            self._answer.raw = self.heat.mode != "off"
            self._answer.changed()

    def action_inspect(self) -> None:
        """Move a cursor over the tokens."""
        if self.heat.mode == "off":
            self.cycle_heat()
        self.inspector.begin()
        self.refresh_bindings()

    def action_token(self, step: int) -> None:
        """The next token, or the one before."""
        self.inspector.step(step)

    def action_leave(self) -> None:
        """Leave the tokens."""
        self.inspector.end()
        self.refresh_bindings()

    def text_select_all(self) -> None:
        """What is clicked twice is one message, see `on_click`, and not everything."""

    def on_click(self, event: Click) -> None:
        place = event.get_content_offset(self)
        at = None if place is None else self.page.at(place.y + self.scroll_offset.y)
        if place is None or at is None or self.text_selection is not None:
            return
        row = place.y + self.scroll_offset.y
        if event.chain == 2:
            first, last = Offset(0, at * MOST_LINES), Offset(0, (at + 1) * MOST_LINES)
            self.screen.selections = {self: Selection(first, last)}
        else:
            piece, _ = self.views[at].at(row - self.page.starts[at], self.page.width)
            if piece is not None and piece.fold:
                self.fold(self.views[at])
            elif self.heat.mode != "off":
                self.inspector.pick(self.inspector.token_at(row, place.x))
                self.refresh_bindings()

    def seen(self) -> list[TurnView]:
        """The messages in the window."""
        top, rows = self.scroll_offset.y, self.scrollable_content_region.height
        first, last = self.page.at(top), self.page.at(min(top + rows, self.page.height) - 1)
        return [] if first is None or last is None else self.views[first : last + 1]

    # Finding and copying

    def find(self, words: str, step: int = -1) -> str:
        """Mark words and go to the next place, or the one before; how many there are."""
        if words != self.finder.words:
            self.finder.look(words, [self._turns[index] for index in sorted(self._turns)])
            self._laid()
        if match := self.finder.step(step):
            row, _ = spot(match.view, match.at, self.page.width, self, raw=False)
            self.go_to(match.view, row)
        self.refresh()
        return self.finder.count

    def chosen_text(self) -> str:
        """What was said in the marked message, or in the last one."""
        return self.text_of(max(self._turns, default=-1) if self.selected is None else self.selected)

    def text_of(self, index: int) -> str:
        """What was said in a message, without what was thought before; nothing where it is not shown."""
        view = self._turns.get(index)
        return divide(view.source, begun=view.thinks)[1] if view is not None else ""

    # Where the window is

    def follow(self) -> None:
        """Go to the end and stay there, wherever the reader was."""
        self._follows = True
        self._laid()

    def go_to(self, view: TurnView, row: int = 0) -> None:
        """Bring a row of a message into the window, with the title if there is room."""
        page, rows = self.page, self.scrollable_content_region.height
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
        row = int(share * view.rows(self.page.width))
        self.page.changed(place)
        self._follows = False
        self._move(max(self.page.starts[place] + row - self.scrollable_content_region.height // 2, 0))
        return True

    def _changed(self, view: TurnView) -> None:
        """One message has another height."""
        view.changed()
        self._keeping(lambda: None)

    def _keeping(self, change: Callable[[], None]) -> None:
        """Change heights; the message at the top of the window stays there."""
        place = self.page.at(self.scroll_offset.y)
        local = 0 if place is None else self.scroll_offset.y - self.page.starts[place]
        change()
        self.page.changed()
        if place is None or not self.page.width:
            return
        rows = self.views[place].rows(self.page.width)
        self.page.changed()
        self._move(self.page.starts[place] + min(local, rows - 1))

    def _laid(self, place: int = 0) -> None:
        """From this place on some have another height: the window stays at the end, or with what was seen."""
        self.page.changed(place)
        if not self._filling:
            self._move(self.scroll_offset.y)

    def _move(self, top: int) -> None:
        """Go to a row, having wrapped what is seen there."""
        rows = self.scrollable_content_region.height
        if not rows:  # it has no place on the screen yet
            return
        top = self.page.look(top, rows, self._follows)
        size = Size(self.page.width, self.page.height)
        if size == self.virtual_size and top == self.scroll_offset.y:
            for y in range(rows):  # mostly one: where an answer goes on
                if self._strip(y) != self._shown.get(y):
                    self.refresh_line(y + top)
            return
        self._moving = True
        self.virtual_size = size
        if top != self.scroll_offset.y:
            self.scroll_to(y=top, animate=False, force=True)
        self._moving = False
        self.refresh()

    def on_resize(self, event: Resize) -> None:
        self._measure()

    def _measure(self) -> None:
        width = self.scrollable_content_region.width
        if width and width != self.page.width:
            self._keeping(lambda: setattr(self.page, "width", width))
        else:
            self._move(self.scroll_offset.y)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if not self._moving:
            self._follows = new_value >= self.max_scroll_y
            self._move(round(new_value))

    # Drawing

    def render_line(self, y: int) -> Strip:
        strip = self._shown[y] = self._strip(y)
        return strip

    def _strip(self, y: int) -> Strip:
        """What stands in a row of the window."""
        row = y + self.scroll_offset.y
        place = self.page.at(row)
        if place is None:
            return Strip.blank(self.page.width, self.rich_style)
        local = row - self.page.starts[place]
        return self.views[place].row(local, self.page.width, place * MOST_LINES, self)

    def draw(self, content: Content, width: int) -> Sequence[Strip]:
        """See `turn.Canvas`."""
        return Visual.to_strips(self, content, width, None, self.visual_style, apply_selection=False)

    def dress(self, view: TurnView, piece: Piece, line: int) -> Content:
        """See `turn.Canvas`."""
        content = dressed(view, piece, self.heat, self.finder, self.page.width)
        selection = self.text_selection
        if selection is not None:
            style = Style.from_styles(self.screen.get_component_styles("screen--selection"))
            content = selected(piece, content, selection, line + 1, style)
        return content

    def key(self, view: TurnView, piece: Piece) -> object:
        """See `turn.Canvas`."""
        warm = piece.start >= 0 or piece.fold
        heat = (self.heat.version, self.heat.memory.cursor) if warm else None
        return self._epoch, heat, self.finder.version

    # What is selected with the mouse

    def selection_updated(self, selection: Selection | None) -> None:
        self._epoch += 1
        self.refresh()

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        parts = (view.selected(selection, place * MOST_LINES) for place, view in enumerate(self.views))
        return "\n\n".join(part for part in parts if part), "\n"

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._epoch += 1
