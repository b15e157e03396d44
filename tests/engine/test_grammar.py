"""Grammars: a text for which the vocabulary has an added token of its own."""

import pytest
import torch
from found_templates import byte_tokenizer

from h2o_chat.engine.grammar import Grammars


@pytest.mark.parametrize(
    "grammar",
    [
        r'start: "<tool_call>\n" /[0-9]/ "</tool_call>"',
        'start: /[a-z]/ "<tool_call>" /[a-z]/ "</tool_call>"',
        'start: "<tool" /_call>/ /[a-z]/ | "<tool_call>" /[0-9]/',
        'start: <[258]> "a" <[259]>',
    ],
)
def test_what_the_mask_allows_is_taken(grammar: str) -> None:
    """The mask may have the added token for a text that can only go on so; drawn to the end, ten times."""
    tokenizer = byte_tokenizer(None, None, "<end>", ("<begin>",), ("<tool_call>", "</tool_call>"))
    assert tokenizer.convert_tokens_to_ids("<tool_call>") == 258
    grammars, end = Grammars(tokenizer, [tokenizer.eos_token_id]), tokenizer.eos_token_id
    for seed in range(10):
        followed, drawn = grammars.compiled(grammar), list[int]()
        generator = torch.Generator().manual_seed(seed)
        while end not in drawn:
            masked = followed.masked(torch.rand(len(tokenizer), generator=generator))
            assert masked.max() > -torch.inf
            drawn.append(int(masked.argmax()))
            followed.took(drawn[-1])
        text = tokenizer.decode(drawn[:-1])
        assert text.startswith("<tool_call>") or text[1:].startswith("<tool_call>")
