"""Pictures of the lab: what is drawn is what was measured."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from h2o_chat.cli.cli import app
from h2o_chat.lab.eval.long_recall import LongRecallReport
from h2o_chat.lab.eval.perplexity import PerplexityReport, Score
from h2o_chat.lab.eval.recall_questions import RecallReport, Share

POCKET = Path(__file__).parents[2] / "assets" / "pocket"


def score(policy: str, budget: int, value: float, ratio: bool = True, first: int = 0) -> Score:
    interval = (value - 0.25, value + 0.5)
    shown = value if ratio else None
    return Score(policy, "", budget, budget, 1024, 4, 8, first, first + 100, value, shown, interval, None)


def report(*scores: Score) -> PerplexityReport:
    return PerplexityReport("tiny", "float32", 3, 512, 512, 0, 0, list(scores))


def test_ratios_by_budget() -> None:
    plots, axes = drawing()
    plots._by_budget(axes, report(score("h2o", 64, 1.25), score("h2o", 32, 1.5), score("window", 32, 2.0)))
    lines = {bars.get_label(): bars for bars in axes.containers}
    assert set(lines) == {"h2o", "window"}
    middle, _, (stem,) = lines["h2o"]
    assert list(zip(*middle.get_data(), strict=True)) == [(32, 1.5), (64, 1.25)]
    assert [segment[:, 1].tolist() for segment in stem.get_segments()] == [[1.25, 2.0], [1.0, 1.75]]


def test_far_documents_by_position(tmp_path: Path) -> None:
    plots, axes = drawing()
    long = report(score("h2o", 64, 5, False), score("h2o", 64, 6, False, first=100))
    plots._by_position(axes, long)
    (line,) = axes.lines
    assert list(zip(*line.get_data(), strict=True)) == [(100, 5), (200, 6)]
    assert line.get_label() == "h2o, 64 slots"
    (path,) = plots.plot_perplexity(long, tmp_path / "new" / "folder")
    assert path.name == "perplexity.png"
    assert path.stat().st_size > 5000


def test_recall_beside_the_full_cache(tmp_path: Path) -> None:
    plots, axes = drawing()
    shares = [
        Share("full", None, "all facts", 9, 10, (0.6, 1.0), 1.0),
        Share("h2o", 64, "all facts", 6, 10, (0.3, 0.8), 0.6),
        Share("h2o", 64, "0 to 300", 1, 10, (0.0, 0.4), 0.1),
    ]
    plots._shares(axes, RecallReport("tiny", 10, shares), "all facts")
    (bars,) = axes.containers
    assert list(zip(*bars[0].get_data(), strict=True)) == [(64, 0.6)]
    assert axes.lines[0].get_ydata()[0] == 0.9
    assert plots.plot_recall(RecallReport("tiny", 10, shares), tmp_path)[0].stat().st_size > 5000


def test_recall_of_one_kind_beside_who_was_told_nothing_else() -> None:
    plots, axes = drawing()
    shares = [
        Share("full, nothing between", None, "plain", 10, 10, (0.7, 1.0), 1.0),
        Share("full", None, "plain", 9, 10, (0.6, 1.0), 0.9),
        Share("h2o", 512, "plain", 6, 10, (0.3, 0.8), 0.6, 512),
        Share("h2o", 512, "pinned", 4, 4, (0.5, 1.0), 1.0, 512),
    ]
    plots._shares(axes, LongRecallReport("tiny", 1000, 2, 2048, True, shares), "plain")
    (bars,) = axes.containers
    assert list(zip(*bars[0].get_data(), strict=True)) == [(512, 0.6)]
    lines = {line.get_label(): line for line in axes.lines if line.get_linestyle() in (":", "--")}
    assert {name: line.get_ydata()[0] for name, line in lines.items()} == {
        "full, nothing between": 1.0,
        "full": 0.9,
    }


def drawing():  # type: ignore[no-untyped-def]
    """The module, and axes to draw on."""
    pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    from h2o_chat.lab.eval import plots
    from h2o_chat.lab.shared import pictures

    return plots, pictures.pyplot().subplots()[1]


@pytest.mark.parametrize("task", ["perplexity", "agreement", "recall", "recall made up"])
def test_without_matplotlib_it_says_so_first(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    texts = tmp_path / "texts.txt"
    texts.write_text('{"messages": [{"role": "user", "content": "Hm?"}], "distance": 1, "expected": "x"}')
    given = {"recall": ["--questions", str(texts)], "recall made up": ["--generate", "99"]}
    source = given.get(task, ["--texts", str(texts)])
    command = ["eval", task.split()[0], "-m", str(POCKET), *source, "--plot", str(tmp_path / "drawn")]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2, done.output
    assert "h2o-chat[plot]" in done.output
    assert not (tmp_path / "drawn").exists()
