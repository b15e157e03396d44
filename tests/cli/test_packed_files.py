"""Packed weights as `h2o-chat models` shows, checks and removes them."""

from pathlib import Path

import pytest
from here import h2o_here

from h2o_chat.base.errors import ExitCode
from h2o_chat.native.packing import packed_for


@pytest.fixture
def model(copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model with a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return copied


def packed(folder: Path, bits: int) -> Path:
    return packed_for(folder, bits, lambda *_: None).path


def damage(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def rows(folder: Path) -> dict[str, list[str]]:
    """The rows of `models info`, by the first words of its lines."""
    done = h2o_here("models", "info", folder)
    found: dict[str, list[str]] = {}
    for line in done.out.splitlines()[1:]:
        name, _, value = line.strip().partition("  ")
        found.setdefault(name, []).append(value.strip())
    return found


def test_info(model: Path) -> None:
    assert "packed" not in rows(model)
    four, eight = packed(model, 4), packed(model, 8)
    assert rows(model)["packed"] == [f"int4, 2 MB: {four}", f"int8, 3 MB: {eight}"]


def test_checking(model: Path) -> None:
    path = packed(model, 8)
    whole = path.read_bytes()
    assert h2o_here("models", "info", model, "--check").err == ""
    damage(path)
    done = h2o_here("models", "info", model, "--check")
    assert f"h2o-chat: {path} is damaged: " in done.err
    assert "It was packed again.\n" in done.err
    assert path.read_bytes() == whole


def test_what_is_left_of_other_weights(model: Path) -> None:
    path = packed(model, 8)
    config = model / "config.json"
    config.write_text(config.read_text() + " ")
    (said,) = rows(model)["packed"]
    assert said == f"int8, 3 MB, of earlier weights: h2o-chat models rm removes it: {path}"


def test_removing(model: Path) -> None:
    paths = [packed(model, 4), packed(model, 8)]
    h2o_here("models", "rm", model, ends=ExitCode.USAGE)
    assert all(path.is_file() for path in paths)
    done = h2o_here("models", "rm", model, "--yes")
    assert done.out == "Removed 2 packed files (6 MB) of copied. Its folder stays: it is yours to delete.\n"
    assert list(paths[0].parent.iterdir()) == []
    assert (model / "config.json").is_file()
    assert "yours to delete" in h2o_here("models", "rm", model, "--yes", ends=ExitCode.MODEL).err
