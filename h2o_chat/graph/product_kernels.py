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
def _rows(weights, n, end, columns, COLUMNS: tl.constexpr):
    """Rows `n` before `end` of a matrix. [N, K]"""
    k = tl.arange(0, COLUMNS)
    here = (n < end)[:, None] & (k < columns)[None, :]
    return tl.load(weights + n.to(tl.int64)[:, None] * columns + k[None, :], mask=here, other=0.0)


@triton.jit
def product(
    weights,  # [N, K], or [2N, K] with GATED: gate above up
    x,  # [K]
    norm,  # [K] weights of the RMSNorm before it
    bias,  # [N]
    y,  # [N]
    rows,
    columns,
    share,  # rows of one program
    epsilon,
    NORM: tl.constexpr,
    BIAS: tl.constexpr,
    GATED: tl.constexpr,  # y = silu(gate) * up
    ADDS: tl.constexpr,  # y += instead of y =
    EARLY: tl.constexpr,
    BLOCK_N: tl.constexpr,
    COLUMNS: tl.constexpr,  # K, rounded up to a power of two
):
    """y [N] = weights @ rms_norm(x): one row of activations, which a program keeps in registers while it goes
    through its share of the rows. The next weights are on their way meanwhile."""
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
    begin = tl.program_id(0) * share
    end = tl.minimum(begin + share, rows)
    n, k = begin + tl.arange(0, BLOCK_N), tl.arange(0, COLUMNS)
    held = _rows(weights, n, end, columns, COLUMNS)
    if GATED:
        held_up = _rows(weights, rows + n, rows + end, columns, COLUMNS)
    if EARLY:
        tl.extra.cuda.gdc_wait()
    number = tl.load(x + k, mask=k < columns, other=0.0).to(tl.float32)
    by = 1.0
    if NORM:
        by = tl.rsqrt(tl.sum(number * number) / columns + epsilon)
        number *= tl.load(norm + k, mask=k < columns, other=0.0).to(tl.float32)
    number = number[None, :]
    for first in range(begin, end, BLOCK_N):
        n = first + tl.arange(0, BLOCK_N)
        next_held = _rows(weights, n + BLOCK_N, end, columns, COLUMNS)
        if GATED:
            next_up = _rows(weights, rows + n + BLOCK_N, rows + end, columns, COLUMNS)
        before = _before(bias, y, n, end, BIAS, ADDS, BLOCK_N)
        found = tl.sum(held.to(tl.float32) * number, 1) * by
        held = next_held
        if GATED:
            found = found * tl.sigmoid(found) * (tl.sum(held_up.to(tl.float32) * number, 1) * by)
            held_up = next_up
        tl.store(y + n, found + before, mask=n < end)


@triton.jit
def _before(bias, y, n, end, BIAS: tl.constexpr, ADDS: tl.constexpr, BLOCK_N: tl.constexpr):
    """Returns bias and residual of rows `n` before `end`, which are added to their products. [N]"""
    before = tl.zeros([BLOCK_N], tl.float32)
    if BIAS:
        before += tl.load(bias + n, mask=n < end, other=0.0).to(tl.float32)
    if ADDS:
        before += tl.load(y + n, mask=n < end, other=0.0).to(tl.float32)
    return before


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
    """q + 8 times the activations' bytes [1, 4 G], summed over each group's four words. [N, G] as floats"""
    low, high = held & 0x0F0F0F0F, (held >> 4) & 0x0F0F0F0F
    found = _bytes_times(low, even + low * 0, low * 0, ASM)
    found = _bytes_times(high, odd + high * 0, found, ASM)
    return tl.sum(tl.reshape(found, [found.shape[0], found.shape[1] // 4, 4]), 2).to(tl.float32)


@triton.jit
def _rows_int4(words, scales, n, end, groups, GROUPS: tl.constexpr):
    """Rows `n` before `end`: words [N, 4 * G] and scales [N, G]."""
    w, g, start = tl.arange(0, 4 * GROUPS), tl.arange(0, GROUPS), n.to(tl.int64)[:, None] * groups
    here = (n < end)[:, None]
    held = tl.load(words + start * 4 + w[None, :], mask=here & (w < 4 * groups)[None, :], other=0)
    return held, tl.load(scales + start + g[None, :], mask=here & (g < groups)[None, :], other=0.0)


@triton.jit
def product_int4(
    words,  # [N, K / 8] int32; [2N, K / 8] with GATED
    scales,  # [N, K / 32] fp16
    x,  # [K]
    norm,  # [K] weights of the RMSNorm before it
    bias,
    y,
    rows,
    columns,
    share,  # rows of one program
    epsilon,
    NORM: tl.constexpr,
    BIAS: tl.constexpr,
    GATED: tl.constexpr,
    ADDS: tl.constexpr,
    EARLY: tl.constexpr,
    ASM: tl.constexpr,
    BLOCK_N: tl.constexpr,
    GROUPS: tl.constexpr,  # K / 32, rounded up to a power of two
):
    """Multiplies as `product` does, by weights q * scale in 4 bits (order: `int4.py`) and activations in 8.

    A program rounds the activations once, all of them: a thread those of a group of 32 columns, which is 4
    words of a row. Then it goes through its share of the rows. 32 products of whole numbers are summed before
    the scales come in, as in the library for CPUs.
    """
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
    groups = columns // 32
    begin = tl.program_id(0) * share
    end = tl.minimum(begin + share, rows)
    g, i = tl.arange(0, GROUPS), tl.arange(0, 4)
    n = begin + tl.arange(0, BLOCK_N)
    held, scale = _rows_int4(words, scales, n, end, groups, GROUPS)
    if GATED:
        held_up, scale_up = _rows_int4(words, scales, rows + n, rows + end, groups, GROUPS)
    if EARLY:
        tl.extra.cuda.gdc_wait()

    # Nibble s of word i of a group is column 32 s + 4 (g % 8) + i of its block of 256.
    at = (g // 8 * 256 + g % 8 * 4)[:, None] + i[None, :]
    mask = (g < groups)[:, None]
    squares = tl.zeros([GROUPS, 4], tl.float32)
    most = tl.zeros([GROUPS, 4], tl.float32)
    for s in tl.static_range(8):
        number = tl.load(x + at + 32 * s, mask=mask, other=0.0).to(tl.float32)
        if NORM:
            squares += number * number
            number *= tl.load(norm + at + 32 * s, mask=mask, other=0.0).to(tl.float32)
        most = tl.maximum(most, tl.abs(number))
    top = tl.max(most, 1)  # [GROUPS]
    inverse = tl.where(top > 0, 127 / top, 0.0)[:, None]
    even = tl.zeros([GROUPS, 4], tl.int32)
    odd = tl.zeros([GROUPS, 4], tl.int32)
    sums = tl.zeros([GROUPS, 4], tl.int32)
    for s in tl.static_range(8):
        number = tl.load(x + at + 32 * s, mask=mask, other=0.0).to(tl.float32)
        if NORM:
            number *= tl.load(norm + at + 32 * s, mask=mask, other=0.0).to(tl.float32)
        q = tl.floor(number * inverse + 0.5).to(tl.int32)
        sums += q
        if s % 2 == 0:
            even |= (q & 255) << (s // 2 * 8)
        else:
            odd |= (q & 255) << (s // 2 * 8)
    even, odd = tl.reshape(even, [1, 4 * GROUPS]), tl.reshape(odd, [1, 4 * GROUPS])
    x_scale = (top / 127)[None, :]
    x_sum = 8 * tl.sum(sums, 1).to(tl.float32)[None, :]
    by = tl.rsqrt(tl.sum(squares) / columns + epsilon) if NORM else 1.0

    for first in range(begin, end, BLOCK_N):
        n = first + tl.arange(0, BLOCK_N)
        next_held, next_scale = _rows_int4(words, scales, n + BLOCK_N, end, groups, GROUPS)
        if GATED:
            next_up, next_scale_up = _rows_int4(words, scales, rows + n + BLOCK_N, rows + end, groups, GROUPS)
        before = _before(bias, y, n, end, BIAS, ADDS, BLOCK_N)
        total = (_group_sums(held, even, odd, ASM) - x_sum) * (scale.to(tl.float32) * x_scale)
        found = tl.sum(total, 1) * by
        held, scale = next_held, next_scale
        if GATED:
            total = (_group_sums(held_up, even, odd, ASM) - x_sum) * (scale_up.to(tl.float32) * x_scale)
            found = found * tl.sigmoid(found) * (tl.sum(total, 1) * by)
            held_up, scale_up = next_up, next_scale_up
        tl.store(y + n, found + before, mask=n < end)


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
