"""The completion menu above the prompt: commands, their arguments, paths behind an `@`."""

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from threading import Thread

from rich.cells import cell_len
from textual.content import Content
from textual.widgets import Static

from h2o_chat.base.config import CHOSEN
from h2o_chat.base.errors import H2OChatError
from h2o_chat.base.safe import fit, safe_text
from h2o_chat.chat.commands import settable, table
from h2o_chat.chat.files.attached import path_being_typed
from h2o_chat.models.here import models_here
from h2o_chat.models.resolve import names_starting_with
from h2o_chat.store import models_used
from h2o_chat.tui.widgets.box_frame import window
from h2o_chat.tui.widgets.theme import MUTED

ROWS = 8
PATHS = 200
"""Most names looked at in a folder."""
ANSWER_S = 0.1
"""Seconds that a folder is waited for: a key must not be felt."""
LABEL_CELLS = 28
"""Most columns of a label."""


@dataclass(frozen=True)
class Completion:
    begin: int
    """Index in the text before the cursor where the replaced part begins."""
    text: str
    label: str
    help: str = ""
    final: bool = False
    """Nothing can follow: with enter it is sent at once."""


def choices(before: str, themes: list[str], folder: Path | None = None) -> list[Completion]:
    """Completions of the text before the cursor; empty where there are none.

    Args:
        folder: of the conversations, which know the models that were used.
    """
    if commands := table.matching(before):
        return [
            Completion(
                0,
                f"/{one.name}" + (" " if one.arguments else ""),
                f"/{one.name} {one.arguments}",
                one.help,
                not one.arguments,
            )
            for one in commands
        ]
    if before.startswith("/") and "\n" not in before and before.count(" ") == 1:
        name, _, typed = before[1:].partition(" ")
        if name == "model":
            return models(len(before) - len(typed), typed, folder)
        known = {
            "set": settable.SETTABLE,
            "policy": CHOSEN,
            "export": ("md", "json"),
            "theme": themes,
        }.get(name, ())
        return [
            Completion(len(before) - len(typed), one + (" " if name in ("set", "export") else ""), one)
            for one in known
            if one.startswith(typed) and typed not in known  # a name typed in full is sent by enter
        ]
    typed_path = path_being_typed(before)
    return [] if typed_path is None else _paths(len(before) - len(typed_path), typed_path)


def models(begin: int, typed: str, folder: Path | None) -> list[Completion]:
    """Models that are here, by any part of their names, then those that can be had; before them files."""
    files = _paths(begin, typed) if "/" in typed or typed.startswith(("~", ".")) else []
    files = [replace(one, text=one.text.rstrip()) for one in files]
    if typed.startswith(("/", "~", ".")):
        return files
    try:
        here = [one.name for one in models_here(models_used(folder) if folder else ())]
        names = [name for name in here if typed.lower() in name.lower()] + names_starting_with(typed)
    except (H2OChatError, OSError):  # a damaged configuration or disk, which is told when one is opened
        return []
    short = Counter(name.rpartition("/")[2] for name in dict.fromkeys(names))
    labels = {name: name if short[last := name.rpartition("/")[2]] > 1 else last for name in names}
    named = [Completion(begin, name, label, final=name in here) for name, label in labels.items()]
    # A file that is known has its whole path as a name: it would stand there twice.
    named = [one for one in named if not (files and Path(one.text).is_absolute())]
    return files + (named if [*labels] != [typed] else [])


def _paths(begin: int, typed: str) -> list[Completion]:
    folder, _, start = typed.rpartition("/")
    where = folder + "/" if folder or typed.startswith("/") else "."
    prefix = typed[: len(typed) - len(start)]
    return [
        Completion(begin, f"{prefix}{name}" + (" " if is_file else "/"), name if is_file else f"{name}/")
        for is_file, name in sorted(listed(where))
        if name.startswith(start) and (start or not name.startswith(".")) and " " not in name
    ]


_unanswered: dict[str, Thread] = {}  # the thread that still waits for a folder


def listed(where: str) -> list[tuple[bool, str]]:
    """(is a file, name) of the first names in a folder; none where it does not answer in time.

    A disk of a network that is gone may never answer; then it is not asked again until it has.
    """
    if where in _unanswered and _unanswered[where].is_alive():
        return []
    found = list[tuple[bool, str]]()

    def look() -> None:
        with suppress(OSError, RuntimeError, ValueError):
            for path in islice(Path(where).expanduser().iterdir(), PATHS):
                # A name that cannot be shown cannot be typed either.
                if safe_text(path.name) == path.name and "\n" not in path.name:
                    found.append((not path.is_dir(), path.name))

    looking = Thread(target=look, name="folder", daemon=True)
    looking.start()
    looking.join(ANSWER_S)
    if looking.is_alive():
        _unanswered[where] = looking
        return []
    return found


class Menu(Static):
    """The list, with one line chosen; hidden while there is nothing to choose."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id, markup=False)
        self.at = 0

    def show(self, found: list[Completion]) -> None:
        self.display = bool(found)
        if not found:
            self.at = 0
            return
        self.at = min(self.at, len(found) - 1)
        part = window(self.at, len(found), ROWS)
        shown = [(one, safe_text(one.label)) for one in found[part]]
        cells = min(max(cell_len(label) for _, label in shown), LABEL_CELLS)
        lines = []
        for number, (one, label) in enumerate(shown, part.start):
            chosen = number == self.at
            lines.append(
                Content.assemble(
                    ("▸ " if chosen else "  ", "$accent"),
                    (fit(label, cells), "bold" if chosen else ""),
                    (f"  {one.help}", MUTED),
                )
            )
        if len(found) > ROWS:
            lines.append(Content.styled(f"  {self.at + 1}/{len(found)}", MUTED))
        self.update(Content("\n").join(lines))
