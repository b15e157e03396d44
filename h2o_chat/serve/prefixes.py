"""Memories after answers, found by the messages before them, so that conversations can go on.

Clients send the whole history. A hash over each message and all before it identifies the memory that has read
exactly these; the hash begins with the client's key, so that no other key finds it. If there are too many,
the key with most of them loses its oldest one.
"""

import hmac
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from h2o_chat.base.utf8 import encoded
from h2o_chat.serve.chat_request import Message

if TYPE_CHECKING:
    from h2o_chat.engine.saved_cache import RowSnapshot


def tag_of(owner: bytes) -> str:
    """A short hash of an owner, from which the key cannot be found."""
    return sha256(b"owner" + owner).hexdigest()[:16]


def beginning(owner: bytes, context: bytes) -> bytes:
    """The start value of an owner's hashes; `context` is that of all that must be equal (`context_of`)."""
    return hmac.digest(owner, context, "sha256")


def after(before: bytes, message: Message) -> bytes:
    """The hash of a conversation with one more message."""
    role, text = message  # no two are hashed alike: `before` has 32 bytes, and no role contains a NUL
    hashed = sha256(before + role.encode() + b"\0")
    for piece in encoded(text):
        hashed.update(piece)
    return hashed.digest()


def chain(begin: bytes, messages: Iterable[Message]) -> list[bytes]:
    """The hash after each message."""
    return list(accumulate(messages, after, initial=begin))[1:]


@dataclass(eq=False)
class Memory:
    chain: bytes
    """Hash of the conversation up to the answer."""
    turn_marker_fed: bool
    """Whether the answer ended in the template's marker, which is fed already."""
    tokens: int
    """Tokens fed; 0 until its file is read."""
    state: "RowSnapshot | None"
    """None: it is only in its file."""
    file: Path | None = None
    gone_on: int = 0
    """Times reused."""
    tag: str = ""
    """`tag_of` the owner."""
    id: str = ""
    """The answer's id; empty where it comes from a file."""

    @property
    def held_bytes(self) -> int:
        if self.state is None:
            return 0
        cache = self.state.cache
        slots = sum(tensor.nbytes for part in cache.parts for tensor in (*part.states.values(), part.lost))
        return slots + sum(tensor.nbytes for held in cache.states for tensor in held.values())


class Prefixes:
    """The newest memories, at most `most`; thread-safe.

    One that is reused a second time, as a common beginning of conversations is, counts as new at each reuse.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept: OrderedDict[bytes, Memory] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def held_bytes(self) -> int:
        return sum(one.held_bytes for one in self.all())

    def all(self) -> list[Memory]:
        with self._lock:
            return list(self._kept.values())

    def add(self, one: Memory) -> None:
        with self._lock:
            self._kept.pop(one.chain, None)
            self._kept[one.chain] = one
            while len(self._kept) > self.most:
                of = Counter(kept.tag for kept in self._kept.values())
                most = max(of.values())
                del self._kept[next(hashed for hashed, kept in self._kept.items() if of[kept.tag] == most)]

    def drop(self, one: Memory) -> None:
        with self._lock:
            if self._kept.get(one.chain) is one:
                del self._kept[one.chain]

    def get(self, hashed: bytes | None) -> Memory | None:
        return None if hashed is None else self._kept.get(hashed)

    def longest(self, hashes: Sequence[bytes]) -> Memory | None:
        """The memory after the longest prefix of a conversation, by its hashes."""
        with self._lock:
            for found in map(self._kept.get, reversed(hashes)):
                if found is not None:
                    found.gone_on += 1
                    if found.gone_on > 1:
                        self._kept.move_to_end(found.chain)
                    return found
        return None
