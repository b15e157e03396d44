"""`h2o-chat lab bench speed`: peers are compared turn by turn; times are not judged here."""

import json
from pathlib import Path

import pytest
from stand_in import tiny_model
from typer.testing import CliRunner

from h2o_chat.base.config import Settings
from h2o_chat.cli.cli import app
from h2o_chat.graph.loading import open_model
from h2o_chat.lab.bench.speed import TURN_TOKENS, Wanted, run_speed
from h2o_chat.lab.bench.speed_table import show_speed
from h2o_chat.lab.bench.timed_programs import Stock

pytestmark = pytest.mark.usefixtures("timed_at_once")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_model(tmp_path / "model")


def test_ours_beside_stock_and_beside_ours(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first of ours is compared with everything else, each further one with the first."""
    settings = Settings(model=str(model), budget=32, engine="transformers", dtype="float32", threads=1)
    wanted = Wanted(settings, ("none",), (20, 90, 9000), prompt=24, turns=1, policies=("h2o", "window"))
    report = run_speed(wanted)
    assert len(report.rows) == 2 + 6, "stock where its window holds them"
    first, aged, far = (f"transformers float32, h2o, {seen} seen" for seen in ("20", "90", "9,000"))
    assert "transformers float32, window, 90 seen" in {row.peer for row in report.rows}
    pairs = {(one.peer, one.beside) for one in report.ratios}
    assert {(first, "stock float32, 20 seen"), (aged, "stock float32, 90 seen"), (far, first)} <= pairs
    timed = {row.peer for row in report.rows if row.first_ms}
    assert timed == {first, "stock float32, 20 seen"}, "one prompt of each"
    assert [row.seen_tokens for row in report.rows if row.peer == aged] == [90]
    mine, stock = (next(row for row in report.rows if row.kind == kind) for kind in ("ours", "stock"))
    ratio = report.ratios[0]
    assert ratio.token == pytest.approx(mine.token_ms / stock.token_ms)
    assert ratio.low <= ratio.token <= ratio.high
    assert mine.of_floor == pytest.approx(mine.weight_bytes / mine.read_gb_s / 1e6 / mine.token_ms)
    show_speed(report)
    said = capsys.readouterr().out
    assert f"beside {first}." in said
    assert f"{1 / ratio.token:.2f} times as fast as stock float32" in said


def test_each_budget_is_beside_what_has_seen_as_much(model: Path) -> None:
    settings = Settings(model=str(model), engine="transformers", dtype="float32", threads=1)
    report = run_speed(Wanted(settings, ("none",), (20, 90), prompt=24, turns=1, budgets=(16, 32)))
    ours = {row.peer for row in report.rows if row.kind == "ours"}
    stock = {(one.peer, one.beside) for one in report.ratios if one.beside.startswith("stock")}
    assert len(ours) == len(stock) == 4, "each budget at each length"
    assert all(peer.split(", ")[-1] == beside.split(", ")[-1] for peer, beside in stock)


def test_a_turn_of_compiled_stock_ends_where_it_began(model: Path) -> None:
    settings = Settings(model=str(model), budget=32, engine="transformers", dtype="float32")
    loaded = open_model(settings, lambda *_: None)
    compiled = Stock(loaded, compiled=True)
    compiled.read([*range(3, 23)])
    for _ in range(3):
        compiled.decode(TURN_TOKENS)
        assert int(compiled.cache.get_seq_length()) == 20


def test_the_command_prints_json(model: Path) -> None:
    arguments = ["lab", "bench", "speed", "-m", str(model), "-b", "32", "--engine", "transformers", "--json"]
    arguments += ["--quantize", "none", "--threads", "1", "--turns", "1", "--prompt", "8", "--seen", "8"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [row["kind"] for row in found["rows"]] == ["stock", "ours"]
    assert len(found["ratios"]) == 1
