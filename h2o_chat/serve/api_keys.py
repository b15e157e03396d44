"""Keys of clients, from a file or the environment: compared in constant time, never written anywhere."""

import hmac
import os
import stat
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path

from h2o_chat.base.errors import UsageError
from h2o_chat.base.system import HAS_OWNERS

VARIABLE = "H2O_CHAT_KEY"
"""A key in the environment."""
SHORTEST_CHARACTERS = 16
FILE_BYTES = 1 << 20
NOBODY = b""
"""The owner of requests if there are no keys."""

_HINT = f"A key is a line of at least {SHORTEST_CHARACTERS} printable ASCII characters: openssl rand -hex 24"


class Keys:
    """The known keys; if there are none, requests need no key."""

    def __init__(self, keys: list[str]) -> None:
        self._digests = [sha256(key.encode()).digest() for key in keys]
        self._owners = [hmac.digest(key.encode(), b"h2o-chat serve", "sha256") for key in keys]

    def __len__(self) -> int:
        return len(self._digests)

    def owner(self, authorization: bytes | None) -> bytes | None:
        """A digest of the key in this header; None if the key is unknown.

        It takes the same time for all keys, known or not.
        """
        if not self._digests:
            return NOBODY
        kind, _, key = (authorization or b"").partition(b" ")
        given, found = sha256(key.strip()).digest(), None
        for digest, owner in zip(self._digests, self._owners, strict=True):
            if compare_digest(given, digest):
                found = owner
        return found if kind.lower() == b"bearer" else None


def read_keys(file: Path | None) -> Keys:
    """The keys of a file, one a line, and that of the environment, which is removed from it.

    Raises:
        UsageError: the file cannot be read, others may read it, or a line is no key.
    """
    keys = []
    if file is not None:
        keys += [
            _checked(line.strip(), f"{file} line {number:,}")
            for number, line in enumerate(_read(file).splitlines(), 1)
            if line.strip() and not line.startswith("#")
        ]
        if not keys:
            raise UsageError(f"{file} has no key.", _HINT)
    if one := os.environ.pop(VARIABLE, ""):
        keys.append(_checked(one, VARIABLE))
    return Keys(list(dict.fromkeys(keys)))


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            if HAS_OWNERS and stat.S_ISREG(mode) and mode & (stat.S_IRGRP | stat.S_IROTH):
                raise UsageError(f"{file}: others may read the keys in it.", f"chmod 600 {file}")
            raw = opened.read(FILE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: there is a NUL in the name
        what = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{file} cannot be read: {what}.", "Give --keys a file of keys.") from error
    if len(raw) > FILE_BYTES:
        raise UsageError(f"{file} is larger than {FILE_BYTES >> 20} MiB.", "It is no file of keys.")
    return raw.decode("utf-8", "replace")


def _checked(key: str, where: str) -> str:
    if len(key) < SHORTEST_CHARACTERS or not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError(f"{where} is no key.", _HINT)
    return key
