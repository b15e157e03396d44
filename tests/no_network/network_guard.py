"""Refuses Python's sockets, but Unix ones and those of tests that need the loopback; writes down who asked.

Refused looks like a machine without a network. Code that tries all the same and carries on is found by what
was written down.
"""

import errno
import os
import sys
import traceback
from typing import Any

LOOPBACK = "TESTS_MAY_USE_LOOPBACK"  # in the environment: whether 127.0.0.1 is allowed just now
ASKED = "TESTS_ASKED_THE_NETWORK"  # in the environment: the file where attempts are written down

_HERE = ("127.0.0.1", "127.0.0.2", "::1", "localhost")
_OF_A_SOCKET = ("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg")
_OF_A_NAME = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "socket.getnameinfo")


def watch() -> None:
    """From now on, for as long as this process lives."""
    sys.addaudithook(_refuse)


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Raises OSError if this goes, or asks how to go, to another machine."""
    if event in _OF_A_SOCKET:
        connection, address = arguments
        host = address[0] if isinstance(address, tuple) else None
        allowed = connection.family.name not in ("AF_INET", "AF_INET6")
    elif event in _OF_A_NAME:
        host = arguments[0][0] if isinstance(arguments[0], tuple) else arguments[0]
        allowed = False
    else:
        return
    if allowed or (os.environ.get(LOOPBACK) and host in _HERE):
        return
    if ASKED in os.environ:
        with open(os.environ[ASKED], "a") as file:
            stack = "".join(traceback.format_stack(limit=12))
            file.write(f"{event} {host!r} by {' '.join(sys.argv)}\n{stack}\n")
    raise OSError(errno.ENETUNREACH, f"no test asks the network ({event} {host!r}); see tests/no_network")
