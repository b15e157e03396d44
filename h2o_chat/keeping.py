"""A conversation on disk while it goes on: what is said is written at once, the memory after each turn.

A disk may fail while somebody talks. Then it is said, once, and the conversation goes on without it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from h2o_chat.errors import EngineError, StoreError, UsageError
from h2o_chat.events import Note, Session
from h2o_chat.store import Store, StoredMessage, Writer

SAVED_TURNS = 4
"""Saved caches kept of a conversation: going back this many turns needs no replay."""


class Saves(Protocol):
    """What is saved: an engine."""

    def save(self, path: Path) -> None: ...


class Keeper:
    """Writes one conversation to the store.

    Args:
        conversation: claimed at once; None begins one when something is said.
        session: what runs.
        settings: what it was asked for with, for resuming it.

    Raises:
        StoreError: the conversation cannot be had (`BusyError`: it is open elsewhere).
        UsageError: it was held with another model, whose tokens mean nothing to this one.
    """

    def __init__(
        self, store: Store, conversation: str | None, session: Session, settings: dict[str, Any]
    ) -> None:
        self.store = store
        self.conversation = conversation
        self.notes: list[Note] = []
        """What a person should know; whoever shows it takes it away."""
        self._session, self._settings = session, settings
        self._writer: Writer | None = None
        self._broken = False
        self._told: set[Note] = set()
        if conversation is not None:
            _check_model(store, conversation, session.model)
            self._writer = store.claim(conversation)
            with self._guarded():
                self._writer.run(asdict(session))

    def other(self, conversation: str) -> "Keeper":
        """A keeper of another conversation in the same store; this one goes on holding its own.

        Raises:
            StoreError, UsageError: as when one is made.
        """
        return Keeper(self.store, conversation, self._session, self._settings)

    def close(self) -> None:
        """Lets the conversation go."""
        if self._writer is not None:
            self._writer.close()

    def begin_anew(self) -> None:
        """Lets the conversation go; the next thing said begins another."""
        self.close()
        self._writer = self.conversation = None
        self._broken = False

    def said(self, role: str, text: str, ids: Sequence[int] = ()) -> int | None:
        """A message of a person, on disk when this returns; its number, None where it cannot be written."""
        message = None
        with self._guarded():
            message = None if self._broken else self._open().said(role, text, ids)
        return message

    def answering(self) -> int | None:
        """An answer begins."""
        message = None
        with self._guarded():
            message = None if self._broken else self._open().answering()
        return message

    def placed(self, message: int | None, first: int, last: int) -> None:
        """Where the tokens of a message lie."""
        with self._guarded():
            if self._writer is not None and message is not None and not self._broken:
                self._writer.place(message, first, last)

    def pinned(self, message: int | None, on: bool) -> None:
        """A message was pinned, or let go."""
        with self._guarded():
            if self._writer is not None and message is not None and not self._broken:
                self._writer.pinned(message, on)

    def token(self, token: int, text: str) -> None:
        """One more token of the answer; on disk when this returns, so it may be shown."""
        if self._writer is None or self._broken:
            return
        try:
            self._writer.token(token, text)
        except StoreError as error:  # it waits in memory for the next one that can be written
            self._say(error)

    def finished(self, text: str, finish: str, first: int, last: int) -> None:
        """The answer has ended."""
        with self._guarded():
            if self._writer is not None and not self._broken:
                self._writer.finished(text, finish, first, last)

    def withdraw(self, messages: Sequence[int | None]) -> None:
        """Messages that were never read by the model are taken away again."""
        written = [message for message in messages if message is not None]
        with self._guarded():
            if self._writer is not None and not self._broken:
                self._writer.withdraw(written)

    def move(self, leaf: int | None) -> None:
        """The conversation goes on from another message."""
        with self._guarded():
            if self._writer is not None:
                self._writer.move(leaf)

    @property
    def leaf(self) -> int | None:
        """The last message of the active branch."""
        return self._writer.leaf if self._writer else None

    def path(self, leaf: int | None) -> list[StoredMessage]:
        """The messages up to `leaf`, from the first on.

        Raises:
            StoreError: they cannot be read.
        """
        if self.conversation is None or leaf is None:
            return []
        return self.store.path(self.conversation, leaf)

    def saved(self, message: int) -> Path | None:
        """The file with the memory after an answer, if it may be there."""
        if self.conversation is None:
            return None
        return self.store.caches(self.conversation) / f"{message}.safetensors"

    def save(self, engine: Saves, message: int | None) -> None:
        """Saves the memory after an answer, and removes what was saved longest ago."""
        if message is None or self._broken or (path := self.saved(message)) is None:
            return
        try:
            engine.save(path)
            files = sorted(path.parent.glob("*.safetensors"), key=lambda file: file.stat().st_mtime_ns)
            for file in files[:-SAVED_TURNS]:
                file.unlink()
        except (OSError, EngineError) as error:
            self._say(
                StoreError(f"The memory could not be saved: {error}.", "It will be rebuilt on resuming.")
            )

    def changed(self, session: Session, settings: dict[str, Any]) -> None:
        """The memory is another one from here on, and so it is when the conversation is resumed."""
        self._session, self._settings = session, settings
        with self._guarded():
            if self._writer is not None and not self._broken:
                self._writer.run(asdict(session))
                self._writer.settings(_with_seed(settings, session))

    def save_again(self, engine: Saves) -> None:
        """Saves the memory as it is now instead of what was saved last, where anything was."""
        if self.leaf is not None and (path := self.saved(self.leaf)) is not None and path.exists():
            self.save(engine, self.leaf)

    def _open(self) -> Writer:
        if self._writer is None:
            self.conversation = self.store.create(
                self._session.model, _with_seed(self._settings, self._session)
            )
            self._writer = self.store.claim(self.conversation)
            self._writer.run(asdict(self._session))
        return self._writer

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """What cannot be written is said; from then on nothing is, since a conversation may have no holes."""
        try:
            yield
        except StoreError as error:
            self._broken = True
            self._say(error)

    def _say(self, error: StoreError) -> None:
        """Once for each kind of trouble."""
        hint = error.hint or "The conversation goes on, but what is said from here on may not be stored."
        note = Note(error.code, error.message, hint)
        if note not in self._told:
            self._told.add(note)
            self.notes.append(note)


def _with_seed(settings: dict[str, Any], session: Session) -> dict[str, Any]:
    """What a conversation is held with: where no seed was asked for, the one that was drawn."""
    return {**settings, "seed": session.seed}


def _check_model(store: Store, conversation: str, model: str) -> None:
    before = store.last_run(conversation).get("model", model)
    if before != model:
        raise UsageError(
            f"Conversation {conversation} was held with {before}, and this is {model}.",
            f"Resume it with --model {before}, or export it and import it as a new one.",
        )
