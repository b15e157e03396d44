"""The cost of forgetting on real text: the project's own cache against sections 3 and 5 of algorithm.md."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from h2o_chat import H2OCache
from h2o_chat.base.config import Settings
from h2o_chat.base.errors import UsageError
from h2o_chat.cli.cli import app
from h2o_chat.lab.eval.perplexity import feed_of, measure, nll
from h2o_chat.lab.shared.intervals import bootstrap
from h2o_chat.lab.shared.lab_texts import HALVES, documents, half_of, read_texts
from h2o_chat.lab.shared.policy_variant import PolicyVariant
from h2o_chat.models.load import Loaded, load
from h2o_chat.transformers_cache.probe import probe

BUDGETS = [32, 64, 128]
PUBLISHED = {
    # 34 stories, 15 documents of 512 tokens, ratio to full at these budgets.
    "h2o-paper": [1.4502, 1.1642, 1.0419],
    "window": [1.2966, 1.1149, 1.0249],
    "streaming": [1.3449, 1.1221, 1.0288],
    "caote:sinks=0": [1.1621, 1.0508, 1.0058],
    "h2o": [1.1509, 1.0557, 1.0098],
}


@pytest.fixture(scope="module")
def stories(shared_models: Path) -> Loaded:
    return load(Settings(model=str(shared_models / "stories3m"), threads=1), lambda stage, share: None)


@pytest.fixture(scope="module")
def texts(shared_text: Path) -> list[str]:
    return read_texts(shared_text / "tinystories_valid.json")


@pytest.mark.sweep
@pytest.mark.parametrize("variant", PUBLISHED)
def test_the_table_of_34_stories(stories: Loaded, texts: list[str], variant: str) -> None:
    ids = documents(texts, stories.tokenizer, 512)
    assert ids.shape == (15, 512)
    report = measure(stories, ids, [PolicyVariant.parse(variant)], BUDGETS, seed=0)
    assert [score.ratio for score in report.scores] == pytest.approx(PUBLISHED[variant], abs=0.005)
    assert all(low < score.ratio < high for score in report.scores for low, high in [score.interval])
    assert [score.first for score in report.scores] == [score.budget for score in report.scores] == BUDGETS


def test_the_default_costs_less_than_a_window_on_some_stories(stories: Loaded, texts: list[str]) -> None:
    """Six documents of 128 tokens; `make test-all` has the table that was published."""
    ids = documents(texts, stories.tokenizer, 128)[:6]
    report = measure(stories, ids, [PolicyVariant("h2o"), PolicyVariant("window")], [32], seed=0)
    h2o, window = (score.ratio for score in report.scores)
    assert 1 < h2o < window
    assert h2o == pytest.approx(1.0450, abs=0.003)
    assert window == pytest.approx(1.2565, abs=0.005)
    assert all(low < score.ratio < high for score in report.scores for low, high in [score.interval])
    assert [score.first for score in report.scores] == [32] * 2


@pytest.mark.sweep
def test_clamped_positions_far_past_the_window(stories: Loaded, texts: list[str]) -> None:
    ids = documents(texts, stories.tokenizer, 2048)
    assert ids.shape == (3, 2048)
    trained = probe(stories.model)
    assert trained.window == 512
    cache = H2OCache(128, policy="caote", sinks=0, positions=trained)
    found = torch.cat(list(nll(feed_of(stories), ids, cache)), 1)
    assert float(found[:, 1024:2047].mean().exp()) == pytest.approx(5.328, abs=0.02)


def test_a_prompt_read_at_once_or_in_chunks(stories: Loaded, texts: list[str]) -> None:
    ids = documents(texts, stories.tokenizer, 100)[:2]
    variants = [PolicyVariant("h2o", chunk=70), PolicyVariant("h2o", chunk=16)]
    report = measure(stories, ids, variants, [32], seed=0, prompt=70, paired=True)
    whole, parts = report.scores
    assert [score.first for score in report.scores] == [70, 70]
    assert whole.to_first is None
    assert parts.to_first is not None
    assert parts.to_first[0] == pytest.approx(parts.perplexity / whole.perplexity)
    assert parts.to_first[0] != pytest.approx(1)
    with pytest.raises(UsageError, match="leaves nothing to measure"):
        measure(stories, ids, [PolicyVariant("h2o")], [32], seed=0, prompt=99)


class Words:
    """A tokenizer of single characters."""

    def __init__(self, bos: int | None = 1) -> None:
        self.bos_token_id = bos

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [ord(character) for character in text]}


def test_documents_are_texts_joined_and_cut() -> None:
    ids = documents(["ab", "cd"], Words(), 3)
    assert ids.tolist() == [[1, ord(" "), ord("a")], [ord("b"), 1, ord(" ")]]
    with pytest.raises(UsageError, match="8 tokens, one document needs 9"):
        documents(["ab", "cd"], Words(), 9)


def test_a_tokenizer_may_have_no_bos() -> None:
    assert documents(["ab"], Words(None), 3).tolist() == [[ord(" "), ord("a"), ord("b")]]


def test_documents_longer_than_the_window_have_no_reference(stories: Loaded) -> None:
    with pytest.raises(UsageError, match="its window has 512"):
        measure(stories, torch.zeros(1, 513, dtype=torch.int64), [PolicyVariant("h2o")], [32], seed=0)


def test_bootstrap_brackets_the_mean_and_repeats() -> None:
    sample = torch.linspace(-0.1, 0.3, 40)
    low, high = bootstrap(sample, seed=1)
    assert low < float(sample.mean().exp()) < high
    assert bootstrap(sample, seed=1) == (low, high)
    assert bootstrap(sample, seed=2) != (low, high)
    assert bootstrap(torch.full((5,), 0.5), seed=0) == pytest.approx((1.6487, 1.6487), abs=1e-4)


@pytest.mark.parametrize("text", ["h2o", "h2o-paper:sinks=2,recent=8", "caote:sinks=0,kv=int8"])
def test_a_variant_reads_back_as_written(text: str) -> None:
    assert str(PolicyVariant.parse(text)) == text


@pytest.mark.parametrize("text", ["mru", "full", "h2o:", "h2o:sinks", "h2o:sinks=-1", "h2o:heavy=3"])
def test_a_variant_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        PolicyVariant.parse(text)


def test_each_is_compared_with_the_first_document_by_document(stories: Loaded, texts: list[str]) -> None:
    ids = documents(texts, stories.tokenizer, 48)
    assert [len(half_of(ids[:5], half)) for half in (None, *HALVES)] == [5, 3, 2]
    assert half_of(ids, "odd")[1].tolist() == ids[3].tolist()
    with pytest.raises(UsageError, match="none is odd"):
        half_of(ids[:1], "odd")
    with pytest.raises(UsageError, match="not known"):
        half_of(ids, "third")
    three = [PolicyVariant.parse(name) for name in ("h2o", "caote", "window")]
    report = measure(stories, ids[:2], three, [16, 32], seed=0, paired=True)
    firsts = {score.budget: score for score in report.scores if score.policy == "h2o"}
    for score in report.scores:
        first = firsts[score.budget]
        if score is first:
            assert score.to_first is None
            continue
        assert score.to_first is not None
        ratio, low, high = score.to_first
        assert ratio == pytest.approx(score.perplexity / first.perplexity, rel=1e-4)
        assert low <= ratio <= high
        assert ratio != pytest.approx(1, abs=1e-6), "each forgets otherwise"


def test_texts_are_json_lists_or_plain_files(tmp_path: Path) -> None:
    plain, listed, wrong = (tmp_path / name for name in ("a.txt", "b.json", "c.json"))
    plain.write_text("one text")
    listed.write_text('["one", "two"]')
    wrong.write_text('{"a": 1}')
    assert read_texts(plain) == ["one text"]
    assert read_texts(listed) == ["one", "two"]
    for bad, reason in ((wrong, "list of strings"), (tmp_path / "none.json", "No such file")):
        with pytest.raises(UsageError, match=reason):
            read_texts(bad)


def test_the_command_prints_one_json_object_or_a_table(
    shared_models: Path, texts: list[str], tmp_path: Path
) -> None:
    story = tmp_path / "story.txt"
    story.write_text(texts[0])
    model = str(shared_models / "stories260k")

    def run(*more: str) -> Any:
        command = ["lab", "eval", "perplexity", "-m", model, "--texts", str(story), "-b", "16", "-b", "24"]
        command += ["--dtype", "float32", "--seed", "3", "--threads", "1", "--policy", "h2o-paper", *more]
        return CliRunner().invoke(app, command)

    refused = run("--length", "17")
    assert refused.exit_code == 2
    assert "forgets nothing" in refused.output
    found = run("--length", "64", "--policy", "h2o", "--json")
    assert found.exit_code == 0, found.output
    report = json.loads(found.stdout)
    assert report["length_tokens"] == 64
    pairs = [("h2o-paper", 16), ("h2o-paper", 24), ("h2o", 16), ("h2o", 24)]
    assert [(s["policy"], s["budget"]) for s in report["scores"]] == pairs
    table = run("--length", "64").stdout
    assert all(word in table for word in ("stories260k", "h2o-paper", "16 slots", "24 slots"))
    assert f"{report['scores'][0]['ratio']:.4f}" in table
