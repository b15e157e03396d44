"""The native step in torch: a transformers model with rounded weights and activations."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from laid_out import weight
from torch import Tensor, nn
from torch.nn.functional import linear, pad, silu

import h2o_chat.transformers_cache.registered  # noqa: F401  (registers "h2o")
from h2o_chat.native.layout import GROUP, Matrix, parts
from h2o_chat.native.packed import Packed


def twin(folder: Path, packed: Packed, dtype: torch.dtype, activations: bool) -> Any:
    """The model of a folder with our attention and the numbers of its packed file, in eval mode.

    Args:
        dtype: torch.float32 as the native step, or torch.float64.
        activations: round them as the native step does; else they stay as they are.
    """
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    model = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation="h2o", dtype=torch.float32
    )
    missing, unknown = model.load_state_dict(fused(_numbers(packed)), strict=False)
    assert not unknown
    assert set(missing) <= ({"lm_head.weight"} if packed.frame.tied else set())
    model.tie_weights()
    model.eval().to(dtype)
    if packed.frame.experts:
        model.set_experts_implementation("eager")  # the others know no float64
    if activations:
        bits, head_bits = packed.frame.bits, packed.frame.head_bits
        round_activations(model, lambda name: head_bits if name == "lm_head.weight" else bits)
    return model


def round_activations(model: nn.Module, bits_of: Callable[[str], int]) -> None:
    """Every product rounds its input as the native step does.

    Args:
        bits_of: how many bits a matrix has, by its name.
    """
    for name, module in list(model.named_modules()):
        parent, _, own = name.rpartition(".")
        if isinstance(module, nn.Linear):
            setattr(model.get_submodule(parent), own, Rounding(module, bits_of(f"{name}.weight")))
        elif own == "experts":
            bits, down_bits = (bits_of(f"{name}.{part}_proj.weight") for part in ("up", "down"))
            setattr(model.get_submodule(parent), own, RoundingExperts(module, bits, down_bits))


def fused(numbers: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights as a transformers model has them: experts stand in one tensor, gate above up."""
    found = {name: one for name, one in numbers.items() if ".experts." not in name}
    for layer in sorted({name.partition(".experts.")[0] for name in numbers.keys() - found.keys()}):
        count = sum(name.startswith(f"{layer}.experts.") and "up_proj.weight" in name for name in numbers)

        def all_of(one: str, ending: str = "weight", layer: str = layer, count: int = count) -> Tensor:
            names = [f"{layer}.experts.{expert}.{one}_proj.{ending}" for expert in range(count)]
            return torch.stack([numbers[name] for name in names])

        gate, up, down = map(all_of, ("gate", "up", "down"))
        if f"{layer}.experts.0.gate_proj.bias" in numbers:  # gpt_oss: turned, gate and up by turns
            biases = torch.stack([all_of(one, "bias") for one in ("gate", "up")], -1)
            found |= {
                f"{layer}.experts.gate_up_proj": torch.stack((gate, up), 2).flatten(1, 2).transpose(1, 2),
                f"{layer}.experts.gate_up_proj_bias": biases.flatten(1),
                f"{layer}.experts.down_proj": down.transpose(1, 2),
                f"{layer}.experts.down_proj_bias": all_of("down", "bias"),
            }
            continue
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
        whole = weight(packed, part)
        if isinstance(part, Matrix):
            assert whole.shape == (sum(sizes), part.columns)
        elif part.sources[0].columns:
            whole = whole.view(part.sources[0].shape)
        assert len(whole) == sum(sizes)
        if not isinstance(part, Matrix):
            whole = whole * part.over - part.plus
        for source, numbers in zip(part.sources, whole.split(sizes), strict=True):
            before = [found[source.name]] if source.start else []
            found[source.name] = torch.cat([*before, numbers])
    return found


class RoundingExperts(nn.Module):
    """Experts whose products round their input.

    Args:
        bits, down_bits: of the weights of gate and up, and of down.
    """

    def __init__(self, of: Any, bits: int, down_bits: int) -> None:
        super().__init__()
        self.of, self.bits, self.down_bits = of, bits, down_bits

    def forward(self, x: Tensor, chosen: Tensor, shares: Tensor) -> Tensor:
        out, rounded = torch.zeros_like(x), rounded_activations(x, self.bits)
        for expert in chosen.unique():
            rows, which = torch.where(chosen == expert)
            gated = rounded_activations(self._gated(rounded[rows], expert), self.down_bits)
            if hasattr(self.of, "alpha"):
                down = gated @ self.of.down_proj[expert] + self.of.down_proj_bias[expert]
            else:
                down = linear(gated, self.of.down_proj[expert])
            out[rows] += down * shares[rows, which, None]
        return out

    def _gated(self, x: Tensor, expert: Tensor) -> Tensor:
        if hasattr(self.of, "alpha"):  # gpt_oss
            return self.of._apply_gate(x @ self.of.gate_up_proj[expert] + self.of.gate_up_proj_bias[expert])
        gate, up = linear(x, self.of.gate_up_proj[expert]).chunk(2, -1)
        return silu(gate) * up


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
