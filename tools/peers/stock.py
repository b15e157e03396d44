"""Stock transformers (see `orders.py`), in this program's own environment.

python stock.py MODEL_FOLDER --format nf4|bf16 --contexts TOKENS ... --threads N
"""

import time
from typing import Any

import torch
import transformers
from orders import ms_since, obey, parser, random_ids


class Stock:
    """A full cache and SDPA, as `generate` uses them, without its bookkeeping."""

    def __init__(self, folder: str, form: str, threads: int) -> None:
        torch.set_num_threads(threads)
        self.form = form
        how = transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16
        )
        self.model: Any = transformers.AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=torch.bfloat16,
            attn_implementation="sdpa",
            local_files_only=True,
            **({"quantization_config": how} if form == "nf4" else {}),
        )
        self.model.eval()
        self.seen: dict[int, tuple[Any, int]] = {}
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
        self.seen[tokens] = cache, self._forward(cache, ids)
        return [ms_since(clock)]

    def decode(self, seen: int, tokens: int) -> list[float]:
        (cache, token), took_ms = self.seen[seen], []
        for _ in range(tokens):
            clock = time.perf_counter()
            token = self._forward(cache, [token])
            took_ms.append(ms_since(clock))
        cache.crop(-tokens)
        return took_ms

    def _forward(self, cache: Any, ids: list[int]) -> int:
        with torch.inference_mode():
            output = self.model(torch.tensor([ids]), past_key_values=cache, use_cache=True, logits_to_keep=1)
        return int(output.logits[0, -1].argmax())

    def _token_bytes(self) -> int:
        """All weights and their scales, but of an untied embedding only a row."""
        count = sum(one.nbytes for one in self.model.parameters())
        for one in self.model.parameters():
            state = getattr(one, "quant_state", None)
            count += state.absmax.nbytes if state is not None else 0
        embedding, head = self.model.get_input_embeddings().weight, self.model.get_output_embeddings().weight
        return int(count if head is embedding else count - embedding.nbytes)


if __name__ == "__main__":
    wanted = parser()
    wanted.add_argument("--format", choices=("nf4", "bf16"), required=True)
    asked = wanted.parse_args()
    obey(lambda: Stock(asked.weights, asked.format, asked.threads))
