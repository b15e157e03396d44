"""A tiny random model of any text family of transformers, and what is compared with stock.

Sizes are set by the names that configurations give them; only what a family's own checks ask for stands in
`ODD`. The table `h2o_chat/models/families.json` is made with `verdict`, and tests hold every family to it.
"""

import copy
import inspect
import sys
from typing import Any

import torch
from torch import Tensor
from transformers import CONFIG_MAPPING, DynamicCache
from transformers.models.auto import modeling_auto

from h2o_chat.base.errors import ModelError
from h2o_chat.cache.forward_call import Step
from h2o_chat.models.model_class import class_of, classes_of
from h2o_chat.transformers_cache import registered
from h2o_chat.transformers_cache.cache import H2OCache
from h2o_chat.transformers_cache.layout import kinds_of
from h2o_chat.transformers_cache.probe import probe

VOCAB = 128
LAYERS = 4
MOST_WEIGHTS = 8_000_000

_BY_NAME: dict[tuple[str, ...], Any] = {
    ("vocab_size", "vocab_size_per_layer_input"): VOCAB,
    ("hidden_size", "n_embd", "d_model", "dim", "word_embed_proj_dim", "lru_width"): 32,
    ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "d_ff"): 48,
    ("num_hidden_layers", "n_layer", "n_layers", "num_layers"): LAYERS,
    ("num_attention_heads", "n_head", "n_heads", "num_heads"): 4,
    ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"): 1024,
    ("num_key_value_heads",): 2,
    ("head_dim", "hidden_size_per_layer_input", "query_pre_attn_scalar", "rotary_dim"): 8,
    ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"): 4,
    ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k", "top_k_experts"): 2,
    ("n_shared_experts", "num_shared_experts", "n_group", "topk_group", "num_expert_group"): 1,
    ("first_k_dense_replace", "num_dense_layers", "mamba_n_groups", "mamba_ngroups", "n_groups"): 1,
    ("moe_intermediate_size", "shared_expert_intermediate_size", "expert_intermediate_size"): 24,
    ("q_lora_rank", "kv_lora_rank", "qk_head_dim", "global_head_dim"): 16,
    ("qk_rope_head_dim", "qk_nope_head_dim", "linear_key_head_dim", "linear_value_head_dim"): 8,
    ("linear_head_dim",): 8,
    ("v_head_dim",): 12,
    ("linear_num_key_heads", "n_mamba_heads", "index_n_heads"): 2,
    ("linear_num_value_heads", "linear_num_heads", "mamba_dt_rank"): 4,
    ("mamba_num_heads", "mamba_n_heads", "mamba_d_head", "mamba_head_dim", "mamba_d_state"): 8,
    ("ssm_state_size", "index_head_dim", "index_topk"): 8,
    ("mamba_d_ssm", "mamba_d_inner"): 64,
    ("mamba_chunk_size", "chunk_size", "sliding_window", "attention_chunk_size"): 16,
    ("use_sliding_window",): True,
    ("pad_token_id",): 0,
    ("bos_token_id",): 1,
    ("eos_token_id", "num_global_key_value_heads"): None,
    ("tie_word_embeddings",): False,
}
SMALL = {name: value for names, value in _BY_NAME.items() for name in names}

_BY_TURNS = ["linear_attention", "full_attention"] * 2
_SHARING = {
    "num_hidden_layers": 6,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
    "num_kv_shared_layers": 2,
}
_TURNS = {"rope_type": "default", "rope_theta": 10_000.0}
_SECTIONS = _TURNS | {"mrope_section": [2, 1, 1]}

ODD: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1, 3]},
    "cohere_compass_text": {
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e4}}
    },
    "gemma3n_text": _SHARING | {"laurel_rank": 8, "activation_sparsity_pattern": None},
    "gemma4_text": _SHARING,
    "gemma4_unified_text": _SHARING,
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "granitemoehybrid": {"layer_types": _BY_TURNS},
    "hrm_text": {"num_layers_per_stack": 1, "num_hidden_layers": 8},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2},
    "lfm2": {"layer_types": ["conv", "full_attention"] * 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "longcat_flash": {"head_dim": 8},
    "step3p7_text": {"sliding_window": 16},
    "zamba2": {"layers_block_type": ["linear_attention", "hybrid"] * 2},
    "zaya": {"num_experts_per_tok": 1},
}
"""Values that the names do not say, by type of the text configuration."""
for _one in ("glm4v", "paddleocr_vl", "qwen2_vl", "qwen2_5_vl", "qwen2_5_omni"):
    ODD[f"{_one}_text"] = {"rope_parameters": _SECTIONS}
for _one in ("glm4v_moe", "glm_ocr", "glmga"):
    _half = {"mrope_section": [1, 1, 0], "partial_rotary_factor": 0.5}
    ODD[f"{_one}_text"] = {"rope_parameters": _TURNS | _half}


def names() -> list[str]:
    """Every model type of which transformers has a class that generates text."""
    mappings = ("CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM")
    return sorted(
        {name for one in mappings for name in getattr(modeling_auto, f"MODEL_FOR_{one}_MAPPING_NAMES")}
    )


def config_of(family: str) -> Any:
    """A tiny configuration; of a family that sees or hears, its text part is tiny."""
    cls = CONFIG_MAPPING[family]
    default = cls()
    text = default.get_text_config()
    part = next((name for name in cls.sub_configs if getattr(default, name, None) is text), None)
    if text is default or part is None:
        return cls(**_small(default))
    return cls(**{part: _small(text) | {"model_type": text.model_type}} | _ids(default))


def _ids(default: Any) -> dict[str, Any]:
    """No id outside of the small vocabulary."""
    named = [name for name in default.to_dict() if name.endswith(("token_id", "token_index"))]
    return dict.fromkeys([*named, "vision_start_token_id"], 5)


def _small(default: Any) -> dict[str, Any]:
    latent = hasattr(default, "qk_rope_head_dim")
    known = default.to_dict()
    sizes = {name: value for name, value in SMALL.items() if name in known or name in default.attribute_map}
    if known.get("sliding_window", 0) is None:
        del sizes["sliding_window"]
    if latent:
        sizes.pop("head_dim", None)
        sizes["num_key_value_heads"] = 4
    for name in ("layer_types", "mlp_layer_types"):
        if known.get(name):
            sizes[name] = (list(dict.fromkeys(known[name])) * LAYERS)[:LAYERS]
    if "mrope_section" in str(known.get("rope_parameters")):
        sizes["rope_parameters"] = _SECTIONS
    return sizes | ODD.get(default.model_type, {})


def tiny(family: str, dtype: torch.dtype = torch.float64, scale: float = 0.2) -> Any:
    """A model in eval mode, with stock attention."""
    config = config_of(family)
    cls = class_of(config)
    with torch.device("meta"):
        model = cls(copy.deepcopy(config))
    weights = sum(one.numel() for one in model.parameters())
    assert weights < MOST_WEIGHTS, f"{family} has {weights:,} weights"
    torch.manual_seed(0)
    if config.get_text_config() is config:
        model = cls(config)
    else:
        model = model.to_empty(device="cpu")
        model.init_weights()
    noise = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            random = torch.randn(weight.shape, generator=noise)
            if weight.dim() > 1 and "A_log" not in name:
                weight.copy_(scale * random)
            elif name.endswith("bias"):
                weight.copy_(0.1 * random)
            else:
                weight.add_(0.1 * random)
            if name.endswith(("q_norm.weight", "k_norm.weight")):
                weight.mul_(0.3)  # attention of Gemma 4 is not scaled down: it would hang on the last bit
    model.generation_config.eos_token_id = None
    model.set_attn_implementation("eager")
    if dtype == torch.float64:
        model.set_experts_implementation("eager")  # the others know no float64
    return model.eval().to(dtype)


def prompt(tokens: int, rows: int = 1, seed: int = 5) -> Tensor:
    return torch.randint(3, VOCAB, (rows, tokens), generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def stock(model: Any, parts: list[Tensor]) -> Tensor:
    """Stock logits [R, N, V] of parts that follow each other."""
    model.set_attn_implementation("eager")
    cache, found, at = DynamicCache(config=model.config), [], 0
    for part in parts:
        where = torch.arange(at, at + part.shape[1]).expand(len(part), -1)
        found.append(model(input_ids=part, position_ids=where, past_key_values=cache).logits)
        at += part.shape[1]
    return torch.cat(found, 1)


@torch.no_grad()
def ours(model: Any, parts: list[Tensor], cache: H2OCache) -> Tensor:
    """Our logits of the same."""
    model.set_attn_implementation(registered.NAME)
    found = []
    for part in parts:
        cache.prepare(Step(part.shape[1]))
        where = cache.position_ids().expand(len(part), -1)
        found.append(model(input_ids=part, position_ids=where, past_key_values=cache).logits)
    return torch.cat(found, 1)


def two_turns(rows: int = 2) -> list[Tensor]:
    """A prompt of 30 tokens, 20 single ones, a prompt of 15, 20 single ones."""
    ids = prompt(85, rows)
    return [ids[:, :30], *ids[:, 30:50].split(1, 1), ids[:, 50:65], *ids[:, 65:].split(1, 1)]


def verdict(family: str) -> str:
    """The verdict of the table on a family: `opens`, or why not, see `families.REFUSED`."""
    try:
        default = CONFIG_MAPPING[family]()
        if default.is_encoder_decoder or not classes_of(default) or family in ENCODERS:
            return "encoder"
        kinds = kinds_of(default)
        if not hasattr(default.get_text_config(), "num_attention_heads") or not any(
            kind.attends for kind in kinds
        ):
            return "fixed"
        model, parts = tiny(family, torch.float32), two_turns()
        expected = stock(model, parts)
        apart = (expected - stock(model, [torch.cat(parts, 1)])).abs().max()
    except ModelError:
        return "grows"
    except Exception as error:
        print(f"{family}: {type(error).__name__}: {error}"[:300], file=sys.stderr)
        return "untried"
    modules = {sys.modules[type(one).__module__] for one in (model, model.get_decoder())}
    if not any("ALL_ATTENTION_FUNCTIONS" in inspect.getsource(one) for one in modules):
        return "interface"
    if apart > 1e-2:
        return "forgets" if any(kind.keeps_state for kind in kinds) else "own"
    try:
        cache = H2OCache(85, policy="h2o-paper", chunk=16, positions=probe(model))
        found = ours(model, parts, cache)
    except Exception as error:
        print(f"{family}: {type(error).__name__}: {error}"[:300], file=sys.stderr)
        return "own"
    return "opens" if (found - expected).abs().max() < 1e-4 else "own"


ENCODERS = set(modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES)
