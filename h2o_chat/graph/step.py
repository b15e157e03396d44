"""The `graph` step: a decoded token of every row on a GPU, captured once and replayed.

Between the embedding and the logits the host decides nothing: what differs from token to token stands in two
small tensors (`_Room.now`). Prompts are transformers' step; eviction is the cache's own.

Shapes: R rows, H KV heads, G query heads per KV head, S slots, D head size, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import triton
from torch import Tensor
from torch.nn import functional

from h2o_chat.cache.arena import Arena, addresses_of
from h2o_chat.cache.eviction import Due, Kernels, evict_rows, note_priority, rows_due
from h2o_chat.graph import attention_kernels as kernels
from h2o_chat.graph import launches, prompts
from h2o_chat.graph.captured import captured
from h2o_chat.graph.launches import product
from h2o_chat.graph.weights import LayerWeights, Weights
from h2o_chat.native.model_frame import Frame
from h2o_chat.native.slot_kernels import supports
from h2o_chat.policies import scores
from h2o_chat.transformers_cache.cache import H2OCache


class _Room:
    """Tensors that a token needs beside weights and slots, for R rows over S slots of a head. fp32."""

    def __init__(self, of: Frame, rows: int, slots: int, device: torch.device) -> None:
        heads, groups = of.kv_heads, of.heads // of.kv_heads
        self.splits = launches.splits(rows * heads, slots)

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        # [7, R] of each row: five numbers that `attention_kernels.attend` names; tokens fed; the token's id.
        self.now = zeros(7, rows, dtype=torch.int32)
        self.x = zeros(rows, of.hidden)  # [R, E] the residual stream
        self.qkv = zeros(rows, (of.heads + 2 * heads) * of.head_size)  # [R, (H * G + 2 * H) * D]
        self.attended = zeros(rows, of.heads * of.head_size)  # [R, H * G * D]
        self.hidden = zeros(rows, of.intermediate)
        self.out = zeros(rows, of.vocabulary)
        self.logits = zeros(rows, heads, groups, slots)  # [R, H, G, S] of attention
        self.most = zeros(rows, heads, self.splits, groups)  # [R, H, splits, G]
        self.total = zeros(rows, heads, self.splits, groups)
        self.outputs = zeros(rows, heads, self.splits, groups, of.head_size)


@dataclass
class _Eviction:
    """How slots are given up in all rows of an arena, after the first time."""

    replay: Callable[[], None] | None = None
    priority: Tensor | None = None  # [L, R, H, S], written by `replay`


class GraphStep:
    """Decodes with weights on one GPU, for the rows of one cache."""

    def __init__(self, weights: Weights, frame: Frame) -> None:
        self.weights, self.frame = weights, frame
        self.device = self.weights.embedding.device
        self.kernels = Kernels(partial(prompts.output_change, frame.head_size), prompts.attend)
        """A prompt attends through these, and slots are given up by them."""
        pairs = [torch.tensor(one.inv_freq, device=self.device) for one in frame.ropes]
        self._ropes = list(zip(pairs, (one.scale for one in frame.ropes), strict=True))
        self._tables: list[Tensor] = []
        """By rope: cosines and sines of every rotation index, for keys in bytes. [window, 2, D / 2]"""
        self._room: _Room | None = None
        self._addresses: tuple[int, ...] = ()  # The graphs below point to these
        self._tokens: dict[bool, Callable[[], None]] = {}  # By whether some key may be clamped
        self._evictions: dict[int, _Eviction] = {}  # By arena

    def computes(self, cache: H2OCache) -> bool:
        """Whether the kernels compute a decoded token of this cache: its slots are not of 4 bits, their
        number is fixed, and the kernels know how the policy's scores grow."""
        plan, arenas = cache.plan, cache.current_arenas()
        whole = sum(len(arena.layers) for arena in arenas) == self.frame.layers
        return supports(plan.policy) and whole and plan.bits in (None, 8) and plan.shares.bounded

    def captured(self, cache: H2OCache) -> bool:
        """Whether a token of this cache takes one launch: the first one is captured, which takes .1 s."""
        clamps = any(arena.clamps for arena in cache.current_arenas())
        return clamps in self._tokens and addresses_of(cache.current_arenas()) == self._addresses

    @torch.no_grad()
    def feed(self, cache: H2OCache, ids: Sequence[int] | Tensor) -> Tensor:
        """The prepared step, one token of each row. -> logits [R, 1, V] fp32, good until the next step

        Where `ids` are a tensor [R] on the device, the host need not know them.
        """
        assert cache.step is not None
        step, this_pass = cache.step, cache.step.passes[0]
        step.begun = True
        room = self._room_for(cache, len(ids))
        index = [at - clock.rope_origin for at, clock in zip(this_pass.first, cache.clocks, strict=True)]
        position = [at if count else -1 for at, count in zip(this_pass.first, this_pass.count, strict=True)]
        protected = [int(bool(which)) for which in this_pass.protected]
        prompt = [int(step.of_prompt)] * len(ids)
        known = [0] * len(ids) if isinstance(ids, Tensor) else ids
        numbers = [position, index, this_pass.in_use, prompt, protected, this_pass.seen, known]
        clamps = any(arena.clamps for arena in cache.current_arenas())
        if clamps not in self._tokens:
            room.now[:6] = -1  # padding, which changes no slot
            self._token(cache, room, clamps)
            self._tokens[clamps] = captured(lambda: self._token(cache, room, clamps), self.device)
        # From pinned memory nothing waits: the device may still be at the token before.
        given = torch.tensor(numbers, dtype=torch.int32, pin_memory=self.device.type == "cuda")
        room.now.copy_(given, non_blocking=True)
        if isinstance(ids, Tensor):
            room.now[6].copy_(ids.clamp_min(0))  # -1: there was none to choose
        self._tokens[clamps]()
        step.changed_slots = True
        for arena in cache.current_arenas():
            arena.windows = [self.frame.sees[layer] for layer in arena.layers]
            for due in rows_due(arena, this_pass):
                note_priority(arena, due, this_pass, self._evict(arena, room, due))
        for layer in cache.layers:
            layer.fed += 1
        return room.out[:, None]

    @torch.no_grad()
    def replay(self) -> None:
        """The last token once more, for who measures."""
        next(reversed(self._tokens.values()))()

    def _room_for(self, cache: H2OCache, rows: int) -> _Room:
        """Tensors for so many rows. Graphs are made anew where slots lie elsewhere."""
        addresses = addresses_of(cache.current_arenas())
        if self._room is None or addresses != self._addresses:
            self._tokens, self._evictions, self._room, self._addresses = {}, {}, None, addresses
            self._room = _Room(self.frame, rows, cache.current_arenas()[0].shape[3], self.device)
        return self._room

    def _evict(self, arena: Arena, room: _Room, due: Due) -> Tensor:
        """`eviction.evict_rows`: the first time as it is, then captured, where all rows are due together."""
        if not due.of_all:
            return evict_rows(arena, due, self.kernels)
        known = self._evictions.get(id(arena))
        if known is None:
            self._evictions[id(arena)] = _Eviction()
            return evict_rows(arena, due, self.kernels)
        if known.replay is None:
            fixed = Due(due.rows, room.now[5][:, None, None])

            def work() -> None:
                known.priority = evict_rows(arena, fixed, self.kernels)

            known.replay = captured(work, self.device)
        known.replay()
        assert known.priority is not None
        return known.priority

    def _token(self, cache: H2OCache, room: _Room, clamps: bool) -> None:
        """From the tokens in `room.now` to the logits in `room.out`; updates all slots and scores."""
        room.x.copy_(functional.embedding(room.now[6], self.weights.embedding))
        turns = [self._turn(room.now[1], number) for number in range(len(self._ropes))]
        assert cache.plan.distance is not None
        edge = torch.full((1,), cache.plan.distance.edge, dtype=torch.int32, device=self.device)
        far = [self._turn(edge, number) for number in range(len(self._ropes))]
        epsilon = self.frame.epsilon
        where = {layer: (a, at) for a in cache.current_arenas() for at, layer in enumerate(a.layers)}
        for number, weights in enumerate(self.weights.layers):
            rope = self.frame.rope_of[number]
            product(weights.qkv, room.x, room.qkv, weights.norm_attention, epsilon, bias=weights.bias_qkv)
            turn = (room.x, room.x) if rope is None else (turns[rope], far[rope])
            self._attend(cache, room, number, *where[number], weights, turn, clamps)
            product(weights.out, room.attended, room.x, adds=True)
            product(weights.gate_up, room.x, room.hidden, weights.norm_mlp, epsilon, gated=True)
            product(weights.down, room.hidden, room.x, adds=True)
        product(self.weights.head, room.x, room.out, self.weights.norm, epsilon)

    def _turn(self, index: Tensor, number: int) -> Tensor:
        """Cosines and sines of rotation indices [R]. [2, R, D / 2]"""
        inv_freq, scale = self._ropes[number]
        angle = index[:, None].float() * inv_freq
        return torch.stack((angle.cos(), angle.sin())) * scale

    def _table(self, rope: int, arena: Arena) -> Tensor:
        """`_tables` of a rope, made when the first keys in bytes are read; fp16 where keys have 16 bits."""
        if not self._tables:
            assert arena.plan.distance is not None
            index = torch.arange(arena.plan.distance.window, device=self.device, dtype=torch.float32)
            angles = [torch.outer(index, inv_freq) for inv_freq, _ in self._ropes]
            kind = torch.float32 if arena.layer_shape.dtype == torch.float32 else torch.float16
            self._tables = [torch.stack((one.cos(), one.sin()), 1).to(kind) for one in angles]
        return self._tables[rope]

    def _attend(
        self,
        cache: H2OCache,
        room: _Room,
        layer: int,
        arena: Arena,
        at: int,
        weights: LayerWeights,
        turn: tuple[Tensor, Tensor],
        clamps: bool,
    ) -> None:
        """`room.qkv` -> `room.attended`: in one layer the token goes into its slot and attends, and its
        probabilities are added to the scores."""
        of, states = self.frame, {name: state[at] for name, state in arena.slots.states.items()}
        rows, heads, slots = states["positions"].shape
        groups, splits = of.heads // of.kv_heads, room.splits
        sizes = {"ROWS": rows, "HEADS": heads, "GROUPS": groups, "SIZE": of.head_size}
        sizes |= {"SLOTS": slots, "SPLITS": splits}
        parts = room.logits, room.most, room.total, room.outputs
        unread, in_bytes, kind = room.x, arena.plan.bits == 8, arena.layer_shape.dtype
        few = slots <= splits * launches.SLOTS_AT_ONCE or kind == torch.float32
        distance, rope = cache.plan.distance, of.rope_of[layer]
        assert distance is not None
        kernels.attend[(rows * heads, splits)](
            *(room.qkv, room.now, *turn),
            *(unread if one is None else one for one in (weights.norm_query, weights.norm_key)),
            *(states["keys"], states["values"]),
            *(prompts.halves_of(states[name]) for name in ("keys", "values")),
            unread if rope is None or not in_bytes else self._table(rope, arena),
            *(states["positions"], arena.order[at]),
            *(states[name].view(torch.uint8) for name in ("prompt", "protected", "clamped")),
            *parts,
            of.epsilon,
            of.head_size**-0.5,
            1.0 if rope is None else self._ropes[rope][1],
            *(distance.nearer, distance.nearer_from),
            **sizes,
            HALF_P=max(16, triton.next_power_of_2(of.head_size // 2)),
            GROUPS_P=max(16, triton.next_power_of_2(groups)),
            BLOCK=launches.SLOTS_AT_ONCE // (2 if in_bytes and few else 1),
            num_warps=launches.BYTES_WARPS if in_bytes else 4,
            ROPE=rope is not None,
            HEAD_NORMS=weights.norm_query is not None,
            CLAMPS=clamps and arena.rope is not None,
            **launches.early(self.device),
            WINDOW=of.sees[layer] or 0,
            KIND=getattr(triton.language, str(kind).removeprefix("torch.")),
            BYTES=in_bytes,
            FARTHEST=distance.window,
        )
        kernels.receive[(rows * heads, splits)](
            *(room.now, *parts, room.attended, states["score"], states["lately"]),
            cache.plan.decay_factor,
            scores.LATELY_DECAY,
            **sizes,
            SPLITS_P=triton.next_power_of_2(splits),
            SIZE_P=triton.next_power_of_2(of.head_size),
            GROUPS_P=triton.next_power_of_2(groups),
            BLOCK=launches.slots_received(slots, splits, groups),
            OBSERVE=cache.plan.observe,
            **launches.early(self.device),
        )
