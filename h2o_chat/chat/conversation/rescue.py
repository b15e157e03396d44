"""A conversation whose store is lost is saved into a file, which `sessions import` reads."""

import shlex
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from h2o_chat.base.errors import H2OChatError, StoreError, refusal
from h2o_chat.base.private_files import own_folder
from h2o_chat.base.program_name import program_name
from h2o_chat.chat.conversation.message import Message, as_conversation
from h2o_chat.events.events import Note

NOWHERE_ELSE = "It was shown, but it is saved nowhere."


class Rescue:
    """The file of a conversation whose store is lost.

    Args:
        folder: the data folder, which is made again if it is gone; None: nothing is written.
    """

    def __init__(self, folder: Path | None) -> None:
        self.messages: Sequence[Message] = ()
        """The messages of the chat: all that is left then."""
        self.pieces: list[str] = []
        """Pieces of the answer that is being written."""
        self.file: Path | None = None
        self.failed = ""
        self._folder = folder

    def save(self, model: str, settings: dict[str, Any]) -> None:
        if not self.messages or self._folder is None:
            return
        try:
            self.file, self.failed = self._saved(self._folder, model, settings), ""
        except (OSError, H2OChatError) as error:
            self.file, self.failed = None, f"It could not be saved into a file either: {refusal(error)}."

    def _saved(self, folder: Path, model: str, settings: dict[str, Any]) -> Path:
        from h2o_chat.chat.files.export import to_json, write_file  # imports rich, and is seldom needed

        own_folder(folder)
        messages = self.messages
        if messages[-1].role == "assistant" and messages[-1].finish is None:
            open_answer = replace(messages[-1], text="".join(self.pieces), finish="interrupted")
            messages = [*messages[:-1], open_answer]
        name = f"rescued-{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 10**9:09}.json"
        whole = replace(as_conversation(messages, model), settings=settings)
        write_file(path := self.file or folder / name, to_json(whole), force=self.file is not None)
        return path

    @property
    def words(self) -> str:
        """A sentence that says where the conversation is."""
        return f"This conversation was saved in {self.file}." if self.file else self.failed

    @property
    def way_back(self) -> str:
        """A sentence that says how to get it back."""
        if self.file:
            return f"{program_name()} sessions import {shlex.quote(str(self.file))} brings it back."
        return NOWHERE_ELSE

    def note(self, trouble: StoreError) -> Note:
        saved = f"What is said here is saved in {self.file} from here on." if self.file else self.failed
        hint = f"{saved} {trouble.hint}".strip()
        return Note("store", f"Nothing more is being stored. {trouble.message}", hint)
