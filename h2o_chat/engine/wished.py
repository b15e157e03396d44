"""Changes logits as a client wishes, and tells the chances of what was chosen."""

from collections import Counter

import torch
from torch import Tensor

from h2o_chat.engine.request import Chance, Wishes


class Wished:
    """Follows one answer."""

    def __init__(self, wishes: Wishes) -> None:
        self._wishes = wishes
        self._said = Counter[int]()
        self.chances: tuple[Chance, ...] = ()
        """The token chosen last, then the likeliest ones."""

    def changed(self, logits: Tensor) -> Tensor:
        """Logits [V] with all that is wished.

        Raises:
            UsageError: the grammar has become too complex.
        """
        wishes = self._wishes
        added = dict(wishes.bias)
        if wishes.presence or wishes.frequency:
            for token, times in self._said.items():
                added[token] = added.get(token, 0.0) - wishes.presence - times * wishes.frequency
        if added:
            where = torch.tensor(list(added), device=logits.device)
            by = torch.tensor(list(added.values()), dtype=torch.float32, device=logits.device)
            logits = logits.float().index_add(0, where, by)
        return logits if wishes.grammar is None else wishes.grammar.masked(logits)

    def took(self, token: int, logits: Tensor) -> None:
        """Notes the token that was chosen from logits [V]."""
        wishes = self._wishes
        self._said[token] += 1
        if wishes.grammar is not None:
            wishes.grammar.took(token)
        if wishes.chances is None:
            return
        logs = logits.float().log_softmax(-1)
        top = logs.topk(wishes.chances)
        likeliest = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        self.chances = (Chance(token, float(logs[token])), *(Chance(*one) for one in likeliest))
