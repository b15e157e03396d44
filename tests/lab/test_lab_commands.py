"""`tools/stress`: what is printed is what was measured; times are not judged here."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from opened_models import copy_tokenizer
from tiny_models import tiny
from typer.testing import CliRunner

from h2o_chat.base.config import Settings
from h2o_chat.cli.cli import app
from h2o_chat.graph.loading import open_model
from h2o_chat.lab.bench.gpu import rows_speed

POCKET = Path(__file__).parents[2] / "assets" / "pocket"


Measured = Callable[..., Any]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Measured:
    """`tools/stress/measure_screen.py`, which prints JSON."""
    monkeypatch.syspath_prepend(str(POCKET.parents[1] / "tools" / "stress"))
    import measure_screen

    def run(*arguments: str) -> Any:
        capsys.readouterr()
        assert measure_screen.main([*arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return run


@pytest.mark.sweep
def test_the_screen_is_measured(measured: Measured) -> None:
    found = measured("--turns", "4", "--tokens", "400", "--rounds", "1")
    by_name = {row["what"]: row for row in found}
    assert len(by_name) == len(found) == 9
    assert 0 < by_name["append a token: work"]["times"] <= 400  # tokens that are no text are none of them
    assert 0 < by_name["key press to screen"]["median"] <= by_name["key press to screen"]["worst"]
    alone, beside = (by_name[f"engine under {what}"]["median"] for what in ("run", "the screen"))
    assert by_name["screen / run"]["median"] == pytest.approx(100 * beside / alone)


@pytest.mark.usefixtures("forked")
def test_the_screen_is_measured_though_a_model_says_no_text(measured: Measured, tmp_path: Path) -> None:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "vocab_size": 4104}
    sizes |= {"num_attention_heads": 1, "num_key_value_heads": 1}
    model = tiny("llama", "eager", torch.float32, **sizes)
    for parameter in model.parameters():
        parameter.data.zero_()
    model.model.embed_tokens.weight.data.fill_(1)
    model.model.norm.weight.data.fill_(1)
    model.lm_head.weight.data[-1].fill_(9)  # a token that the tokenizer does not have
    model.save_pretrained(tmp_path)
    copy_tokenizer(POCKET, tmp_path)
    found = measured("-m", str(tmp_path), "--turns", "2", "--tokens", "90", "--rounds", "0")
    by_name = {row["what"]: row for row in found}
    assert len(by_name) == 6
    assert 0 < by_name["key press to screen"]["median"] <= by_name["key press to screen"]["worst"]
    assert by_name["append a token: work"]["times"] == 90
    assert by_name["frames at 200 tokens/s"]["times"] >= 2  # seconds, though the answer takes no half of one


def test_without_a_gpu_it_says_so() -> None:
    """Before any weights are made."""
    if torch.cuda.is_available():
        pytest.skip("there is one")
    result = CliRunner().invoke(app, ["lab", "bench", "gpu", "--shape", "smollm2-135m"])
    assert result.exit_code == 2
    assert "cuda" in result.stderr


def test_rows_share_a_step() -> None:
    settings = Settings(model=str(POCKET), budget=32, threads=1)
    found = rows_speed(open_model(settings, lambda *_: None), settings, 3, warm=1, timed=4)
    assert found["rows"] == 3
    assert found["tokens_per_s"] > 0
    assert found["step_ms"] > 0
