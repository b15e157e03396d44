"""The views of a transcript: the messages of the conversation, and the notes between them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from textual.content import Content

from h2o_chat.base.safe import safe_text
from h2o_chat.chat.conversation.message import Message
from h2o_chat.chat.templates.thinking import Thinking
from h2o_chat.events.events import Prompt, Turn
from h2o_chat.tui.transcript.find import Finder
from h2o_chat.tui.transcript.heat import Heat
from h2o_chat.tui.transcript.message_body import Growing
from h2o_chat.tui.transcript.message_view import THINKING, MessageView
from h2o_chat.tui.transcript.window import Window

CUT = ("length", "stopped", "interrupted")
"""The ends of answers that may have ended within their thought."""


class Messages:
    """The messages on the page, in order and by their index in the conversation."""

    def __init__(self, window: Window, heat: Heat, finder: Finder) -> None:
        self.heat = heat
        self.selected: int | None = None
        """Index of the message that is marked."""
        self._window, self._page, self._finder = window, window.page, finder
        self.views = window.page.views
        """Everything from top to bottom: messages, notes, errors."""
        self.by_index: dict[int, MessageView] = {}
        self.answer: MessageView | None = None
        self._index = 0
        self._filling = False

    def add(self, view: MessageView, before: MessageView | None = None) -> MessageView:
        place = self.views.index(before) if before else len(self.views)
        self.views.insert(place, view)
        self._laid(place)
        return view

    def redraw(self, view: MessageView) -> None:
        self._laid(self.views.index(view))

    def changed(self, view: MessageView) -> None:
        """Show a message that says something else."""
        self._finder.stale = True
        self._window.changed(view)

    @contextmanager
    def filling(self) -> Iterator[None]:
        """Add many messages and lay them out once, at the end."""
        self._filling = True
        try:
            yield
        finally:
            self._filling = False
            self._laid()

    def clear(self) -> None:
        self.views.clear()
        self.by_index.clear()
        self.answer = self.selected = None
        self._finder.look("", [])
        self._window.follow()

    def cut(self, index: int) -> None:
        """Take away message `index` and all below it."""
        first = min((message for message in self.by_index if message >= index), default=None)
        if first is None:
            return
        if self.selected is not None and self.selected >= index:
            self.mark(None)
        place = self.views.index(self.by_index[first])
        del self.views[place:]
        self.by_index = {message: view for message, view in self.by_index.items() if message < index}
        self._finder.look("", [])
        self._laid(place)

    def mark(self, index: int | None) -> None:
        """Mark a message as chosen; None marks none."""
        for message, wanted in ((self.selected, False), (index, True)):
            if message is not None and message in self.by_index:
                self.by_index[message].marked = wanted
        self.selected = index if index in self.by_index else None
        self._window.redraw()

    # Messages

    def message(
        self,
        role: str,
        name: str,
        text: str,
        index: int,
        finish: str | None = None,
        hold: float | None = None,
    ) -> None:
        view = MessageView(role, name, text, index, finish)
        view.thinking, view.raw, view.hold = self._thinking, self.heat.on, hold
        if view.thinking.marks[1] not in text and finish not in CUT:  # an imported answer without a thought
            view.thinking = replace(view.thinking, opened_tokens=0)
        view.tokens = self.heat.memory.words.tokens.get(index)
        view.folded = view.is_long
        self.by_index[index] = self.add(view)

    @property
    def _thinking(self) -> Thinking:
        session = self.heat.memory.session
        before, after, plain = session.thought if session and session.thought else ("", "", "")
        opened = session.opened_tokens if session else 0
        return Thinking((before, after), opened, plain) if after else THINKING

    def unfold_last(self) -> None:
        if self.by_index:
            last = self.by_index[max(self.by_index)]
            last.folded = False
            self.changed(last)

    def note(self, text: str, hint: str = "") -> MessageView:
        """Show a remark that is no part of the conversation; an answer that has not begun comes after it."""
        view = MessageView("note", "note", f"{text}\n→ {hint}" if hint else text)
        return self.add(view, before=self.answer if self.answer and not self.answer.said else None)

    def error(self, title: str, message: str, hint: str = "") -> None:
        body = Content.assemble(safe_text(message), (f"\n→ {safe_text(hint)}" if hint else "", "bold"))
        self.add(MessageView("error", f"✗ error · {title}", body))

    # The answer that is being written

    def open_answer(self, name: str, message: int) -> None:
        """Begin the answer that `stream` continues; `message` is its index in the conversation."""
        for view in self.by_index.values():  # fold what was read before
            if not view.folded and not view.kept_open and view.is_long:
                view.folded = True
                view.changed()
                self._page.changed()
        self._index = message
        self.answer = MessageView("assistant", name, index=message)
        self.answer.thinking, self.answer.raw = self._thinking, self.heat.on
        self.answer.growing = Growing(room=0)
        self.add(self.answer)

    def stream(self, text: str) -> None:
        """Append to the open answer; only its end is drawn again."""
        assert self.answer is not None
        self.by_index[self._index] = self.answer  # from the first word on there is something to hold
        self.answer.write(text)
        self._laid(self.views.index(self.answer))

    def close_answer(self, finish: str, text: str | None = None) -> None:
        """Close the open answer, if there is one; say so if it was ended by something."""
        if self.answer is None:
            return
        if text:
            self.by_index[self._index] = self.answer  # it may have come in one piece
        self.answer.close(finish, text)
        self.answer = None
        self._laid()

    def withdraw(self) -> None:
        """Take back the open answer and its question: neither was said."""
        assert self.answer is not None
        self._finder.look("", [])
        if self.selected is not None and self.selected >= self._index - 1:
            self.mark(None)
        self.views.remove(self.by_index.pop(self._index - 1))
        self.views.remove(self.answer)
        self.answer = None
        self._laid()

    # Their tokens, and how much of them is held

    def read(self, prompt: Prompt) -> None:
        """Give the messages of a prompt their tokens. `CacheView` must have the event already."""
        for span in self.heat.memory.spans[-2:]:
            view = self.by_index.get(span.index)
            if view is not None and view.kind == span.role != "assistant":
                view.tokens = self.heat.memory.words.tokens.get(span.index)
                self.changed(view)
        if self.answer is not None and not self.answer.thinking.opened_tokens:
            # Old recordings do not tell it, nor does a session whose template says nothing of thoughts.
            opened = "".join(prompt.texts[-8:]).rstrip().endswith(self.answer.thinking.marks[0])
            self.answer.thinking = replace(self.answer.thinking, opened_tokens=int(opened))

    def token(self) -> None:
        """Give the open answer its tokens. `CacheView` must have the event already."""
        if self.answer is not None:
            self.answer.tokens = self.heat.memory.words.tokens.get(self._index)

    def remembered(self) -> None:
        """Show the gauges of a new state. `CacheView` must have the event already."""
        for index, hold in self.heat.gauges().items():
            if index in self.by_index:
                self.by_index[index].hold = hold
        self._window.redraw()

    def show_marks(self, conversation: Sequence[Message]) -> None:
        """Show which messages are pinned, and where branches part."""
        for index, view in self.by_index.items():
            said = conversation[index] if index < len(conversation) else None
            view.pinned, view.branch = (said.pinned, said.branch) if said else (False, None)
        self._window.redraw()

    def show_pin(self, index: int, on: bool) -> None:
        if index in self.by_index:
            self.by_index[index].pinned = on
            self._window.redraw()

    def show_hold(self, turn: Turn) -> None:
        """Show every message's gauge; a message that is not mentioned has nothing left."""
        held = dict(turn.hold)
        for message, view in self.by_index.items():
            view.hold = held.get(message, 0.0)
            if turn.finish == "error" and message >= max(self.by_index) - 1:
                view.tokens = None  # the model has not seen them
                view.changed()
        self._window.redraw()

    def show_raw(self, raw: bool) -> None:
        """Show all messages as the text of their tokens, or as they are read."""
        self._finder.stale = True
        for view in self.by_index.values():
            view.raw = raw
            view.changed()
        if self.answer is not None:
            self.answer.raw = raw
            self.answer.changed()

    def _laid(self, place: int = 0) -> None:
        self._finder.stale = True
        if self._filling:
            self._page.changed(place)
        else:
            self._window.laid(place)
