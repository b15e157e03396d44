"""Agreement with the full cache: against a model with no cache at all, whose mask forgets."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import VOCAB, tiny
from torch import Tensor
from typer.testing import CliRunner

from h2o_chat.base.errors import UsageError
from h2o_chat.cli.cli import app
from h2o_chat.lab.eval.agreement import measure
from h2o_chat.lab.shared.policy_runs import runs_of
from h2o_chat.models.load import Loaded

POCKET = Path(__file__).parents[2] / "assets" / "pocket"
PROMPT, TOKENS, BUDGET, CHUNK = 40, 24, 24, 16


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return Loaded(tiny("llama", "h2o"), None, "tiny", None, "none", "float64", "cpu")


@pytest.fixture(scope="module")
def prompts() -> Tensor:
    return torch.randint(3, VOCAB, (3, PROMPT), generator=torch.Generator().manual_seed(4))


class Masked:
    """Reads everything anew for every token, by transformers' own attention, under a mask that says what is
    still there: the chunk or the token that was fed, and the `BUDGET` tokens before it."""

    def __init__(self, forgets: bool) -> None:
        self.model, self.forgets = tiny("llama", "eager"), forgets

    @torch.no_grad()
    def chances(self, tokens: list[int]) -> list[float]:
        """Log-probabilities of the next one."""
        mask = torch.full((1, 1, len(tokens), len(tokens)), -math.inf, dtype=torch.float64)
        for query in range(len(tokens)):
            fed_with = query - query % CHUNK if query < PROMPT else query
            first = max(0, fed_with - BUDGET) if self.forgets else 0
            mask[..., query, first : query + 1] = 0
        logits: Tensor = self.model(torch.tensor([tokens]), attention_mask=mask, use_cache=False).logits
        said: list[float] = logits[0, -1].log_softmax(-1).tolist()
        return said


def likeliest(chances: list[float]) -> int:
    return chances.index(max(chances))


def test_a_window_agrees_as_a_masked_model_does(loaded: Loaded, prompts: Tensor) -> None:
    full, window = Masked(forgets=False), Masked(forgets=True)
    kl, equal, before = [], [], []
    for prompt in prompts.tolist():
        given, free, alike = list(prompt), list(prompt), 0
        for _ in range(TOKENS):
            reference, own = full.chances(given), window.chances(given)
            kl.append(sum(math.exp(p) * (p - q) for p, q in zip(reference, own, strict=True)))
            equal.append(likeliest(reference) == likeliest(own))
            said = likeliest(window.chances(free))
            if free == given and said == likeliest(reference):
                alike += 1
            free.append(said)
            given.append(likeliest(reference))
        before.append(alike)
    report = measure(loaded, prompts, runs_of(["window"], [BUDGET]), TOKENS, seed=0)
    (score,) = report.scores
    assert score.kl == pytest.approx(sum(kl) / len(kl), rel=1e-6)
    assert score.kl > 0.01
    assert score.equal == pytest.approx(sum(equal) / len(equal))
    assert 0 < score.equal < 1
    assert score.tokens_before == pytest.approx(sum(before) / len(before))
    assert 0 < score.tokens_before < TOKENS
    assert score.undiverged == pytest.approx(sum(one == TOKENS for one in before) / len(before))
    for value, (low, high) in (
        (score.kl, score.kl_interval),
        (score.equal, score.equal_interval),
        (score.tokens_before, score.tokens_before_interval),
    ):
        assert low <= value <= high


def test_who_forgets_next_to_nothing_agrees(loaded: Loaded, prompts: Tensor) -> None:
    runs = runs_of(["h2o", "window"], [PROMPT + TOKENS - 2, BUDGET])
    report = measure(loaded, prompts, runs, TOKENS, seed=0)
    of = {(score.policy, score.budget): score for score in report.scores}
    for policy in ("h2o", "window"):
        much, little = of[policy, PROMPT + TOKENS - 2], of[policy, BUDGET]
        assert much.kl < little.kl / 10
        assert much.equal > little.equal


def test_what_cannot_be_compared_is_refused(loaded: Loaded, prompts: Tensor) -> None:
    with pytest.raises(UsageError, match="window"):
        measure(loaded, prompts, runs_of(["h2o"], [BUDGET]), 1024, seed=0)
    with pytest.raises(UsageError, match="forgets nothing"):
        measure(loaded, prompts, runs_of(["h2o"], [PROMPT + TOKENS]), TOKENS, seed=0)


def test_the_command_prints_and_draws(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    texts, drawn = tmp_path / "texts.txt", tmp_path / "drawn"
    texts.write_text("My name is Ada and I live by the sea. I went for a walk, and it rained a little. " * 9)
    command = ["eval", "agreement", "-m", str(POCKET), "--texts", str(texts), "--prompt", "48"]
    command += ["--tokens", "4", "--prompts", "2", "-b", "16", "--policy", "window"]
    both = CliRunner().invoke(
        app,
        [*command, "--policy", "h2o:forget=0.9", "--half", "odd", "--paired", "--json", "--plot", str(drawn)],
    )
    assert both.exit_code == 0, both.output
    report: Any = json.loads(both.stdout)
    assert (report["prompts"], report["prompt_tokens"], report["tokens"]) == (2, 48, 4)
    window, other = report["scores"]
    assert (window["policy"], window["kl_to_first"]) == ("window", None)
    assert other["policy"] == "h2o:forget=0.9"
    assert other["kl_to_first"][0] == pytest.approx(other["kl"] - window["kl"], abs=1e-6)
    sizes = {file.name: file.stat().st_size for file in drawn.iterdir()}
    assert set(sizes) == {"kl.png", "equal-tokens.png", "divergence.png"}
    assert min(sizes.values()) > 5000
    table = CliRunner().invoke(app, command)
    assert table.exit_code == 0, table.output
    assert "2 prompts of 48 tokens, 4 more" in table.stdout
