"""Muon: momentum whose matrix updates are made orthogonal (Keller Jordan, 2024)."""

from collections.abc import Sequence

import torch
from torch import Tensor


def orthogonal(updates: Tensor) -> Tensor:
    """The nearest orthogonal matrices of a stack, by five Newton-Schulz steps in bfloat16.

    Coefficients from https://kellerjordan.github.io/posts/muon/.
    """
    x = updates.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    back: Tensor = (x.mT if tall else x).to(updates.dtype)
    return back


class Muon(torch.optim.Optimizer):
    """For the matrices inside the layers; embeddings and norms want AdamW."""

    def __init__(self, parameters: Sequence[Tensor], lr: float, momentum: float, decay: float) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = {}
            for weight in group["params"]:
                by_shape.setdefault(weight.shape, []).append(weight)
            for shape, weights in by_shape.items():
                updates = []
                for weight in weights:
                    velocity = self.state[weight].setdefault("velocity", torch.zeros_like(weight))
                    assert weight.grad is not None
                    velocity.lerp_(weight.grad, 1 - group["momentum"])
                    updates.append(weight.grad.lerp(velocity, group["momentum"]))
                scale = group["lr"] * max(1.0, shape[0] / shape[1]) ** 0.5
                for weight, update in zip(weights, orthogonal(torch.stack(updates)), strict=True):
                    weight.mul_(1 - group["lr"] * group["decay"]).add_(update, alpha=-scale)
