"""With room for everything the bounded cache changes nothing: stock transformers, family by family.

Stock is `eager`, the implementation that every family has and that does what its paper says.
"""

from typing import Any

import any_family
import pytest
import torch
from feeding import tokens
from sweep import sweep
from test_every_family import ALWAYS, GENTLE, NEAR, OPEN
from tiny_models import FAMILIES, WINDOW, tiny
from torch import Tensor
from transformers.cache_utils import DynamicCache

from h2o_chat import H2OCache

OFTEN = [*dict.fromkeys([*FAMILIES, *ALWAYS])]
PADS = (0, 4, 13)


def greedy(model: Any, cache: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Generated tokens [R, N] and the logits they were chosen from [R, N, V]."""
    model.set_attn_implementation("h2o" if isinstance(cache, H2OCache) else "eager")
    out = model.generate(
        **{name: tensor.to(model.device) for name, tensor in inputs.items()},
        past_key_values=cache,
        max_new_tokens=12,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
    )
    return out.sequences, torch.stack(out.logits, 1)


@pytest.mark.parametrize("family", [*OFTEN, *sweep(*(name for name in OPEN if name not in OFTEN))])
def test_padded_rows_are_stock(family: str, device: str) -> None:
    """Nothing is dropped of 20 columns and 12 more; the last token is never fed."""
    model = any_family.tiny(family, torch.float32, GENTLE).to(device)
    ids, mask = any_family.prompt(20, rows=3), torch.ones(3, 20, dtype=torch.long)
    for row, pads in enumerate(PADS):
        ids[row, :pads] = mask[row, :pads] = 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    expected = greedy(model, DynamicCache(config=model.config), inputs)
    for policy in ("h2o", "h2o-paper", "full"):
        model.set_attn_implementation("h2o")
        cache = H2OCache(32, policy=policy, chunk=8, model=model)
        found = greedy(model, cache, inputs)
        assert torch.equal(found[0], expected[0])
        torch.testing.assert_close(found[1], expected[1], atol=NEAR, rtol=0)
        for layer in range(len(cache.attention_layers)):
            held = (cache.kept(layer) >= 0).sum(-1)
            assert held.tolist() == [[31 - pads] * held.shape[1] for pads in PADS]


@pytest.mark.parametrize("family", ["mistral", "phi3"])
@pytest.mark.parametrize("chunk", [4, 16])
def test_a_token_outside_the_sliding_window_goes_first(family: str, chunk: int, device: str) -> None:
    """Every layer slides, so a budget past the window loses nothing, however long the text."""
    stock, ours = (tiny(family, attention).to(device) for attention in ("eager", "h2o"))
    ids = tokens(120, seed=6, rows=2).to(device)
    for columns in (1, 120):
        cache = H2OCache(budget=WINDOW + 8, policy="h2o", sinks=4, recent=6, chunk=chunk)
        with torch.no_grad():
            actual = [ours(part, past_key_values=cache).logits for part in ids.split(columns, 1)]
            expected = stock(ids).logits
        # Stock takes its softmax in fp32 even here.
        torch.testing.assert_close(torch.cat(actual, 1), expected, atol=1e-4, rtol=0)
