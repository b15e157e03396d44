"""The Triton kernels of matrices times one row of activations, and what stands between two of them.

A token reads every weight once, so bytes over bandwidth is the floor. RMSNorm is fused into the product that
reads it, SiLU and the residual into the product that writes it. `launches.py` chooses the sizes of blocks.

Shapes: N rows and K columns of a matrix. Numbers are added in fp32, and in 4 bits as whole numbers within a
group. Under TRITON_INTERPRET=1 all of it runs on a CPU.

EARLY (Hopper and newer): a kernel starts while the one before it ends, loads its first weights, and waits
before it reads what that one wrote (programmatic dependent launch).
"""

import triton
import triton.language as tl


@triton.jit
def product(
    weights,  # [N, K], or [2N, K] with GATED: gate above up
    x,  # [K]
    norm,  # [K] weights of the RMSNorm before it
    bias,  # [N]
    y,  # [N]
    rows,
    columns,
    epsilon,
    NORM: tl.constexpr,
    BIAS: tl.constexpr,
    GATED: tl.constexpr,  # y = silu(gate) * up
    ADDS: tl.constexpr,  # y += instead of y =
    EARLY: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """y [N] = weights @ rms_norm(x): one row of activations. The next weights are on their way meanwhile."""
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = n < rows
    start = n.to(tl.int64)[:, None] * columns
    below = rows.to(tl.int64) * columns
    k = tl.arange(0, BLOCK_K)
    here = inside[:, None] & (k < columns)[None, :]
    w = tl.load(weights + start + k[None, :], mask=here, other=0.0)
    if GATED:
        w_up = tl.load(weights + below + start + k[None, :], mask=here, other=0.0)
    if EARLY:
        tl.extra.cuda.gdc_wait()
    total = tl.zeros([BLOCK_N, BLOCK_K], tl.float32)
    upper = tl.zeros([BLOCK_N, BLOCK_K], tl.float32)
    squares = tl.zeros([BLOCK_K], tl.float32)
    for first in range(0, columns, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        further = (k + BLOCK_K)[None, :]
        there = inside[:, None] & (further < columns)
        next_w = tl.load(weights + start + further, mask=there, other=0.0)
        if GATED:
            next_up = tl.load(weights + below + start + further, mask=there, other=0.0)
        one = tl.load(x + k, mask=k < columns, other=0.0).to(tl.float32)
        if NORM:
            squares += one * one
            one *= tl.load(norm + k, mask=k < columns, other=0.0).to(tl.float32)
        total += w.to(tl.float32) * one[None, :]
        w = next_w
        if GATED:
            upper += w_up.to(tl.float32) * one[None, :]
            w_up = next_up
    scale = tl.rsqrt(tl.sum(squares) / columns + epsilon) if NORM else 1.0
    found = tl.sum(total, 1) * scale
    if GATED:
        found = found * tl.sigmoid(found) * (tl.sum(upper, 1) * scale)
    if BIAS:
        found += tl.load(bias + n, mask=inside, other=0.0).to(tl.float32)
    if ADDS:
        found += tl.load(y + n, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + n, found, mask=inside)


@triton.jit
def in_bytes(
    x,  # [K]
    norm,  # [K] weights of the RMSNorm before it
    words,  # [2, K / 8] int32, written: the even and the odd nibbles' columns, four bytes a word
    scales,  # [K / 32] fp32, written
    sums,  # [K / 32] fp32, written: of a group's bytes
    columns,
    epsilon,
    NORM: tl.constexpr,
    EARLY: tl.constexpr,
    BLOCK: tl.constexpr,  # numbers of x looked at together for the norm
    BLOCK_G: tl.constexpr,
):
    """Activations in 8 bits, one scale for the 32 columns of a group, in the order of `product_int4`."""
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    by = 1.0
    if NORM:
        squares = tl.zeros([BLOCK], tl.float32)
        for first in range(0, columns, BLOCK):
            k = first + tl.arange(0, BLOCK)
            one = tl.load(x + k, mask=k < columns, other=0.0).to(tl.float32)
            squares += one * one
        by = tl.rsqrt(tl.sum(squares) / columns + epsilon)
    groups = columns // 32
    g = (tl.program_id(0) * BLOCK_G + tl.arange(0, BLOCK_G))[:, None, None]
    s, i = tl.arange(0, 8)[None, :, None], tl.arange(0, 4)[None, None, :]
    k = g // 8 * 256 + s * 32 + g % 8 * 4 + i  # [BLOCK_G, 8, 4]
    number = tl.load(x + k, mask=g < groups, other=0.0).to(tl.float32) * by
    if NORM:
        number *= tl.load(norm + k, mask=g < groups, other=0.0).to(tl.float32)
    most = tl.max(tl.max(tl.abs(number), 2), 1)  # [BLOCK_G]
    scale = most / 127
    inverse = tl.where(most > 0, 127 / most, 0.0)
    q = tl.floor(number * inverse[:, None, None] + 0.5).to(tl.int32)
    byte = (q & 255) << (s // 2 * 8)
    even = tl.sum(tl.where(s % 2 == 0, byte, 0), 1)  # [BLOCK_G, 4]
    odd = tl.sum(tl.where(s % 2 == 1, byte, 0), 1)
    g = tl.program_id(0) * BLOCK_G + tl.arange(0, BLOCK_G)
    into = words + g[:, None] * 4 + tl.arange(0, 4)[None, :]
    tl.store(into, even, mask=(g < groups)[:, None])
    tl.store(into + columns // 8, odd, mask=(g < groups)[:, None])
    tl.store(scales + g, scale, mask=g < groups)
    tl.store(sums + g, tl.sum(tl.sum(q, 2), 1).to(tl.float32), mask=g < groups)


@triton.jit
def _bytes_times(nibbles, numbers, before, ASM: tl.constexpr):
    """before + the sum of the products of four bytes: 0 to 15 each, and signed ones."""
    if ASM:
        return tl.inline_asm_elementwise(
            "dp4a.u32.s32 $0, $1, $2, $3;",
            "=r,r,r,r",
            [nibbles, numbers, before],
            dtype=tl.int32,
            is_pure=True,
            pack=1,
        )
    for b in tl.static_range(4):  # Triton's interpreter knows no assembly
        before += ((nibbles >> (8 * b)) & 15) * ((numbers << (24 - 8 * b)) >> 24)
    return before


@triton.jit
def _group_sums(held, even, odd, ASM: tl.constexpr):
    """q + 8 times the activations' bytes, summed over each group's four words. [N, G] as floats"""
    low, high = held & 0x0F0F0F0F, (held >> 4) & 0x0F0F0F0F
    found = _bytes_times(low, even + low * 0, low * 0, ASM)
    found = _bytes_times(high, odd + high * 0, found, ASM)
    return tl.sum(found, 2).to(tl.float32)


@triton.jit
def product_int4(
    words,  # [N, K / 8] int32; [2N, K / 8] with GATED
    scales,  # [N, K / 32] fp16
    x_words,
    x_scales,
    x_sums,  # as `in_bytes` writes them
    bias,
    y,
    rows,
    columns,
    BIAS: tl.constexpr,
    GATED: tl.constexpr,
    ADDS: tl.constexpr,
    EARLY: tl.constexpr,
    ASM: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_G: tl.constexpr,  # groups of 32 columns at a time
):
    """Multiplies as `product` does, by weights q * scale in 4 bits (order: `int4.py`) and activations in 8.

    A group is 4 words, which one thread reads at once: 32 products of whole numbers are summed before the
    scales come in, as in the library for CPUs.
    """
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = n < rows
    groups = columns // 32
    i = tl.arange(0, 4)[None, None, :]
    start = n.to(tl.int64) * groups
    below = rows.to(tl.int64) * groups
    g = tl.arange(0, BLOCK_G)
    at = start[:, None] + g[None, :]  # [BLOCK_N, BLOCK_G]
    here = inside[:, None] & (g < groups)[None, :]
    held = tl.load(words + at[:, :, None] * 4 + i, mask=here[:, :, None], other=0)
    scale = tl.load(scales + at, mask=here, other=0.0)
    if GATED:
        held_up = tl.load(words + (below + at)[:, :, None] * 4 + i, mask=here[:, :, None], other=0)
        scale_up = tl.load(scales + below + at, mask=here, other=0.0)
    if EARLY:
        tl.extra.cuda.gdc_wait()
    total = tl.zeros([BLOCK_N, BLOCK_G], tl.float32)
    upper = tl.zeros([BLOCK_N, BLOCK_G], tl.float32)
    for first in range(0, groups, BLOCK_G):
        g = first + tl.arange(0, BLOCK_G)
        at = start[:, None] + (g + BLOCK_G)[None, :]
        there = inside[:, None] & (g + BLOCK_G < groups)[None, :]
        next_held = tl.load(words + at[:, :, None] * 4 + i, mask=there[:, :, None], other=0)
        next_scale = tl.load(scales + at, mask=there, other=0.0)
        if GATED:
            next_up = tl.load(words + (below + at)[:, :, None] * 4 + i, mask=there[:, :, None], other=0)
            next_scale_up = tl.load(scales + below + at, mask=there, other=0.0)
        lies = x_words + g[None, :, None] * 4 + i
        even = tl.load(lies, mask=(g < groups)[None, :, None], other=0)
        odd = tl.load(lies + columns // 8, mask=(g < groups)[None, :, None], other=0)
        x_scale = tl.load(x_scales + g, mask=g < groups, other=0.0)[None, :]
        x_sum = 8 * tl.load(x_sums + g, mask=g < groups, other=0.0)[None, :]
        total += (_group_sums(held, even, odd, ASM) - x_sum) * (scale.to(tl.float32) * x_scale)
        held, scale = next_held, next_scale
        if GATED:
            upper += (_group_sums(held_up, even, odd, ASM) - x_sum) * (scale_up.to(tl.float32) * x_scale)
            held_up, scale_up = next_up, next_scale_up
    found = tl.sum(total, 1)
    if GATED:
        found = found * tl.sigmoid(found) * tl.sum(upper, 1)
    if BIAS:
        found += tl.load(bias + n, mask=inside, other=0.0).to(tl.float32)
    if ADDS:
        found += tl.load(y + n, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + n, found, mask=inside)


@triton.jit
def int4_as_numbers(words, scales, numbers, rows, columns, BLOCK_N: tl.constexpr):
    """numbers [N, K] of weights in 4 bits: one block of 256 columns, BLOCK_N rows."""
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)[:, None]
    b, w = tl.program_id(1), tl.arange(0, 32)[None, :]
    inside = (n < rows) & (w < 32)
    at = n.to(tl.int64) * (columns // 256) + b
    held = tl.load(words + at * 32 + w, mask=inside, other=0)
    scale = tl.load(scales + at * 8 + w // 4, mask=inside, other=0.0).to(tl.float32)
    for s in tl.static_range(8):
        into = numbers + n.to(tl.int64) * columns + b * 256 + s * 32 + w
        q = ((held >> (4 * s)) & 15) - 8
        tl.store(into, (q.to(tl.float32) * scale).to(numbers.dtype.element_ty), mask=inside)
