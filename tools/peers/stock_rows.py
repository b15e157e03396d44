"""Stock transformers with many conversations at once (see `filled.py`), in this program's own environment.

python stock_rows.py MODEL_FOLDER --dtype float32|bfloat16 --rows N --prompt TOKENS --contexts TOKENS ...
    --steps N --threads N
"""

import time
from typing import Any

import torch
import transformers
from filled import ms_since, rows_parser, tell
from orders import random_ids


class StockRows:
    """One batch with a full cache and SDPA, as `generate` uses them, without its bookkeeping."""

    def __init__(self, folder: str, dtype: str, rows: int, threads: int) -> None:
        torch.set_num_threads(threads)
        self.rows, self.dtype = rows, getattr(torch, dtype)
        self.model: Any = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=self.dtype, attn_implementation="sdpa", local_files_only=True
        )
        self.model.eval()
        self.config = self.model.config.get_text_config()
        self.next = [[5]] * rows
        self.cache: Any = None

    def about(self) -> str:
        versions = f"transformers {transformers.__version__}, torch {torch.__version__}"
        return f"{versions}: weights and K/V in {str(self.dtype)[6:]}; SDPA, DynamicCache"

    def read(self, tokens: int) -> float:
        ids = random_ids(tokens, self.config.vocab_size)
        clock = time.perf_counter()
        self._forward(transformers.DynamicCache(config=self.config), [ids])
        return ms_since(clock)

    def fill(self, tokens: int) -> None:
        """With random keys and values: to read them takes as long as to read those of tokens."""
        heads = self.config.num_attention_heads
        kv_heads = getattr(self.config, "num_key_value_heads", None) or heads
        size = getattr(self.config, "head_dim", None) or self.config.hidden_size // heads
        self.cache = transformers.DynamicCache(config=self.config)
        for layer in range(self.config.num_hidden_layers):
            keys, values = torch.randn(2, self.rows, kv_heads, tokens, size, dtype=self.dtype)
            self.cache.update(keys, values, layer)

    def step(self) -> float:
        clock = time.perf_counter()
        self.next = self._forward(self.cache, self.next)
        return ms_since(clock)

    def _forward(self, cache: Any, ids: list[list[int]]) -> list[list[int]]:
        with torch.inference_mode():
            output = self.model(torch.tensor(ids), past_key_values=cache, use_cache=True, logits_to_keep=1)
        found: list[list[int]] = output.logits[:, -1].argmax(-1, keepdim=True).tolist()
        return found


if __name__ == "__main__":
    wanted = rows_parser()
    wanted.add_argument("--dtype", choices=("float32", "bfloat16"), required=True)
    asked = wanted.parse_args()
    tell(
        lambda: StockRows(asked.weights, asked.dtype, asked.rows, asked.threads),
        asked.prompt, asked.contexts, asked.steps,
    )  # fmt: skip
