"""llama.cpp (see `orders.py`).

python llama.py FILE.gguf --contexts TOKENS ... --threads N
"""

import sys
import time
from typing import Any

import llama_cpp as llama
import numpy as np
from orders import ROOM_TOKENS, ms_since, obey, parser, random_ids

BATCH_TOKENS = 512
ERROR = 4
"""llama.cpp's log level; less is not told: it describes its graph in a thousand lines."""


def _log(level: int, text: bytes, _: Any) -> None:
    if level == ERROR:
        sys.stderr.write(text.decode(errors="replace"))


LOG = llama.llama_log_callback(_log)
"""Kept: llama.cpp calls it later."""


class Llama:
    """A model, and a context for each conversation.

    Raises:
        SystemExit: llama.cpp does not open it.
    """

    def __init__(self, path: str, threads: int) -> None:
        llama.llama_log_set(LOG, None)
        llama.llama_backend_init()
        self.model = llama.llama_model_load_from_file(path.encode(), llama.llama_model_default_params())
        if not self.model:
            sys.exit(f"llama.cpp does not open {path}.")
        self.threads = threads
        self.vocabulary = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self.model))
        self.contexts: dict[int, Any] = {}
        """By tokens seen."""

    def about(self) -> dict[str, str | int]:
        version = f"llama.cpp of llama-cpp-python {llama.__version__}"
        return {"given": f"{version}, built for this processor; flash attention where it helps, K/V in fp16"}

    def read(self, tokens: int) -> list[float]:
        if tokens not in self.contexts:
            self.contexts[tokens] = self._context(tokens + ROOM_TOKENS)
        context = self.contexts[tokens]
        llama.llama_memory_clear(llama.llama_get_memory(context), True)
        ids = random_ids(tokens, self.vocabulary)
        clock = time.perf_counter()
        for start in range(0, tokens, BATCH_TOKENS):
            self._feed(context, ids[start : start + BATCH_TOKENS])
        self._likeliest(context)
        return [ms_since(clock)]

    def decode(self, seen: int, tokens: int) -> list[float]:
        context = self.contexts[seen]
        token, took_ms = self._likeliest(context), []
        for _ in range(tokens):
            clock = time.perf_counter()
            self._feed(context, [token])
            token = self._likeliest(context)
            took_ms.append(ms_since(clock))
        llama.llama_memory_seq_rm(llama.llama_get_memory(context), 0, seen, -1)
        return took_ms

    def _context(self, tokens: int) -> Any:
        params = llama.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = tokens, BATCH_TOKENS, BATCH_TOKENS
        params.n_threads = params.n_threads_batch = self.threads
        context = llama.llama_init_from_model(self.model, params)
        if not context:
            sys.exit(f"llama.cpp makes no context of {tokens} tokens.")
        return context

    def _feed(self, context: Any, ids: list[int]) -> None:
        array = (llama.llama_token * len(ids))(*ids)
        failed = llama.llama_decode(context, llama.llama_batch_get_one(array, len(ids)))
        if failed:
            sys.exit(f"llama_decode returned {failed}.")

    def _likeliest(self, context: Any) -> int:
        logits: Any = llama.llama_get_logits_ith(context, -1)
        return int(np.ctypeslib.as_array(logits, (self.vocabulary,)).argmax())


if __name__ == "__main__":
    asked = parser().parse_args()
    obey(lambda: Llama(asked.weights, asked.threads))
