"""The paper's claims as figures: against slow plain loops, on synthetic laws, and on a real small model."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from opened_models import loaded
from torch import Tensor
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from h2o_chat.base.config import Settings
from h2o_chat.cli.cli import app
from h2o_chat.lab.eval.attention_blocks import blocks
from h2o_chat.lab.eval.attention_figures import attention, power_law, sparse_entries, top_overlap, uniform_law
from h2o_chat.lab.eval.perplexity import feed_of, nll
from h2o_chat.lab.eval.token_removal import drop, going, removal
from h2o_chat.models.load import Loaded
from h2o_chat.transformers_cache.cache import H2OCache
from h2o_chat.transformers_cache.probe import probe

POCKET = Path(__file__).parents[2] / "assets" / "pocket"
TEXT = (
    "One morning a small brown dog found a red ball under the old tree. He took it to the river, and the ball"
    " fell into the water. A duck saw it and pushed it back. The dog was glad and said thank you. Then it"
    " began to rain, so they ran to the house, where a girl called Mila gave them bread and warm milk. "
)


@pytest.fixture(scope="module")
def pocket() -> Loaded:
    return loaded(Settings(model=str(POCKET), engine="transformers", threads=1))


@pytest.fixture(scope="module")
def ids(pocket: Loaded) -> Tensor:
    """Three documents of 96 tokens."""
    found = pocket.tokenizer(TEXT * 6, add_special_tokens=False)["input_ids"]
    return torch.tensor(found[: 3 * 96]).view(3, 96)


@pytest.fixture(scope="module")
def whole(ids: Tensor) -> Any:
    """Attention in one piece, per layer [R, Q, L, L], from a model of its own."""
    model = AutoModelForCausalLM.from_pretrained(POCKET, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        return model(ids, output_attentions=True).attentions


# -- attention itself --------------------------------------------------------------------------------------


def test_blocks_are_the_whole_matrix(pocket: Loaded, ids: Tensor, whole: Any) -> None:
    before = pocket.model.config._attn_implementation
    ends = []
    for block in blocks(pocket.model, ids, 40):
        for layer, found in enumerate(block.probabilities):
            cut = slice(block.first, block.first + found.shape[2])
            assert torch.allclose(found, whole[layer][:, :, cut, : cut.stop], atol=1e-5)
        heads = block.kv_heads[0]
        group = found.shape[1] // heads
        for head in range(heads):
            summed = found[:, head * group : (head + 1) * group].sum(1)
            assert torch.allclose(block.by_kv_head(layer)[:, head], summed)
        ends.append(cut.stop)
    assert ends == [40, 80, 96]
    assert pocket.model.config._attn_implementation == before == "h2o"


def test_what_is_told_of_a_layer_is_what_plain_loops_find(pocket: Loaded, ids: Tensor, whole: Any) -> None:
    layers, by_rank = attention(pocket, ids, 0, lambda share: None)
    assert len(layers) == len(whole)
    heads = pocket.model.config.num_key_value_heads
    for layer in (0, len(layers) - 1):
        shares, overlaps, later, exponents, first_ranks = [], [], [], [], []
        for document in range(len(ids)):
            matrix = whole[layer][document].double()  # [Q, L, L]
            small = seen = 0
            for head in matrix.tolist():
                for at, row in enumerate(head):
                    small += sum(entry < 0.01 * max(row) for entry in row[: at + 1])
                    seen += at + 1
            shares.append(small / seen)
            for one in matrix.view(heads, -1, 96, 96).sum(1):
                half, ever = one[:48].sum(0)[:48], one.sum(0)[:48]
                keep = round(0.2 * 48)
                best = set(half.argsort(descending=True)[:keep].tolist())
                overlaps.append(len(best & set(ever.argsort(descending=True)[:keep].tolist())) / keep)
                after = (ever - half).argsort(descending=True)[:keep]
                later.append(len(best & set(after.tolist())) / keep)
                ordered = one.sum(0).sort(descending=True).values
                x, y = torch.arange(1, 97).double().log(), ordered.log()
                slope = ((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum()
                exponents.append(-float(slope))
                first_ranks.append(float(ordered[1] / ordered[0]))
        told = layers[layer]
        assert told.sparsity == pytest.approx(sum(shares) / 3, abs=0.002)
        assert told.sparsity_interval[0] <= told.sparsity <= told.sparsity_interval[1]
        assert told.local_overlap == pytest.approx(sum(overlaps) / len(overlaps), abs=0.02)
        assert told.future_overlap == pytest.approx(sum(later) / len(later), abs=0.02)
        assert told.exponent == pytest.approx(sum(exponents) / len(exponents), abs=0.005)
        assert by_rank[layer][0] == 1
        assert by_rank[layer][1] == pytest.approx(sum(first_ranks) / len(first_ranks), abs=1e-4)


# -- the figures -------------------------------------------------------------------------------------------


def test_sparse_entries_by_hand() -> None:
    rows = torch.tensor([[1.0, 0, 0], [0.991, 0.009, 0], [0.5, 0.49, 0.01]])
    small, of = sparse_entries(rows[None, None], 0)
    assert (small.tolist(), of) == ([1], 6)
    small, of = sparse_entries(rows[None, None, 1:], 1)
    assert (small.tolist(), of) == ([1], 5)


@pytest.mark.parametrize("exponent", [0.5, 1.3])
def test_a_power_law_is_found(exponent: float) -> None:
    rank = torch.arange(1, 400).double()
    scores = 7 * rank**-exponent
    found = power_law(scores[torch.randperm(399, generator=torch.Generator().manual_seed(0))])
    assert found.exponent == pytest.approx(exponent)
    assert found.r2 == pytest.approx(1)
    assert power_law((-0.02 * rank).exp()).r2 < 0.95


def test_uniform_attention_has_a_law_of_its_own() -> None:
    received = [0.0] * 60
    for query in range(60):
        for at in range(query + 1):
            received[at] += 1 / (query + 1)
    wanted, found = power_law(torch.tensor(received)), uniform_law(60)
    assert (found.exponent, found.r2) == (pytest.approx(wanted.exponent), pytest.approx(wanted.r2, abs=1e-5))


def test_noise_lowers_the_goodness_of_a_power_law_and_not_its_exponent() -> None:
    rank = torch.arange(1, 2000).double()
    noise = torch.randn(1999, generator=torch.Generator().manual_seed(0)).double()
    found = power_law(rank**-0.8 * (0.2 * noise).exp())
    assert found.exponent == pytest.approx(0.8, abs=0.05)
    assert 0.9 < found.r2 < 0.9999


def test_overlap_by_hand() -> None:
    one, other = torch.tensor([[5.0, 4, 3, 2, 1]]), torch.tensor([[5.0, 1, 4, 3, 2]])
    assert top_overlap(one, other, 2).tolist() == [0.5]
    assert top_overlap(one, other, 3).tolist() == [pytest.approx(2 / 3)]


# -- removal -----------------------------------------------------------------------------------------------


def test_removed_tokens_are_gone_and_the_others_are_read(pocket: Loaded, ids: Tensor) -> None:
    positions = probe(pocket.model)
    cache = H2OCache(policy="full", positions=positions)
    for _ in nll(feed_of(pocket), ids[:, :49], cache, 16):
        pass
    arena = cache.arenas[0]
    slots = arena.slots
    score = slots.score.sum(-1).masked_fill(slots.positions < 0, -1)
    chosen = going(slots, "heavy", 0.2, torch.Generator())
    assert chosen.sum(-1).unique().tolist() == [10]  # a fifth of 48
    for row in range(3):
        for head in range(chosen.shape[2]):
            taken, left = (score[1, row, head][which[1, row, head]] for which in (chosen, ~chosen))
            assert taken.min() >= left.max()
    spared = going(slots, "heavy but sinks", 0.2, torch.Generator())
    assert int(slots.positions[spared].min()) >= 4
    drop(arena, chosen)
    assert int((slots.positions >= 0).sum(-1).max()) == 38
    assert len(list(nll(feed_of(pocket), ids[:, 48:], cache, 16))) == 3
    kept = cache.kept(1)[0, 0]
    assert sorted(kept[kept >= 48].tolist()) == list(range(48, 95))
    assert int((kept >= 0).sum()) == 38 + 47


def test_removal_costs_more_the_more_is_taken(pocket: Loaded, ids: Tensor) -> None:
    found = {(one.what, one.share): one for one in removal(pocket, ids, 0, shares=(0.02, 0.5))}
    assert len(found) == 6
    for what in ("heavy", "heavy but sinks", "random"):
        assert found[what, 0.5].ratio > 1
        assert found[what, 0.5].ratio > found[what, 0.02].ratio
        assert found[what, 0.5].interval[0] <= found[what, 0.5].ratio <= found[what, 0.5].interval[1]
    assert found["heavy", 0.5].ratio > found["random", 0.5].ratio


# -- the command -------------------------------------------------------------------------------------------


def test_the_command_prints_everything_and_draws(tmp_path: Path, little: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    texts = tmp_path / "texts.txt"
    texts.write_text(TEXT * 3)
    command = ["eval", "observe", "-m", str(little), "--texts", str(texts), "--length", "64"]
    command += ["--documents", "2", "--json", "--plot", str(tmp_path / "drawn")]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert (report["documents"], report["length_tokens"]) == (2, 64)
    assert len(report["layers"]) == len(report["scores"])
    drawn = {file.name: file.stat().st_size for file in (tmp_path / "drawn").iterdir()}
    wanted = {"sparsity.png", "power-law.png", "removal.png"}
    assert set(drawn) == wanted
    assert min(drawn.values()) > 5000
    table = CliRunner().invoke(app, [*command[:10], "--part", "removal", "--part", "attention"])
    assert table.exit_code == 0, table.output
    assert "heavy but sinks" in table.stdout
    assert "sparsity" in table.stdout


def test_what_cannot_be_observed_is_said(tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text(TEXT * 3)
    command = ["eval", "observe", "-m", str(POCKET), "--texts", str(texts), "--length", "64"]
    for more, says in (
        (["--part", "nonsense"], "no part 'nonsense'"),
        (["--length", "100000"], "tokens"),
    ):
        done = CliRunner().invoke(app, [*command, *more])
        assert done.exit_code == 2, done.output
        assert says in done.output
