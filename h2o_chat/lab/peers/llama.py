"""llama.cpp (see `orders.py`).

python llama.py FILE.gguf --context TOKENS --threads N
"""

import sys
import time
from typing import Any

import llama_cpp as llama
import numpy as np
from orders import ms_since, obey, parser, random_ids

BATCH_TOKENS = 512
ERROR = 4
"""llama.cpp's log level; less is not told: it describes its graph in a thousand lines."""


def _log(level: int, text: bytes, _: Any) -> None:
    if level == ERROR:
        sys.stderr.write(text.decode(errors="replace"))


LOG = llama.llama_log_callback(_log)
"""Kept: llama.cpp calls it later."""


class Llama:
    """A model and one context.

    Raises:
        SystemExit: llama.cpp does not open it.
    """

    def __init__(self, path: str, context: int, threads: int) -> None:
        llama.llama_log_set(LOG, None)
        llama.llama_backend_init()
        self.model = llama.llama_model_load_from_file(path.encode(), llama.llama_model_default_params())
        if not self.model:
            sys.exit(f"llama.cpp does not open {path}.")
        params = llama.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = context, BATCH_TOKENS, BATCH_TOKENS
        params.n_threads = params.n_threads_batch = threads
        self.context = llama.llama_init_from_model(self.model, params)
        if not self.context:
            sys.exit(f"llama.cpp makes no context of {context} tokens.")
        self.memory = llama.llama_get_memory(self.context)
        self.vocabulary = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self.model))
        self.seen = 0

    def about(self) -> dict[str, str | int]:
        version = f"llama.cpp of llama-cpp-python {llama.__version__}"
        return {"given": f"{version}, built for this processor; flash attention where it helps, K/V in fp16"}

    def read(self, tokens: int) -> list[float]:
        llama.llama_memory_clear(self.memory, True)
        ids = random_ids(tokens, self.vocabulary)
        clock = time.perf_counter()
        for start in range(0, tokens, BATCH_TOKENS):
            self._feed(ids[start : start + BATCH_TOKENS])
        self._likeliest()
        self.seen = tokens
        return [ms_since(clock)]

    def decode(self, tokens: int) -> list[float]:
        token, took_ms = self._likeliest() if self.seen else 0, []
        for _ in range(tokens):
            clock = time.perf_counter()
            self._feed([token])
            token = self._likeliest()
            took_ms.append(ms_since(clock))
        llama.llama_memory_seq_rm(self.memory, 0, self.seen, -1)
        return took_ms

    def _feed(self, ids: list[int]) -> None:
        array = (llama.llama_token * len(ids))(*ids)
        failed = llama.llama_decode(self.context, llama.llama_batch_get_one(array, len(ids)))
        if failed:
            sys.exit(f"llama_decode returned {failed}.")

    def _likeliest(self) -> int:
        logits: Any = llama.llama_get_logits_ith(self.context, -1)
        return int(np.ctypeslib.as_array(logits, (self.vocabulary,)).argmax())


if __name__ == "__main__":
    asked = parser().parse_args()
    obey(lambda: Llama(asked.weights, asked.context, asked.threads))
