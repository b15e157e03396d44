"""The training module: stock Llama mathematics under Hugging Face parameter names.

Written out because it compiles to one graph and trains faster on a CPU than the library's
class; `export` compares the logits of both.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Shape:
    """B rows, T tokens, D = dim, H query heads of size E, K KV heads."""

    dim: int
    layers: int
    heads: int
    kv_heads: int
    mlp: int
    vocabulary: int
    window: int
    head_dim: int = 32
    # At 10,000 only 3 of the 16 pairs of a head turn by less than a radian in 1,500 tokens, too
    # few to find a fact by content; at 500,000 (as Llama 3) 7 do.
    theta: float = 500_000.0
    epsilon: float = 1e-5


SHAPES = {
    # 3.1 M parameters: what two cores can train in two hours.
    "small": Shape(192, 6, 6, 2, 512, 4096, 2048),
    # 12.9 M parameters: for a GPU and 300 M tokens.
    "large": Shape(384, 7, 12, 4, 1024, 4096, 2048),
}


class Norm(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape.dim))
        self.epsilon = shape.epsilon

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.epsilon)


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.dim, query, bias=False)
        self.k_proj = nn.Linear(shape.dim, key, bias=False)
        self.v_proj = nn.Linear(shape.dim, key, bias=False)
        self.o_proj = nn.Linear(query, shape.dim, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        s = self.shape
        rows, tokens, _ = x.shape
        # One product for q, k and v: faster than three small ones.
        weights = torch.cat((self.q_proj.weight, self.k_proj.weight, self.v_proj.weight))
        qkv = F.linear(x, weights).view(rows, tokens, -1, s.head_dim).transpose(1, 2)
        q, k, v = torch.split(qkv, [s.heads, s.kv_heads, s.kv_heads], 1)  # [B, H or K, T, E]
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        group = s.heads // s.kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)  # [B, H, T, E]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.o_proj(y.transpose(1, 2).reshape(rows, tokens, -1))
        return out


class Mlp(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.dim, shape.mlp, bias=False)
        self.up_proj = nn.Linear(shape.dim, shape.mlp, bias=False)
        self.down_proj = nn.Linear(shape.mlp, shape.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        weights = torch.cat((self.gate_proj.weight, self.up_proj.weight))
        gate, up = F.linear(x, weights).chunk(2, dim=-1)
        out: Tensor = self.down_proj(F.silu(gate) * up)
        return out


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = Norm(shape)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = Norm(shape)
        self.mlp = Mlp(shape)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Pocket(nn.Module):
    """Embedding, layers and final norm; the embedding is also the output matrix."""

    cos: Tensor
    sin: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.dim)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = Norm(shape)
        frequency = shape.theta ** (-torch.arange(0, shape.head_dim, 2) / shape.head_dim)
        angle = torch.outer(torch.arange(shape.window), frequency)  # [T, E / 2]
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        for name, weight in self.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.zeros_(weight)
            elif weight.ndim == 2:
                nn.init.normal_(weight, std=0.02 if "embed" in name else shape.dim**-0.5)

    def logits(self, ids: Tensor) -> Tensor:
        """[B, T] -> [B, T, vocabulary]."""
        x = self.embed_tokens(ids)
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x, cos, sin)
        return F.linear(self.norm(x), self.embed_tokens.weight)

    def forward(self, ids: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """The weighted mean loss in nats a token."""
        logits = self.logits(ids)
        losses = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="none")
        return (losses * weights.flatten()).sum() / weights.sum()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RoPE on the two halves of the head, as in transformers' Llama."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
