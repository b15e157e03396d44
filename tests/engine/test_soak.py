"""The soak command on a small scale: it goes on where it was, and nothing grows."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from beside import POCKET
from opened_models import little

from h2o_chat.base.config import Settings
from h2o_chat.lab.bench import soak


def test_a_soak_goes_on_in_another_process(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soak, "STRETCH_TOKENS", 120)
    monkeypatch.setattr(soak, "TURN_TOKENS", 40)
    model = little(POCKET, tmp_path_factory.mktemp("model"), window=128)
    settings = Settings(model=str(model), budget=32, seed=1, threads=1)
    first = soak.run_soak(settings, tmp_path, 120)
    both = soak.run_soak(settings, tmp_path, 360)
    assert both[: len(first)] == first
    assert both[-1].tokens >= 360
    assert [row.resume_ms > 0 for row in both] == [False, True, False]
    assert both[-1].largest_index < 128  # the window of the model
    assert 0 <= both[-1].rounding < 1e-5
    assert both[-1].open_files <= both[0].open_files + 2
    assert len((tmp_path / "soak.jsonl").read_text().splitlines()) == len(both)
    assert json.dumps([asdict(row) for row in both])
