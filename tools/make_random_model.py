"""Makes a model of a real shape with random weights: nothing to say, and every byte of the real one.

    python tools/make_random_model.py smollm2-135m FOLDER      # 270 MB
    python tools/make_random_model.py tinyllama-1.1b FOLDER    # 2.2 GB

The weights are bf16 in several safetensors files with an index, as large models are published; the tokenizer
has one token a byte. Never commit what it makes.
"""

import argparse
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SHAPES = {
    "smollm2-135m": LlamaConfig(
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        vocab_size=49_152,
        max_position_embeddings=8_192,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
        tie_word_embeddings=True,
    ),
    "tinyllama-1.1b": LlamaConfig(
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=22,
        num_attention_heads=32,
        num_key_value_heads=4,
        vocab_size=32_000,
        max_position_embeddings=2_048,
        tie_word_embeddings=False,
    ),
}
SHARDS = 4


def main() -> None:
    """Writes the folder and says what it holds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.manual_seed(asked.seed)
    torch.set_default_dtype(torch.bfloat16)
    model = LlamaForCausalLM(SHAPES[asked.shape])
    size = 2 * model.num_parameters()
    model.save_pretrained(asked.folder, max_shard_size=size // (SHARDS - 1))
    byte_tokenizer().save_pretrained(asked.folder)
    files = sorted(asked.folder.glob("*.safetensors"))
    print(f"{asked.folder}: {model.num_parameters():,} parameters in {len(files)} files, {size:,} bytes")


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


if __name__ == "__main__":
    main()
