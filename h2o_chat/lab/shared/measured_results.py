"""Results on disk, one JSON object a line: a sweep that was interrupted goes on."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import h2o_chat
from h2o_chat.base.errors import UsageError, refusal
from h2o_chat.models.load import Loaded

Value = TypeVar("Value")

CODE = (
    *("policies/*", "cache/*", "transformers_cache/*"),
    *(f"engine/{name}" for name in ("engine", "generation", "sampling", "detokenize")),
    "chat/templates/*",
)
"""Modules whose change makes a result out of date."""


class Results:
    """Values by key; appended to a file as they come, if there is one.

    Raises:
        UsageError: the file holds something else.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[str, Any] = {}
        if path is None or not path.exists():
            return
        try:
            lines = path.read_text("utf-8").splitlines(keepends=True)
            for line in lines:
                if line.endswith("\n"):  # else it was interrupted while it was written
                    row = json.loads(line)
                    self._known[_name(row["key"])] = row["value"]
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise UsageError(f"{path} holds no results: {error}.", "Give another file.") from error
        if lines and not lines[-1].endswith("\n"):
            path.write_text("".join(lines[:-1]), "utf-8")

    def once(self, key: dict[str, Any], measure: Callable[[], Value]) -> Value:
        """Returns the value under a key, which JSON can hold; measures and keeps it where there is none.

        Raises:
            UsageError: it cannot be written.
        """
        if _name(key) not in self._known:
            self._known[_name(key)] = value = measure()
            self._keep({"key": key, "value": value})
        found: Value = self._known[_name(key)]
        return found

    def _keep(self, row: dict[str, Any]) -> None:
        if self._path is None:
            return
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        except OSError as error:
            raise UsageError(f"{self._path} cannot be written: {refusal(error)}.") from error


def key(loaded: Loaded, task: str, data: Any, **others: Any) -> dict[str, Any]:
    """Key of a result: the model, the task's data, the code of the cache, and what is given.

    Args:
        data: anything that JSON can hold; its hash becomes part of the key.
    """
    return {
        "task": task,
        "model": loaded.name,
        "revision": loaded.revision,
        "dtype": loaded.dtype,
        "quantization": loaded.quantization,
        "data": _hash(json.dumps(data).encode()),
        "code": _hash(b"".join(file.read_bytes() for name in CODE for file in sources(name))),
        **others,
    }


def _name(key: Any) -> str:
    return json.dumps(key, sort_keys=True)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def sources(modules: str) -> list[Path]:
    """The files of a pattern of `CODE`."""
    return sorted(Path(h2o_chat.__file__).parent.glob(f"{modules}.py"))
