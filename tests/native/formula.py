"""A decoded token of the native step, number by number, in the order that its sources promise: kernels.h,
slots.h, attention.h and step.h in torch, for one row and keys and values in fp32.

Sixteen sums, number i into sum i % 16, one fused multiply-add each, then a fixed tree. So what comes out is
not nearly the same: it is the same.

Shapes: G groups of 32 columns, H KV heads, Q query heads per KV head, S slots, D head size, P pairs.
"""

import ctypes
from dataclasses import dataclass, replace

import torch
from laid_out import MINIMUM, Q6_K, bytes_at, levels_of, scales_of, zero_level
from torch import Tensor

from h2o_chat.cache.arena import Arena
from h2o_chat.native.gguf_weights import GgufWeights
from h2o_chat.native.layout import GROUP, Q8_0, TILE, MatrixAddress, Vector, parts
from h2o_chat.native.packed import Packed
from h2o_chat.native.step import GPT_OSS_ALPHA, GPT_OSS_LIMIT

_LIBM = ctypes.CDLL(None)
for _name in ("cosf", "sinf"):
    getattr(_LIBM, _name).restype, getattr(_LIBM, _name).argtypes = ctypes.c_float, [ctypes.c_float]


def fma(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """a * b + c, rounded once: products of fp32 are exact in fp64."""
    return (a.double() * b.double() + c).float()


def lanes(x: Tensor) -> Tensor:
    """[..., n] -> [..., n / 16, 16], with zeros behind."""
    return torch.nn.functional.pad(x, (0, -x.shape[-1] % 16)).unflatten(-1, (-1, 16))


def tree(sums: Tensor) -> Tensor:
    """[..., 16] -> [...]: 8 apart, 4 apart, 2 apart, neighbours."""
    for apart in (8, 4, 2, 1):
        sums = sums[..., :apart] + sums[..., apart : 2 * apart]
    return sums[..., 0]


def added(parts: Tensor) -> Tensor:
    """[..., n, 16] -> [..., 16], one after the other."""
    sums = torch.zeros((*parts.shape[:-2], 16))
    for part in parts.unbind(-2):
        sums = sums + part
    return sums


def dot(a: Tensor, b: Tensor) -> Tensor:
    """Dot products of [..., n] with [..., n]."""
    a, b = lanes(a), lanes(b)
    sums = torch.zeros((*torch.broadcast_shapes(a.shape, b.shape)[:-2], 16))
    for i in range(a.shape[-2]):
        sums = fma(a[..., i, :], b[..., i, :], sums)
    return tree(sums)


def exp_of_negative(x: Tensor) -> Tensor:
    bounded = x.clamp_min(-87)
    n = (bounded * torch.tensor(1.44269504)).round()
    low, high = torch.tensor(1.42860677e-6), torch.tensor(-0.693148613)
    r = fma(n, low, fma(n, high, bounded))
    p = torch.tensor(1 / 720)
    for part in (1 / 120, 1 / 24, 1 / 6, 0.5, 1.0, 1.0):
        p = fma(p, r, torch.tensor(part))
    power = ((n.int() + 127) << 23).view(torch.float32)  # 2^n
    return torch.where(x < -87, 0, p * power)


def root(x: Tensor) -> Tensor:
    """Rounded once: torch's own in fp32 is off in the last bit for one number of 150."""
    return x.double().sqrt().float()


def gated(x: Tensor, y: Tensor) -> Tensor:
    """x / (1 + e^-y)"""
    e = exp_of_negative(-y.abs())
    negative = x.clamp_max(0)
    return fma(negative, e, x - negative) / (e + 1)


def silu(x: Tensor) -> Tensor:
    return gated(x, x)


def gelu(x: Tensor) -> Tensor:
    cubic = fma(x * x * torch.tensor(0.044715), x, x)
    return gated(x, cubic * torch.tensor(1.59576912))


def capped(x: Tensor, cap: float) -> Tensor:
    """cap * tanh(x / cap); as it is if there is no cap."""
    if not cap:
        return x
    most = torch.tensor(cap)
    e = exp_of_negative(x.abs() * (-2 / most))
    size = most * (1 - e) / (1 + e)
    positive = torch.where(x < 0, 0, size)
    return positive - (size - positive)


def norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    by = 1 / root(dot(x, x) / torch.tensor(float(x.shape[-1])) + torch.tensor(epsilon))
    return x * by.unsqueeze(-1) * weight


def turn(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """[..., D] by angles [P]."""
    pairs = len(cosines)
    a, b, rest = x[..., :pairs], x[..., pairs : 2 * pairs], x[..., 2 * pairs :]
    first = fma(a, cosines, -(b * sines))
    return torch.cat((first, fma(b, cosines, a * sines), rest), -1)


@dataclass
class Slots:
    """Slots of one layer, before or after a step: [H, S, ...]."""

    keys: Tensor
    values: Tensor
    positions: Tensor
    clamped: Tensor
    score: Tensor
    lately: Tensor
    into: Tensor
    """[H] where the next token goes."""


def slots_of(arena: Arena, at: int, in_use: int) -> Slots:
    """Copies."""
    states = {name: state[at, 0].clone() for name, state in arena.slots.states.items()}
    names = ("keys", "values", "positions", "clamped", "score", "lately")
    return Slots(**{name: states[name] for name in names}, into=arena.order[at, 0, :, in_use].long())


class Formula:
    """A model in tiles whose tokens are computed slowly."""

    def __init__(self, packed: Packed | GgufWeights) -> None:
        self.packed, self.frame = packed, packed.frame
        self._vectors = {part.name: part.numbers for part in parts(packed.frame) if isinstance(part, Vector)}
        self._read: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    def step(
        self,
        token: int,
        position: int,
        index: int,
        edge: int,
        layers: list[Slots],
        decay_factor: float,
        lately_decay: float,
    ) -> tuple[Tensor, list[Slots]]:
        """Logits [V], and the slots after it, of which none was given up.

        Args:
            index: at which it is turned; `edge`: by which its queries are turned again, for clamped keys.
        """
        frame, after = self.frame, list[Slots]()
        q, scales, minima = self._matrix(*self.packed.matrices("embedding"))
        row = fma(q[token].float(), scales[token, ..., None], -minima[token, :, None, None])
        x = row.flatten()[: frame.hidden] * torch.tensor(frame.embedding_scale)
        residual = torch.tensor(frame.residual_scale)
        for number, slots in enumerate(layers):
            name = f"layers.{number}."
            qkv = self._times(name + "qkv", self._normed(name + "norm_attention", x))
            if frame.bias:
                qkv = qkv + self._vector(name + "bias_qkv")
            if frame.whole_norms:
                heads = (frame.heads, frame.kv_heads, frame.kv_heads)
                queries, keys, values = qkv.split([one * frame.head_size for one in heads])
                queries = norm(queries, self._vector(name + "norm_query"), frame.epsilon)
                keys = norm(keys, self._vector(name + "norm_key"), frame.epsilon)
                qkv = torch.cat((queries, keys, values))
            attended, slots = self._attend(
                number, qkv, position, index, edge, slots, decay_factor, lately_decay
            )
            after.append(slots)
            out = self._times(name + "out", attended)[: frame.hidden]
            out = out + self._vector(name + "bias_out") if frame.gpt_oss else out
            x = fma(residual, self._normed(name + "norm_attended", out), x)
            normed = self._normed(name + "norm_mlp", x)
            if not frame.experts:
                x = fma(residual, self._normed(name + "norm_fed", self._mlp(name, normed)), x)
            for expert, share in self._shares(name, normed) if frame.experts else []:
                x = fma(share, self._mlp(f"{name}experts.{expert}.", normed), x)
        head = "embedding" if frame.tied else "head"
        logits = self._times(head, self._normed("norm", x))[: frame.vocabulary]
        return capped(logits, frame.logits_cap), after

    def _normed(self, name: str, x: Tensor) -> Tensor:
        """x, normalised if there are weights of that name."""
        return norm(x, self._vector(name), self.frame.epsilon) if name in self._vectors else x

    def _mlp(self, name: str, x: Tensor) -> Tensor:
        both = self._times(name + "gate_up", x)
        alternate = len(self.packed.matrices(name + "gate_up")) == 1
        gate, up = both.view(-1, 2, TILE).unbind(1) if alternate else both.view(2, -1).unbind()
        if self.frame.gpt_oss:
            alpha, rows = torch.tensor(GPT_OSS_ALPHA), self.frame.intermediate
            gate = gate.flatten()[:rows] + self._vector(name + "bias_gate")
            up = up.flatten()[:rows] + self._vector(name + "bias_up")
            gated = silu(gate.clamp_max(GPT_OSS_LIMIT) * alpha) / alpha
            gated = gated * (up.clamp(-GPT_OSS_LIMIT, GPT_OSS_LIMIT) + 1)
            down = self._times(name + "down", gated)[: self.frame.hidden]
            return down + self._vector(name + "bias_down")
        gated = ((gelu if self.frame.gemma else silu)(gate) * up).flatten()
        return self._times(name + "down", gated[: self.frame.intermediate])[: self.frame.hidden]

    def _shares(self, name: str, x: Tensor) -> list[tuple[int, Tensor]]:
        """The experts that a token takes, in rising order, and their shares."""
        frame = self.frame
        scores = dot(x, self._vector(name + "router").view(frame.experts, frame.hidden))
        if frame.gpt_oss:
            scores = scores + self._vector(name + "bias_router")
        exps = exp_of_negative(scores - scores.max())
        likely = exps * (1 / tree(added(lanes(exps))))
        chosen = likely.argsort(descending=True, stable=True)[: frame.chosen].tolist()
        whole = torch.tensor(0.0)
        for expert in chosen:
            whole = whole + likely[expert]
        return [(one, likely[one] / whole if frame.shares_add_up else likely[one]) for one in sorted(chosen)]

    def _attend(
        self,
        number: int,
        qkv: Tensor,
        position: int,
        index: int,
        edge: int,
        slots: Slots,
        decay_factor: float,
        lately_decay: float,
    ) -> tuple[Tensor, Slots]:
        frame, name = self.frame, f"layers.{number}."
        heads, size, rope = frame.kv_heads, frame.head_size, frame.rope_of[number]
        queries, keys, values = qkv.split([frame.heads * size, heads * size, heads * size])
        queries, keys = queries.view(heads, -1, size), keys.view(heads, size)
        if frame.head_norms and not frame.whole_norms:
            queries = norm(queries, self._vector(name + "norm_query"), frame.epsilon)
            keys = norm(keys, self._vector(name + "norm_key"), frame.epsilon)
        if rope is not None:
            angles = self._angles(rope, index, self.frame.ropes[rope].scale)
            queries, keys = turn(queries, *angles), turn(keys, *angles)
        slots, each = replace(slots), torch.arange(heads)
        slots.keys[each, slots.into], slots.values[each, slots.into] = keys, values.view(heads, size)
        slots.positions[each, slots.into] = position
        asks = dot(queries.unsqueeze(2), slots.keys.unsqueeze(1))  # [H, Q, S]
        if rope is not None:
            far = turn(queries, *self._angles(rope, edge, 1.0))
            asks = torch.where(
                slots.clamped.unsqueeze(1), dot(far.unsqueeze(2), slots.keys.unsqueeze(1)), asks
            )
        usual = 1 / root(torch.tensor(float(size)))
        asks = asks * (torch.tensor(frame.attention_scale) if frame.attention_scale else usual)
        asks = capped(asks, frame.attention_cap)
        sees = frame.sees[number]
        seen_from = position - sees + 1 if sees and position >= sees else 0
        asks = asks.masked_fill((slots.positions < seen_from).unsqueeze(1), -3e38)
        top, rest = asks.amax(-1, keepdim=True), torch.tensor(0.0)
        if frame.gpt_oss:
            sinks = self._vector(name + "sinks").view(heads, -1, 1)
            top = torch.maximum(top, sinks)
            rest = exp_of_negative(sinks - top).squeeze(-1)
        exps = exp_of_negative(asks - top)
        weights = exps * (1 / (tree(added(lanes(exps))) + rest)).unsqueeze(-1)
        output = torch.zeros(heads, queries.shape[1], size)
        for slot in range(weights.shape[-1]):
            output = fma(weights[..., slot, None], slots.values[:, None, slot], output)
        given = weights.transpose(1, 2)  # [H, S, Q]
        slots.score = fma(slots.score, torch.tensor(decay_factor), given)
        received = torch.zeros_like(slots.lately)
        for one in given.unbind(-1):
            received = received + one
        kept = torch.tensor(lately_decay)
        share = (1 - kept) / torch.tensor(float(queries.shape[1]))
        slots.lately = fma(slots.lately, kept, (received * share))
        return output.flatten(), slots

    def _times(self, name: str, x: Tensor) -> Tensor:
        """A product with activations in whole numbers; of several matrices one after the other."""
        return torch.cat([self._product(one, x) for one in self.packed.matrices(name)])

    def _product(self, m: MatrixAddress, x: Tensor) -> Tensor:
        q, scales, minima = self._matrix(m)  # [rows, G, 2, 16], [rows, G, 2], [rows, G]
        groups = torch.nn.functional.pad(x, (0, m.columns - len(x))).view(-1, GROUP)
        most = groups.abs().amax(-1)
        by = torch.where(most > 1e-30, torch.div(torch.tensor(127.0), most), 0)
        exact = groups * by.unsqueeze(-1)
        numbers = exact.clamp(-127, 127).round()
        steps = most / 127
        if m.kind == Q8_0:
            rest = ((exact - numbers) * 256).clamp(-127, 127).round()
            numbers, steps = numbers * 256 + rest, steps / 256
        whole = numbers.int().view(-1, 2, 16)
        products = (q * whole).sum(-1, dtype=torch.int32)  # [rows, G, 2]
        sums = torch.zeros(m.rows)
        for group, step in enumerate(steps):
            if m.kind == Q6_K:
                for half in range(2):
                    sums = fma(products[:, group, half].float(), scales[:, group, half] * step, sums)
                continue
            sums = fma(products[:, group].sum(-1).float(), scales[:, group, 0] * step, sums)
            if m.kind in MINIMUM:
                sums = fma(minima[:, group], -whole[group].sum().float() * step, sums)
        return sums

    def _matrix(self, m: MatrixAddress) -> tuple[Tensor, Tensor, Tensor]:
        """Whole weights [rows, G, 2, 16] int32, scales [rows, G, 2] and minima [rows, G], as stored."""
        if m.weights not in self._read:
            q = (levels_of(m) - zero_level(m)).unflatten(-1, (2, 16))
            self._read[m.weights] = q, *scales_of(m)
        return self._read[m.weights]

    def _vector(self, name: str) -> Tensor:
        return bytes_at(self.packed.vector(name), 4 * self._vectors[name]).view(torch.float32)

    def _angles(self, rope: int, index: int, scale: float) -> tuple[Tensor, Tensor]:
        """Cosines and sines [P]."""
        angles = (torch.tensor(float(index)) * torch.tensor(self.frame.ropes[rope].inv_freq)).tolist()
        cosines, sines = (torch.tensor([f(one) for one in angles]) for f in (_LIBM.cosf, _LIBM.sinf))
        return cosines * torch.tensor(scale), sines * torch.tensor(scale)
