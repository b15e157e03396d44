"""Another program that generates, in an environment of its own: started, told what to do, timed.

A peers' folder is made by `tools/make_peers.py`: `env` is the environment, `files` holds models in the peers'
own formats, made when they are first needed.
"""

import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from h2o_chat.base.errors import H2OChatError, UsageError
from h2o_chat.models.fingerprint import fingerprint

PROGRAMS = Path(__file__).with_name("peers")
LLAMA = "llama.cpp"
FORMATS = ("q4_0", "q8_0", "q4_0+q8_0")
"""Of llama.cpp's weights; + q8_0: embedding and head in eight bits."""


class Peer:
    """llama.cpp with a file, waiting for orders (`peers/llama.py`).

    Args:
        folder: the peers' folder.
        file: GGUF.
        context: the most tokens that will be seen.

    Raises:
        UsageError: the folder holds no environment.
    """

    def __init__(self, folder: Path, file: Path, context: int, threads: int) -> None:
        command = [python_in(folder), PROGRAMS / "llama.py", file, "--context", context]
        self._said = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._process = subprocess.Popen(
            [*map(str, command), "--threads", str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, text=True,
        )  # fmt: skip
        self.process = psutil.Process(self._process.pid)

    def read(self, tokens: int) -> float:
        """Forgets everything and reads so many tokens; ms of all of them."""
        return self._ask(f"read {tokens}")

    def decode(self, tokens: int) -> float:
        """Generates so many tokens, then forgets them; ms of all of them."""
        return self._ask(f"decode {tokens}")

    def close(self) -> None:
        """Ends it."""
        self._process.kill()
        self._process.communicate()
        self._said.close()

    def _ask(self, order: str) -> float:
        """
        Raises:
            H2OChatError: it has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(order + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # what it said is below
        answer = self._process.stdout.readline()
        if not answer:
            self._said.seek(0)
            said = self._said.read()[-1000:].strip()
            raise H2OChatError(f"{LLAMA} has ended with {self._process.wait()} at {order!r}.", said)
        return float(sum(json.loads(answer)["ms"]))


def gguf(folder: Path, model: Path, form: str) -> tuple[Path, int]:
    """The model's GGUF file in the peers' folder, made if it is not there; bytes that a token reads of it.

    Raises:
        UsageError: the folder holds no environment, or a model of this family is not written.
    """
    file = folder / "files" / f"{fingerprint(model)}-{form}.gguf"
    about = file.with_suffix(".json")
    if not file.exists() or not about.exists():
        file.parent.mkdir(exist_ok=True)
        about.write_text(_run([python_in(folder), PROGRAMS / "gguf_file.py", model, file, form]), "utf-8")
    return file, int(json.loads(about.read_text("utf-8"))["token_bytes"])


def python_in(folder: Path) -> Path:
    """
    Raises:
        UsageError: the folder holds no environment.
    """
    python = folder / "env" / "bin" / "python"
    if not python.exists():
        raise UsageError(f"{python} is not there.", f"Make it: python tools/make_peers.py {folder}")
    return python


def _run(command: Sequence[Any]) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        raise UsageError(f"No GGUF file was made: {done.stderr.strip()[-1000:]}", "Compare without it.")
    return done.stdout
