"""Nobody is asked: no test has sockets, nor what it starts, whatever a library wants of the hub."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from forking import Forked
from sweep import sweep
from transformers.utils.import_utils import KERNELS_MIN_VERSION

# A stand-in for the package `kernels`. bitsandbytes calls it while it is imported on a CPU with AVX512-BF16;
# transformers, where the version suits it, takes much from it, which asks nobody until a kernel is wanted.
KERNELS = """
import socket

def get_kernel(*_, **__):
    socket.create_connection(("192.0.2.1", 443))

kernelize = get_kernel

class Harmless:
    def __init__(self, *_, **__):
        pass

    def __call__(self, decorated):
        return decorated

def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Harmless
"""


def python(code: str, *path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    places = os.pathsep.join([*map(str, path), os.environ["PYTHONPATH"]])
    environment = os.environ | {"PYTHONPATH": places} | variables
    del environment["HF_HUB_DISABLE_TELEMETRY"]  # as a user has it
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: socket.create_connection(("192.0.2.1", 443)),
        lambda: socket.create_connection(("127.0.0.1", 443)),
        lambda: socket.getaddrinfo("huggingface.co", 443),
        lambda: socket.gethostbyname("huggingface.co"),
        lambda: socket.socket().bind(("127.0.0.1", 0)),
        lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"", ("192.0.2.1", 53)),
    ],
    ids=["another machine", "this machine", "a name", "a name as of old", "a server", "a datagram"],
)
def test_no_socket_for_a_test(ask: Callable[[], object], asked: Path) -> None:
    with pytest.raises(OSError, match="no test asks the network"):
        ask()
    assert asked.read_text().startswith("socket.")
    asked.unlink()


def test_unix_sockets_stay() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"hello")
        assert theirs.recv(5) == b"hello"


@pytest.mark.loopback
def test_the_loopback_where_it_is_marked(asked: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        done = python(f"import socket; socket.create_connection({address!r})")
        assert done.returncode == 0, done.stderr
    with pytest.raises(OSError, match="no test asks the network"):
        socket.create_connection(("192.0.2.1", 443))
    asked.unlink()


def test_no_socket_for_what_a_test_starts(asked: Path) -> None:
    done = python("import socket; socket.create_connection(('127.0.0.1', 443))")
    assert "no test asks the network" in done.stderr
    assert "'127.0.0.1' by -c" in asked.read_text()
    asked.unlink()


# bitsandbytes is imported once in a process: int8, which needs it too, has a process of its own.
@pytest.mark.parametrize("quantizations", [("none", "nf4"), *sweep((("int8",),))], ids=" ".join)
@pytest.mark.parametrize("suits", [True, *sweep(False)], ids=["for transformers too", "an old version"])
def test_the_package_kernels_asks_nobody(
    quantizations: tuple[str, ...], suits: bool, tmp_path: Path, asked: Path
) -> None:
    """Also where the user's own settings let the hub be asked."""
    (tmp_path / "kernels.py").write_text(KERNELS)
    version = KERNELS_MIN_VERSION if suits else "0.1"
    about = tmp_path / f"kernels-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: kernels\nVersion: {version}\n")
    answers = f"""
from transformers.utils import is_kernels_available
assert is_kernels_available() == {suits}
from h2o_chat.cli.cli import app
for quantization in {quantizations!r}:
    app(["run", "Hi", "--max-tokens", "2", "--quantize", quantization], standalone_mode=False)
"""
    done = python(answers, tmp_path, HF_HUB_OFFLINE="0")
    assert done.returncode == 0, done.stderr
    for quantization in quantizations:
        assert f"pocket ({quantization}, " in done.stderr
    assert done.stdout.strip()
    assert not asked.exists()


def test_bitsandbytes_alone_would_ask(tmp_path: Path, asked: Path) -> None:
    """Shows that the test above can fail; where this is skipped, that one shows nothing."""
    if "avx512_bf16" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("bitsandbytes only wants kernels on a CPU with AVX512-BF16")
    (tmp_path / "kernels.py").write_text(KERNELS)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import bitsandbytes"
    with Forked([sys.executable, "-c", code]) as process:  # it has imported torch, which takes longest
        assert process.wait(120) == 0
    assert "'192.0.2.1' by -c" in asked.read_text()
    asked.unlink()
