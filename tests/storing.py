"""Processes that write to a store, and whether its file is whole."""

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

from h2o_chat.store import DATABASE, Store


def created(store: Store, model: str, settings: dict[str, Any], title: str = "") -> str:
    """The id of a new conversation, which nobody holds."""
    with store.begin(model, settings) as writer:
        conversation = writer.conversation
    if title.strip():
        store.rename(conversation, title)
    return conversation


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


def intact(folder: Path) -> bool:
    connection = sqlite3.connect(folder / DATABASE)
    try:
        connection.execute("INSERT INTO words (words, rank) VALUES ('integrity-check', 1)")
        return (
            connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            and connection.execute("PRAGMA foreign_key_check").fetchall() == []
        )
    finally:
        connection.close()
