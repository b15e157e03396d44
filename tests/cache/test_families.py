"""With room for everything the bounded cache changes nothing: stock transformers, family by family.

Stock is `eager`, the implementation that every family has and that does what its paper says.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from sweep import sweep
from tiny_models import FAMILIES, VOCAB, WINDOW, tiny
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.cache_utils import DynamicCache

from h2o_chat import H2OCache

PROMPT, NEW = 40, 30
ROOM = PROMPT + NEW
GENTLE = 0.2
"""Scale of the random weights: keeps stock fp32 itself within the tolerance, see `tiny_models`."""


@pytest.fixture(scope="module", params=FAMILIES)
def pair(request: pytest.FixtureRequest, device: str) -> tuple[Any, Any]:
    """Two models of equal fp32 weights: stock and ours."""
    stock, ours = (
        tiny(request.param, attention, torch.float32, scale=GENTLE).to(device)
        for attention in ("eager", "h2o")
    )
    return stock, ours


def prompts(rows: int = 3, columns: int = PROMPT, pads: tuple[int, ...] = (0, 7, 29)) -> Any:
    """Left-padded rows: `pads` columns of padding in front of each."""
    ids = torch.randint(3, VOCAB, (rows, columns), generator=torch.Generator().manual_seed(5))
    mask = torch.ones_like(ids)
    for row, pad in enumerate(pads[:rows]):
        mask[row, :pad] = 0
        ids[row, :pad] = 0
    return {"input_ids": ids, "attention_mask": mask}


def greedy(model: Any, cache: Any, inputs: Any, new_tokens: int = NEW) -> tuple[Tensor, Tensor]:
    """Generated tokens [R, N] and the logits they were chosen from [R, N, V]."""
    out = model.generate(
        **{name: tensor.to(model.device) for name, tensor in inputs.items()},
        past_key_values=cache,
        max_new_tokens=new_tokens,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
    )
    return out.sequences[:, inputs["input_ids"].shape[1] :], torch.stack(out.logits, 1)


@pytest.fixture(scope="module")
def answers(pair: tuple[Any, Any]) -> tuple[Tensor, Tensor]:
    """Stock's answers to the prompts, see `greedy`."""
    return greedy(pair[0], DynamicCache(config=pair[0].config), prompts())


def assert_same(actual: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor], atol: float) -> None:
    assert torch.equal(actual[0], expected[0])
    torch.testing.assert_close(actual[1], expected[1], atol=atol, rtol=0)


@pytest.mark.parametrize(
    ("policy", "chunk"),
    [("h2o", 8), ("h2o", ROOM), ("h2o-paper", 8), ("full", 8), *sweep(("h2o-paper", ROOM), ("full", ROOM))],
)
def test_padded_batch_equals_stock(
    pair: tuple[Any, Any], answers: tuple[Tensor, Tensor], policy: str, chunk: int
) -> None:
    cache = H2OCache(budget=ROOM, policy=policy, chunk=chunk)
    assert_same(greedy(pair[1], cache, prompts()), answers, atol=1e-5)
    for layer in range(len(cache.layers)):
        held = (cache.kept(layer) >= 0).sum(-1)
        # The last token is never fed; nothing of the rest was dropped.
        assert held.tolist() == [[n] * held.shape[1] for n in (ROOM - 1, ROOM - 8, ROOM - 30)]


@pytest.mark.parametrize("columns", [1, 40])
def test_prompt_logits_equal_stock(pair: tuple[Any, Any], columns: int) -> None:
    """Logits of every prompt token, one column at a time or all at once."""
    stock, ours = pair
    ids = prompts(rows=2, pads=(0, 0))["input_ids"].to(stock.device)
    cache = H2OCache(budget=PROMPT, policy="h2o-paper", chunk=8)
    with torch.no_grad():
        expected = stock(ids).logits
        actual = [ours(part, past_key_values=cache).logits for part in ids.split(columns, 1)]
    torch.testing.assert_close(torch.cat(actual, 1), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", ["mistral", "phi3"])
@pytest.mark.parametrize("chunk", [4, 16])
def test_a_token_outside_the_sliding_window_goes_first(family: str, chunk: int, device: str) -> None:
    """Every layer slides, so a budget past the window loses nothing, however long the text."""
    stock, ours = (tiny(family, attention).to(device) for attention in ("eager", "h2o"))
    ids = torch.randint(3, VOCAB, (2, 120), generator=torch.Generator().manual_seed(6)).to(device)
    for columns in (1, 120):
        cache = H2OCache(budget=WINDOW + 8, policy="h2o", sinks=4, recent=6, chunk=chunk)
        with torch.no_grad():
            actual = [ours(part, past_key_values=cache).logits for part in ids.split(columns, 1)]
            expected = stock(ids).logits
        # Stock takes its softmax in fp32 even here.
        torch.testing.assert_close(torch.cat(actual, 1), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ["stories3m", "pilot-chat"])
def test_trained_model_equals_stock(shared_models: Path, name: str, device: str) -> None:
    folder = shared_models / name
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    tokenizer.pad_token_id = tokenizer.pad_token_id or 0
    inputs = tokenizer(
        ["Once upon a time there was a dog", "The cat", "One day, Lily and her mom went to the"],
        return_tensors="pt",
        padding=True,
        return_token_type_ids=False,
    )
    stock, ours = (
        AutoModelForCausalLM.from_pretrained(folder, attn_implementation=attention).eval().to(device)
        for attention in ("eager", "h2o")
    )
    expected = greedy(stock, DynamicCache(config=stock.config), inputs, 60)
    assert_same(greedy(ours, H2OCache(budget=100, chunk=8), inputs, 60), expected, atol=1e-4)
