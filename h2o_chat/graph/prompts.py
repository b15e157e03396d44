"""A prompt's attention on a GPU (flash attention, then what each key received, from the log-sum-exp), and the
priority of `h2o` over all slots, for `cache/eviction.py`.

Shapes: L layers, R rows (r due), H KV heads, G query heads per KV head, S slots, N tokens, D head size.
"""

import math

import torch
import triton
from torch import Tensor

from h2o_chat.cache.arena import PassResult
from h2o_chat.cache.attention import Attended, LayerStep
from h2o_chat.cache.clock import Pass
from h2o_chat.cache.quantized import SCALE_BYTES
from h2o_chat.graph import ranking_kernels as kernels
from h2o_chat.policies.policies import Slots, output_change_of_heads
from h2o_chat.policies.scores import LATELY_DECAY, Received

LEAST_TOKENS = 512
"""Shorter passes are attended as fast by torch's products."""
FORGOTTEN = 1e-9
"""Queries whose weight in the score has fallen below this by the end of the prompt are left out."""


def attend(here: LayerStep, this_pass: Pass, queries: Tensor, keys: Tensor, values: Tensor) -> Attended:
    """`LayerStep.attended`, faster for the first pass of a conversation: nothing is held yet, so it is plain
    causal attention. Other passes go the usual way."""
    plan, used = here.arena.plan, here.arena.leading(this_pass)
    plain = here.window is None and here.softcap is None and type(plan.policy.scores) is Received
    half = queries.dtype in (torch.bfloat16, torch.float16) and queries.is_cuda
    long = this_pass.even and this_pass.tokens >= LEAST_TOKENS
    if used or not (plain and half and long) or plan.policy.grows:
        return LayerStep.attended(here, this_pass, queries, keys, values)
    rows, heads, groups, tokens, size = queries.shape

    def spread(stored: Tensor) -> Tensor:
        """[R, H, N, D] -> [R, H * G, N, D]"""
        return stored[:, :, None].expand(rows, heads, groups, tokens, size).flatten(1, 2)

    asked = queries.flatten(1, 2)
    output, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(
        asked, spread(keys), spread(values), 0.0, True, scale=here.scaling
    )
    gains = sums(asked, keys, lse[..., :tokens], here.scaling, plan.decay_factor)
    mine = {name: gains[name] for name in plan.grows}
    return output.view(rows, heads, groups, tokens, size), PassResult(keys, values, mine)


def sums(queries: Tensor, keys: Tensor, lse: Tensor, scaling: float, factor: float) -> dict[str, Tensor]:
    """Returns what a causal pass adds to `score` [R, H, N, G] and `lately` [R, H, N].

    Args:
        queries, keys: [R, H * G, N, D] and [R, H, N, D].
        lse: [R, H * G, N] fp32, log of the sum of exponentials of each query.
        factor: `Plan.decay_factor`.
    """
    rows, heads, tokens, size = keys.shape
    groups = queries.shape[1] // heads
    score, lately = (torch.empty(rows, heads, groups, tokens, device=keys.device) for _ in range(2))
    block, keeps = 64, max(factor, LATELY_DECAY)
    last = tokens if keeps == 1 else math.ceil(math.log(FORGOTTEN) / math.log(keeps))
    kernels.column_sums[(rows * heads * groups, triton.cdiv(tokens, block))](
        *(queries.contiguous(), keys.contiguous(), lse.contiguous(), score, lately, tokens),
        *(max(0, tokens - last), scaling),
        *(math.log2(factor), math.log2(LATELY_DECAY)),
        GROUPS=groups,
        SIZE=size,
        SIZE_P=max(16, triton.next_power_of_2(size)),
        BLOCK_K=block,
        BLOCK_Q=block,
    )
    return {"score": score.transpose(2, 3), "lately": lately.sum(2) * ((1 - LATELY_DECAY) / groups)}


BLOCK = 32
"""Slots that a program of `output_change` looks at together."""


def output_change(size: int, slots: Slots) -> Tensor:
    """`policies.output_change_of_heads`, of values of `size` numbers or so many bytes. [L, r, H, S]"""
    values, score = slots.states["values"], slots.score.contiguous()
    in_bytes = values.dtype == torch.uint8
    if values.dtype == torch.float64 or values.shape[-1] != size + SCALE_BYTES * in_bytes:
        return output_change_of_heads(slots)
    values = values if values[0].is_contiguous() else values.contiguous()  # but for the step between layers
    layers, rows, heads, count, groups = score.shape
    fourth = torch.empty_like(score)
    kernels.output_change[(layers * rows * heads, groups)](
        *(values, halves_of(values), score, fourth, values.stride(0), rows * heads, count),
        GROUPS=groups,
        SIZE=size,
        SIZE_P=triton.next_power_of_2(size),
        BLOCK=BLOCK,
        BYTES=in_bytes,
    )
    return fourth.sum(-1).sqrt().sqrt()


def halves_of(stored: Tensor) -> Tensor:
    """Slots in bytes as fp16, through which kernels read their scales; others as they are."""
    return stored.view(torch.float16) if stored.dtype == torch.uint8 else stored
