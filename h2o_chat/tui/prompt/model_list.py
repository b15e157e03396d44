"""The dialog of models: those that are here, those that can be had; enter opens one, fetched first if
needed."""

from collections.abc import Iterator
from dataclasses import dataclass

from textual.content import Content
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from h2o_chat.base.config import user_aliases
from h2o_chat.base.glyphs import size
from h2o_chat.chat.conversation.opening import YES
from h2o_chat.chat.files.export import one_line
from h2o_chat.models import ollama, smollm2
from h2o_chat.models.aliases import ALIASES, fits
from h2o_chat.models.hub_cache import repositories
from h2o_chat.models.resolve import BUNDLED, POCKET
from h2o_chat.tui.prompt.list_dialog import ListDialog
from h2o_chat.tui.widgets.theme import MUTED


@dataclass(frozen=True)
class ModelRow:
    name: str
    """The name that opens it."""
    facts: str
    sized: bool = False
    """The facts say how much is to be fetched: whoever chooses it has agreed."""


def rows(memory_bytes: int) -> Iterator[ModelRow]:
    """The models that are here, then those that can be had on a machine with so much memory.

    Raises:
        UsageError: the configuration, which may name models, cannot be read.
    """
    if smollm2.is_here():
        yield ModelRow(smollm2.NAME, f"here · {size(smollm2.place().stat().st_size)}")
    if any(folder.is_dir() for folder in BUNDLED):
        yield ModelRow(POCKET, "here · comes with the program")
    there = {one.repository: one for one in repositories()}
    for name, one in there.items():
        yield ModelRow(
            name, f"here · {size(one.bytes)}" if one.folder else f"in part · {size(one.bytes)} are here"
        )
    for kept in ollama.installed():
        yield ModelRow(kept.name, f"here, ollama's · {size(kept.bytes)}")
    for name, target in user_aliases().items():
        yield ModelRow(name, f"your own name for {target}")
    for alias in ALIASES.values():
        if alias.repository in there:
            continue
        room = fits(alias, memory_bytes)
        facts = [alias.repository, f"{size(alias.bytes_16)} to fetch"]
        facts.append("does not fit" if room == "no" else f"fits in {room}")
        yield ModelRow(alias.name, " · ".join(facts + (["gated"] if alias.gated else [])), sized=True)


class Models(ListDialog):
    """Ends with the name of the model to open, with `YES` where its size was shown; or None."""

    def __init__(self, rows: list[ModelRow]) -> None:
        remark = "enter opens it, fetched first if it is not here"
        super().__init__("models", "model", "a name, a folder or org/name", remark)
        self._rows = self._found = rows

    def on_mount(self) -> None:
        self._look("")

    def _look(self, text: str) -> None:
        words = text.lower().split()
        self._found = [
            row for row in self._rows if all(word in f"{row.name} {row.facts}".lower() for word in words)
        ] or [ModelRow(text.strip(), "a folder, or org/name of the hub: fetched if it is there")]
        self._list.set_options(
            Option(Content.assemble((f"{one_line(row.name)}\n", "bold"), (one_line(row.facts), MUTED)))
            for row in self._found
        )
        self._list.highlighted = 0

    def on_input_changed(self, event: Input.Changed) -> None:
        self._look(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._open(self._list.highlighted or 0)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self._open(event.option_index)

    def _open(self, at: int) -> None:
        row = self._found[at]
        self.dismiss(row.name + YES if row.sized else row.name)
