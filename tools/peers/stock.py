"""Stock transformers (see `orders.py`), in this program's own environment.

python stock.py MODEL_FOLDER --format nf4|bf16 --contexts TOKENS ... --threads N
"""

import time
from typing import Any

import torch
import transformers
from orders import ms_since, obey, parser, random_ids, tell


def loaded(folder: str, threads: int, dtype: torch.dtype, **how: Any) -> Any:
    torch.set_num_threads(threads)
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="sdpa", local_files_only=True, **how
    ).eval()


def likeliest(model: Any, cache: Any, ids: list[list[int]]) -> list[list[int]]:
    """The likeliest token after each row of ids."""
    with torch.inference_mode():
        output = model(torch.tensor(ids), past_key_values=cache, use_cache=True, logits_to_keep=1)
    found: list[list[int]] = output.logits[:, -1].argmax(-1, keepdim=True).tolist()
    return found


class Stock:
    """A full cache and SDPA, as `generate` uses them, without its bookkeeping."""

    def __init__(self, folder: str, form: str, threads: int) -> None:
        self.form = form
        how = transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16
        )
        in_4_bits = {"quantization_config": how} if form == "nf4" else {}
        self.model = loaded(folder, threads, torch.bfloat16, **in_4_bits)
        self.seen: dict[int, tuple[Any, list[list[int]]]] = {}
        """Cache and next token, by tokens seen."""

    def about(self) -> dict[str, str | int]:
        weights = "nf4 of bitsandbytes computed in bf16, head in bf16" if self.form == "nf4" else "bf16"
        versions = f"transformers {transformers.__version__}, torch {torch.__version__}"
        given = f"{versions}: {weights}; SDPA, K/V in bf16"
        return {"given": given, "dtype": "bfloat16", "token_bytes": self._token_bytes()}

    def read(self, tokens: int) -> list[float]:
        ids = random_ids(tokens, self.model.config.vocab_size)
        clock = time.perf_counter()
        cache = transformers.DynamicCache(config=self.model.config)
        self.seen[tokens] = cache, likeliest(self.model, cache, [ids])
        return [ms_since(clock)]

    def decode(self, seen: int, tokens: int) -> list[float]:
        (cache, token), took_ms = self.seen[seen], []
        for _ in range(tokens):
            clock = time.perf_counter()
            token = likeliest(self.model, cache, token)
            took_ms.append(ms_since(clock))
        cache.crop(-tokens)
        return took_ms

    def _token_bytes(self) -> int:
        """All weights and their scales, but of an untied embedding only a row."""
        count = sum(one.nbytes for one in self.model.parameters())
        for one in self.model.parameters():
            state = getattr(one, "quant_state", None)
            count += state.absmax.nbytes if state is not None else 0
        embedding, head = self.model.get_input_embeddings().weight, self.model.get_output_embeddings().weight
        return int(count if head is embedding else count - embedding.nbytes)


class StockRows:
    """One batch with a full cache and SDPA, as `generate` uses them, without its bookkeeping."""

    def __init__(self, folder: str, dtype: str, rows: int, threads: int) -> None:
        self.rows, self.dtype = rows, getattr(torch, dtype)
        self.model = loaded(folder, threads, self.dtype)
        self.config = self.model.config.get_text_config()
        self.next = [[5]] * rows
        self.cache: Any = None

    def about(self) -> str:
        versions = f"transformers {transformers.__version__}, torch {torch.__version__}"
        return f"{versions}: weights and K/V in {str(self.dtype)[6:]}; SDPA, DynamicCache"

    def read(self, tokens: int) -> float:
        ids = random_ids(tokens, self.config.vocab_size)
        clock = time.perf_counter()
        likeliest(self.model, transformers.DynamicCache(config=self.config), [ids])
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
        self.next = likeliest(self.model, self.cache, self.next)
        return ms_since(clock)


if __name__ == "__main__":
    wanted = parser()
    wanted.add_argument("--format", choices=("nf4", "bf16", "float32", "bfloat16"), required=True)
    asked = wanted.parse_args()
    if asked.rows:
        rows = StockRows(asked.weights, asked.format, asked.rows, asked.threads)
        tell(rows, asked.prompt, asked.contexts, asked.steps)
    else:
        obey(lambda: Stock(asked.weights, asked.format, asked.threads))
