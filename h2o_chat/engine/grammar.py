"""Lets an answer be only what a grammar allows, by llguidance: a mask over the vocabulary for each token.

The schema comes from a client: compiling and each mask have limits of work, not only of size.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
import torch
from torch import Tensor

from h2o_chat.base.errors import UsageError
from h2o_chat.native.threads import one_torch_thread

NEEDS = "Schemas, grammars and forced tools need llguidance: pip install 'h2o-chat[serve]'."
LONGEST_CHARACTERS = 1 << 17  # longest grammar: 100,000 characters take 0.5 s to compile on one core
_ADDED = np.where(
    np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little"),
    np.float32(0),
    np.float32(-np.inf),
)
"""Added to eight logits by the byte of their bits, [256, 8]; four times as fast as `masked_fill`."""


class Grammar:
    """Follows one answer.

    Args:
        matcher: an `LLMatcher`, which limits its own work.
        known: the `LLTokenizer` with its vocabulary.
        control: tokens that have no text in an answer.
    """

    def __init__(self, matcher: Any, known: Any, control: AbstractSet[int]) -> None:
        self._matcher, self._known, self._control = matcher, known, control
        self._bits = np.zeros(-(-known.vocab_size // 32), np.int32)

    def masked(self, logits: Tensor) -> Tensor:
        """Logits [V], -inf where a token is not allowed.

        Raises:
            UsageError: the grammar has become too complex, or allows nothing more.
        """
        self.compute_mask()
        added = torch.from_numpy(_ADDED.take(self._bits.view(np.uint8), axis=0).reshape(-1))[: len(logits)]
        with one_torch_thread():
            missing = added.new_full((len(logits) - len(added),), -torch.inf)
            masked = torch.cat([added, missing]) if len(missing) else added
            return masked.to(logits).add_(logits)

    def compute_mask(self) -> None:
        """Finds out which tokens are allowed now; raises as `masked`."""
        self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        if self._matcher.is_error():
            raise UsageError(f"The grammar cannot be followed: {_one_line(self._matcher.get_error())}")
        if self._matcher.is_stopped():  # then the mask has the end alone
            return
        words, (places, *_) = self._bits.view(np.uint32), np.nonzero(self._bits)
        if len(places) == 1 and (word := int(words[places[0]])).bit_count() == 1:  # this token is forced
            token = 32 * int(places[0]) + word.bit_length() - 1
            # A control token would end the answer or leave no text: its first letters are drawn.
            if token in self._control and (first := self._spelt(token)[0]) != token:
                words[:] = 0
                words[first // 32] = 1 << first % 32

    def note_chosen(self, token: int) -> None:
        if not self._matcher.is_stopped():
            self._matcher.consume_tokens(self._spelt(token))

    def _spelt(self, token: int) -> list[int]:
        """The token, or those of its text, where the matcher takes only the text.

        Where a text is forced, the mask offers its added token (`<tool_call>`), which the matcher refuses.
        """
        if not self._known.is_special_token(token) or self._matcher.validate_tokens([token]):
            return [token]
        return list(self._known.greedy_tokenize(self._known.decode_str([token])))


class Grammars:
    """Compiles grammars for one tokenizer; the first takes a second."""

    def __init__(self, tokenizer: Any, eos: Sequence[int]) -> None:
        self._tokenizer, self._eos = tokenizer, list(eos)
        self._known: Any = None

    def compiled(self, lark: str) -> Grammar:
        """A grammar in llguidance's form of Lark, ready for one answer.

        Raises:
            UsageError: llguidance is not installed, this is too long, allows nothing or cannot be compiled.
        """
        if len(lark) > LONGEST_CHARACTERS:
            raise UsageError(f"The grammar has {len(lark):,} characters: {LONGEST_CHARACTERS:,} is the most.")
        try:
            import llguidance
            import llguidance.hf
        except ImportError as error:
            raise UsageError(NEEDS) from error
        if self._known is None:
            self._known = llguidance.hf.from_tokenizer(self._tokenizer, eos_token=self._eos or None)
        matcher = llguidance.LLMatcher(self._known, lark, log_level=0)
        if matcher.is_error():
            raise UsageError(f"The grammar cannot be compiled: {_one_line(matcher.get_error())}")
        added = self._tokenizer.added_tokens_decoder
        control = {number for number, one in added.items() if one.special} | {*self._eos}
        grammar = Grammar(matcher, self._known, control)
        grammar.compute_mask()
        return grammar


def _one_line(text: str) -> str:
    """An error of llguidance on one line, without the state of its parser."""
    return " ".join(text.partition("<state>")[0].split())[:300]
