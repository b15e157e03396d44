"""Shared by tests of fetched models: models to fetch, their folders, refusals."""

import json
import os
import pty
import select
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forking import OUTSIDE, Forked
from hub_server import COMMIT, Repository

from h2o_chat.base.errors import ExitCode

PROGRAM = [sys.executable, "-m", "h2o_chat"]
SET_ANEW = """
import json, os, sys
from huggingface_hub import constants
os.environ.clear()
os.environ.update(json.loads(sys.argv[1]))
constants.HF_HUB_OFFLINE = False
constants.ENDPOINT = os.environ["HF_ENDPOINT"]
constants.HUGGINGFACE_CO_URL_TEMPLATE = constants.ENDPOINT + "/{repo_id}/resolve/{revision}/{filename}"
constants.HF_TOKEN_PATH = os.environ["HF_HOME"] + "/token"
from h2o_chat.cli.cli import main
sys.argv = ["h2o-chat", *sys.argv[2:]]
main()
"""
"""The program, in whose process huggingface_hub may have read its variables: they are set anew."""
MIB = 1 << 20
Call = Callable[..., subprocess.CompletedProcess[str]]


def forked(environment: dict[str, str], *arguments: str, **how: Any) -> "subprocess.Popen[Any]":
    """`h2o-chat ARGUMENTS` in this environment, without the seconds that importing torch takes."""
    command = [sys.executable, "-c", SET_ANEW, json.dumps(environment), *arguments]
    return Forked(command, env=OUTSIDE, **how)


def on_terminal(environment: dict[str, str], *arguments: str, answer: str = "") -> tuple[str, int]:
    """(all that was shown, the exit code) of a program that may ask a question on a terminal."""
    ours, theirs = pty.openpty()
    program = forked(
        environment | {"COLUMNS": "100", "TERM": "xterm"},
        *arguments,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown, end = b"", time.monotonic() + 120
    try:
        while time.monotonic() < end:
            if not select.select([ours], [], [], 1)[0]:
                continue
            try:
                shown += os.read(ours, 1 << 16)
            except OSError:  # it has left
                break
            if answer and b"[y/N]" in shown:
                os.write(ours, answer.encode())
                answer = ""
        return " ".join(shown.decode().split()), program.wait(30)
    finally:
        program.kill()
        program.wait()
        os.close(ours)


def weights(mib: int = 1, seed: int = 0) -> bytes:
    """A safetensors file with one tensor of so many MiB."""
    size = mib * MIB
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes([seed]) * size


def repository(content: bytes, **more: object) -> Repository:
    """A model as people publish them: with much that is not needed."""
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    files = {
        "config.json": json.dumps(config).encode(),
        "tokenizer.json": b"{}",
        "README.md": b"# A model",
        "model.safetensors": content,
        "pytorch_model.bin": b"\0" * 100,
        "original/consolidated.safetensors": b"\0" * 100,
    }
    return Repository(files, **more)  # type: ignore[arg-type]


def snapshot(tmp_path: Path, name: str) -> Path:
    return tmp_path / "hf" / "hub" / f"models--{name.replace('/', '--')}" / "snapshots" / COMMIT


def refused(done: subprocess.CompletedProcess[str], *said: str) -> None:
    """Ended as an error of a model does, with these words and without a traceback."""
    assert done.returncode == ExitCode.MODEL, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert all(words in done.stderr for words in said), done.stderr
