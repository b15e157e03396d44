"""Dialogs with a list and a line to type into: the models, the stored conversations."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from h2o_chat.base.config import user_aliases
from h2o_chat.base.errors import H2OChatError
from h2o_chat.base.glyphs import size
from h2o_chat.chat.conversation.opening import YES
from h2o_chat.chat.files.export import one_line, when
from h2o_chat.models.aliases import ALIASES, fits
from h2o_chat.models.here import models_here
from h2o_chat.store import Store, Summary
from h2o_chat.tui.prompt.completion_menu import listed
from h2o_chat.tui.widgets.key_bar import KeyBar
from h2o_chat.tui.widgets.line_input import LineInput
from h2o_chat.tui.widgets.theme import MUTED


class ListDialog(ModalScreen[str | None]):
    """Ends with what was chosen, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "back"),
        Binding("up", "move('cursor_up')", show=False),
        Binding("down", "move('cursor_down')", show=False),
        Binding("pageup", "move('page_up')", show=False),
        Binding("pagedown", "move('page_down')", show=False),
        Binding("ctrl+c", "app.interrupt", show=False, priority=True),
    ]

    def __init__(self, title: str, label: str, placeholder: str, remark: str = "") -> None:
        super().__init__()
        self._title_shown = title
        self._list = OptionList(markup=False)
        self._list.can_focus = False
        self._remark_line = Static(remark, id="remark", markup=False)
        self._label = Static(label, id="label", markup=False)
        self._input = LineInput(placeholder=placeholder, select_on_focus=False)

    def compose(self) -> ComposeResult:
        with Vertical(id="box") as box:
            box.border_title = self._title_shown
            yield self._list
            yield self._remark_line
            with Horizontal(id="asking"):
                yield self._label
                yield self._input
        yield KeyBar()

    def on_mount(self) -> None:
        self.set_focus(self._input)

    def on_key(self, event: Key) -> None:
        """Type into the line before it has the keyboard; a letter that it gets itself goes no further."""
        if event.character is not None and event.is_printable and not self._input.has_focus:
            event.stop()
            self._input.insert_text_at_cursor(event.character)

    def action_move(self, how: str) -> None:
        getattr(self._list, f"action_{how}")()

    def action_back(self) -> None:
        self.dismiss(None)


@dataclass(frozen=True)
class ModelRow:
    name: str
    facts: str
    sized: bool = False
    """It is to be fetched, and the facts say how much: enter twice agrees. Shown once something is typed."""


def rows(memory_bytes: int, used: Iterable[str] = ()) -> Iterator[ModelRow]:
    """The models that are here, those used last first, then those that fit a machine with so much memory.

    Raises:
        UsageError: the configuration, which may name models, cannot be read.
    """
    there = {one.name: one for one in models_here(used)}
    for name, one in there.items():
        yield ModelRow(name, f"here · {size(one.bytes)} · {one.where}")
    for name, target in user_aliases().items():
        yield ModelRow(name, f"your own name for {target}")
    for alias in ALIASES.values():
        if alias.repository in there:
            continue
        room = fits(alias, memory_bytes)
        facts = [alias.repository, f"{size(alias.bytes_16)} to fetch"]
        facts.append("does not fit" if room == "no" else f"fits in {room}")
        yield ModelRow(alias.name, " · ".join(facts + (["gated"] if alias.gated else [])), sized=True)


def _files_in(text: str) -> list[ModelRow]:
    """The GGUF files in a folder; else what was typed."""
    names = sorted(name for is_file, name in listed(text) if is_file and name.endswith(".gguf"))
    rows = [ModelRow(str(Path(text, name)), "a GGUF file") for name in names]
    return rows or [ModelRow(text, "a file or folder here, or org/name of the hub: fetched if it is there")]


class Models(ListDialog):
    """Ends with the name of the model to open, with `YES` where its size was shown; or None."""

    def __init__(self, rows: list[ModelRow]) -> None:
        more = sum(row.sized for row in rows)
        remark = "enter opens it" + (f" · typing finds {more} more, which are fetched" if more else "")
        super().__init__("models", "model", "a name, a GGUF file, a folder or org/name", remark)
        self._rows = self._found = rows
        self._agreeing: ModelRow | None = None
        """A row that enter was pressed on once, of a model that is to be fetched."""

    def on_mount(self) -> None:
        self._look()

    @on(Input.Changed)
    def _look(self) -> None:
        text = self._input.value
        words = text.lower().split()
        self._found = [
            row
            for row in self._rows
            if (words or not row.sized) and all(word in f"{row.name} {row.facts}".lower() for word in words)
        ] or _files_in(text.strip())
        self._list.set_options(
            Option(Content.assemble((f"{one_line(row.name)}\n", "bold"), (one_line(row.facts), MUTED)))
            for row in self._found
        )
        self._list.highlighted = 0

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def _open(self) -> None:
        row = self._found[self._list.highlighted or 0]
        if not row.sized:
            self.dismiss(row.name)
        elif row is self._agreeing:
            self.dismiss(row.name + YES)
        else:
            self._agreeing = row
            self._remark_line.update(f"enter again fetches {row.name}")


SHOWN = 200
"""Nobody reads a longer list; typing finds the others."""
HITS = 200
"""Messages with the words that are looked at; many may be of one conversation."""
TITLE_CHARACTERS = 100
FIND = "words of a title or a message"


@dataclass(frozen=True)
class FoundConversation:
    """A conversation, and the place of the words in it if they are not in its title."""

    about: Summary
    snippet: str = ""


def find(store: Store, words: str) -> list[FoundConversation]:
    """Conversations with all words in the title, then those with a message that has them, newest first."""
    everything = {about.id: about for about in store.list()}
    wanted = words.lower().split()
    named = (about for about in everything.values() if all(word in about.title.lower() for word in wanted))
    found = {about.id: FoundConversation(about) for about in named}
    for hit in store.search(words, HITS):
        if hit.conversation in everything:  # it may have been removed meanwhile
            found.setdefault(hit.conversation, FoundConversation(everything[hit.conversation], hit.snippet))
    return list(found.values())


class Conversations(ListDialog):
    """Ends with the id of the conversation to open, or None; `current` is on the screen, `model` runs."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+r", "rename", "rename", priority=True),
        Binding("ctrl+d", "remove", "remove", priority=True),
    ]

    def __init__(self, store: Store, current: str | None, model: str) -> None:
        super().__init__("conversations", "find", FIND)
        self._store, self._current, self._model = store, current, model
        self._found: dict[str, FoundConversation] = {}
        self._asking: Literal["find", "rename", "remove"] = "find"
        self._number = 0  # number of the newest search
        self._words = ""  # the searched words, while something else is asked
        self._about: Summary | None = None  # the conversation to rename or to remove

    def on_mount(self) -> None:
        self._look()

    # The list

    def _look(self, first: Callable[[], None] | None = None) -> None:
        """Search in a thread; do something else there before."""
        self._number += 1
        number, words = self._number, self._input.value

        def work() -> None:
            found: list[FoundConversation] = []
            trouble = None
            try:
                if first:
                    first()
            except H2OChatError as error:
                trouble = error
            try:
                found = find(self._store, words)
            except H2OChatError as error:
                trouble = error
            self.call_later(self._listed, number, found, trouble)

        self.run_worker(work, thread=True)

    def _listed(self, number: int, found: list[FoundConversation], trouble: H2OChatError | None) -> None:
        if trouble:
            self._remark(f"✗ {trouble.message} {trouble.hint}".strip())
        if number != self._number or self._asking != "find":
            return  # more was typed meanwhile: that will be answered
        before, shown = self._highlighted, found[:SHOWN]
        self._found = {one.about.id: one for one in shown}
        self._list.set_options(map(self._option, shown))
        ids = list(self._found)
        self._list.highlighted = ids.index(before) if before in ids else 0 if ids else None
        if not trouble:
            more = len(found) - len(shown)
            opens = f"enter opens it · {more} more: type to find them" if more else "enter opens it"
            self._remark(opens if ids else "nothing found")

    def _option(self, found: FoundConversation) -> Option:
        about = found.about
        title = Content(one_line(about.title) or "no title").truncate(TITLE_CHARACTERS, ellipsis=True)
        facts = [when(about.updated), f"{about.messages:,} messages"]
        if about.model != self._model:
            facts.append(f"held with {one_line(about.model)}")
        if about.id == self._current:
            facts.append("on the screen now")
        lines = [title.stylize("bold"), Content.styled(" · ".join(facts), MUTED)]
        if found.snippet:
            lines.append(Content(one_line(found.snippet)))
        return Option(Content("\n").join(lines), about.id)

    @property
    def _highlighted(self) -> str | None:
        option = self._list.highlighted_option
        return option.id if option else None

    def _remark(self, text: str) -> None:
        self._remark_line.update(one_line(text))

    # Keys

    def action_back(self) -> None:
        if self._asking == "find":
            self.dismiss(None)
        else:
            self._find_again()

    def action_rename(self) -> None:
        if about := self._chosen():
            self._ask("rename", "new title", about.title)
            self._remark("enter renames it · esc leaves it as it is")

    def action_remove(self) -> None:
        if about := self._chosen():
            if about.id == self._current:
                self._remark("this one is on the screen: begin or open another first")
                return
            self._ask("remove", "remove? y/n", "")
            title = about.title or "no title"
            self._remark(f"y removes “{title}” with its {about.messages:,} messages, for ever · esc keeps it")

    def _chosen(self) -> Summary | None:
        if self._asking != "find" or (highlighted := self._highlighted) is None:
            return None
        self._about = self._found[highlighted].about
        return self._about

    def _ask(self, what: Literal["rename", "remove"], label: str, value: str) -> None:
        self._words, self._asking = self._input.value, what
        self._label.update(label)
        self._input.placeholder = ""
        self._input.value = one_line(value)
        self._input.action_select_all()  # typing replaces it

    def _find_again(self, first: Callable[[], None] | None = None) -> None:
        self._asking = "find"
        self._label.update("find")
        self._remark("")
        self._input.placeholder = FIND
        with self.prevent(Input.Changed):  # it would be looked for twice
            self._input.value = self._words
        self._look(first)

    def on_input_changed(self, event: Input.Changed) -> None:
        if self._asking == "find":
            self._look()
        # Not the value of the event: that may have been typed before this was asked.
        elif self._asking == "remove" and self._input.value.strip().lower() in ("y", "yes"):
            about = self._about
            assert about is not None
            self._find_again(lambda: self._store.remove(about.id))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if self._asking == "find":
            self._open(self._highlighted)
        elif self._asking == "rename" and self._about is not None:
            about, title = self._about, event.value.strip()
            self._find_again((lambda: self._store.rename(about.id, title)) if title else None)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self._open(event.option_id)

    def _open(self, conversation: str | None) -> None:
        if conversation is not None:
            self.dismiss(None if conversation == self._current else conversation)
