"""`h2o-chat cluster up` in a process of its own, with a Ray of its own on this machine."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from serving import Client

BEGINS_S = 120


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def up(log: Path, *flags: object) -> Iterator[tuple[subprocess.Popen[bytes], Client]]:
    """A cluster that serves, and a client; at the end none of its processes is left."""
    port = free_port()
    command = [sys.executable, "-m", "h2o_chat", "cluster", "up", "--address", f"127.0.0.1:{port}"]
    own = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "RAY_ADDRESS")}
    with log.open("wb") as err:
        process = subprocess.Popen([*command, *map(str, flags)], stderr=err, stdout=err, env=own)
    try:
        end = time.monotonic() + BEGINS_S
        while b"serving http" not in log.read_bytes():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.2)
        yield process, Client(port)
    finally:
        left = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.kill()
        process.wait()
        for one in left:
            if one.is_running():
                one.kill()


def replicas(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    children = psutil.Process(process.pid).children(recursive=True)
    return [one for one in children if one.name().startswith("ray::ServeRepl")]
