"""Streams that a model draws itself: what they cost, against plain loops, and whether they get dearer."""

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tiny_models import tiny
from torch import Tensor
from typer.testing import CliRunner

from h2o_chat import H2OCache
from h2o_chat.base.errors import UsageError
from h2o_chat.cache.step import Step
from h2o_chat.cli.cli import app
from h2o_chat.lab.contest import runs_of
from h2o_chat.lab.sampled import cost_of, draw, measure, show_table, stretch
from h2o_chat.models.load import Loaded
from h2o_chat.transformers_cache.probe import probe

WINDOW, BUDGET, START = 16, 8, 1


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    model = tiny("llama", "h2o", max_position_embeddings=WINDOW)
    tokenizer = SimpleNamespace(bos_token_id=START, eos_token_id=None)
    return Loaded(model, tokenizer, "tiny", None, "none", "float64", "cpu")


@pytest.fixture(scope="module")
def drawn(loaded: Loaded) -> tuple[Tensor, Tensor]:
    return draw(loaded, 70, WINDOW, 5, lambda share: None)


def test_pieces_cost_what_the_model_says_of_them(loaded: Loaded, drawn: tuple[Tensor, Tensor]) -> None:
    """Two batches of pieces, against transformers' own attention over whole pieces."""
    ids, costs = drawn
    assert ids.shape == (70, WINDOW)
    assert set(ids[:, 0].tolist()) == {START}
    with torch.no_grad():
        logits = tiny("llama", "eager", max_position_embeddings=WINDOW)(ids).logits
    chances = logits[:, :-1].log_softmax(-1)
    expected = -chances.gather(-1, ids[:, 1:, None])[..., 0].mean(1)
    torch.testing.assert_close(costs.double(), expected, atol=1e-4, rtol=1e-4)
    # It was drawn from these chances: the mean cost is their entropy, up to chance.
    entropy = -(chances.exp() * chances).sum(-1).mean()
    assert float(costs.mean()) == pytest.approx(float(entropy), rel=0.05)


def test_a_seed_draws_the_same_again(loaded: Loaded, drawn: tuple[Tensor, Tensor]) -> None:
    for seed, same in ((5, True), (6, False)):
        again, _ = draw(loaded, 70, WINDOW, seed, lambda share: None)
        assert torch.equal(again, drawn[0]) is same


def test_a_stream_is_one_conversation(loaded: Loaded, drawn: tuple[Tensor, Tensor]) -> None:
    """Two streams at once, against one after the other, token by token; starts of pieces are not counted."""
    streams = drawn[0][:24].view(2, 12 * WINDOW)
    run = runs_of(["h2o"], [BUDGET])[1]
    found = torch.tensor(cost_of(loaded, streams, run, WINDOW, lambda share: None))
    assert found.shape == (2, 12)
    for stream, costs in zip(streams, found, strict=True):
        cache, expected = H2OCache(BUDGET, positions=probe(loaded.model)), [0.0] * 12
        for at in range(12 * WINDOW - 1):
            with torch.no_grad():
                cache.prepare(Step(1))
                where = cache.position_ids()
                logits = loaded.model(
                    stream[None, at : at + 1], position_ids=where, past_key_values=cache
                ).logits
            if (at + 1) % WINDOW:
                cost = -float(logits[0, -1].log_softmax(-1)[stream[at + 1]])
                expected[(at + 1) // WINDOW] += cost / (WINDOW - 1)
        assert costs.tolist() == pytest.approx(expected, rel=1e-4)


def test_a_stream_that_gets_dearer_is_seen() -> None:
    run, own = runs_of(["h2o"], [BUDGET])[1], torch.full((2, 20), 1.0)
    costs = own + math.log(1.5)
    even = stretch(run, costs, own, WINDOW, seed=0)
    assert (len(even.tenths), even.flat) == (10, pytest.approx(1))
    assert [(one.first, one.end) for one in even.tenths[:2]] == [(0, 2 * WINDOW), (2 * WINDOW, 4 * WINDOW)]
    assert all(one.ratio == pytest.approx(1.5) for one in even.tenths)
    assert all(one.perplexity == pytest.approx(1.5 * math.e) for one in even.tenths)
    costs[:, 18:] += math.log(1.1)
    costs[0, 18] += 0.1
    dearer = stretch(run, costs, own, WINDOW, seed=0)
    assert dearer.flat == pytest.approx(1.1 * math.exp(0.025))
    assert dearer.flat_interval[0] < dearer.flat < dearer.flat_interval[1]
    assert dearer.flat_ratio == pytest.approx(dearer.flat)
    # What the pieces themselves cost is told from what the cache costs.
    harder = stretch(run, costs, costs - math.log(1.5), WINDOW, seed=0)
    assert (harder.flat, harder.flat_ratio) == (pytest.approx(dearer.flat), pytest.approx(1))


def test_all_of_it(loaded: Loaded, capsys: pytest.CaptureFixture[str]) -> None:
    runs = runs_of(["h2o", "window"], [BUDGET])[1:]
    shares: list[float] = []
    report = measure(loaded, 2 * 10 * WINDOW + 5, 2, runs, 0, shares.append)
    assert (report.streams, report.length_tokens, report.window_tokens) == (2, 10 * WINDOW, WINDOW)
    assert [one.contestant for one in report.stretches] == ["h2o", "window"]
    assert all(one.tenths[-1].end == 10 * WINDOW for one in report.stretches)
    assert all(one.tenths[5].ratio > 1 for one in report.stretches)
    assert shares == sorted(shares)
    assert 0.95 < shares[-1] <= 1
    show_table(report)
    shown = capsys.readouterr().out
    assert "144-160" in shown
    assert "last : second" in shown
    with pytest.raises(UsageError, match="10 windows"):
        measure(loaded, 2 * 10 * WINDOW - 1, 2, runs, 0)


def test_texts_or_drawn_ones(tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("Once.")
    for arguments, says in (
        ([], "either"),
        (["--texts", str(texts), "--sampled", "10000"], "either"),
        (["--sampled", "10000", "--chunk", "8"], "token by token"),
        (["--sampled", "10000", "--kv-dtype", "int8"], "h2o:kv=int8"),
        (["--sampled", "10000", "--equal-bytes"], "token by token"),
    ):
        done = CliRunner().invoke(app, ["eval", "perplexity", *arguments])
        assert done.exit_code == 2, done.output
        assert says in done.output
