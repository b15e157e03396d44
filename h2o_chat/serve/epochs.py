"""The epochs of conversations in shared storage: one for each answer, in a row without a fork.

An epoch is a record `NUMBER.json` of all messages, which one writer only can create. Its memory is written
before, under a name that nobody else uses. An older epoch stays until a request has gone on from a newer one:
its client may never have got that answer.
"""

import hmac
import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from h2o_chat.serve.api_errors import ApiError, busy
from h2o_chat.serve.chat_request import Message
from h2o_chat.serve.shared_storage import Storage

HEADER = "x-session-id"
ID_CHARACTERS = 128


@dataclass(frozen=True)
class Epoch:
    """A conversation after an answer.

    `chain` and `asked` are hashes of all messages, and of those before the answer. `base` is the number of
    the epoch that the request went on from, 0 at first. `memory` is a file's name, or empty.
    """

    folder: str
    number: int
    base: int
    chain: str
    asked: str
    messages: Sequence[Message]
    memory: str
    marked: bool  # the turn marker was fed, see `prefixes.Memory`


_KINDS = str, int, int, str, str, list, str, bool


def conflict() -> ApiError:
    """The error of a client whose conversation has gone on without it."""
    hint = f"Read it (GET /v1/conversations/ID), or begin another with another {HEADER}."
    return busy(409, f"This conversation has gone on in another request. {hint}", "conflict")


class Epochs:
    """The conversations of one model with its settings (`context`). Thread-safe; raises OSError."""

    def __init__(self, storage: Storage, context: bytes) -> None:
        self.storage, self._context = storage, context.hex()[:16]

    def folder(self, owner: bytes, session: str) -> str:
        """The folder of a conversation: a hash, so that an id is no path and finds no other key's files."""
        if not 0 < len(session) <= ID_CHARACTERS or not session.isprintable():
            raise ApiError(400, f"{HEADER} is no text of 1 to {ID_CHARACTERS} characters.", param=HEADER)
        return f"{self._context}/{hmac.digest(owner, session.encode(), 'sha256').hex()[:32]}"

    def newest(self, folder: str) -> Epoch | None:
        """The newest epoch of a conversation; None: it has none."""
        failed = -1
        while numbers := self._numbers(folder):
            try:
                return self._epoch(folder, numbers[-1])
            except FileNotFoundError:  # it was removed meanwhile: there is a newer one
                if numbers[-1] == failed:
                    raise
                failed = numbers[-1]
        return None

    def base(
        self, folder: str, hashes: Sequence[bytes], known: Epoch | None
    ) -> tuple[int, int, Epoch | None]:
        """The numbers of the newest epoch and of the one that a request goes on from, and that one or None.

        Raises ApiError (409) if the newest one has messages that the request lacks. `hashes` are those after
        each message; `known` is the newest epoch of this server, perhaps not written yet.
        """
        chain = [one.hex() for one in hashes]
        newest = self.newest(folder)
        if known and (newest is None or known.number > newest.number):
            newest = known
        if newest is None:
            return 0, 0, None
        if newest.chain in chain[:-1]:
            return newest.number, newest.number, newest
        if newest.asked != chain[-1]:
            raise conflict()
        # Another answer to the same message: it goes on from where the newest answer did.
        with suppress(FileNotFoundError):
            if (older := self._epoch(folder, newest.base)).chain in chain[:-1]:
                return newest.number, older.number, older
        return newest.number, newest.base, None

    def write(self, epoch: Epoch, save: Callable[[Path], None] | None) -> None:
        """Writes a memory (None: the messages alone) and its epoch; raises ApiError (409) if it is there."""
        storage = self.storage
        if save is None:
            epoch = replace(epoch, memory="")
        else:
            storage.put(f"{epoch.folder}/{epoch.memory}", save)
        try:
            storage.create(f"{epoch.folder}/{epoch.number:08d}.json", json.dumps(asdict(epoch)).encode())
        except FileExistsError as error:
            there = self._epoch(epoch.folder, epoch.number)
            if epoch.memory and there.memory != epoch.memory:
                storage.remove(f"{epoch.folder}/{epoch.memory}")
            if there.chain != epoch.chain:  # else it was written by a try that seemed to fail, or by a twin
                raise conflict() from error
        if self._numbers(epoch.folder)[-1:] > [epoch.number]:
            newest = self.newest(epoch.folder)
            if newest and newest.base > epoch.number:  # the number was free again, by `remove_old`
                self.remove_old(epoch.folder)
                raise conflict()

    def remove_old(self, folder: str) -> None:
        """Removes the epochs that nobody can go on from any more."""
        newest = self.newest(folder)
        for name in self.storage.names(folder):
            if newest and re.match("[0-9]{8}[.-]", name) and int(name[:8]) < newest.base:
                self.storage.remove(f"{folder}/{name}")

    def _numbers(self, folder: str) -> list[int]:
        names = self.storage.names(folder)
        return sorted(int(name[:8]) for name in names if re.fullmatch(r"[0-9]{8}\.json", name))

    def _epoch(self, folder: str, number: int) -> Epoch:
        """The epoch in a record; raises ApiError where it is damaged."""
        name = f"{folder}/{number:08d}.json"
        try:
            found = Epoch(**json.loads(self.storage.read(name)))
            said = tuple((role, text) for role, text in found.messages)
            kinds = [type(one) for one in (*vars(found).values(), *(text for pair in said for text in pair))]
            if kinds != [*_KINDS, *[str] * 2 * len(said)] or not 0 <= found.base < number:
                raise ValueError(kinds)
            if (found.folder, found.number) != (folder, number) or not re.fullmatch(
                rf"[0-9a-f]{{64}} ({number:08d}-[\w.]+)?", f"{found.chain} {found.memory}"
            ):
                raise ValueError(found.memory)
            return replace(found, messages=said)
        except (ValueError, TypeError, RecursionError) as error:
            raise ApiError(500, f"{name} in the shared storage is damaged.", "storage") from error
