"""Random tiny models of sixteen families: seeded, a few milliseconds each, and not degenerate.

A freshly initialised model attends almost uniformly, so its heavy hitters are noise. These have
weights scaled up until attention is peaked and every head prefers other tokens, untied embeddings
so that greedy text does not repeat one token, and random biases and norms so that a forgotten one
shows.
"""

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

import h2o_chat.transformers_cache.registered  # noqa: F401  (registers "h2o")

VOCAB = 128
WINDOW = 16
"""The sliding window of the families that have one: shorter than the tests' prompts, so that it matters."""

_LLAMA = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
}
_SLIDING = {"sliding_window": WINDOW}
_ALTERNATING = _SLIDING | {
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}
_EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2}
_NO_GROUPS = {key: value for key, value in _LLAMA.items() if key != "num_key_value_heads"}

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": _LLAMA,
    "mistral": _LLAMA | _SLIDING,
    "qwen2": _LLAMA | _ALTERNATING | {"use_sliding_window": True},
    "qwen3": _LLAMA | _ALTERNATING | {"use_sliding_window": True, "head_dim": 8},
    "gemma2": _LLAMA
    | _ALTERNATING
    | {"head_dim": 8, "query_pre_attn_scalar": 8, "attn_logit_softcapping": 5.0},
    "gemma3_text": _LLAMA | _ALTERNATING | {"head_dim": 8, "query_pre_attn_scalar": 8},
    "phi3": _LLAMA | _SLIDING,
    "olmo2": _LLAMA,
    "granite": _LLAMA
    | {"embedding_multiplier": 2.0, "residual_multiplier": 0.5, "attention_multiplier": 0.25},
    "smollm3": _LLAMA | {"no_rope_layers": [1, 0, 1]},
    "qwen3_moe": _LLAMA | _EXPERTS | {"moe_intermediate_size": 48, "head_dim": 8, "norm_topk_prob": True},
    "olmoe": _LLAMA | _EXPERTS,
    "gpt_oss": _LLAMA | _EXPERTS | {"head_dim": 16, "sliding_window": WINDOW},
    "opt": {
        "hidden_size": 32,
        "word_embed_proj_dim": 32,
        "ffn_dim": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "max_position_embeddings": 1024,
    },
    "gpt_neox": _NO_GROUPS | {"rotary_pct": 0.25},
    "gpt2": {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 1024},
}


def tiny(
    family: str,
    attention: str,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    scale: float = 0.3,
    **overrides: Any,
) -> Any:
    """A model in eval mode; family, seed and scale alone decide the weights.

    Args:
        attention: `attn_implementation`.
        scale: Standard deviation of the matrices. At 0.3 a query looks at 5 to 10 tokens of 40; at
            0.2 at 10 to 25, and stock fp32 stays within 7e-6 of fp64, as a tolerance of 1e-5 needs.
    """
    config = AutoConfig.for_model(
        family,
        **FAMILIES[family]
        | {"vocab_size": VOCAB, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}
        | {"tie_word_embeddings": False}
        | overrides,
    )
    config._attn_implementation = attention
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            noise = torch.randn(weight.shape, dtype=torch.float32)
            if weight.dim() > 1:
                weight.copy_(scale * noise)
            elif name.endswith("bias"):
                weight.copy_(0.1 * noise)
            else:
                weight.add_(0.1 * noise)
    model.generation_config.eos_token_id = None
    if dtype == torch.float64 and hasattr(config, "num_experts"):
        model.set_experts_implementation("eager")  # the others know no float64
    return model.to(dtype)
