"""The native step: tokens in, logits out, the cache updated, with weights of 4 to 8 bits.

A decoded token is one call of the library, which writes keys and values into the arena's slots and adds
probabilities to their scores. A prompt goes layer by layer: matrix products in the library, attention and
eviction through `cache/attention.py`.

Shapes: R rows, N tokens of a row, H KV heads, G query heads per KV head, D head size, V vocabulary.
"""

import ctypes
from typing import Any

import torch
from torch import Tensor

from h2o_chat.base.errors import UsageError
from h2o_chat.cache.arena import Shape, addresses_of
from h2o_chat.cache.eviction import evict_full_rows
from h2o_chat.native import library as c
from h2o_chat.native.gguf_weights import GgufWeights
from h2o_chat.native.layout import MatrixAddress, Vector, layer_parts
from h2o_chat.native.packed import Packed
from h2o_chat.native.slot_kernels import SlotKernels, checked, ropes_of, supports
from h2o_chat.native.threads import one_torch_thread
from h2o_chat.policies import scores
from h2o_chat.transformers_cache.attention_function import through_slots
from h2o_chat.transformers_cache.cache import H2OCache
from h2o_chat.transformers_cache.ready import begin_first, make_slots

GPT_OSS_ALPHA, GPT_OSS_LIMIT = 1.702, 7.0
"""Files do not say them; llama.cpp and transformers take these."""

SAME = (
    *("hidden", "heads", "kv_heads", "head_size", "vocabulary", "experts", "chosen", "shares_add_up"),
    *("epsilon", "embedding_scale", "residual_scale", "attention_scale", "attention_cap", "logits_cap"),
)
"""Fields that the library's frame has under the same names."""

FORMS = {"": 0, **{name: bit for bit, name in c.FORMS.items()}}


class NativeStep:
    """A model whose weights lie in tiles, computed in one of `library.forms()`; "" for the fastest.

    Raises UsageError if there is no library, or this processor lacks that instruction set.
    """

    def __init__(self, packed: Packed | GgufWeights, threads: int, form: str = "") -> None:
        loaded = c.library()
        if loaded is None:
            raise UsageError(f"There is no native step: {c.why_not()}.", "Use --engine transformers.")
        self.library, self.packed, self.frame = loaded, packed, packed.frame
        keep: list[Any] = [packed]
        model = c.Model(_frame_of(packed, keep), FORMS[form], threads, keep)
        if not model.at:
            raise UsageError(f"The native step cannot run as {form or 'any form'} here.", "Leave it out.")
        self._model, self.slot_kernels = model.at, SlotKernels(model, self.frame.head_size)
        self.form = c.FORMS[loaded.h2o_form(self._model)]
        self.description = f"{self.form}; {packed.note}" if packed.note else self.form
        """For people: the instruction set, and why weights had to be packed again."""
        self._pointers: tuple[int, ...] = ()
        self._slots: Any = (c.Slots * self.frame.layers)()
        names = [f"layers.{layer}.sinks" for layer in range(self.frame.layers)] if self.frame.gpt_oss else []
        raw = [ctypes.string_at(packed.vector(name), 4 * self.frame.heads) for name in names]
        self._sinks = [torch.frombuffer(bytearray(one), dtype=torch.float32) for one in raw]

    @torch.inference_mode()
    def feed(self, cache: H2OCache, ids: Tensor, *, all_columns: bool) -> Tensor:
        """Computes the prepared step: tokens [R, N] in, logits [R, 1 or N, V] out.

        Raises:
            UsageError: a token that the model does not have.
            OutOfMemoryError: no memory for the library's buffers.
        """
        lowest, highest = map(int, ids.aminmax())
        if not 0 <= lowest <= highest < self.frame.vocabulary:
            raise UsageError(
                f"The token {lowest if lowest < 0 else highest:,} is none of the model's"
                f" {self.frame.vocabulary:,}.",
                "Use the tokenizer that belongs to the model.",
            )
        assert cache.step is not None
        cache.step.absorb_context = one_torch_thread  # torch's share is too small to divide
        if supports(cache.plan.policy):
            cache.step.kernels = self.slot_kernels.kernels
        with one_torch_thread():
            if not cache.arenas_as_they_are:
                self._make_slots(cache, len(ids))
            whole = sum(len(arena.layers) for arena in cache.current_arenas()) == self.frame.layers
            if ids.shape[1] == 1 and whole and supports(cache.plan.policy):
                return self._decode(cache, ids)
            return self._layer_by_layer(cache, ids, all_columns)

    def _make_slots(self, cache: H2OCache, rows: int) -> None:
        """Creates the slots of all layers together before the first step."""
        begin_first(cache, rows)
        heads, size = self.frame.kv_heads, self.frame.head_size
        shape = Shape(rows, heads, self.frame.heads // heads, size, size, torch.float32, torch.device("cpu"))
        alike: dict[int, list[int]] = {}
        for layer in range(self.frame.layers):
            alike.setdefault(id(cache.rope(layer)), []).append(layer)
        for layers in alike.values():
            make_slots(cache, layers, shape)

    def _decode(self, cache: H2OCache, ids: Tensor) -> Tensor:
        """One token per row [R, 1] in one call of the library; then rows without an empty slot evict."""
        assert cache.step is not None
        assert cache.plan.distance is not None
        distance = cache.plan.distance
        this_pass, rows = cache.step.passes[0], len(ids)
        cache.step.begun = True
        self._point_to_slots(cache, cache.current_arenas()[0].leading(this_pass, more=1))
        index = [at - clock.rope_origin for at, clock in zip(this_pass.first, cache.clocks, strict=True)]
        position = [at if count else -1 for at, count in zip(this_pass.first, this_pass.count, strict=True)]
        before = [one.rope_origin - one.clamped_below for one in cache.clocks]  # the oldest unclamped key
        farthest = max(distance.nearer, *index, *before)
        logits = torch.empty(rows, 1, self.frame.vocabulary, dtype=torch.float32)
        step = c.Step(
            rows=rows,
            of_prompt=cache.step.of_prompt,
            clamps=any(arena.clamps for arena in cache.current_arenas()),
            kv_bits=cache.plan.bits or 0,
            farthest=min(farthest, distance.window),
            nearer=distance.nearer,
            nearer_from=distance.nearer_from,
            decay_factor=cache.plan.decay_factor,
            lately_decay=scores.LATELY_DECAY,
            ids=(ctypes.c_int64 * rows)(*ids[:, 0].tolist()),
            positions=c.int32s(position),
            index=c.int32s(index),
            edge=c.int32s([distance.edge - at for at in index]),
            in_use=c.int32s(this_pass.in_use),
            protect=(ctypes.c_uint8 * rows)(*map(bool, this_pass.protected)),
            slots=self._slots,
        )
        checked(self.library.h2o_decode(self._model, ctypes.byref(step), logits.data_ptr()))
        cache.step.changed_slots = True
        for arena in cache.current_arenas():  # a restored arena does not know its sliding windows yet
            arena.windows = [self.frame.sees[layer] for layer in arena.layers]
            evict_full_rows(arena, this_pass, cache.step.kernels)
        for layer in cache.layers:
            layer.fed += 1
        return logits

    def _layer_by_layer(self, cache: H2OCache, ids: Tensor, all_columns: bool) -> Tensor:
        """Any number of tokens per row [R, N], any policy."""
        frame, run, model = self.frame, self.library, self._model
        rows, columns = ids.shape
        tokens, size = rows * columns, frame.head_size
        assert cache.step is not None
        index = cache.position_ids().expand(rows, -1).to(torch.int32).contiguous()
        ids = ids.contiguous()
        checked(run.h2o_turns(model, tokens, index.data_ptr()))
        x = torch.empty(rows, columns, frame.hidden, dtype=torch.float32)
        checked(run.h2o_embed(model, tokens, ids.data_ptr(), x.data_ptr()))
        for layer in range(frame.layers):
            queries = torch.empty(rows, columns, frame.heads, size, dtype=torch.float32)
            keys, values = (
                torch.empty(rows, columns, frame.kv_heads, size, dtype=torch.float32) for _ in range(2)
            )
            into = [made.data_ptr() for made in (x, queries, keys, values)]
            checked(run.h2o_before(model, layer, tokens, *into))
            handoff, _ = cache.update(keys.transpose(1, 2), values.transpose(1, 2), layer)
            sink = self._sinks[layer] if frame.gpt_oss else None
            attended = through_slots(
                queries.transpose(1, 2),
                handoff,
                scaling=frame.attention_scale or None,
                window=frame.sees[layer],
                softcap=frame.attention_cap or None,
                sink=sink,
            )
            if layer == frame.layers - 1 and not all_columns:  # only the last column is needed
                attended, x = attended[:, -1:].contiguous(), x[:, -1:].contiguous()
                tokens = rows
            checked(run.h2o_after(model, layer, tokens, attended.data_ptr(), x.data_ptr()))
        logits = torch.empty(rows, x.shape[1], frame.vocabulary, dtype=torch.float32)
        checked(run.h2o_head(model, tokens, x.data_ptr(), logits.data_ptr()))
        return logits

    def _point_to_slots(self, cache: H2OCache, used: int) -> None:
        """Updates the addresses of all slots, whose tensors are replaced when slots are added or restored."""
        pointers = addresses_of(cache.current_arenas())
        if pointers != self._pointers:
            self._pointers = pointers
            for arena in cache.current_arenas():
                for at, layer in enumerate(arena.layers):
                    self._slots[layer] = _slots_of(arena, at, cache.plan.observe)
        for slots in self._slots:
            slots.used = used


def _frame_of(packed: Packed | GgufWeights, keep: list[Any]) -> c.Frame:
    """The frame with the addresses of its weights; `keep` gets the other objects that it points to."""
    frame = packed.frame
    layers = (c.Layer * frame.layers)()
    whole = {"norm_query": "norm_queries", "norm_key": "norm_keys"} if frame.whole_norms else {}
    for number, layer in enumerate(layers):
        name = f"layers.{number}."
        for at, one in enumerate(packed.matrices(name + "qkv")):
            layer.qkv[at] = _matrix_of(one)
        layer.out = _matrix_of(*packed.matrices(name + "out"))
        experts = [_mlp_of(packed, name + one) for one in frame.mlps]
        layer.mlp = (c.Mlp * len(experts))(*experts)
        for part in layer_parts(frame, "", ""):
            if isinstance(part, Vector) and hasattr(c.Layer, part.name):
                setattr(layer, whole.get(part.name, part.name), packed.vector(name + part.name))
        rope, sees = frame.rope_of[number], frame.sees[number]
        layer.rope, layer.sees = -1 if rope is None else rope, sees or 0
    ropes = ropes_of([(one.inv_freq, one.scale) for one in frame.ropes])
    keep += [layers, ropes]
    return c.Frame(
        layer_count=frame.layers,
        rope_count=len(frame.ropes),
        gelu=frame.gemma,
        alpha=GPT_OSS_ALPHA if frame.gpt_oss else 0,
        limit=GPT_OSS_LIMIT,
        layers=layers,
        ropes=ropes,
        norm=packed.vector("norm"),
        embedding=_matrix_of(*packed.matrices("embedding")),
        head=_matrix_of(*packed.matrices("embedding" if frame.tied else "head")),
        **{name: getattr(frame, name) for name in SAME},
    )


def _mlp_of(packed: Packed | GgufWeights, name: str) -> c.Mlp:
    gate_up, *up = (_matrix_of(one) for one in packed.matrices(name + "gate_up"))
    biases = ("bias_gate", "bias_up", "bias_down") if packed.frame.gpt_oss else ()
    down = _matrix_of(*packed.matrices(name + "down"))
    return c.Mlp(gate_up, up[0] if up else c.Matrix(), down, *(packed.vector(name + one) for one in biases))


def _matrix_of(one: MatrixAddress) -> c.Matrix:
    return c.Matrix(one.weights, one.scales, one.rows, one.columns, one.kind)


def _slots_of(arena: Any, at: int, observe: bool) -> c.Slots:
    states = ["keys", "values", "positions", "score", "prompt", "clamped", *(["lately"] if observe else [])]
    where = {name: arena.slots.states[name][at].data_ptr() for name in states}
    protect = arena.slots.states["protected"][at].data_ptr()
    return c.Slots(protect=protect, order=arena.order[at].data_ptr(), slots=arena.shape[3], **where)
