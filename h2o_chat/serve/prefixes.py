"""Conversations that may go on: the memory after an answer, found by the messages before it.

Clients send the whole history. A hash over each message and all before it says which memory has read just
that; the hash begins with the key of the client, so no other key leads to it. Where there are too many, the
key that has most of them loses its oldest: no key takes the place of those of others that have fewer.
"""

import hmac
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from h2o_chat.base.utf8 import encoded
from h2o_chat.serve.asked import Message

if TYPE_CHECKING:
    from h2o_chat.engine.saved_cache import RowSnapshot


def tag_of(owner: bytes) -> str:
    """A short name for what stands for a key; nothing leads back from it."""
    return sha256(b"owner" + owner).hexdigest()[:16]


def beginning(owner: bytes, context: bytes) -> bytes:
    """Where the hashes of a key begin.

    Args:
        owner: what stands for the key.
        context: model, template, policy and all else that must be alike.
    """
    return hmac.digest(owner, context, "sha256")


def after(before: bytes, message: Message) -> bytes:
    """The hash of a conversation that goes on with a message.

    No two messages are hashed alike: the first part has 32 bytes, and no role has a NUL.
    """
    role, text = message
    hashed = sha256(before + role.encode() + b"\0")
    for piece in encoded(text):
        hashed.update(piece)
    return hashed.digest()


def chain(begin: bytes, messages: Iterable[Message]) -> list[bytes]:
    """The hash after each message."""
    found = []
    for message in messages:
        begin = after(begin, message)
        found.append(begin)
    return found


@dataclass(eq=False)
class Kept:
    """The memory after an answer."""

    chain: bytes
    """The hash after it."""
    marked: bool
    """The answer ended in the template's marker: it was fed already."""
    tokens: int
    """Fed so far; 0 until its file was read."""
    state: "RowSnapshot | None"
    """None: it is in its file alone."""
    file: Path | None = None
    """Where it stands too."""
    gone_on: int = 0
    """So often a conversation went on from here."""
    tag: str = ""
    """Of the key that made it, see `tag_of`."""

    @property
    def held_bytes(self) -> int:
        """In memory."""
        return 0 if self.state is None else state_bytes(self.state)


def state_bytes(state: "RowSnapshot") -> int:
    """Of all its tensors."""
    parts = state.cache.parts
    return sum(tensor.nbytes for part in parts for tensor in (*part.states.values(), part.lost))


class Prefixes:
    """The newest memories, at most so many; safe to use in any thread.

    Of the key that has most of them the one that came first goes first. One from which a second conversation
    goes on counts as new, whenever one does: others may begin alike.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept: OrderedDict[bytes, Kept] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def held_bytes(self) -> int:
        """Of all that are in memory."""
        return sum(one.held_bytes for one in self.all())

    def all(self) -> list[Kept]:
        """The oldest first."""
        with self._lock:
            return list(self._kept.values())

    def add(self, one: Kept) -> None:
        """Keeps one; of those that are too many the oldest go, of the key that has most."""
        with self._lock:
            self._kept.pop(one.chain, None)
            self._kept[one.chain] = one
            while len(self._kept) > self.most:
                of = Counter(kept.tag for kept in self._kept.values())
                most = max(of.values())
                del self._kept[next(hashed for hashed, kept in self._kept.items() if of[kept.tag] == most)]

    def drop(self, one: Kept) -> None:
        """Forgets it."""
        with self._lock:
            if self._kept.get(one.chain) is one:
                del self._kept[one.chain]

    def get(self, hashed: bytes | None) -> Kept | None:
        """The one with this hash, if it is kept."""
        return None if hashed is None else self._kept.get(hashed)

    def longest(self, hashes: Sequence[bytes]) -> Kept | None:
        """The memory that has read the most of these messages."""
        with self._lock:
            for found in map(self._kept.get, reversed(hashes)):
                if found is not None:
                    found.gone_on += 1
                    if found.gone_on > 1:
                        self._kept.move_to_end(found.chain)
                    return found
        return None
