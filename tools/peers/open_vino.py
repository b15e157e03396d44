"""OpenVINO GenAI (see `orders.py`).

python open_vino.py FOLDER --contexts TOKENS ... --threads N
"""

import time
from typing import Any

import numpy as np
import openvino as ov
import openvino_genai as genai
from orders import ms_since, obey, parser, random_ids

BLOCK_TOKENS = 32
"""Tokens of a block of paged attention on a CPU."""
BATCH_TOKENS = 512
UNTIMED = 2
"""Tokens after a prompt that are not timed."""
ENDLESS = 1 << 30


class OpenVino:
    """Continuous batching with one request, step by step: one token each."""

    def __init__(self, folder: str, contexts: list[int], threads: int) -> None:
        self.vocabulary = self._vocabulary(folder)
        how = genai.SchedulerConfig()
        how.num_kv_blocks = 2 * sum(contexts) // BLOCK_TOKENS + 64
        how.max_num_batched_tokens, how.max_num_seqs = BATCH_TOKENS, 1
        how.enable_prefix_caching = True  # a turn begins where the last one began
        self.pipeline = genai.ContinuousBatchingPipeline(
            folder, how, "CPU", {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
        )
        self.generation = genai.GenerationConfig()
        self.generation.max_new_tokens, self.generation.ignore_eos = ENDLESS, True
        self.generation.eos_token_id, self.generation.stop_token_ids = 2, {2}
        self.request: Any = None
        self.requests = 0
        self.prompts: dict[int, list[int]] = {}
        """By tokens seen."""

    def about(self) -> dict[str, str | int]:
        weights = "int4 weights by nncf, groups of 128, embedding and head in int8"
        how = f"{weights}; paged attention, K/V in u8, nothing evicted"
        return {"given": f"openvino-genai {genai.get_version().split('-')[0]}: {how}"}

    def read(self, tokens: int) -> list[float]:
        self.prompts[tokens] = random_ids(tokens, self.vocabulary)
        # Another first token for each prompt: of one that was read before, the blocks are still there.
        self.prompts[tokens][0] = 3 + self.requests % 100
        self._end()
        clock = time.perf_counter()
        self._begin(tokens)
        return [ms_since(clock)]

    def decode(self, seen: int, tokens: int) -> list[float]:
        """Begins where the prompt ended, before the clock."""
        self._end()
        self._begin(seen)
        for _ in range(UNTIMED):
            self._step()
        took_ms = []
        for _ in range(tokens):
            clock = time.perf_counter()
            self._step()
            took_ms.append(ms_since(clock))
        return took_ms

    def _begin(self, seen: int) -> None:
        """Until the first token."""
        self.requests += 1
        ids = ov.Tensor(np.array([self.prompts[seen]], np.int64))
        self.request = self.pipeline.add_request(self.requests, ids, self.generation)
        while not self.request.can_read():
            self.pipeline.step()
        self.request.read()

    def _step(self) -> None:
        """
        Raises:
            RuntimeError: it made no token.
        """
        self.pipeline.step()
        if not self.request.can_read():
            raise RuntimeError("A step of OpenVINO GenAI made no token.")
        self.request.read()

    def _end(self) -> None:
        if self.request is not None:
            self.request.stop()
            while self.pipeline.has_non_finished_requests():
                self.pipeline.step()

    @staticmethod
    def _vocabulary(folder: str) -> int:
        model = ov.Core().read_model(f"{folder}/openvino_model.xml")
        return int(model.output("logits").get_partial_shape()[2].get_length())


if __name__ == "__main__":
    asked = parser().parse_args()
    obey(lambda: OpenVino(asked.weights, asked.contexts, asked.threads))
