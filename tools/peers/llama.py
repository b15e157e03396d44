"""llama.cpp (see `orders.py`).

python llama.py FILE.gguf --contexts TOKENS ... --threads N
"""

import sys
import time
from collections.abc import Sequence
from typing import Any

import llama_cpp as llama
import numpy as np
from orders import ROOM_TOKENS, ms_since, obey, parser, random_ids, tell

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
            self.contexts[tokens] = self.context(tokens + ROOM_TOKENS)
        context = self.contexts[tokens]
        llama.llama_memory_clear(llama.llama_get_memory(context), True)
        ids = random_ids(tokens, self.vocabulary)
        clock = time.perf_counter()
        for start in range(0, tokens, BATCH_TOKENS):
            self._feed(context, ids[start : start + BATCH_TOKENS])
        self.likeliest(context)
        return [ms_since(clock)]

    def decode(self, seen: int, tokens: int) -> list[float]:
        context = self.contexts[seen]
        token, took_ms = self.likeliest(context), []
        for _ in range(tokens):
            clock = time.perf_counter()
            self._feed(context, [token])
            token = self.likeliest(context)
            took_ms.append(ms_since(clock))
        llama.llama_memory_seq_rm(llama.llama_get_memory(context), 0, seen, -1)
        return took_ms

    def context(self, tokens: int, rows: int = 1) -> Any:
        """A context with room for so many tokens of each row, whose keys and values are its own."""
        params = llama.llama_context_default_params()
        params.n_ctx, params.n_seq_max, params.kv_unified = rows * tokens, rows, False
        params.n_batch = params.n_ubatch = max(BATCH_TOKENS, rows)
        params.n_threads = params.n_threads_batch = self.threads
        context = llama.llama_init_from_model(self.model, params)
        if not context:
            sys.exit(f"llama.cpp makes no context of {rows} times {tokens} tokens.")
        return context

    def likeliest(self, context: Any, number: int = -1) -> int:
        """By the logits of this number of the last call."""
        logits: Any = llama.llama_get_logits_ith(context, number)
        return int(np.ctypeslib.as_array(logits, (self.vocabulary,)).argmax())

    def _feed(self, context: Any, ids: list[int]) -> None:
        array = (llama.llama_token * len(ids))(*ids)
        failed = llama.llama_decode(context, llama.llama_batch_get_one(array, len(ids)))
        if failed:
            sys.exit(f"llama_decode returned {failed}.")


class LlamaRows:
    """Many conversations at once, as the slots of its server: one `llama_decode` for all busy ones, without
    HTTP.

    Raises:
        SystemExit: llama.cpp does not open the file, or has no memory for so many.
    """

    def __init__(self, path: str, rows: int, tokens: int, threads: int) -> None:
        self.peer, self.rows = Llama(path, threads), rows
        self.context = self.peer.context(tokens + ROOM_TOKENS, rows)
        self.memory = llama.llama_get_memory(self.context)
        self.batch = llama.llama_batch_init(max(BATCH_TOKENS, rows), 0, 1)
        self.ids = random_ids(tokens, self.peer.vocabulary)
        self.read_tokens = self.seen = 0
        self.next = [5] * rows

    def about(self) -> str:
        return f"{self.peer.about()['given']}; all rows in one batch, K/V of each its own"

    def read(self, tokens: int) -> float:
        clock = time.perf_counter()
        self._read_on(tokens)
        return ms_since(clock)

    def fill(self, tokens: int) -> None:
        """The first row reads on; the others get copies of what it holds."""
        for row in range(self.rows):
            llama.llama_memory_seq_rm(self.memory, row, self.read_tokens if row == 0 else -1, -1)
        self._read_on(tokens)
        for row in range(1, self.rows):
            llama.llama_memory_seq_cp(self.memory, 0, row, -1, -1)
        self.seen = tokens

    def step(self) -> float:
        clock = time.perf_counter()
        everyone = range(self.rows)
        self._decode(self.next, [self.seen] * self.rows, everyone, everyone)
        self.next = [self.peer.likeliest(self.context, row) for row in everyone]
        took_ms = ms_since(clock)
        self.seen += 1
        return took_ms

    def _read_on(self, tokens: int) -> None:
        """In the first row, up to so many tokens."""
        while self.read_tokens < tokens:
            places = range(self.read_tokens, min(tokens, self.read_tokens + BATCH_TOKENS))
            self._decode([self.ids[at] for at in places], places, [0] * len(places), [len(places) - 1])
            self.read_tokens += len(places)

    def _decode(
        self, ids: Sequence[int], places: Sequence[int], rows: Sequence[int], wanted: Sequence[int]
    ) -> None:
        """One call for tokens of these rows at these places; logits of those that are wanted."""
        batch = self.batch
        batch.n_tokens = len(ids)
        for number, (token, place, row) in enumerate(zip(ids, places, rows, strict=True)):
            batch.token[number], batch.pos[number] = token, place
            batch.n_seq_id[number], batch.seq_id[number][0] = 1, row
            batch.logits[number] = number in wanted
        if failed := llama.llama_decode(self.context, batch):
            sys.exit(f"llama_decode returned {failed}.")
        self.peer.likeliest(self.context, wanted[-1])  # it waits for what it has computed


if __name__ == "__main__":
    asked = parser().parse_args()
    if asked.rows:
        most = max(asked.prompt, *asked.contexts)
        rows = LlamaRows(asked.weights, asked.rows, most, asked.threads)
        tell(rows, asked.prompt, asked.contexts, asked.steps)
    else:
        obey(lambda: Llama(asked.weights, asked.threads))
