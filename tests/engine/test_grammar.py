"""Grammars that force a text for which the vocabulary has a token of its own."""

import re

import pytest
import torch
from found_templates import byte_tokenizer

from h2o_chat.engine.grammar import Grammars

CALL, END, BEGIN = 258, 256, 257


@pytest.mark.parametrize(
    ("grammar", "text", "own"),
    [
        (r'start: "<tool_call>\n" /[0-9]/ "</tool_call>"', r"<tool_call>\n[0-9]</tool_call>", CALL),
        ('start: /[a-z]/ "<tool_call>" /[a-z]/', "[a-z]<tool_call>[a-z]", CALL),
        ('start: <[258]> "a" <[259]>', "<tool_call>a</tool_call>", CALL),
        # Control tokens have no text in an answer: their letters must be drawn, one by one.
        ('start: "a<end>b" /[0-9]/', "a<end>b[0-9]", None),
        ('start: "<begin>" /[0-9]/', "<begin>[0-9]", None),
        ('start: %json {"const": "<end>"}', '"<end>"', None),
    ],
)
def test_a_forced_text_is_whole(grammar: str, text: str, own: int | None) -> None:
    tokenizer = byte_tokenizer(None, None, "<end>", ("<begin>",), ("<tool_call>", "</tool_call>"))
    assert tokenizer.convert_tokens_to_ids(["<end>", "<begin>", "<tool_call>"]) == [END, BEGIN, CALL]
    grammars = Grammars(tokenizer, [END])
    for seed in range(10):
        followed, drawn = grammars.compiled(grammar), list[int]()
        generator = torch.Generator().manual_seed(seed)
        while END not in drawn:
            masked = followed.masked(torch.rand(len(tokenizer), generator=generator))
            assert masked.max() > -torch.inf
            drawn.append(int(masked.argmax()))
            followed.note_chosen(drawn[-1])
        assert BEGIN not in drawn
        assert own is None or own in drawn
        assert re.fullmatch(text, tokenizer.decode(drawn[:-1]))
