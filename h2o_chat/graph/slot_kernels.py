"""The Triton kernels of ranking: how keys stand among one another, and what the output owes to each slot.

They return what `settle.compare_keys` and `policies.output_change_of_heads` return, and read memory once or
twice instead of thirty times. Shapes: L layers, R rows, H KV heads, G query heads per KV head, S slots, D
head size. Under TRITON_INTERPRET=1 all of it runs on a CPU.
"""

import triton
import triton.language as tl


@triton.jit
def unit_keys(
    keys,  # [L, R * H, S, D], layers `layer_step` numbers apart
    index,  # [L, R * H, S] int32: rotation indices
    positions,  # [L, R * H, S] int32
    frequencies,  # [D / 2] radians per index
    unit,  # [L, R * H, S, D], written
    layer_step,
    heads,  # R * H
    slots,
    SIZE: tl.constexpr,
    HALF_P: tl.constexpr,
    BLOCK: tl.constexpr,
    ROPE: tl.constexpr,
):
    """Keys before RoPE, of length 1; zeros where a slot is empty."""
    head = tl.program_id(0).to(tl.int64)
    s, d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, HALF_P)
    half: tl.constexpr = SIZE // 2
    at = head * slots + s
    held = tl.load(positions + at, mask=s < slots, other=-1) >= 0
    mask = held[:, None] & (d < half)[None, :]
    lies = head // heads * layer_step + ((head % heads) * slots + s)[:, None] * SIZE + d[None, :]
    first = tl.load(keys + lies, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(keys + lies + half, mask=mask, other=0.0).to(tl.float32)
    if ROPE:
        turned = tl.load(index + at, mask=s < slots, other=0).to(tl.float32)
        angle = turned[:, None] * tl.load(frequencies + d, mask=d < half, other=0.0)[None, :]
        cos, sin = tl.cos(angle), tl.sin(angle)
        first, second = first * cos + second * sin, second * cos - first * sin
    length = tl.sqrt(tl.sum(first * first + second * second, 1))
    by = (1 / tl.maximum(length, 1e-12))[:, None]
    into = unit + at[:, None] * SIZE + d[None, :]
    mask = (s < slots)[:, None] & (d < half)[None, :]
    tl.store(into, first * by, mask=mask)
    tl.store(into + half, second * by, mask=mask)


@triton.jit
def stands_out(
    unit,  # [heads, S, D] of `unit_keys`
    mean,  # [heads, D] fp32: their mean, of length 1
    distinctness,  # [heads, S] fp32, written
    novelty,  # [heads, S] fp32, written with PAIRS
    slots,
    SIZE: tl.constexpr,
    SIZE_P: tl.constexpr,
    BLOCK: tl.constexpr,
    PAIRS: tl.constexpr,
):
    """Minus the cosine to the mean of a head's keys, and to the nearest other one (0 if all point away)."""
    head = tl.program_id(0).to(tl.int64)
    s, d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, SIZE_P)
    mask = (s < slots)[:, None] & (d < SIZE)[None, :]
    mine = tl.load(unit + (head * slots + s)[:, None] * SIZE + d[None, :], mask=mask, other=0.0)
    to = tl.load(mean + head * SIZE + d, mask=d < SIZE, other=0.0)
    tl.store(distinctness + head * slots + s, -tl.sum(mine.to(tl.float32) * to[None, :], 1), mask=s < slots)
    if PAIRS:
        nearest = tl.zeros([BLOCK], tl.float32)
        for first in range(0, slots, BLOCK):
            t = first + tl.arange(0, BLOCK)
            mask = (t < slots)[:, None] & (d < SIZE)[None, :]
            other = tl.load(unit + (head * slots + t)[:, None] * SIZE + d[None, :], mask=mask, other=0.0)
            near = tl.dot(mine, tl.trans(other), input_precision="ieee")
            near = tl.where(s[:, None] == t[None, :], 0.0, near)
            nearest = tl.maximum(nearest, tl.max(near, 1))
        tl.store(novelty + head * slots + s, -nearest, mask=s < slots)


@triton.jit
def output_change(
    values,  # [L, R * H, S, D], layers `layer_step` numbers apart
    score,  # [L, R * H, S, G] fp32
    fourth,  # [L, R * H, S, G] fp32, written
    layer_step,
    heads,  # R * H
    slots,
    GROUPS: tl.constexpr,
    SIZE: tl.constexpr,
    SIZE_P: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Fourth power of how far a query head's output moves without a slot."""
    head, g = tl.program_id(0).to(tl.int64), tl.program_id(1)
    d = tl.arange(0, SIZE_P)
    lies = values + head // heads * layer_step + (head % heads) * slots * SIZE
    totals = tl.zeros([BLOCK], tl.float32)
    outputs = tl.zeros([BLOCK, SIZE_P], tl.float32)
    for first in range(0, slots, BLOCK):
        s = first + tl.arange(0, BLOCK)
        given = tl.load(score + (head * slots + s) * GROUPS + g, mask=s < slots, other=0.0)
        mask = (s < slots)[:, None] & (d < SIZE)[None, :]
        value = tl.load(lies + s[:, None] * SIZE + d[None, :], mask=mask, other=0.0).to(tl.float32)
        totals += given
        outputs += given[:, None] * value
    total = tl.maximum(tl.sum(totals), 1.17549435e-38)
    output = tl.sum(outputs, 0) / total
    length = tl.sum(output * output)
    for first in range(0, slots, BLOCK):
        s = first + tl.arange(0, BLOCK)
        at = (head * slots + s) * GROUPS + g
        share = tl.load(score + at, mask=s < slots, other=0.0) / total
        mask = (s < slots)[:, None] & (d < SIZE)[None, :]
        value = tl.load(lies + s[:, None] * SIZE + d[None, :], mask=mask, other=0.0).to(tl.float32)
        squares = tl.sum(value * value, 1) + length - 2 * tl.sum(value * output[None, :], 1)
        change = share / tl.maximum(1 - share, 1.1920929e-07) * tl.sqrt(tl.maximum(squares, 0.0))
        tl.store(fourth + at, change * change * change * change, mask=s < slots)
