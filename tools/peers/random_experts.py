"""Writes a GGUF file of a mixture of experts with random weights: 3.3 billion, of which a token reads .6.

    python tools/peers/random_experts.py FILE.gguf
    python tools/peers/speed.py -m FILE.gguf --peers llama.cpp --folder DIR

The types are those of a Q4_K_M file. Blocks are random bytes with scales that leave the numbers small.
"""

import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from gguf_files import add, values_of  # type: ignore[import-not-found]

Kind = gguf.GGMLQuantizationType
CONFIG: dict[str, Any] = {
    "max_position_embeddings": 16384,
    "hidden_size": 1024,
    "num_hidden_layers": 20,
    "intermediate_size": 6144,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "num_experts": 64,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "vocab_size": 98304,
}
RANDOM = np.random.default_rng(0)


def numbers(*shape: int, around: float = 0.0, by: float = 0.05) -> NDArray[np.float32]:
    return (around + by * RANDOM.standard_normal(shape)).astype(np.float32)


def blocks(kind: Any, *shape: int) -> NDArray[np.uint8]:
    """Rows of random blocks of Q4_K or Q6_K; the numbers have a standard deviation of some hundredths."""
    size, length = gguf.GGML_QUANT_SIZES[kind]
    raw = RANDOM.integers(0, 256, (int(np.prod(shape)) // size, length), np.uint8)
    if kind == Kind.Q4_K:  # scale and minimum
        raw[:, :4] = np.array([1.5e-4, 1.1e-3], np.float16).view(np.uint8)
    else:
        raw[:, 208:] = np.array([3e-5], np.float16).view(np.uint8)
    return raw.reshape(*shape[:-1], shape[-1] // size * length)


def main() -> int:
    """Writes the file."""
    config, writer = CONFIG, gguf.GGUFWriter(sys.argv[1], "qwen3moe")
    for key, value in values_of(config, "qwen3moe").items():
        add(writer, key, value)
    letters = [chr(code) for code in range(ord("!"), ord("~") + 1)]
    tokens = ["<|end|>", *letters, "!!", *(f"w{number}" for number in range(config["vocab_size"]))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens[: config["vocab_size"]])
    writer.add_token_types([3, *[1] * (config["vocab_size"] - 1)])
    writer.add_token_merges(["! !"])
    writer.add_eos_token_id(0)

    def matrix(name: str, kind: Any, *shape: int) -> None:
        writer.add_tensor(f"{name}.weight", blocks(kind, *shape), raw_dtype=kind)

    def vector(name: str, size: int) -> None:
        writer.add_tensor(f"{name}.weight", numbers(size, around=1))

    hidden, head, inner = config["hidden_size"], config["head_dim"], config["moe_intermediate_size"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    experts = config["num_experts"]
    matrix("token_embd", Kind.Q4_K, config["vocab_size"], hidden)
    for number in range(config["num_hidden_layers"]):
        layer, more = f"blk.{number}.", Kind.Q6_K if number % 2 else Kind.Q4_K
        vector(f"{layer}attn_norm", hidden)
        matrix(f"{layer}attn_q", Kind.Q4_K, queries, hidden)
        matrix(f"{layer}attn_k", Kind.Q4_K, keys, hidden)
        matrix(f"{layer}attn_v", more, keys, hidden)
        matrix(f"{layer}attn_output", Kind.Q4_K, hidden, queries)
        vector(f"{layer}attn_q_norm", head)
        vector(f"{layer}attn_k_norm", head)
        vector(f"{layer}ffn_norm", hidden)
        writer.add_tensor(f"{layer}ffn_gate_inp.weight", numbers(experts, hidden))
        matrix(f"{layer}ffn_gate_exps", Kind.Q4_K, experts, inner, hidden)
        matrix(f"{layer}ffn_up_exps", Kind.Q4_K, experts, inner, hidden)
        matrix(f"{layer}ffn_down_exps", more, experts, hidden, inner)
    vector("output_norm", hidden)
    matrix("output", Kind.Q6_K, config["vocab_size"], hidden)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file(progress=True)
    writer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
