"""The soak command on a small scale: it goes on where it was, and nothing grows."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from h2o_chat.base.config import Settings
from h2o_chat.lab import soak


def test_a_soak_goes_on_in_another_process(
    tmp_path: Path, shared_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soak, "STRETCH_TOKENS", 300)
    monkeypatch.setattr(soak, "TURN_TOKENS", 100)
    settings = Settings(model=str(shared_models / "stories260k"), budget=32, seed=1, threads=1)
    first = soak.run_soak(settings, tmp_path, 300)
    both = soak.run_soak(settings, tmp_path, 900)
    assert both[: len(first)] == first
    assert both[-1].tokens >= 900
    assert [row.resume_ms > 0 for row in both] == [False, True, False]
    assert both[-1].largest_index < 512  # the window of the model
    assert 0 <= both[-1].rounding < 1e-5
    assert both[-1].open_files <= both[0].open_files + 2
    assert len((tmp_path / "soak.jsonl").read_text().splitlines()) == len(both)
    assert json.dumps([asdict(row) for row in both])
