"""Attention to the slots, one layer at a time: mask by position, attend, add to the scores.

Shapes: R rows, H KV heads, G query heads per KV head, N new tokens, B of them a block, S slots, D head size.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from h2o_chat.cache.absorb import absorb, add_shared, queue_last_pass
from h2o_chat.cache.arena import Arena, PassResult
from h2o_chat.cache.clock import Pass
from h2o_chat.cache.eviction import evict_full_rows
from h2o_chat.cache.forward_call import Cancelled, Step

Angles = tuple[Tensor, Tensor]  # cosines and signed sines, for `Rope.turn`

BLOCK = 256  # queries of one pass that attend together

Attended = tuple[Tensor, PassResult]  # output of a pass, [R, H, G, N, D]; its keys, values and gains
Attend = Callable[["LayerStep", Pass, Tensor, Tensor, Tensor], Attended]  # the type of `LayerStep.attended`


@dataclass(frozen=True)
class LayerStep:
    """Attention of one layer to its slots."""

    arena: Arena
    at: int  # index of the layer in the arena
    scaling: float
    softcap: float | None
    sink: Tensor | None = None  # logits of a token without a value, [H, G, 1, 1]

    @property
    def window(self) -> int | None:
        """Positions that a query sees, itself included; None: all before it."""
        return self.arena.windows[self.at]

    def logits(
        self, queries: Tensor, keys: Tensor, empty: Tensor, when: Tensor, edge: Angles | None
    ) -> Tensor:
        """[R, H, G, N, D], [R, H, T + M, D] -> [R, H, G, N, T + M]; keys of T slots, then of M new tokens.

        Args:
            empty: [R, H, T] which slots are empty.
            when: [R, N] positions of the queries.
            edge: angles that turn the queries to `Distance.edge`, if some keys are clamped.
        """
        logits, used = self.products(queries, keys), empty.shape[2]
        if not used:
            return logits
        slots, held, unseen = self.arena.slots, logits[..., :used], empty[:, :, None, None]
        if edge is not None:
            assert self.arena.rope is not None
            far = self.products(self.arena.rope.turn(queries, *edge), keys[:, :, :used])
            torch.where(slots.clamped[self.at, :, :, None, None, :used], far, held, out=held)
        if self.window is not None:
            visible = self.arena.visible_from(self.at, when)[:, None, None, :, None]  # [R, 1, 1, N, 1]
            unseen = unseen | (slots.positions[self.at, :, :, None, None, :used] < visible)
        held.masked_fill_(unseen, -torch.inf)
        return logits

    def products(self, queries: Tensor, keys: Tensor) -> Tensor:
        """[R, H, G, N, D], [R, H, S, D] -> [R, H, G, N, S] in fp32 (fp64 for fp64)."""
        overflows = queries.dtype == torch.float16  # its maximum is 65,504: scale before the product
        if overflows:
            queries = queries * self.scaling
        logits = queries.flatten(2, 3) @ keys.transpose(-1, -2)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if not overflows:
            logits = logits * self.scaling
        if self.softcap is not None:
            logits = self.softcap * torch.tanh(logits / self.softcap)
        return logits.view(*queries.shape[:-1], -1)

    def softmax(self, logits: Tensor, out: Tensor | None = None) -> Tensor:
        """Probabilities of logits [R, H, G, N, S]; those of the sink, if there is one, are left out."""
        found = torch.softmax(logits, -1, out=out)
        if self.sink is not None:
            found *= torch.sigmoid(logits.logsumexp(-1, keepdim=True) - self.sink)
        return found

    def decode(
        self, step: Step, queries: Tensor, keys: Tensor, values: Tensor, *, reuses_slots: bool = False
    ) -> Tensor:
        """Writes one token per row into an empty slot and attends to all slots. -> [R, H, G, 1, D]

        Args:
            reuses_slots: the token was written by an earlier layer, whose slots this one shares: their mean
                probabilities count.
        """
        arena, this_pass = self.arena, step.passes[0]
        if self.at == 0 and not reuses_slots:
            arena.place(this_pass, step.of_prompt)
        if not reuses_slots:
            arena.write(self.at, keys, values)
        held = arena.held_keys(self.at)[:, :, : arena.used]
        logits = self.logits(queries, held, arena.empty_slots[self.at], arena.when, arena.edge)
        counted = arena.probabilities(self.at)[..., None, :]  # [R, H, G, 1, T]
        sharers = arena.sharers[self.at]
        probabilities = self.softmax(logits, None if sharers else counted)
        if 0 in this_pass.count:  # padding is no query; its row may be all masked (NaN)
            padding = torch.tensor([count == 0 for count in this_pass.count], device=probabilities.device)
            probabilities.masked_fill_(padding[:, None, None, None, None], 0)
        if sharers:
            # 0 in the layer that wrote the token: there it replaces what the step before left here.
            counted.mul_(reuses_slots).add_(probabilities, alpha=1 / (1 + sharers))
        output = probabilities.squeeze(3).to(values.dtype) @ arena.held_values(self.at)[:, :, : arena.used]
        arena.layers_left -= 1
        if not arena.layers_left:
            step.changed_slots = True
            arena.finish(this_pass)
            evict_full_rows(arena, this_pass, step.kernels)
        return output.view(*queries.shape[:-1], -1)

    def prefill(
        self,
        step: Step,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        *,
        reuses_slots: bool = False,
        counts: bool = True,
    ) -> Tensor:
        """Reads a prompt in passes, each of which attends and is absorbed. -> [R, H, G, N, D]

        Chunks count from each row's first real token, so that a padded row equals the same row alone: real
        tokens are moved to the front, and the output is moved back.

        Args:
            reuses_slots: the tokens are those of an earlier layer, whose slots this one shares.
            counts: the attention of these queries counts.

        Raises:
            Cancelled: the step was cancelled.
        """
        if step.cancelled():
            raise Cancelled
        attend: Attend = step.kernels.attend or LayerStep.attended
        back = None
        if step.real is not None:
            front = (~step.real).to(torch.uint8).argsort(dim=-1, stable=True)  # [R, N]
            back = front.argsort(-1)[:, None, None, :, None]
            order = front[:, None, :, None]
            keys, values = keys.take_along_dim(order, 2), values.take_along_dim(order, 2)
            queries = queries.take_along_dim(order.unsqueeze(1), 3)
        outputs = []
        for this_pass in step.passes:
            cut = slice(this_pass.start, this_pass.end)
            output, new = attend(self, this_pass, queries[..., cut, :], keys[:, :, cut], values[:, :, cut])
            outputs.append(output)
            if not counts:
                pass
            elif self.arena.sharers[self.at]:
                add_shared(self.arena, self.at, new, first=not reuses_slots)
            elif this_pass is step.passes[-1]:
                queue_last_pass(self.arena, self.at, step, new)
            else:  # the next pass attends to the tokens that stay
                step.changed_slots = True
                absorb(self.arena, self.at, step, this_pass, [new])
        output = torch.cat(outputs, 3)
        return output if back is None else output.take_along_dim(back, 3)

    def attended(self, this_pass: Pass, queries: Tensor, keys: Tensor, values: Tensor) -> Attended:
        """One pass of a prompt in blocks of queries; gains are summed by column, without an N x N matrix."""
        arena, decay_factor, device = self.arena, self.arena.plan.decay_factor, keys.device
        tokens = this_pass.tokens
        place = torch.arange(tokens, device=device, dtype=torch.int32)
        count = arena.per_row(this_pass.count)[:, 0]  # [R, 1]
        when = arena.per_row(this_pass.first)[:, 0] + place  # [R, N]
        later = (count - 1 - place).clamp_min(0)  # [R, N] number of queries after each one in its row
        used = arena.leading(this_pass)
        empty = arena.slots.positions[self.at, ..., :used] < 0
        edge = arena.edge_angles(when, queries.dtype)
        all_keys, all_values = keys, values
        if used:  # [R, H, T + N, D]
            all_keys = torch.cat((arena.held_keys(self.at)[:, :, :used], keys), 2)
            all_values = torch.cat((arena.held_values(self.at)[:, :, :used], values), 2)
        gains: dict[str, Tensor] = {}
        outputs = []
        for start in range(0, tokens, BLOCK):
            cut = slice(start, start + BLOCK)
            end = min(start + BLOCK, tokens)  # later keys cannot be seen
            asked = queries[..., cut, :]
            turned = None if edge is None else (edge[0][..., cut, :], edge[1][..., cut, :])
            logits = self.logits(asked, all_keys[:, :, : used + end], empty, when[:, cut], turned)
            unseen = place[:end] > place[cut, None]  # [B, end]
            if self.window is not None:
                visible = arena.visible_from(self.at, when[:, cut])[:, None, None, :, None]
                unseen = unseen | (when[:, None, None, None, :end] < visible)
            logits[..., used:].masked_fill_(unseen, -torch.inf)
            probabilities = self.softmax(logits)
            if any(here != tokens for here in this_pass.count):
                padding = (place[cut] >= count)[:, None, None, :, None]
                probabilities = probabilities.masked_fill(padding, 0)
            weights = probabilities.to(values.dtype).flatten(2, 3)  # [R, H, G * B, T + end]
            outputs.append((weights @ all_values[:, :, : used + end]).view(*asked.shape[:-1], -1))

            for name, grows in arena.plan.grows.items():
                more = grows.gained(decay_factor, probabilities, when[:, cut], later[:, cut])
                rest = (0, 0) * (more.ndim - 3) + (0, tokens - end)  # 0 for keys that they cannot see
                more = torch.nn.functional.pad(more, rest)  # [R, H, T + N, ...]
                gains[name] = grows.together(gains[name], more) if name in gains else more
        return torch.cat(outputs, 3), PassResult(keys, values, gains)
