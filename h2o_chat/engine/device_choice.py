"""The next token, chosen on a GPU: one copy of numbers there, one captured graph, one id that is read.

Chosen by torch's operations one after the other, a token of 150,000 took .7 ms there: 40 launches and three
times that the host waited. Here all cuts of transformers (top-k, top-p, min-p, in this order) are one place
in the sorted tokens, before which they are cut off; so one random number finds the token in the rest.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from h2o_chat.base.config import Sampling
from h2o_chat.graph.captured import captured

NUMBERS = 6  # drawn number, temperature, penalty, top-k, top-p, min-p: they stand before changes and history
MOST_CHANGES = 1024  # logits that are changed inside the graph; more are changed before it
HISTORY_TOKENS = 1024  # the repetition penalty looks back this far, so that its cost does not grow


class DeviceChoice:
    """Chooses from logits [V], V the size of the vocabulary, for any row: each call ends with a read."""

    def __init__(self, device: torch.device, vocabulary: int) -> None:
        numbers = torch.zeros(NUMBERS + 2 * MOST_CHANGES + HISTORY_TOKENS, dtype=torch.float64)
        numbers[1:NUMBERS] = 1  # as may be asked for: `warm_up` runs with these
        self._host = numbers.pin_memory() if device.type == "cuda" else numbers
        """Written while the device still computes the logits; read by it before the id is read."""
        self._given = numbers.to(device)
        self._logits = torch.zeros(vocabulary, device=device)
        self._places = torch.arange(vocabulary, device=device)
        self._token = torch.zeros(1, dtype=torch.int64, device=device)
        self._read = torch.zeros(1, dtype=torch.int64, pin_memory=device.type == "cuda")
        self._works: dict[bool, Callable[[], None]] = {}  # by whether the likeliest token is taken

    @torch.no_grad()
    def choose(
        self,
        logits: Tensor,
        sampling: Sampling,
        changes: Mapping[int, float],
        history: Sequence[int],
        drawn: Tensor,
        meanwhile: Callable[[Tensor], None] | None = None,
    ) -> int:
        """The next token, or -1 where logits [V] are NaN or +inf, or none of them is above -inf.

        Args:
            changes: added to the logits of these tokens.
            history: the tokens that a repetition penalty is for.
            drawn: a random number from 0 to 1, without 1: [] fp64, on the CPU.
            meanwhile: given the token [1] on the device before it is read: what it asks of the device comes
                after the choice, and is not waited for.
        """
        self._logits.copy_(logits)
        if len(changes) > MOST_CHANGES:
            self._logits.copy_(changed(self._logits, changes))
            changes = {}
        self._write(sampling, changes, history, drawn)
        self._work(greedy=sampling.temperature == 0)()
        if meanwhile is None:
            return int(self._token)
        self._read.copy_(self._token, non_blocking=True)
        chosen = torch.cuda.current_stream(self._token.device).record_event() if self._token.is_cuda else None
        meanwhile(self._token)
        if chosen is not None:
            chosen.synchronize()
        return int(self._read)

    @torch.no_grad()
    def warm_up(self) -> None:
        """Captures both works (.15 s), so that the first answer need not wait for that."""
        for greedy in (True, False):
            self._work(greedy)

    def _work(self, greedy: bool) -> Callable[[], None]:
        if greedy not in self._works:
            work = self._take_likeliest if greedy else self._draw
            work()
            self._works[greedy] = captured(work, self._logits.device)
        return self._works[greedy]

    def _write(
        self, sampling: Sampling, changes: Mapping[int, float], history: Sequence[int], drawn: Tensor
    ) -> None:
        """All that the graph reads. Room that is left means: add 0 to token 0, its penalty is 1."""
        penalty = sampling.repetition_penalty if history else 1.0
        top_k = min(sampling.top_k or len(self._logits), len(self._logits))
        numbers = [sampling.temperature, penalty, top_k, sampling.top_p, sampling.min_p, *changes]
        self._host.zero_()
        self._host[0] = drawn
        self._host[1 : 1 + len(numbers)] = torch.tensor(numbers, dtype=torch.float64)
        if changes:
            by = torch.tensor(list(changes.values()), dtype=torch.float64)
            self._host[NUMBERS + MOST_CHANGES :][: len(by)] = by
        if penalty != 1:
            said = np.fromiter(history, np.float64, len(history))
            self._host[-HISTORY_TOKENS:] = torch.from_numpy(np.resize(said, HISTORY_TOKENS))
        self._given.copy_(self._host, non_blocking=True)

    # -- captured --------------------------------------------------------------------------------------

    def _take_likeliest(self) -> None:
        highest, token = self._scores().max(0, keepdim=True)
        self._token.copy_(torch.where(highest.abs() < torch.inf, token, -1))

    def _draw(self) -> None:
        drawn, temperature, _, top_k, top_p, min_p = (self._given[at : at + 1] for at in range(NUMBERS))
        scores = self._scores() / temperature.float()
        highest = scores.amax(0, keepdim=True)  # NaN where there is one
        scores, ids = scores.sort(stable=True)

        def cut_off(ordered: Tensor, least: Tensor, *, with_it: bool = False) -> Tensor:
            """Number of tokens below the least one; one token at least stays. [1]"""
            return torch.searchsorted(ordered, least, right=with_it).clamp_(max=len(ids) - 1)

        by_k = cut_off(scores, scores.take(len(ids) - top_k.long()))
        shares = (scores - highest).double().exp()  # as multiples of the largest one
        shares = torch.where(self._places >= by_k, shares, 0)
        sums = functional.pad(shares.cumsum(0), (1, 0))  # [V + 1] of all tokens before each
        by_p = cut_off(sums[1:], (1 - top_p) * sums[-1:], with_it=True)
        first = torch.maximum(by_p, torch.maximum(by_k, cut_off(shares, min_p)))
        before = sums.take(first)
        at = torch.maximum(first, cut_off(sums[1:], before + drawn * (sums[-1:] - before), with_it=True))
        self._token.copy_(torch.where(highest.abs() < torch.inf, ids.take(at), -1))

    def _scores(self) -> Tensor:
        """[V] fp32: logits with their changes and the repetition penalty."""
        places = self._given[NUMBERS:-HISTORY_TOKENS]
        history, penalty = self._given[-HISTORY_TOKENS:].long(), self._given[2].float()
        scores = self._logits.index_add(0, places[:MOST_CHANGES].long(), places[MOST_CHANGES:].float())
        said = scores.take(history)
        return scores.index_put_((history,), torch.where(said < 0, said * penalty, said / penalty))


device_choice = lru_cache(maxsize=2)(DeviceChoice)
"""The one of a device and vocabulary: all rows share its graphs."""


def changed(logits: Tensor, changes: Mapping[int, float]) -> Tensor:
    """Logits [V] with what is added to some of them."""
    where = torch.tensor(list(changes), device=logits.device)
    by = torch.tensor(list(changes.values()), dtype=torch.float32, device=logits.device)
    return logits.float().index_add(0, where, by)
