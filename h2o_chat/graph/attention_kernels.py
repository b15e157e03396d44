"""The Triton kernels of attention: read `attend`, then `receive`, with the paper at hand.

Attention returns the output and adds the probabilities to the scores, which no attention library does.
`step.py` launches these two for a token.

Shapes: R rows, H KV heads, G query heads per KV head, S slots, D head size. Numbers are added in fp32. Under
TRITON_INTERPRET=1 all of it runs on a CPU. EARLY: as `product_kernels.py` has it.

BYTES: slots are rows of D levels and 4 bytes of scale, keys before RoPE (`cache/quantized.py`). `halves` is
the same memory as fp16, through which the scales are read.
"""

import triton
import triton.language as tl

NOTHING = tl.constexpr(-1e30)
"""Below every logit, and not -inf: the difference of two of them is a number."""


@triton.jit
def _turned(first, second, turn, inside_d, d, FURTHER: tl.constexpr):
    """Both halves of heads [M, D / 2] turned (RoPE): cosines at `turn`, sines FURTHER on."""
    cos = tl.load(turn + d, mask=inside_d, other=0.0)
    sin = tl.load(turn + FURTHER + d, mask=inside_d, other=0.0)
    return first * cos - second * sin, second * cos + first * sin


@triton.jit
def _normalised(first, second, weights, inside_d, d, HALF: tl.constexpr, epsilon, size):
    """Both halves of heads [M, D / 2] after RMSNorm over D."""
    mean = (tl.sum(first * first, 1) + tl.sum(second * second, 1)) / size
    by = tl.rsqrt(mean + epsilon)[:, None]
    one = tl.load(weights + d, mask=inside_d, other=0.0).to(tl.float32)
    other = tl.load(weights + HALF + d, mask=inside_d, other=0.0).to(tl.float32)
    return first * by * one, second * by * other


@triton.jit
def _slots(
    keys, values, positions, base, s, end, slot, oldest, inside_d, d, SIZE: tl.constexpr, BYTES: tl.constexpr
):
    """Slots `s` of a head before `end`, but for `slot`: which are seen, halves of keys, halves of values."""
    inside = (s < end) & (s != slot)
    seen = tl.load(positions + base + s, mask=inside, other=-1) > oldest
    lies = (base + s)[:, None] * (SIZE + 4 * BYTES) + d[None, :]
    mask = inside[:, None] & inside_d[None, :]
    held1 = tl.load(keys + lies, mask=mask, other=0)
    held2 = tl.load(keys + lies + SIZE // 2, mask=mask, other=0)
    mask = mask & seen[:, None]
    value1 = tl.load(values + lies, mask=mask, other=0)
    value2 = tl.load(values + lies + SIZE // 2, mask=mask, other=0)
    return seen, held1, held2, value1, value2


@triton.jit
def scales(halves, slot, mask, SIZE: tl.constexpr):
    """Lowest number and step of rows of bytes; 0 where masked. fp16, [S] each"""
    at = halves + (slot * (SIZE + 4) + SIZE) // 2
    return tl.load(at, mask=mask, other=0.0), tl.load(at + 1, mask=mask, other=0.0)


@triton.jit
def dequantised(levels, low, step):
    """Levels [S, D / 2] as numbers, by scales [S]."""
    return low.to(tl.float32)[:, None] + levels.to(tl.float32) * step.to(tl.float32)[:, None]


@triton.jit
def _turned_to(first, second, index, table, inside_d, d, FARTHEST: tl.constexpr, SIZE: tl.constexpr):
    """Halves of stored keys [S, D / 2] turned to rotation indices [S], perhaps negative, by a table
    [FARTHEST, 2, D / 2] of cosines and sines."""
    at = tl.minimum(tl.abs(index), FARTHEST - 1).to(tl.int64)[:, None] * SIZE + d[None, :]
    cos = tl.load(table + at, mask=inside_d[None, :], other=0.0).to(tl.float32)
    sin = tl.load(table + at + SIZE // 2, mask=inside_d[None, :], other=0.0).to(tl.float32)
    sin = tl.where((index < 0)[:, None], -sin, sin)
    return first * cos - second * sin, second * cos + first * sin


@triton.jit
def _rounded(first, second, inside_d):
    """Levels of both halves of a row [1, D / 2], its lowest number and its step [1] in fp16: the bits that
    `quantized.quantise` gives."""
    inside_d = inside_d[None, :]
    low = tl.min(tl.where(inside_d, tl.minimum(first, second), float("inf")), 1)
    high = tl.max(tl.where(inside_d, tl.maximum(first, second), -float("inf")), 1)
    low = low.to(tl.float16)
    step = tl.div_rn(high - low.to(tl.float32), tl.full([1], 255.0, tl.float32)).to(tl.float16)
    grid = tl.where(step > 0, step.to(tl.float32), 1.0)[:, None]
    return _level(first, low, grid), _level(second, low, grid), low, step


@triton.jit
def _level(x, low, grid):
    """The nearest level, a tie to the even one: 2^23 + 2^22 has no bits after the point."""
    level = tl.div_rn(x - low.to(tl.float32)[:, None], tl.broadcast_to(grid, x.shape))
    return ((tl.minimum(tl.maximum(level, 0.0), 255.0) + 12582912.0) - 12582912.0).to(tl.uint8)


@triton.jit
def attend(
    qkv,  # [R, (H * G + 2 * H) * D], before norms and RoPE
    now,  # [5, R] int32: position (-1: padding), rotation index, slots in use, of a prompt, protected
    turn,  # [2, R, D / 2] cosines and sines of the rotation indices
    far_turn,  # [2, D / 2] those of the index from which queries meet clamped keys
    norm_query,
    norm_key,  # [D]
    keys,
    values,  # [R, H, S, D or bytes] of one layer
    key_halves,
    value_halves,  # the same; not read without BYTES
    table,  # [FARTHEST, 2, D / 2] cosines and sines by rotation index
    positions,
    order,  # [R, H, S] int32
    prompt,
    protected,
    clamped,  # [R, H, S] bytes
    logits,  # [R, H, G, S] fp32, written
    most,
    total,  # [R, H, splits, G] fp32, written
    outputs,  # [R, H, splits, G, D] fp32, written
    epsilon,
    scaling,
    key_scale,  # of stored keys: that of the cosines (YaRN)
    nearer,
    nearer_from,  # `distance.Distance`
    ROWS: tl.constexpr,
    HEADS: tl.constexpr,
    GROUPS: tl.constexpr,
    SIZE: tl.constexpr,
    SLOTS: tl.constexpr,
    SPLITS: tl.constexpr,
    HALF_P: tl.constexpr,  # D / 2, rounded up to a power of two, at least 16
    GROUPS_P: tl.constexpr,
    BLOCK: tl.constexpr,
    ROPE: tl.constexpr,
    HEAD_NORMS: tl.constexpr,
    CLAMPS: tl.constexpr,
    EARLY: tl.constexpr,
    WINDOW: tl.constexpr,  # tokens that a query sees; 0: all
    KIND: tl.constexpr,  # precision of keys and values in products
    BYTES: tl.constexpr,
    FARTHEST: tl.constexpr,
):
    """One token of each row into its empty slot, and its attention to a share of the slots of one KV head.

    The program whose share holds the empty slot writes the token there. Nobody reads that slot: the token's
    own logit comes from registers.
    """
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
    HALF: tl.constexpr = SIZE // 2
    head, split = tl.program_id(0), tl.program_id(1)  # of R * H
    row, h = head // HEADS, head % HEADS
    position = tl.load(now + row)
    in_use = tl.load(now + 2 * ROWS + row)
    slot = tl.load(order + head * SLOTS + tl.minimum(tl.maximum(in_use, 0), SLOTS - 1))

    d = tl.arange(0, HALF_P)
    inside_d = d < HALF
    share: tl.constexpr = (SLOTS + SPLITS - 1) // SPLITS
    begin = split * share
    end = tl.minimum(begin + share, SLOTS)
    base = head.to(tl.int64) * SLOTS
    oldest = tl.maximum(position - WINDOW, -1) if WINDOW > 0 else -1
    # No kernel of this token but this one writes to the layer's slots: they are read before the wait.
    s = begin + tl.arange(0, BLOCK)
    seen, held1, held2, value1, value2 = _slots(
        keys, values, positions, base, s, end, slot, oldest, inside_d, d, SIZE, BYTES
    )
    if EARLY:
        tl.extra.cuda.gdc_wait()
    g = tl.arange(0, GROUPS_P)
    width: tl.constexpr = (HEADS * GROUPS + 2 * HEADS) * SIZE
    here = qkv + row * width
    q_at = here + (h * GROUPS + g)[:, None] * SIZE + d[None, :]
    q_mask = (g < GROUPS)[:, None] & inside_d[None, :]
    q1 = tl.load(q_at, mask=q_mask, other=0.0).to(tl.float32)
    q2 = tl.load(q_at + HALF, mask=q_mask, other=0.0).to(tl.float32)
    k_at = here + (HEADS * GROUPS + h) * SIZE + d[None, :]
    k1 = tl.load(k_at, mask=inside_d[None, :], other=0.0).to(tl.float32)
    k2 = tl.load(k_at + HALF, mask=inside_d[None, :], other=0.0).to(tl.float32)
    v_at = here + (HEADS * GROUPS + HEADS + h) * SIZE + d[None, :]
    v1 = tl.load(v_at, mask=inside_d[None, :], other=0.0)
    v2 = tl.load(v_at + HALF, mask=inside_d[None, :], other=0.0)
    if HEAD_NORMS:
        q1, q2 = _normalised(q1, q2, norm_query, inside_d[None, :], d[None, :], HALF, epsilon, SIZE)
        k1, k2 = _normalised(k1, k2, norm_key, inside_d[None, :], d[None, :], HALF, epsilon, SIZE)
    far1, far2 = q1, q2
    zero = position - tl.load(now + ROWS + row)  # the position whose rotation index is 0
    if BYTES:  # the token attends to itself as it will be read later
        if ROPE:
            k1, k2 = k1 * key_scale, k2 * key_scale
        key_level1, key_level2, key_low, key_step = _rounded(k1, k2, inside_d)
        value_level1, value_level2, value_low, value_step = _rounded(v1, v2, inside_d)
        k1, k2 = dequantised(key_level1, key_low, key_step), dequantised(key_level2, key_low, key_step)
        v1 = dequantised(value_level1, value_low, value_step)
        v2 = dequantised(value_level2, value_low, value_step)
        if ROPE:
            k1, k2 = _turned_to(
                k1, k2, tl.full([1], position - zero, tl.int32), table, inside_d, d, FARTHEST, SIZE
            )
    if ROPE:
        if CLAMPS:
            far1, far2 = _turned(q1, q2, far_turn, inside_d[None, :], d[None, :], HALF)
        mine = turn + row * HALF
        q1, q2 = _turned(q1, q2, mine, inside_d[None, :], d[None, :], ROWS * HALF)
        if not BYTES:
            k1, k2 = _turned(k1, k2, mine, inside_d[None, :], d[None, :], ROWS * HALF)
    q1, q2, far1, far2 = q1.to(KIND), q2.to(KIND), far1.to(KIND), far2.to(KIND)
    k1, k2, v1, v2 = k1.to(KIND), k2.to(KIND), v1.to(KIND), v2.to(KIND)

    highest = tl.full([GROUPS_P], NOTHING, tl.float32)
    summed = tl.zeros([GROUPS_P], tl.float32)
    out1 = tl.zeros([GROUPS_P, HALF_P], tl.float32)
    out2 = tl.zeros([GROUPS_P, HALF_P], tl.float32)
    for first in range(begin, end, BLOCK):
        s = first + tl.arange(0, BLOCK)
        inside = (s < end) & (s != slot)
        if share > BLOCK:  # the next slots are on their way meanwhile
            next_seen, next1, next2, next_value1, next_value2 = _slots(
                keys, values, positions, base, s + BLOCK, end, slot, oldest, inside_d, d, SIZE, BYTES
            )
        if CLAMPS:
            is_far = tl.load(clamped + base + s, mask=inside, other=0) != 0
        key1, key2, number1, number2 = held1, held2, value1, value2
        if BYTES:
            low, step = scales(key_halves, base + s, inside, SIZE)
            key1, key2 = dequantised(held1, low, step), dequantised(held2, low, step)
            if ROPE:
                at = tl.load(positions + base + s, mask=inside, other=0)
                turned = at - zero
                if CLAMPS:
                    pinned = (tl.load(protected + base + s, mask=inside, other=0) != 0) & (at >= nearer_from)
                    turned = tl.where(is_far, tl.where(pinned, nearer, 0), turned)
                key1, key2 = _turned_to(key1, key2, turned, table, inside_d, d, FARTHEST, SIZE)
            low, step = scales(value_halves, base + s, seen, SIZE)
            number1 = dequantised(value1, low, step).to(KIND)
            number2 = dequantised(value2, low, step).to(KIND)
            key1, key2 = key1.to(KIND), key2.to(KIND)
        logit = tl.dot(q1, tl.trans(key1), input_precision="ieee")
        logit += tl.dot(q2, tl.trans(key2), input_precision="ieee")
        if CLAMPS:
            far = tl.dot(far1, tl.trans(key1), input_precision="ieee")
            far += tl.dot(far2, tl.trans(key2), input_precision="ieee")
            logit = tl.where(is_far[None, :], far, logit)
        logit = tl.where(seen[None, :], logit * scaling, NOTHING)
        into = (head * GROUPS + g)[:, None] * SLOTS + s[None, :]
        tl.store(logits + into, logit, mask=(g < GROUPS)[:, None] & inside[None, :])
        higher = tl.maximum(highest, tl.max(logit, 1))
        share_p = tl.where(seen[None, :], tl.exp(logit - higher[:, None]), 0.0)
        fades = tl.exp(highest - higher)
        summed = summed * fades + tl.sum(share_p, 1)
        share_p = share_p.to(KIND)
        out1 = out1 * fades[:, None] + tl.dot(share_p, number1, input_precision="ieee")
        out2 = out2 * fades[:, None] + tl.dot(share_p, number2, input_precision="ieee")
        highest = higher
        if share > BLOCK:
            seen, held1, held2, value1, value2 = next_seen, next1, next2, next_value1, next_value2

    if (slot >= begin) & (slot < end) & (position >= 0):
        logit = tl.sum(q1.to(tl.float32) * k1.to(tl.float32) + q2.to(tl.float32) * k2.to(tl.float32), 1)
        logit = logit * scaling
        tl.store(logits + (head * GROUPS + g) * SLOTS + slot, logit, mask=g < GROUPS)
        higher = tl.maximum(highest, logit)
        own, fades = tl.exp(logit - higher), tl.exp(highest - higher)
        summed = summed * fades + own
        out1 = out1 * fades[:, None] + own[:, None] * v1.to(tl.float32)
        out2 = out2 * fades[:, None] + own[:, None] * v2.to(tl.float32)
        highest = higher
        lies = (base + slot) * (SIZE + 4 * BYTES) + d[None, :]
        if BYTES:
            tl.store(keys + lies, key_level1, mask=inside_d[None, :])
            tl.store(keys + lies + HALF, key_level2, mask=inside_d[None, :])
            tl.store(values + lies, value_level1, mask=inside_d[None, :])
            tl.store(values + lies + HALF, value_level2, mask=inside_d[None, :])
            scale = ((base + slot) * (SIZE + 4) + SIZE) // 2 + tl.arange(0, 1)
            tl.store(key_halves + scale, key_low)
            tl.store(key_halves + scale + 1, key_step)
            tl.store(value_halves + scale, value_low)
            tl.store(value_halves + scale + 1, value_step)
        else:
            tl.store(keys + lies, k1, mask=inside_d[None, :])
            tl.store(keys + lies + HALF, k2, mask=inside_d[None, :])
            tl.store(values + lies, v1, mask=inside_d[None, :])
            tl.store(values + lies + HALF, v2, mask=inside_d[None, :])
        tl.store(positions + base + slot, position)
        tl.store(prompt + base + slot, tl.load(now + 3 * ROWS + row).to(tl.uint8))
        tl.store(protected + base + slot, tl.load(now + 4 * ROWS + row).to(tl.uint8))
    part = (head * SPLITS + split) * GROUPS + g
    tl.store(most + part, highest, mask=g < GROUPS)
    tl.store(total + part, summed, mask=g < GROUPS)
    o_at = outputs + part[:, None] * SIZE + d[None, :]
    tl.store(o_at, out1, mask=q_mask)
    tl.store(o_at + HALF, out2, mask=q_mask)


@triton.jit
def receive(
    now,  # as `attend` has it
    logits,
    most,
    total,
    outputs,
    attended,  # [R, H * G * D], written
    score,  # [R, H, S, G]
    lately,  # [R, H, S]
    decay_factor,
    lately_decay,
    ROWS: tl.constexpr,
    HEADS: tl.constexpr,
    GROUPS: tl.constexpr,
    SIZE: tl.constexpr,
    SLOTS: tl.constexpr,
    SPLITS: tl.constexpr,
    SPLITS_P: tl.constexpr,
    SIZE_P: tl.constexpr,
    GROUPS_P: tl.constexpr,
    BLOCK: tl.constexpr,
    OBSERVE: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Joins the shares that `attend` found, and adds the probabilities to the scores."""
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
    head, split = tl.program_id(0), tl.program_id(1)
    row = head // HEADS
    position = tl.load(now + row)
    g, splits = tl.arange(0, GROUPS_P), tl.arange(0, SPLITS_P)
    parts = (head * SPLITS + splits)[:, None] * GROUPS + g[None, :]
    mask = (splits < SPLITS)[:, None] & (g < GROUPS)[None, :]
    share: tl.constexpr = (SLOTS + SPLITS - 1) // SPLITS
    begin = split * share
    end = tl.minimum(begin + share, SLOTS)
    # Nobody else writes scores in this token: the first are read before the wait.
    s = begin + tl.arange(0, BLOCK)
    score_before, lately_before = _scores(score, lately, head, s, end, g, GROUPS, SLOTS, OBSERVE)
    if EARLY:
        tl.extra.cuda.gdc_wait()
    mine = tl.load(most + parts, mask=mask, other=NOTHING)  # [splits, G]
    highest = tl.max(mine, 0)
    weight = tl.where(mask, tl.exp(mine - highest[None, :]), 0.0)
    summed = tl.sum(tl.load(total + parts, mask=mask, other=0.0) * weight, 0)
    summed = tl.where(summed > 0, summed, 1.0)

    if split == 0:
        d = tl.arange(0, SIZE_P)
        o_mask = (g < GROUPS)[:, None] & (d < SIZE)[None, :]
        output = tl.zeros([GROUPS_P, SIZE_P], tl.float32)
        for one in tl.static_range(SPLITS):
            part = (head * SPLITS + one) * GROUPS + g
            fades = tl.exp(tl.load(most + part, mask=g < GROUPS, other=NOTHING) - highest)
            here = tl.load(outputs + part[:, None] * SIZE + d[None, :], mask=o_mask, other=0.0)
            output += here * fades[:, None]
        into = attended + (head * GROUPS + g)[:, None] * SIZE + d[None, :]
        tl.store(into, output / summed[:, None], mask=o_mask)

    if position >= 0:
        for first in range(begin, end, BLOCK):
            s = first + tl.arange(0, BLOCK)
            both = (s < end)[:, None] & (g < GROUPS)[None, :]  # [BLOCK, G]
            at = (head * GROUPS + g)[None, :] * SLOTS + s[:, None]
            logit = tl.load(logits + at, mask=both, other=NOTHING)
            found = tl.exp(logit - highest[None, :]) / summed[None, :]
            found = tl.where(both & (logit > NOTHING), found, 0.0)
            held = (head * SLOTS + s).to(tl.int64)
            into = score + held[:, None] * GROUPS + g[None, :]
            tl.store(into, score_before * decay_factor + found, mask=both)
            if OBSERVE:
                mean = tl.sum(found, 1) / GROUPS * (1 - lately_decay)
                tl.store(lately + held, lately_before * lately_decay + mean, mask=s < end)
            if share > BLOCK:
                s += BLOCK
                score_before, lately_before = _scores(score, lately, head, s, end, g, GROUPS, SLOTS, OBSERVE)


@triton.jit
def _scores(score, lately, head, s, end, g, GROUPS: tl.constexpr, SLOTS: tl.constexpr, OBSERVE: tl.constexpr):
    """Scores [S, G] of slots `s` of a head before `end`, and what they received lately [S]."""
    held = (head * SLOTS + s).to(tl.int64)
    both = (s < end)[:, None] & (g < GROUPS)[None, :]
    received = tl.load(score + held[:, None] * GROUPS + g[None, :], mask=both, other=0.0)
    recent = tl.load(lately + held, mask=(s < end) & OBSERVE, other=0.0)
    return received, recent
