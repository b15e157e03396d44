"""Conversations that other servers can go on with: read before an answer, written after it (`epochs.py`).

A client names its conversation (`x-session-id`). The end of an answer waits until it is written; where the
storage fails, or takes longer than WAIT_S, answers go on and are written later.
"""

import asyncio
import secrets
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from h2o_chat.base.errors import SavedCacheError, name_of
from h2o_chat.serve import api_errors
from h2o_chat.serve.api_errors import ApiError, busy
from h2o_chat.serve.epochs import Epoch, Epochs
from h2o_chat.serve.prefixes import Memory, Prefixes, tag_of
from h2o_chat.serve.request_queue import Ticket

if TYPE_CHECKING:
    from h2o_chat.engine.saved_cache import RowSnapshot

WAIT_S = 10.0
RETRY_S = 0.5, 5.0
"""First and longest pause between two tries to write."""
THREADS = 16
KNOWN = 10_000
"""Conversations whose newest epoch is remembered."""
UNWRITTEN = 256
"""Memories that wait for the storage; of further ones the messages alone are written."""


class Shared:
    """The conversations of one service, in whose event loop all happens but reading and writing files."""

    def __init__(
        self,
        epochs: Epochs,
        save: Callable[["RowSnapshot", Path], None],
        load: Callable[[Path], "RowSnapshot"],
        prefixes: Prefixes,
    ) -> None:
        self._epochs, self._save, self._load, self._prefixes = epochs, save, load, prefixes
        self.counts, self.fails = Counter[str](), asyncio.Event()
        self._known: OrderedDict[str, Epoch] = OrderedDict()
        self._writing: dict[str, asyncio.Task[ApiError | None]] = {}
        """The last write of each conversation that is not written."""
        self.pending = 0
        self._loop, self._threads = asyncio.get_running_loop(), ThreadPoolExecutor(THREADS, "shared")

    async def begin(self, ticket: Ticket, session: str) -> None:
        """Finds the epoch that a request goes on from, and its memory; raises ApiError (409) as `base`."""
        folder = ticket.conversation = self._epochs.folder(ticket.owner, session)
        known, before = self._known.get(folder), ticket.chain[-2:-1]
        goes_on = known is not None and before == [bytes.fromhex(known.chain)]
        ticket.before = self._writing.get(folder)
        ticket.epoch = known.number if known and known.number else -1
        ticket.base = 0 if known is None else known.number if goes_on else known.base
        if goes_on and self._prefixes.get(before[0]):
            return
        try:
            at = await self._soon(self._epochs.base, folder, ticket.chain, known)
            ticket.epoch, ticket.base, found = at
            if found and found.memory and not self._prefixes.get(bytes.fromhex(found.chain)):
                await self._soon(self._read, found, tag_of(ticket.owner))
        except OSError as error:
            self._failed(error)
        except ApiError:
            self.counts["conflicts"] += 1
            raise
        else:
            self._works()

    def _read(self, epoch: Epoch, tag: str) -> None:
        """Loads a memory; without it the messages are read again."""
        try:
            with TemporaryDirectory() as folder:
                self._epochs.storage.get(f"{epoch.folder}/{epoch.memory}", file := Path(folder) / "memory")
                state = self._load(file)
        except (SavedCacheError, FileNotFoundError) as error:
            sys.stderr.write(f"h2o-chat: {name_of(error)} A conversation that moved is read again.\n")
            return
        self.counts["read"] += 1
        self._prefixes.add(Memory(bytes.fromhex(epoch.chain), epoch.marked, state.cache.fed, state, tag=tag))

    async def keep(
        self, ticket: Ticket, memory: Memory, said: str, tell: Callable[[ApiError | None], None]
    ) -> None:
        """Writes the epoch after an answer; calls `tell` when that is done or refused, or takes too long."""
        number = ticket.epoch + 1
        chain, asked = memory.chain.hex(), ticket.chain[-1].hex()
        messages = (*ticket.asked.messages, ("assistant", said))
        name = f"{number:08d}-{secrets.token_hex(4)}.safetensors"
        given = ticket.conversation, number, ticket.base, chain, asked, messages, name, memory.turn_marker_fed
        epoch = Epoch(*given)
        self._remember(epoch)
        state = memory.state if self.pending < UNWRITTEN else None
        before = self._writing.get(epoch.folder)
        write = asyncio.create_task(self._write(before, ticket, epoch, state))
        self._writing[epoch.folder] = write
        self.pending += 1
        try:
            fails = asyncio.create_task(self.fails.wait())
            await asyncio.wait((write, fails), timeout=WAIT_S, return_when=asyncio.FIRST_COMPLETED)
            fails.cancel()
            if not write.done():
                self.counts["late"] += 1
                self._failed(TimeoutError(f"an answer is not written for up to {WAIT_S:g} s"))
            tell(write.result() if write.done() else None)
            if await write is None:
                with suppress(ApiError):  # a damaged record is told to the next request
                    await self._run(self._epochs.remove_old, epoch.folder)
        except OSError as error:  # the next answer tries again to remove
            self._failed(error)
        finally:
            self.pending -= 1
            if self._writing.get(epoch.folder) is write:
                del self._writing[epoch.folder]

    async def _write(self, before: Any, ticket: Ticket, epoch: Epoch, state: Any) -> ApiError | None:
        """Writes an epoch, again and again while the storage fails; returns why it is refused."""
        for one in filter(None, (before, ticket.before)):
            await asyncio.wait((one,))
            if (refused := one.result()) is not None:  # this epoch goes on from one that is not there
                return self._refused(epoch, refused)
        pause_s, longest_s = RETRY_S
        while True:
            try:
                if epoch.number == 0:  # the storage failed before the answer
                    newest, base, _ = await self._run(self._epochs.base, epoch.folder, ticket.chain, None)
                    name = f"{newest + 1:08d}{epoch.memory[8:]}"
                    epoch = replace(epoch, number=newest + 1, base=base, memory=name)
                    self._remember(epoch)
                await self._run(self._epochs.write, epoch, partial(self._save, state) if state else None)
                break
            except OSError as error:
                self._failed(error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, longest_s)
            except Exception as error:
                return self._refused(epoch, api_errors.of(error))
        self.counts["written"] += 1
        self._works()
        return None

    def _refused(self, epoch: Epoch, error: ApiError) -> ApiError:
        self.counts["conflicts"] += 1
        if (known := self._known.get(epoch.folder)) and known.memory == epoch.memory:
            del self._known[epoch.folder]
        return error

    async def newest(self, owner: bytes, session: str) -> Epoch:
        """The newest written epoch of a conversation; raises ApiError where none is found."""
        try:
            found: Epoch | None = await self._soon(self._epochs.newest, self._epochs.folder(owner, session))
        except OSError as error:
            self._failed(error)
            raise busy(503, "The shared storage fails. Try again.", "storage") from error
        if found is None:
            raise ApiError(404, "No conversation of this key has this id.", "not_found")
        return found

    def _run(self, work: Callable[..., Any], *given: Any) -> asyncio.Future[Any]:
        return self._loop.run_in_executor(self._threads, work, *given)

    async def _soon(self, work: Callable[..., Any], *given: Any) -> Any:
        """Runs what a request waits for; raises TimeoutError, an OSError, after WAIT_S."""
        try:
            return await asyncio.wait_for(self._run(work, *given), WAIT_S)
        except TimeoutError as error:
            raise TimeoutError(f"it does not answer for {WAIT_S:g} s") from error

    def _remember(self, epoch: Epoch) -> None:
        self._known[epoch.folder] = replace(epoch, messages=())
        self._known.move_to_end(epoch.folder)
        if len(self._known) > KNOWN:
            self._known.popitem(last=False)

    def _failed(self, error: OSError) -> None:
        self.counts["failures"] += 1
        if not self.fails.is_set():
            self.fails.set()
            what = f"the shared storage fails; answers go on, and are written later: {error}"
            sys.stderr.write(f"h2o-chat: {name_of(what[:300])}\n")

    def _works(self) -> None:
        if self.fails.is_set():
            self.fails.clear()
            sys.stderr.write("h2o-chat: the shared storage works again\n")
