"""Models of real shapes with random weights: nothing to say, and every byte of the real one."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast


def llama(
    layers: int, hidden: int, inner: int, heads: tuple[int, int], words: int, **more: Any
) -> LlamaConfig:
    """The configuration of a llama.

    Args:
        hidden: size of the residual stream.
        inner: size of the feed-forward layer.
        heads: query heads, KV heads.
        words: of the vocabulary.
    """
    return LlamaConfig(
        num_hidden_layers=layers,
        hidden_size=hidden,
        intermediate_size=inner,
        num_attention_heads=heads[0],
        num_key_value_heads=heads[1],
        vocab_size=words,
        **{"tie_word_embeddings": False, **more},
    )


SHAPES = {
    "smollm2-135m": llama(
        *(30, 576, 1536, (9, 3), 49_152),
        max_position_embeddings=8_192,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
        tie_word_embeddings=True,
    ),
    "tinyllama-1.1b": llama(22, 2048, 5632, (32, 4), 32_000, max_position_embeddings=2_048),
}
SHARDS = 4


def make(shape: str, folder: Path, seed: int = 0) -> int:
    """Writes a model folder as large models are published: bf16 in several files with an index.

    Returns:
        The bytes of its weights.
    """
    torch.manual_seed(seed)
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        model = LlamaForCausalLM(SHAPES[shape])
    finally:
        torch.set_default_dtype(usual)
    size = 2 * int(model.num_parameters())
    model.save_pretrained(folder, max_shard_size=size // (SHARDS - 1))
    byte_tokenizer().save_pretrained(folder)
    return size


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, and the start and end of a text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(
        models.BPE(vocab={character: number for number, character in enumerate(alphabet)}, merges=[])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
