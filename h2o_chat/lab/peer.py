"""Another program that generates, in an environment of its own: started, told what to do, timed.

A peers' folder is made by `tools/make_peers.py`: `envs` holds the environments, `files` the models in the
peers' own formats, made when they are first needed.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from h2o_chat.base.errors import H2OChatError, UsageError
from h2o_chat.models.fingerprint import fingerprint
from h2o_chat.models.gguf import header_of

SCRIPTS = Path(__file__).with_name("peers")
LLAMA = "llama.cpp"
FORMATS = ("q4_0", "q8_0", "q4_0+q8_0")
"""Of llama.cpp's weights; + q8_0: embedding and head in eight bits."""
AS_IT_IS = "gguf"
"""The format of a GGUF file that llama.cpp reads itself."""
ALL = "all"


@dataclass(frozen=True)
class Program:
    """A program to compare with."""

    environment: str
    """Its folder in `envs`; empty: this program's own environment."""
    script: str
    """In `peers/`: obeys orders."""
    form: str
    """Of its weights: its best on a CPU."""
    writer: str = ""
    """In `peers/`: writes the weights; empty: it reads the model folder itself."""
    suffix: str = ""
    """Of what that writes."""
    evicts: bool = False
    """It is given this program's budget."""


PROGRAMS = {
    LLAMA: Program(LLAMA, "llama.py", "q4_0", "gguf_file.py", ".gguf"),
    "openvino-genai": Program("openvino-genai", "open_vino.py", "int4", "open_vino_file.py"),
    "openvino-genai-evicting": Program(
        "openvino-genai", "open_vino.py", "int4", "open_vino_file.py", evicts=True
    ),
    "onnxruntime-genai": Program("onnxruntime-genai", "onnx_genai.py", "int4", "onnx_genai_file.py"),
    "ctranslate2": Program("ctranslate2", "ctranslate.py", "int8", "ctranslate_file.py"),
    "transformers-nf4": Program("", "stock.py", "nf4"),
    "transformers-bf16": Program("", "stock.py", "bf16"),
}
"""By the names that `--peers` takes."""


@dataclass(frozen=True)
class Conditions:
    """What a peer is started with.

    Args:
        folder: the peers' folder; None where only this program's own environment is needed.
        model: the model folder.
        contexts: tokens of each conversation that there will be.
        budget: slots of one that evicts.
    """

    folder: Path | None
    model: Path
    contexts: Sequence[int]
    threads: int
    budget: int


class Peer:
    """A program waiting for orders (`peers/orders.py`).

    Args:
        name: as errors call it.
        command: what starts it.
    """

    def __init__(self, name: str, command: Sequence[Any]) -> None:
        self._name = name
        self._said = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said,
            text=True, env=offline(),
        )  # fmt: skip
        self.process = psutil.Process(self._process.pid)

    def about(self) -> dict[str, Any]:
        """What it was given, in words, and what only it knows of its weights."""
        return self._ask("about")

    def read(self, tokens: int) -> float:
        """A conversation of so many tokens, read anew; ms of all of them."""
        return float(sum(self._ask(f"read {tokens}")["ms"]))

    def decode(self, seen: int, tokens: int) -> float:
        """Goes on in the conversation of `seen` tokens, then forgets what it made; ms of all of it.

        Raises:
            H2OChatError: it made fewer.
        """
        took_ms = self._ask(f"decode {seen} {tokens}")["ms"]
        if len(took_ms) != tokens:
            raise H2OChatError(f"{self._name} made {len(took_ms)} tokens, not {tokens}.")
        return float(sum(took_ms))

    def close(self) -> None:
        """Ends it."""
        self._process.kill()
        self._process.communicate()
        self._said.close()

    def _ask(self, order: str) -> dict[str, Any]:
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
            raise H2OChatError(f"{self._name} has ended with {self._process.wait()} at {order!r}.", said)
        found: dict[str, Any] = json.loads(answer)
        return found


def start(name: str, form: str, how: Conditions) -> tuple[Peer, dict[str, Any]]:
    """The peer, and what is known of it: `given`, `token_bytes`, perhaps `dtype`.

    Raises:
        UsageError: no environment, its weights cannot be written, or it cannot read a GGUF file.
        H2OChatError: it does not start.
    """
    program = PROGRAMS[name]
    file, written = how.model, dict[str, Any]()
    if file.is_file():
        written = _of_gguf(name, file)
    python = python_in(how.folder, program.environment)
    if program.writer and file.is_dir():
        assert how.folder is not None
        file, written = weights(how.folder, name, form, how.model)
    command = [python, SCRIPTS / program.script, file, "--threads", how.threads, "--contexts", *how.contexts]
    if program.evicts:
        command += ["--slots", max(192, how.budget // 32 * 32)]  # in blocks of 32, and 160 never go
    if not program.writer:
        command += ["--format", form]
    peer = Peer(name, command)
    try:
        return peer, written | peer.about()
    except H2OChatError:
        peer.close()
        raise


def _of_gguf(name: str, file: Path) -> dict[str, Any]:
    """`token_bytes` of a GGUF file, which llama.cpp reads as it is.

    Raises:
        UsageError: another program.
    """
    if name != LLAMA:
        raise UsageError(f"It is not given GGUF files, and {file.name} is one.", "Name the model's folder.")
    tensors = header_of(file).tensors
    untied = "output.weight" in tensors
    skipped = tensors["token_embd.weight"].bytes if untied else 0  # a token reads one row of it
    return {"token_bytes": sum(one.bytes for one in tensors.values()) - skipped}


def weights(folder: Path, name: str, form: str, model: Path) -> tuple[Path, dict[str, Any]]:
    """The model in the peer's own format, made if it is not there; what its writer said (`token_bytes`).

    Raises:
        UsageError: no environment, or a model of this family is not written.
    """
    program = PROGRAMS[name]
    kind = form + program.suffix if program.suffix else f"{program.environment}-{form}"
    file = folder / "files" / f"{fingerprint(model)}-{kind}"
    about = file.with_suffix(".json")
    if not file.exists() or not about.exists():
        file.parent.mkdir(exist_ok=True)
        python = python_in(folder, program.environment)
        said = _run([python, SCRIPTS / program.writer, model, file, form], name)
        about.write_text(said.splitlines()[-1], "utf-8")
    written: dict[str, Any] = json.loads(about.read_text("utf-8"))
    return file, written


def python_in(folder: Path | None, environment: str) -> Path:
    """The environment's Python.

    Raises:
        UsageError: it is not there; why, where `tools/make_peers.py` could not make it.
    """
    if not environment:
        return Path(sys.executable)
    assert folder is not None
    python = folder / "envs" / environment / "bin" / "python"
    if not python.exists():
        failed = folder / "envs" / f"{environment}.failed"
        if failed.exists():
            raise UsageError(f"It could not be installed: {failed.read_text('utf-8').strip()}")
        raise UsageError(f"{python} is not there.", f"Make it: python tools/make_peers.py {folder}")
    return python


def check_folder(folder: Path | None) -> None:
    """
    Raises:
        UsageError: none is named, or it holds no environments.
    """
    if folder is None:
        raise UsageError(
            "--peers needs --peers-folder.", "Make one: python tools/make_peers.py FOLDER (minutes)."
        )
    if not (folder / "envs").is_dir():
        raise UsageError(f"{folder / 'envs'} is not there.", f"Make it: python tools/make_peers.py {folder}")


def offline() -> dict[str, str]:
    """The environment variables of a peer: it asks no network for anything.

    What this program says of its own waiting threads (`native/waiting.py`) is not for others: a token of
    llama.cpp took three times as long with it.
    """
    mine = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    return mine | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def _run(command: Sequence[Any], name: str) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=offline())
    if done.returncode:
        raise UsageError(f"The weights for {name} were not written.", done.stderr.strip()[-1000:])
    return done.stdout
