"""What the native step computes, in torch: a transformers model whose weights and activations are rounded."""

from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from h2o_chat.native.layout import GROUP, Matrix, parts
from h2o_chat.native.packed import Packed


def twin(
    folder: Path,
    packed: Packed,
    attention: str = "eager",
    dtype: torch.dtype = torch.float32,
    activations: bool = True,
) -> Any:
    """The model of a folder with the numbers of its packed file, in eval mode.

    Args:
        attention: `attn_implementation`.
        dtype: torch.float32 as the native step, or torch.float64.
        activations: round them as the native step does; else they stay as they are.
    """
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    model = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation=attention, dtype=torch.float32
    )
    missing, unknown = model.load_state_dict(_numbers(packed), strict=False)
    assert not unknown
    assert set(missing) <= ({"lm_head.weight"} if packed.frame.tied else set())
    model.tie_weights()
    model.eval().to(dtype)
    if activations:
        for name, module in list(model.named_modules()):
            if isinstance(module, nn.Linear):
                parent, _, own = name.rpartition(".")
                setattr(model.get_submodule(parent), own, Rounding(module))
    return model


def _numbers(packed: Packed) -> dict[str, Tensor]:
    """By the names of the model's own weights."""
    found: dict[str, Tensor] = {}
    for part in parts(packed.frame):
        sizes = [source.rows for source in part.sources]
        whole = packed.weight(part.name)
        assert whole.shape == ((sum(sizes), part.columns) if isinstance(part, Matrix) else (sum(sizes),))
        found |= dict(zip((source.name for source in part.sources), whole.split(sizes), strict=True))
    return found


class Rounding(nn.Module):
    """A product whose input is rounded first."""

    def __init__(self, of: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = of.weight, of.bias

    def forward(self, x: Tensor) -> Tensor:
        return linear(rounded_activations(x), self.weight, self.bias)


def rounded_activations(x: Tensor) -> Tensor:
    """x [..., C] in steps of max|x| / 127 of each group of 32 columns."""
    columns = x.shape[-1]
    groups = pad(x, (0, -columns % GROUP)).unflatten(-1, (-1, GROUP))
    most = groups.abs().amax(-1, keepdim=True)
    q = torch.where(most == 0, 0, groups * (127 / most)).round()  # halves to even
    return (q * (most / 127)).flatten(-2)[..., :columns]
