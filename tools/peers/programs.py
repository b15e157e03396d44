"""Other programs that generate, each in an environment of its own: started, told what to do, timed.

The folder of the programs is made by `make_environments.py`: `envs` holds the environments, `files` the
models in the programs' own formats, made when they are first needed.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from gguf_files import write  # type: ignore[import-not-found]

from h2o_chat.base.errors import H2OChatError, UsageError
from h2o_chat.lab.bench.timed_programs import Sample, others_s
from h2o_chat.models.file_identity import fingerprint
from h2o_chat.models.gguf import header_of

SCRIPTS = Path(__file__).parent
LLAMA = "llama.cpp"
GGUF = "gguf"
"""The form of a GGUF file that llama.cpp reads itself."""
STILL_S = 0.03
"""Seconds without processor time (which is counted in hundredths) after which a process is still."""


@dataclass(frozen=True)
class OtherProgram:
    """A program to compare with."""

    environment: str
    """Its folder in `envs`; empty: this program's own environment."""
    script: str
    """Obeys orders (`orders.py`)."""
    form: str
    """Form of its weights: its best on a CPU."""
    writer: str = ""
    """Writes the weights in its environment; empty: it reads the model folder, or a GGUF file."""


PROGRAMS = {
    LLAMA: OtherProgram(LLAMA, "llama.py", "q4_0"),
    "openvino": OtherProgram("openvino", "open_vino.py", "int4", "open_vino_file.py"),
    "transformers-nf4": OtherProgram("", "stock.py", "nf4"),
    "transformers-bf16": OtherProgram("", "stock.py", "bf16"),
}
"""Programs by the names that `--peers` takes."""


@dataclass(frozen=True)
class Conditions:
    """Settings that a program is started with.

    Args:
        folder: of the environments; None where only this program's own is needed.
        model: the model folder, or a GGUF file.
        contexts: tokens of each conversation that there will be.
    """

    folder: Path | None
    model: Path
    contexts: Sequence[int]
    threads: int


def process_s(process: psutil.Process) -> float:
    """Seconds of processor time that a process has taken so far; 0 once it has ended."""
    try:
        took = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(took.user + took.system)


class SampleOf(Sample):
    """A sample of another process, whose own time disturbs nothing."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process

    def others_s(self) -> float:
        return others_s() - process_s(self._process)


def wait_until_still(process: psutil.Process, most_s: float = 1.0) -> bool:
    """Waits until a process takes no processor time; False if it still does after `most_s`."""
    give_up = time.monotonic() + most_s
    while time.monotonic() < give_up:
        before = process_s(process)
        time.sleep(STILL_S)
        if process_s(process) == before:
            return True
    return False


class Driven:
    """A started program: it takes orders by lines and says how long each took.

    Args:
        name: as errors call it.
        command: starts it.
    """

    def __init__(self, name: str, command: Sequence[Any]) -> None:
        self._name = name
        self._stderr = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr,
            text=True, env=offline(),
        )  # fmt: skip
        self.process = psutil.Process(self._process.pid)

    def about(self) -> dict[str, Any]:
        """`given`, in words; `dtype` and `token_bytes` where no file was written for it."""
        return self._ask("about")

    def read(self, tokens: int) -> Sample:
        """Reads a conversation of so many tokens anew."""
        return self._timed(f"read {tokens}")

    def decode(self, seen: int, tokens: int) -> Sample:
        """Goes on in the conversation of `seen` tokens, then forgets what it made.

        Raises:
            H2OChatError: it made fewer tokens.
        """
        return self._timed(f"decode {seen} {tokens}", tokens)

    def close(self) -> None:
        """Ends it."""
        self._process.kill()
        self._process.communicate()
        self._stderr.close()

    def _timed(self, order: str, times: int | None = None) -> Sample:
        with SampleOf(self.process) as sample:
            took_ms = self._ask(order)["ms"]
        if times is not None and len(took_ms) != times:
            raise H2OChatError(f"{self._name} made {len(took_ms)} tokens, not {times}.")
        sample.ms = float(sum(took_ms))  # without the way there and back
        wait_until_still(self.process)  # some spin for a while after their work
        return sample

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
            pass  # its last words are below
        answer = self._process.stdout.readline()
        if not answer:
            self._stderr.seek(0)
            said = self._stderr.read()[-1000:].strip()
            raise H2OChatError(f"{self._name} has ended with {self._process.wait()} at {order!r}.", said)
        found: dict[str, Any] = json.loads(answer)
        return found


def start(name: str, how: Conditions) -> tuple[Driven, dict[str, Any]]:
    """Starts a program; it, and `given`, `form`, `token_bytes`, perhaps `dtype`.

    Raises:
        UsageError: no environment, its weights cannot be written, or it reads no GGUF file.
        H2OChatError: it does not start.
    """
    program = PROGRAMS[name]
    file, about = how.model, dict[str, Any](form=program.form)
    if file.is_file():
        if name != LLAMA:
            raise UsageError(f"It reads no GGUF file, and {file.name} is one.", "Name the model's folder.")
        about = {"form": GGUF, "token_bytes": gguf_token_bytes(file)}
    python = python_in(how.folder, program.environment)
    if program.environment and file.is_dir():
        assert how.folder is not None
        file, written = weights(how.folder, name, program.form, how.model)
        about |= written
    command = [python, SCRIPTS / program.script, file, "--threads", how.threads, "--contexts", *how.contexts]
    if not program.environment:
        command += ["--format", program.form]
    driven = Driven(name, command)
    try:
        return driven, about | driven.about()
    except H2OChatError:
        driven.close()
        raise


def gguf_token_bytes(file: Path) -> int:
    """Bytes that a token reads of a GGUF file: all, but of an untied embedding a row, of experts its own."""
    header = header_of(file)
    tensors, of = header.tensors, header.architecture
    skipped = tensors["token_embd.weight"].bytes if "output.weight" in tensors else 0
    if f"{of}.expert_count" in header.values:
        experts = sum(one.bytes for name, one in tensors.items() if "_exps." in name)
        count, used = header.whole(f"{of}.expert_count"), header.whole(f"{of}.expert_used_count")
        skipped += experts * (count - used) // count
    return sum(one.bytes for one in tensors.values()) - skipped


def weights(folder: Path, name: str, form: str, model: Path) -> tuple[Path, dict[str, Any]]:
    """The model in the program's own format, made if it is not there; and `token_bytes`.

    Raises:
        UsageError: no environment, or a model of this family is not written.
    """
    program = PROGRAMS[name]
    file = folder / "files" / f"{fingerprint(model)}-{program.environment}-{form}"
    if name == LLAMA:
        if not file.exists():
            file.parent.mkdir(exist_ok=True)
            partial = file.with_suffix(f".{os.getpid()}.partial")
            write(model, partial, form.upper()).replace(file)
        return file, {"token_bytes": gguf_token_bytes(file)}
    about = file.with_name(f"{file.name}.json")
    if not file.exists() or not about.exists():
        file.parent.mkdir(exist_ok=True)
        command = [python_in(folder, program.environment), SCRIPTS / program.writer, model, file, form]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=offline())
        if done.returncode:
            raise UsageError(f"The weights for {name} were not written.", done.stderr.strip()[-1000:])
        about.write_text(done.stdout.splitlines()[-1], "utf-8")
    written: dict[str, Any] = json.loads(about.read_text("utf-8"))
    return file, written


def python_in(folder: Path | None, environment: str) -> Path:
    """The environment's Python.

    Raises:
        UsageError: it is not there; why, where `make_environments.py` could not make it.
    """
    if not environment:
        return Path(sys.executable)
    if folder is None:
        raise UsageError(
            "It needs --folder.", "Make one: python tools/peers/make_environments.py FOLDER (minutes)."
        )
    python = folder / "envs" / environment / "bin" / "python"
    if not python.exists():
        failed = folder / "envs" / f"{environment}.failed"
        if failed.exists():
            raise UsageError(f"It could not be installed: {failed.read_text('utf-8').strip()}")
        raise UsageError(
            f"{python} is not there.", f"Make it: python tools/peers/make_environments.py {folder}"
        )
    return python


def offline() -> dict[str, str]:
    """The environment variables of another program: it asks no network for anything.

    GOMP_SPINCOUNT, which this program sets for its own threads, is not for others: a token of llama.cpp took
    three times as long with it.
    """
    mine = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    return mine | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
