"""llama.cpp with many conversations at once, as the slots of its server (see `filled.py`).

Its server computes the next tokens of all busy slots in one `llama_decode`; so does this, without HTTP.

python llama_rows.py FILE.gguf --rows N --prompt TOKENS --contexts TOKENS ... --steps N --threads N
"""

import sys
import time
from collections.abc import Sequence
from typing import Any

import llama_cpp as llama
import numpy as np
from filled import ms_since, rows_parser, tell
from llama import BATCH_TOKENS, Llama
from orders import ROOM_TOKENS, random_ids


class LlamaRows:
    """A context with room for all rows, each with its own keys and values.

    Raises:
        SystemExit: llama.cpp does not open the file, or has no memory for so many.
    """

    def __init__(self, path: str, rows: int, tokens: int, threads: int) -> None:
        self.peer, self.rows = Llama(path, threads), rows
        params = llama.llama_context_default_params()
        params.n_ctx, params.n_seq_max, params.kv_unified = rows * (tokens + ROOM_TOKENS), rows, False
        params.n_batch = params.n_ubatch = max(BATCH_TOKENS, rows)
        params.n_threads = params.n_threads_batch = threads
        self.context = llama.llama_init_from_model(self.peer.model, params)
        if not self.context:
            sys.exit(f"llama.cpp makes no context of {rows} times {tokens} tokens.")
        self.memory = llama.llama_get_memory(self.context)
        self.batch = llama.llama_batch_init(params.n_batch, 0, 1)
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
        self.next = [self._likeliest(row) for row in everyone]
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
        self._likeliest(wanted[-1])  # it waits for what it has computed

    def _likeliest(self, number: int) -> int:
        logits: Any = llama.llama_get_logits_ith(self.context, number)
        return int(np.ctypeslib.as_array(logits, (self.peer.vocabulary,)).argmax())


if __name__ == "__main__":
    asked = rows_parser().parse_args()
    tell(
        lambda: LlamaRows(asked.weights, asked.rows, max(asked.prompt, *asked.contexts), asked.threads),
        asked.prompt, asked.contexts, asked.steps,
    )  # fmt: skip
