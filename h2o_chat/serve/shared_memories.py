"""Conversations that other servers can go on with: read before an answer, written after it (`epochs.py`).

A client names its conversation (`x-session-id`). The end of an answer waits until it is written, for WAIT_S
at most; where the storage fails, answers go on and are written later.
"""

import asyncio
import secrets
import sys
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from h2o_chat.base.errors import SavedCacheError, name_of
from h2o_chat.serve.api_errors import ApiError, busy
from h2o_chat.serve.epochs import Epoch, Epochs
from h2o_chat.serve.prefixes import Memory, Prefixes, tag_of
from h2o_chat.serve.request_queue import Ticket

if TYPE_CHECKING:
    from h2o_chat.engine.saved_cache import RowSnapshot

WAIT_S = 2.0
RETRY_S = 0.5, 5.0
"""First and longest pause between two tries to write."""
AT_ONCE = 8
"""Conversations that are written at the same time; as many are read."""
KNOWN = 10_000
"""Conversations whose newest epoch is remembered."""
UNWRITTEN = 256
"""Memories that wait for the storage; of further ones the messages alone are written."""


@dataclass(eq=False)
class _Write:
    """An epoch on its way to the storage."""

    ticket: Ticket
    epoch: Epoch
    state: "RowSnapshot | None"
    tell: Callable[[ApiError | None], None]
    told: bool = False


class Shared:
    """The conversations of one service. Made in its event loop; thread-safe.

    Args:
        save: writes a memory to a local file.
        load: reads one; raises SavedCacheError.
        prefixes: gets memories that were read.
    """

    def __init__(
        self,
        epochs: Epochs,
        save: Callable[["RowSnapshot", Path], None],
        load: Callable[[Path], "RowSnapshot"],
        prefixes: Prefixes,
    ) -> None:
        self._epochs, self._save, self._load, self._prefixes = epochs, save, load, prefixes
        self.counts, self.failing = Counter[str](), False
        self._known: OrderedDict[str, Epoch] = OrderedDict()
        self._pending: dict[str, deque[_Write]] = {}
        """Epochs that are not written yet, by conversation, the oldest first."""
        self._lock, self._closing = threading.Lock(), threading.Event()
        self._loop = asyncio.get_running_loop()
        self._readers = ThreadPoolExecutor(AT_ONCE, "shared-read")
        self._writers = ThreadPoolExecutor(AT_ONCE, "shared-write")

    @property
    def pending(self) -> int:
        """Epochs that are not written yet."""
        with self._lock:
            return sum(map(len, self._pending.values()))

    async def begin(self, ticket: Ticket, session: str) -> None:
        """Finds the epoch that a request goes on from, and its memory.

        Raises:
            ApiError: the conversation has gone on without this client (409), or `session` is no id.
        """
        ticket.conversation = self._epochs.folder(ticket.owner, session)
        await self._loop.run_in_executor(self._readers, self._begin, ticket)

    def _begin(self, ticket: Ticket) -> None:
        known = self._known.get(ticket.conversation)
        if known and [known.chain] == [one.hex() for one in ticket.chain[-2:-1]]:
            ticket.epoch = known.number
            if self._prefixes.get(ticket.chain[-2]):
                return
        try:
            ticket.epoch, found = self._epochs.base(ticket.conversation, ticket.chain, known)
            if found and found.memory and not self._prefixes.get(bytes.fromhex(found.chain)):
                self._read(ticket, found)
            self._recovered()
        except OSError as error:
            self._failed(error)
            ticket.epoch = known.number if known else -1
        except ApiError:
            self.counts["conflicts"] += 1
            raise

    def _read(self, ticket: Ticket, epoch: Epoch) -> None:
        """Loads a memory; without it the messages are read again."""
        try:
            with TemporaryDirectory() as folder:
                file = Path(folder) / "memory"
                self._epochs.storage.get(f"{epoch.folder}/{epoch.memory}", file)
                state = self._load(file)
        except (SavedCacheError, FileNotFoundError) as error:
            sys.stderr.write(f"h2o-chat: {name_of(error)} A conversation that moved is read again.\n")
            return
        self.counts["read"] += 1
        chain, tag = bytes.fromhex(epoch.chain), tag_of(ticket.owner)
        self._prefixes.add(Memory(chain, epoch.marked, state.cache.fed, state, tag=tag))

    def keep(
        self, ticket: Ticket, memory: Memory, said: str, tell: Callable[[ApiError | None], None]
    ) -> None:
        """Writes an epoch; `tell` is called when it is written or refused, or after WAIT_S.

        Args:
            said: the answer.
        """
        epoch = Epoch(
            ticket.conversation,
            ticket.epoch + 1,
            ticket.epoch,
            memory.chain.hex(),
            ticket.chain[-1].hex(),
            (*ticket.asked.messages, ("assistant", said)),
            f"{ticket.epoch + 1:08d}-{secrets.token_hex(4)}.safetensors",
            memory.marked,
        )
        write = _Write(ticket, epoch, memory.state if self.pending < UNWRITTEN else None, tell)
        with self._lock:
            self._remember(epoch)
            line = self._pending.setdefault(epoch.folder, deque())
            line.append(write)
            if len(line) == 1:
                self._writers.submit(self._write_all, line)
        wait_s = 0.0 if self.failing else WAIT_S
        self._loop.call_soon_threadsafe(self._loop.call_later, wait_s, self._late, write)

    def _late(self, write: _Write) -> None:
        if self._deliver(write):
            self.counts["late"] += 1

    def _deliver(self, write: _Write, error: ApiError | None = None) -> bool:
        """Ends the answer for its client; returns False where it has ended."""
        with self._lock:
            first, write.told = not write.told, True
        if first:
            write.tell(error)
        return first

    def _write_all(self, line: deque[_Write]) -> None:
        """Writes the epochs of a conversation in their order, until none is left."""
        while True:
            self._write(line[0])
            with self._lock:
                folder = line.popleft().epoch.folder
                if not line:
                    del self._pending[folder]
                    return

    def _write(self, write: _Write) -> None:
        """Writes an epoch, as often as the storage fails, until this server ends."""
        pause_s, longest_s = RETRY_S
        while True:
            try:
                epoch = self._placed(write)
                self._epochs.write(epoch, partial(self._save, write.state) if write.state else None)
                break
            except OSError as error:
                self._failed(error)
                if self._closing.wait(pause_s):
                    return
                pause_s = min(2 * pause_s, longest_s)
            except ApiError as error:
                return self._refused(write, error)
        self.counts["written"] += 1
        self._recovered()
        self._deliver(write)
        try:
            self._epochs.remove_before(epoch.folder, epoch.base)
        except OSError as error:  # the next epoch tries again
            self._failed(error)

    def _placed(self, write: _Write) -> Epoch:
        """The epoch with its number, which is looked up where the storage failed before the answer."""
        epoch = write.epoch
        if epoch.number == 0:
            newest, _ = self._epochs.base(epoch.folder, write.ticket.chain, None)
            name = f"{newest + 1:08d}{epoch.memory[8:]}"
            epoch = replace(epoch, number=newest + 1, base=newest, memory=name)
            with self._lock:
                self._remember(epoch)
            write.epoch = epoch
        return epoch

    def _refused(self, write: _Write, error: ApiError) -> None:
        self.counts["conflicts"] += 1
        with self._lock:
            if self._known.get(write.epoch.folder) is write.epoch:
                del self._known[write.epoch.folder]
        if not self._deliver(write, error):
            sys.stderr.write(
                "h2o-chat: an answer was delivered while the shared storage failed, and another server went"
                " on with its conversation: it is not written\n"
            )

    async def newest(self, owner: bytes, session: str) -> Epoch:
        """The newest written epoch of a conversation.

        Raises:
            ApiError: there is none of this key, or the storage fails.
        """
        folder = self._epochs.folder(owner, session)
        try:
            found = await self._loop.run_in_executor(self._readers, self._epochs.newest, folder)
        except OSError as error:
            self._failed(error)
            raise busy(503, "The shared storage fails. Try again.", "storage") from error
        if found is None:
            raise ApiError(404, "No conversation of this key has this id.", "not_found")
        return found

    def close(self, longest_s: float) -> int:
        """Waits until all is written; returns the number of epochs that could not be."""
        end = time.monotonic() + longest_s
        while self.pending and time.monotonic() < end:
            time.sleep(0.02)
        left = self.pending
        self._closing.set()
        return left

    def _remember(self, epoch: Epoch) -> None:
        self._known[epoch.folder] = epoch
        self._known.move_to_end(epoch.folder)
        if len(self._known) > KNOWN:
            self._known.popitem(last=False)

    def _failed(self, error: OSError) -> None:
        self.counts["failures"] += 1
        if not self.failing:
            self.failing = True
            why = name_of(str(error)[:300])
            sys.stderr.write(
                f"h2o-chat: the shared storage fails; answers go on, and are written later: {why}\n"
            )

    def _recovered(self) -> None:
        if self.failing:
            self.failing = False
            sys.stderr.write("h2o-chat: the shared storage works again\n")
