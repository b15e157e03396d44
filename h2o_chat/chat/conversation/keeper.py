"""A conversation on disk while it goes on: messages are written at once, the cache after each turn.

Another process may be writing, or the disk may fail, while somebody talks. A note says so once, the
conversation goes on, and its words wait in memory until they can be written, in order. Where that will never
be (the database was removed, or is damaged) the conversation is saved into a file (`rescue.py`).
Whatever reads the store raises StoreError where it cannot be read.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from h2o_chat.base import precedence
from h2o_chat.base.errors import (
    DiskError,
    EngineError,
    StoreBusyError,
    StoreError,
    StoreLostError,
    UsageError,
    refusal,
)
from h2o_chat.base.program_name import data_flag, program_name
from h2o_chat.chat.conversation import saved_caches
from h2o_chat.chat.conversation.message import Message
from h2o_chat.chat.conversation.rescue import Rescue
from h2o_chat.events.events import Note, Session
from h2o_chat.store import Pieces, Store, StoredMessage, Writer

if TYPE_CHECKING:  # importing torch takes seconds
    from h2o_chat.engine.row import Row

GIVE_UP_S = 180.0
"""Seconds of waiting after which a note says that nothing more is stored; writing is still tried."""


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
        self.before: str | None = None
        """The conversation before this one, let go by `begin_anew`."""
        self.notes: list[Note] = [*store.notes]
        """Notes for people; whoever shows them takes them away."""
        self.rescue = Rescue(store.folder)
        self._session, self._settings = session, settings
        self._writer: Writer | None = None
        self._trouble: Note | None = None  # the last note about trouble; None once all is written
        self._memories_bytes = precedence.saved_memories_bytes()
        self._gave_way = False  # on a full disk: all saved caches were removed
        self._never: StoreError | None = None  # why a conversation could not even be begun
        if conversation is not None:
            before = store.last_run(conversation).get("model", session.model)
            if before != session.model:
                what = f"Conversation {conversation} was held with {before}, and this is {session.model}."
                flags = f"--resume {conversation}{data_flag(store.folder)}"
                hint = f"{program_name()} {flags} goes on with that model. Or export it, and import it anew."
                raise UsageError(what, hint)
            self._writer = store.claim(conversation)
            self.notes += saved_caches.drop_earlier_pocket(store, conversation, session)
            self._writer.run(asdict(session))
            _look(self)

    def other(self, conversation: str, session: Session, changed: dict[str, Any]) -> "Keeper":
        """A keeper of another conversation in the same store; this one goes on holding its own.

        Args:
            changed: settings that are others than here.
        """
        return Keeper(self.store, conversation, session, self._settings | changed)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def begin_anew(self) -> None:
        """Lets the conversation go; the next message begins another. StoreError: not all is on disk."""
        self.leave()
        self.close()
        self.before = self.conversation or self.before
        self._never = self.lost
        self._writer = self.conversation = self._trouble = None
        self.rescue = Rescue(self.store.folder)

    def said(self, role: str, text: str, ids: Sequence[int] = (), recalled: Pieces = ()) -> int | None:
        """Writes a message of a person; returns its number, None where this conversation is not stored."""
        message = writer.said(role, text, ids, recalled) if (writer := _begun(self)) else None
        _look(self)
        return message

    def answering(self) -> int | None:
        message = writer.answering() if (writer := _begun(self)) else None
        self.rescue.pieces.clear()
        _look(self)
        return message

    def placed(self, message: int | None, first: int, last: int) -> None:
        if self._writer and message is not None:
            self._writer.place(message, first, last)
            _look(self)

    def pinned(self, message: int | None, on: bool) -> None:
        if self._writer and message is not None:
            self._writer.pinned(message, on)
            _look(self)

    def token(self, token: int, text: str) -> None:
        self.rescue.pieces.append(text)
        if self._writer:
            self._writer.token(token, text)
            _look(self, streaming=True)

    def finished(self, text: str, finish: str, first: int, last: int) -> None:
        if self._writer:
            self._writer.finished(text, finish, first, last)
        _look(self)

    def withdraw(self, messages: Sequence[int | None]) -> None:
        """Take messages away again that the model has never read."""
        if self._writer:
            self._writer.withdraw([one for one in messages if one is not None])
            _look(self)

    def move(self, leaf: int | None) -> None:
        if self._writer:
            self._writer.move(leaf)
            _look(self)

    @property
    def waiting(self) -> int:
        return len(self._writer.backlog) if self._writer else 0

    @property
    def may_pass(self) -> bool:
        """Whether another process keeps the store busy, for less than GIVE_UP_S."""
        if self._writer is None or not isinstance(self._writer.backlog.trouble, StoreBusyError):
            return False
        return time.monotonic() - self._writer.backlog.trouble_since_s < GIVE_UP_S

    @property
    def unstored(self) -> str:
        """A sentence about what is not on disk; empty where all is."""
        if lost := self.lost:
            waits = self._writer.backlog if self._writer else ()
            what = f"Not stored: {waits.words}. " if waits else ""
            return f"{what}{lost.message} {self.rescue.words}".strip()
        if self._never:
            return f"Nothing of this conversation is stored. {self._never.message}"
        if self._writer is None or (waiting := self._writer.backlog).trouble is None:
            return ""
        return f"Not stored: {waiting.words}. {waiting.trouble.message}"

    @property
    def lost(self) -> StoreError | None:
        """Why the store is lost, so that nothing more can ever be written; None: it is not."""
        if isinstance(self._never, StoreLostError):
            return self._never
        waiting = self._writer.backlog if self._writer else None
        return waiting.trouble if waiting and waiting.for_good else None

    def flush(self) -> bool:
        """Try again to write what waits; returns whether all is on disk."""
        if self._writer is None:
            return self._never is None
        done = self._writer.backlog.flush()
        _look(self)
        return done

    def end(self) -> None:
        """Ends writing: an open answer is finished as far as it got."""
        if self._writer:
            self._writer.settle()
        _look(self)

    @property
    def leaf(self) -> int | None:
        return self._writer.leaf if self._writer else None

    def path(self, leaf: int | None) -> list[StoredMessage]:
        """The messages up to `leaf`, from the first on, see `catch_up`."""
        if self.conversation is None or leaf is None:
            return []
        self.catch_up()
        return self.store.path(self.conversation, leaf)

    def leave(self) -> None:
        """Checks that the conversation may be left: all of it is on disk."""
        if self._writer and not self.rescue.file:
            self.catch_up()

    def catch_up(self) -> None:
        """Writes what waits, so that the conversation can be read; StoreError: it still waits."""
        if not self.flush():
            if lost := self.lost:
                raise lost
            why = self._writer.backlog.trouble if self._writer else self._never
            raise StoreError(f"Not all that was said is on disk yet. {why}", "Try again when it is.")

    def saved(self, message: int) -> Path | None:
        """The file with the cache after an answer; None where there can be none."""
        folder = self.store.caches(self.conversation) if self.conversation else None
        return folder and folder / f"{message}.safetensors"

    def save(self, engine: "Row", message: int | None) -> None:
        """Saves the cache after an answer. Words come first: while any wait to be written, none is saved."""
        if message is None or not self.flush() or (path := self.saved(message)) is None:
            return
        try:
            saved_caches.save(self.store, engine, path, self._memories_bytes)
        except (OSError, EngineError) as error:
            what = f"The memory could not be saved: {refusal(error)}."
            self.notes.append(Note("store", what, "It will be rebuilt on resuming."))

    def changed(self, session: Session, settings: dict[str, Any]) -> None:
        """Write that another cache is in use from here on; the model is the same, by the name it has here."""
        settings = settings | {"model": self._settings.get("model", settings["model"])}
        self._session, self._settings = session, settings
        if self._writer:
            self._writer.run(asdict(session))
            self._writer.settings(settings | {"seed": session.seed})
            _look(self)

    def save_again(self, engine: "Row") -> None:
        """Save the cache in the place of the last saved one, where there is one."""
        if self.leaf is not None and (path := self.saved(self.leaf)) and path.exists():
            self.save(engine, self.leaf)


def mark_branches(keeper: Keeper, messages: Sequence[Message]) -> None:
    """Sets `branch` of each message of the user in whose place others were said."""
    branches = {} if keeper.conversation is None else keeper.store.branches(keeper.conversation)
    for message in messages:
        if message.role == "user" and message.id is not None:
            message.branch = branches.get(message.id)


def _begun(keeper: Keeper) -> Writer | None:
    """The writer, made when the first message is said; None if the store cannot be written."""
    if keeper._writer is None and keeper._never is None:
        try:
            settings = keeper._settings | {"seed": keeper._session.seed}  # that was drawn, perhaps
            keeper._writer = keeper.store.begin(keeper._session.model, settings)
        except StoreError as error:
            keeper._never = error
            if keeper.lost:
                keeper.rescue.save(keeper._session.model, keeper._settings)
                keeper.notes.append(keeper.rescue.note(error))
                return None
            hint = f"{error.hint} The conversation goes on.".strip()
            keeper.notes.append(Note(error.code, f"This conversation is not stored: {error.message}", hint))
        else:
            keeper.conversation = keeper._writer.conversation
            keeper._writer.run(asdict(keeper._session))
    return keeper._writer


def _look(keeper: Keeper, *, streaming: bool = False) -> None:
    """Adds a note when writing fails or works again; `streaming`: a rescue file stays as it is."""
    if keeper.lost and not (streaming and (keeper.rescue.file or keeper.rescue.failed)):
        keeper.rescue.save(keeper._session.model, keeper._settings)
    if keeper._writer is None:
        return
    waiting = keeper._writer.backlog
    if isinstance(waiting.trouble, DiskError) and not keeper._gave_way:
        keeper._gave_way = saved_caches.make_room(keeper.store, keeper._writer.conversation, waiting.flush)
    if (trouble := waiting.trouble) is None:
        if keeper._trouble is not None:
            keeper.notes.append(Note("stored", "All that was said is stored again."))
        keeper._trouble, keeper._gave_way = None, False
        return
    note = keeper.rescue.note(trouble) if waiting.for_good else _note(trouble, busy=keeper.may_pass)
    if note != keeper._trouble:
        keeper._trouble = note
        keeper.notes.append(note)


def _note(trouble: StoreError, busy: bool) -> Note:
    if busy:
        what = "Another process is writing to the store: what is said stands only in memory."
        return Note("store-busy", what, "It is written as soon as the store is free; that is said then.")
    hint = "It is tried again with every step; what was stored before is safe."
    return Note("store", f"Nothing more is being stored. {trouble.message}", hint)
