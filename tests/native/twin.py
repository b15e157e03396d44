"""The native step in torch: a transformers model with rounded weights and activations."""

from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.nn.functional import linear, pad, silu

import h2o_chat.transformers_cache.registered  # noqa: F401  (registers "h2o")
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
    missing, unknown = model.load_state_dict(fused(_numbers(packed)), strict=False)
    assert not unknown
    assert set(missing) <= ({"lm_head.weight"} if packed.frame.tied else set())
    model.tie_weights()
    model.eval().to(dtype)
    if packed.frame.experts:
        model.set_experts_implementation("eager")  # the others know no float64
    if activations:
        round_activations(model, packed.frame.bits, packed.frame.head_bits)
    return model


def round_activations(model: nn.Module, bits: int, head_bits: int = 8) -> None:
    """Every product rounds its input as the native step does.

    Args:
        bits, head_bits: of the weights of the layers, and of the head.
    """
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear):
            parent, _, own = name.rpartition(".")
            setattr(
                model.get_submodule(parent), own, Rounding(module, head_bits if own == "lm_head" else bits)
            )
        elif name.endswith(".experts"):
            model.get_submodule(name.removesuffix(".experts")).experts = RoundingExperts(module, bits, bits)


def fused(numbers: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights as a transformers model has them: experts stand in one tensor, gate above up."""
    found = {name: one for name, one in numbers.items() if ".experts." not in name}
    for layer in sorted({name.partition(".experts.")[0] for name in numbers.keys() - found.keys()}):
        count = sum(name.startswith(f"{layer}.experts.") for name in numbers) // 3
        gate, up, down = (
            torch.stack([numbers[f"{layer}.experts.{expert}.{one}_proj.weight"] for expert in range(count)])
            for one in ("gate", "up", "down")
        )
        found |= {
            f"{layer}.experts.gate_up_proj": torch.cat((gate, up), 1),
            f"{layer}.experts.down_proj": down,
        }
    return found


def _numbers(packed: Packed) -> dict[str, Tensor]:
    """By the names of the model's own weights."""
    found: dict[str, Tensor] = {}
    for part in parts(packed.frame):
        sizes = [source.rows for source in part.sources]
        whole = packed.weight(part.name)
        if isinstance(part, Matrix):
            assert whole.shape == (sum(sizes), part.columns)
        elif part.sources[0].columns:
            whole = whole.view(part.sources[0].shape)
        assert len(whole) == sum(sizes)
        found |= dict(zip((source.name for source in part.sources), whole.split(sizes), strict=True))
    return found


class RoundingExperts(nn.Module):
    """Experts whose products round their input.

    Args:
        bits, down_bits: of the weights of gate and up, and of down.
    """

    def __init__(self, of: Any, bits: int, down_bits: int) -> None:
        super().__init__()
        self.gate_up, self.down, self.bits, self.down_bits = of.gate_up_proj, of.down_proj, bits, down_bits

    def forward(self, x: Tensor, chosen: Tensor, shares: Tensor) -> Tensor:
        out, rounded = torch.zeros_like(x), rounded_activations(x, self.bits)
        for expert in chosen.unique():
            rows, which = torch.where(chosen == expert)
            gate, up = linear(rounded[rows], self.gate_up[expert]).chunk(2, -1)
            gated = rounded_activations(silu(gate) * up, self.down_bits)
            out[rows] += linear(gated, self.down[expert]) * shares[rows, which, None]
        return out


class Rounding(nn.Module):
    """A product with weights of so many bits, whose input is rounded first."""

    def __init__(self, of: nn.Linear, bits: int) -> None:
        super().__init__()
        self.weight, self.bias, self.bits = of.weight, of.bias, bits

    def forward(self, x: Tensor) -> Tensor:
        return linear(rounded_activations(x, self.bits), self.weight, self.bias)


def rounded_activations(x: Tensor, bits: int) -> Tensor:
    """x [..., C] in steps of max|x| / 127 of each group of 32 columns.

    Args:
        bits: of the weights. 8: in 256ths of such a step.
    """
    columns = x.shape[-1]
    groups = pad(x, (0, -columns % GROUP)).unflatten(-1, (-1, GROUP))
    most = groups.abs().amax(-1, keepdim=True)
    exact = torch.where(most == 0, 0, groups * (127 / most))
    q = exact.round()  # halves to even
    if bits == 8:
        q = q + ((exact - q) * 256).round().clamp(-127, 127) / 256
    return (q * (most / 127)).flatten(-2)[..., :columns]
