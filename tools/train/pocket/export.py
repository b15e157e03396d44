"""From the training module to a stock LlamaForCausalLM folder in half precision."""

from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from .model import Pocket, Shape
from .tokenizer import BOS, END, PAD, save_tokenizer

_LARGEST_LOGIT_DIFFERENCE = 1e-3


def to_transformers(pocket: Pocket, shape: Shape) -> LlamaForCausalLM:
    """Loads the weights into transformers' class, in float32."""
    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.dim,
        intermediate_size=shape.mlp,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.window,
        rms_norm_eps=shape.epsilon,
        rope_parameters={"rope_type": "default", "rope_theta": shape.theta},
        tie_word_embeddings=True,
        bos_token_id=BOS,
        eos_token_id=END,
        pad_token_id=PAD,
    )
    model = LlamaForCausalLM(config)
    model.model.load_state_dict({name: weight.float().cpu() for name, weight in pocket.state_dict().items()})
    model.generation_config = GenerationConfig(
        bos_token_id=BOS, eos_token_id=END, pad_token_id=PAD, use_cache=True, do_sample=False
    )
    return model.eval()


def export(pocket: Pocket, shape: Shape, tokenizer: Tokenizer, folder: Path) -> None:
    """Writes weights, configuration and tokenizer.

    Raises:
        ValueError: if transformers computes other logits than the training module.
    """
    model = to_transformers(pocket, shape)
    ids = torch.randint(0, shape.vocabulary, (1, 300), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        device = pocket.norm.weight.device
        ours = pocket.logits(ids.to(device)).float().cpu()
        difference = (ours - model(ids).logits).abs().max().item()
    if not difference < _LARGEST_LOGIT_DIFFERENCE:
        raise ValueError(f"the exported model's logits differ by {difference:.2g}")
    model.half().save_pretrained(folder)
    save_tokenizer(tokenizer, folder)
