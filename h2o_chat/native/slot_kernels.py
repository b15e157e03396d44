"""Computations over all slots in the library, for the native and the transformers step.

Shapes: L layers, R rows of which r are due, N tokens, H KV heads, G query heads per KV head, S slots, D head
size.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from h2o_chat.base.errors import OutOfMemoryError
from h2o_chat.cache.arena import PassResult
from h2o_chat.cache.attention import Attended, LayerStep
from h2o_chat.cache.clock import Pass
from h2o_chat.cache.eviction import TORCH, Kernels
from h2o_chat.cache.quantized import BITS, SCALE_BYTES
from h2o_chat.cache.rope import Rope
from h2o_chat.models.fits import Sizes
from h2o_chat.native import library as c
from h2o_chat.policies import scores
from h2o_chat.policies.policies import Policy, Slots, output_change_of_heads


class SlotKernels:
    def __init__(self, model: c.Model, head_size: int) -> None:
        self.model, self._head_size = model, head_size

    @property
    def kernels(self) -> Kernels:
        return Kernels(self.output_change, self.attend)

    def output_change(self, slots: Slots) -> Tensor:
        """See `policies.output_change_of_heads`; the values may be rows of a larger tensor. [L, r, H, S]"""
        changes = torch.empty(slots.positions.shape, dtype=torch.float32)
        layers, rows, heads, count = changes.shape
        values = slots.states["values"]
        values = values.float() if values.dtype.is_floating_point else values  # else they are bytes
        exact, bytes_ = values.dtype.is_floating_point, values.shape[4]
        checked(
            self.model.library.h2o_change(
                self.model.at,
                layers,
                rows,
                values.stride(0) // (heads * count * bytes_),
                count,
                0 if exact else 8 * (bytes_ - SCALE_BYTES) // self._head_size,
                *(tensor.data_ptr() for tensor in (slots.score, values, changes)),
            )
        )
        return changes

    def attend(
        self, here: LayerStep, this_pass: Pass, queries: Tensor, keys: Tensor, values: Tensor
    ) -> Attended:
        """`LayerStep.attended` in fp32: queries [R, H, G, N, D] to slots, keys and values [R, H, N, D]."""
        arena, distance = here.arena, here.arena.plan.distance
        rows, heads, groups, tokens, size = queries.shape
        slots, most_used = arena.slots, arena.leading(this_pass)
        # Until something is evicted, slots are filled from the first on.
        ages = zip(this_pass.first, this_pass.in_use, strict=True)
        used = [in_use if first == in_use else most_used for first, in_use in ages]
        asking, new_keys, new_values = map(_side_by_side, (queries, keys, values))
        if new_values.stride() != new_keys.stride():
            new_keys, new_values = new_keys.contiguous(), new_values.contiguous()
        held_keys = arena.held_keys(here.at).float()  # [R, H, S, D]
        held_values = arena.held_values(here.at).float()
        attended = torch.empty(rows, heads, groups, tokens, size, dtype=torch.float32)
        gain = torch.empty(rows, heads, groups, most_used + tokens, dtype=torch.float32)
        lately = torch.empty_like(gain) if arena.plan.observe else None
        origins = arena.rope_origin.tolist()
        assert distance is not None
        asked = c.Pass(
            layer=arena.layers[here.at],
            rows=rows,
            tokens=tokens,
            slots=arena.shape[3],
            most_used=most_used,
            clamps=arena.clamps,
            edge=distance.edge,
            decay_factor=arena.plan.decay_factor,
            lately_decay=scores.LATELY_DECAY,
            used=c.int32s(used),
            first=c.int32s(this_pass.first),
            count=c.int32s(this_pass.count),
            index=c.int32s([first - origin for first, origin in zip(this_pass.first, origins, strict=True)]),
            queries=asking.data_ptr(),
            keys=new_keys.data_ptr(),
            values=new_values.data_ptr(),
            query_row=asking.stride(0),
            query_head=asking.stride(2 if groups > 1 else 1),  # a view has any stride where G is 1
            query_token=asking.stride(3),
            key_row=new_keys.stride(0),
            key_head=new_keys.stride(1),
            key_token=new_keys.stride(2),
            held_keys=held_keys.data_ptr(),
            held_values=held_values.data_ptr(),
            positions=slots.positions[here.at].data_ptr(),
            clamped=slots.clamped[here.at].data_ptr(),
            attended=attended.data_ptr(),
            gain=gain.data_ptr(),
            lately=None if lately is None else lately.data_ptr(),
        )
        checked(self.model.library.h2o_attend(self.model.at, ctypes.byref(asked)))
        gains = {"score": gain.transpose(2, 3)} | ({} if lately is None else {"lately": lately.sum(2)})
        return attended.to(queries.dtype), PassResult(keys, values, gains)


class SlotKernelsAlone(SlotKernels):
    """The kernels without weights, for the transformers step. Raises OutOfMemoryError if there is no memory.

    They run in torch's threads, which are awake, or in one thread if torch's are not known
    (`library.lender`).
    """

    def __init__(self, sizes: Sizes, ropes: Sequence[Rope | None]) -> None:
        different = list({id(rope): rope for rope in ropes if rope is not None}.values())
        number = {id(rope): at for at, rope in enumerate(different)}
        self._sizes, turnings = sizes, ropes_of([(rope.inv_freq.tolist(), 1.0) for rope in different])
        frame = c.Frame(
            layer_count=len(ropes),
            rope_count=len(different),
            heads=sizes.heads,
            kv_heads=sizes.kv_heads,
            head_size=sizes.head_size,
            layers=(c.Layer * len(ropes))(*(c.Layer(rope=number.get(id(rope), -1)) for rope in ropes)),
            ropes=turnings,
        )
        lender = c.lender()
        super().__init__(c.Model(frame, form=0, threads=1, keep=[turnings, lender]), sizes.head_size)
        checked(not self.model.at)
        if lender is not None:
            threads = torch.get_num_threads()
            checked(self.model.library.h2o_borrow(self.model.at, ctypes.byref(lender), threads))

    def output_change(self, slots: Slots) -> Tensor:
        return super().output_change(slots) if self._fits(slots) else output_change_of_heads(slots)

    def attend(
        self, here: LayerStep, this_pass: Pass, queries: Tensor, keys: Tensor, values: Tensor
    ) -> Attended:
        plain = here.softcap is None and here.window is None and here.sink is None
        plain = plain and here.scaling == keys.shape[3] ** -0.5
        attend = super().attend if plain and self._fits(here.arena.slots) else LayerStep.attended
        return attend(here, this_pass, queries, keys, values)

    def _fits(self, slots: Slots) -> bool:
        """Whether these layers are on the CPU and have the configuration's sizes: not all families' do."""
        values, size = slots.states["values"], self._sizes.head_size
        if "keys" in slots.states and slots.keys.shape[4] != values.shape[4]:
            return False
        exact = values.dtype.is_floating_point
        sizes = [size] if exact else [size * bits // 8 + SCALE_BYTES for bits in BITS.values()]
        heads = slots.score.shape[2], slots.score.shape[4] * slots.score.shape[2]
        known = self._sizes.kv_heads, self._sizes.heads
        return values.device.type == "cpu" and values.shape[4] in sizes and heads == known


def slot_kernels(sizes: Sizes, ropes: Sequence[Rope | None], dtype: torch.dtype) -> Kernels:
    """Kernels for the transformers step on a CPU: the library's, or torch's if that lacks the rotation."""
    known = (
        dtype != torch.float64
        and sizes.head_size % 16 == 0
        and not any(rope is not None and rope.interleaved for rope in ropes)
    )
    return SlotKernelsAlone(sizes, ropes).kernels if known and c.library() else TORCH


def supports(policy: Policy) -> bool:
    """Whether the library maintains all states that a policy ranks by; if not, torch computes attention."""
    return type(policy.scores) is scores.Received and not policy.looks_at


def ropes_of(turnings: Sequence[tuple[Sequence[float], float]]) -> Any:
    """An array of at least one `Rope`, from (radians per position of the pairs, factor) each."""
    ropes = (c.Rope * max(1, len(turnings)))()
    for rope, (inv_freq, scale) in zip(ropes, turnings, strict=False):
        rope.inv_freq = (ctypes.c_float * len(inv_freq))(*inv_freq)
        rope.pairs, rope.scale = len(inv_freq), scale
    return ropes


def _side_by_side(numbers: Tensor) -> Tensor:
    """`numbers` in fp32, with contiguous components of a head."""
    numbers = numbers.float()
    return numbers if numbers.stride(-1) == 1 else numbers.contiguous()


def checked(failed: int) -> None:
    """Raises OutOfMemoryError if a call of the library had no memory for it."""
    if failed:
        raise OutOfMemoryError("There is no memory for the native step's buffers.", "Use a smaller --chunk.")
