"""The history of prompts, in a file of the data folder, for its owner alone."""

import json
import os
from pathlib import Path

from h2o_chat.base.errors import StoreError
from h2o_chat.base.private_files import open_own

KEPT = 1000
"""Most prompts; the oldest are dropped."""
FILE = "prompts.jsonl"
LIMIT_BYTES = 8 << 20
"""A longer file is not read: it is no history of ours."""


class PromptHistory:
    """The prompts, oldest first, and which of them stands in the box.

    Args:
        folder: of the file; None, or a folder that cannot be used, keeps it in memory alone.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._path = None if folder is None else folder / FILE
        self._texts = self._load()
        self._at = len(self._texts)
        self._edited: dict[int, str] = {}
        """Edited texts by index of their prompt, until something is sent."""

    def add(self, text: str) -> None:
        """Append a prompt that was sent."""
        if not self._texts or self._texts[-1] != text:
            self._texts = [*self._texts, text][-KEPT:]
            self._write(text)
        self._at, self._edited = len(self._texts), {}

    def older(self, shown: str) -> str | None:
        """The prompt before the one shown; None if there is none."""
        return None if self._at == 0 else self._go(-1, shown)

    def newer(self, shown: str = "") -> str | None:
        """The prompt after the one shown, at last what was being typed; None if that is shown."""
        return None if self._at == len(self._texts) else self._go(1, shown)

    def _go(self, step: int, shown: str) -> str:
        texts = [*self._texts, ""]
        if shown and shown != texts[self._at]:
            self._edited[self._at] = shown
        self._at += step
        return self._edited.get(self._at, texts[self._at])

    def _load(self) -> list[str]:
        if self._path is None:
            return []
        try:
            if self._path.is_symlink() or self._path.stat().st_size > LIMIT_BYTES:
                return []
            lines = self._path.read_text("utf-8", "replace").splitlines()
        except OSError:
            return []
        texts = []
        for line in lines[-KEPT:]:
            try:
                text = json.loads(line)
            except (ValueError, RecursionError):
                continue  # the end of a line that was being written when the power went
            if isinstance(text, str):
                texts.append(text)
        if len(lines) > 2 * KEPT:
            self._rewrite(texts)
        return texts

    def _write(self, text: str) -> None:
        """Append a line. A failing disk is reported where conversations are stored."""
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = open_own(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            with open(descriptor, "a", encoding="ascii") as file:
                file.write(json.dumps(text) + "\n")
        except (OSError, StoreError):
            self._path = None

    def _rewrite(self, texts: list[str]) -> None:
        assert self._path is not None
        part = self._path.with_name(FILE + ".part")
        try:
            part.unlink(missing_ok=True)  # a link, say: it is not followed
            part.touch(mode=0o600, exist_ok=False)
            part.write_text("".join(json.dumps(text) + "\n" for text in texts), "ascii")
            part.replace(self._path)
        except OSError:
            part.unlink(missing_ok=True)
