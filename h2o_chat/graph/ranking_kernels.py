"""The Triton kernels of ranking: what a prompt's keys received, and what the output loses with a slot.

`prompts.py` launches them. Shapes and BYTES: as `attention_kernels.py` has them.
"""

import triton
import triton.language as tl

from h2o_chat.graph.attention_kernels import dequantised, scales


@triton.jit
def column_sums(
    queries,  # [R * H * G, N, D]
    keys,  # [R * H, N, D]
    lse,  # [R * H * G, N] fp32
    score,  # [R * H * G, N], written
    lately,  # [R * H * G, N], written
    tokens,
    since,  # queries before this are forgotten
    scaling,
    log2_decay_factor,
    log2_lately_decay,
    GROUPS: tl.constexpr,
    SIZE: tl.constexpr,
    SIZE_P: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_Q: tl.constexpr,
):
    """Sums by key and query head what a causal prompt gave to it, forgotten up to the prompt's end.

    The probabilities come from the log-sum-exp of the attention before it: no N x N matrix is held.
    """
    head = tl.program_id(0)
    first = tl.program_id(1) * BLOCK_K
    j, d = first + tl.arange(0, BLOCK_K), tl.arange(0, SIZE_P)
    k_base = (head // GROUPS).to(tl.int64) * tokens
    q_base = head.to(tl.int64) * tokens
    mask = (j < tokens)[:, None] & (d < SIZE)[None, :]
    k = tl.load(keys + (k_base + j)[:, None] * SIZE + d[None, :], mask=mask, other=0.0)
    kept = tl.zeros([BLOCK_K, BLOCK_Q], tl.float32)
    recent = tl.zeros([BLOCK_K, BLOCK_Q], tl.float32)
    for start in range(tl.maximum(first, since) // BLOCK_Q * BLOCK_Q, tokens, BLOCK_Q):
        i = start + tl.arange(0, BLOCK_Q)
        mask = (i < tokens)[:, None] & (d < SIZE)[None, :]
        q = tl.load(queries + (q_base + i)[:, None] * SIZE + d[None, :], mask=mask, other=0.0)
        norm = tl.load(lse + q_base + i, mask=i < tokens, other=0.0)
        logit = tl.dot(k, tl.trans(q), input_precision="ieee") * scaling  # [BLOCK_K, BLOCK_Q]
        sees = (i[None, :] >= j[:, None]) & (i < tokens)[None, :]
        found = tl.where(sees, tl.exp(logit - norm[None, :]), 0.0)
        later = (tokens - 1 - i).to(tl.float32)
        kept += found * tl.exp2(later * log2_decay_factor)[None, :]
        recent += found * tl.exp2(later * log2_lately_decay)[None, :]
    tl.store(score + q_base + j, tl.sum(kept, 1), mask=j < tokens)
    tl.store(lately + q_base + j, tl.sum(recent, 1), mask=j < tokens)


@triton.jit
def _values(values, halves, begin, s, slots, d, SIZE: tl.constexpr, BYTES: tl.constexpr):
    """Values of slots `s` of the head whose numbers begin at `begin`. fp32, [S, D]"""
    mask = (s < slots)[:, None] & (d < SIZE)[None, :]
    value = tl.load(values + begin + s[:, None] * (SIZE + 4 * BYTES) + d[None, :], mask=mask, other=0)
    if BYTES:
        low, step = scales(halves + begin // 2, s, s < slots, SIZE)
        value = tl.where(mask, dequantised(value, low, step), 0.0)
    return value.to(tl.float32)


@triton.jit
def output_change(
    values,  # [L, R * H, S, D or bytes], layers `layer_step` numbers apart
    halves,  # the same; not read without BYTES
    score,  # [L, R * H, S, G] fp32
    fourth,  # [L, R * H, S, G] fp32, written
    layer_step,
    heads,  # R * H
    slots,
    GROUPS: tl.constexpr,
    SIZE: tl.constexpr,
    SIZE_P: tl.constexpr,
    BLOCK: tl.constexpr,
    BYTES: tl.constexpr,
):
    """Fourth power of how far a query head's output moves without a slot."""
    head, g = tl.program_id(0).to(tl.int64), tl.program_id(1)
    d = tl.arange(0, SIZE_P)
    begin = head // heads * layer_step + (head % heads) * slots * (SIZE + 4 * BYTES)
    totals = tl.zeros([BLOCK], tl.float32)
    outputs = tl.zeros([BLOCK, SIZE_P], tl.float32)
    for first in range(0, slots, BLOCK):
        s = first + tl.arange(0, BLOCK)
        given = tl.load(score + (head * slots + s) * GROUPS + g, mask=s < slots, other=0.0)
        value = _values(values, halves, begin, s, slots, d, SIZE, BYTES)
        totals += given
        outputs += given[:, None] * value
    total = tl.maximum(tl.sum(totals), 1.17549435e-38)
    output = tl.sum(outputs, 0) / total
    length = tl.sum(output * output)
    for first in range(0, slots, BLOCK):
        s = first + tl.arange(0, BLOCK)
        at = (head * slots + s) * GROUPS + g
        share = tl.load(score + at, mask=s < slots, other=0.0) / total
        value = _values(values, halves, begin, s, slots, d, SIZE, BYTES)
        squares = tl.sum(value * value, 1) + length - 2 * tl.sum(value * output[None, :], 1)
        change = share / tl.maximum(1 - share, 1.1920929e-07) * tl.sqrt(tl.maximum(squares, 0.0))
        tl.store(fourth + at, change * change * change * change, mask=s < slots)
