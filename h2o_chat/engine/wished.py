"""Changes logits as a client wishes, and tells the chances of what was chosen."""

import math
from collections import Counter
from collections.abc import Sequence

from torch import Tensor

from h2o_chat.engine.request import Chance, Wishes


class Wished:
    """Follows one answer."""

    def __init__(self, wishes: Wishes) -> None:
        self._wishes = wishes
        self._said = Counter[int]()
        self.chances: tuple[Chance, ...] = ()
        """The token chosen last, then the likeliest ones."""

    @property
    def keeps_no_logits(self) -> bool:
        """Whether `note_chosen` reads no logits, which a step that was asked for meanwhile overwrites."""
        return self._wishes.chances is None

    def allowed(self, logits: Tensor) -> Tensor:
        """Logits [V], -inf where the grammar does not allow a token.

        Raises:
            UsageError: the grammar has become too complex.
        """
        return logits if self._wishes.grammar is None else self._wishes.grammar.masked(logits)

    def changes(self, barred: Sequence[int]) -> dict[int, float]:
        """Returns a number for each token whose logit it is added to; -inf for those that are barred."""
        wishes, added = self._wishes, dict(self._wishes.bias)
        if wishes.presence or wishes.frequency:
            for token, times in self._said.items():
                added[token] = added.get(token, 0.0) - wishes.presence - times * wishes.frequency
        return added | dict.fromkeys(barred, -math.inf)

    def note_chosen(self, token: int, logits: Tensor) -> None:
        """Notes the token that was chosen from logits [V]."""
        wishes = self._wishes
        self._said[token] += 1
        if wishes.grammar is not None:
            wishes.grammar.note_chosen(token)
        if wishes.chances is None:
            return
        logs = logits.float().log_softmax(-1)
        top = logs.topk(wishes.chances)
        likeliest = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        self.chances = (Chance(token, float(logs[token])), *(Chance(*one) for one in likeliest))
